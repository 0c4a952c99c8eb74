package ipset

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// checkTries is how often a block is read in detail while it changes.
const checkTries = 16

// suspects reads every suspect group in detail.
func (c *checker) suspects() error {
	var names []string
	for name, g := range c.groups {
		if g.suspect = g.suspect || g.sum != 0; g.suspect {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	err := c.rest(func(r *store.Record) {
		var name []byte
		switch kind := r.Key[:min(1, len(r.Key))]; {
		case kind == "":
		case strings.Contains(blockKinds, kind):
			name = c.nameOf(r.Key)
		case kind == kindAged && isAgedKey(r.Key):
			name = c.bucket(r.Key[agedTimeEnd:])
		case kind == kindMemo && isMemoKey(r.Key):
			name = c.bucket(r.Key)
		}
		if g := c.groups[string(name)]; g != nil && g.suspect {
			c.listed[string(name)] = append(c.listed[string(name)], strings.Clone(r.Key))
		}
	})
	for i := 0; err == nil && i < len(names); i++ {
		err = c.settle(names[i])
	}
	return err
}

// settle reads a group until its records do not change meanwhile, and reports what does not agree.
func (c *checker) settle(name string) error {
	for range checkTries {
		problems, steps := len(c.rep.Problems), len(c.rep.Repair)
		d := &detail{c: c, name: name, want: make(map[string]string)}
		var done bool
		var err error
		if name[:1] == kindAged {
			done, err = d.aged()
		} else {
			done, err = d.block()
		}
		if done || err != nil {
			return err
		}
		c.rep.Problems, c.rep.Repair = c.rep.Problems[:problems], c.rep.Repair[:steps]
	}
	c.rep.Unsettled++
	return nil
}

// detail is one group while it is read in detail.
type detail struct {
	c          *checker
	name       string
	behind     string            // the key of the block
	want       map[string]string // the index records that there should be
	unreadable []netip.Addr
	strays     []stray
}

// block examines a block, and reports false if it has changed meanwhile. Every commit that writes the record of an address or an
// index record of a block writes the block's record, so what was read while that has not changed is one consistent view.
func (d *detail) block() (bool, error) {
	c := d.c
	p, _ := parseBlockID(d.name)
	d.behind = kindBlock + d.name
	recs, err := c.in.Get(c.ctx, nil, d.behind)
	if err != nil {
		return false, err
	}
	addrs, _, err := c.in.List(c.ctx, addressRange(p))
	if err != nil {
		return false, err
	}
	c.revs[d.behind] = recs[0].Rev
	b, damaged := (*block.Block)(nil), false
	if recs[0].Rev != 0 {
		if b, err = block.Decode(p, recs[0].Value); err != nil {
			damaged = true
			c.add(Problem{Kind: Damaged, Key: d.behind, Detail: fmt.Sprint(err)})
		}
	}
	for _, r := range addrs {
		c.revs[r.Key] = r.Rev
		switch at, ok := parseAddressKey(r.Key); {
		case !ok:
		case c.containing(at).IsValid() && c.containing(at) != p: // of a block that overlaps
		case b != nil:
			d.address(b, at, r)
		case !damaged:
			if a, length, err := block.DecodeAddress(r.Value); err == nil && length <= at.BitLen() && netip.PrefixFrom(at, length).Masked() == p {
				d.strays = append(d.strays, stray{r.Key, a, at})
			}
		}
	}
	if b != nil {
		c.lost(b, d.unreadable)
		for x := range c.records(b) {
			d.want[string(c.buf)] = indexValue(x.value)
		}
		if err := b.Check(); err != nil {
			c.add(Problem{Kind: Damaged, Key: d.behind, Block: p, Detail: err.Error()})
		}
	}
	done, err := d.compare(recs[0])
	if done {
		if len(d.strays) > 0 {
			c.gone[p] = d.strays
		}
		if b != nil {
			c.uses(b)
		}
	}
	return done, err
}

// containing returns the prefix of the block that an address is in.
func (c *checker) containing(a netip.Addr) netip.Prefix {
	i, found := slices.BinarySearchFunc(c.heads, a, func(h head, a netip.Addr) int { return h.prefix.Addr().Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !c.heads[i].prefix.Contains(a) {
		return netip.Prefix{}
	}
	return c.heads[i].prefix
}

// address gives an address to its block.
func (d *detail) address(b *block.Block, at netip.Addr, r store.Record) {
	a, length, err := block.DecodeAddress(r.Value)
	x, _ := b.Ordinal(at)
	switch st, _ := b.Look(x); {
	case st != block.Held && st != block.Cooling:
		d.c.add(Problem{Kind: StrayAddress, Key: r.Key, Addr: at, Block: b.Prefix(), Detail: "the block says that it is free"})
		d.c.step(fmt.Sprintf("remove the record of %s", at), store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev}, d.guard(d.behind))
	case err == nil && b.LoadRecord(x, r.Value) == nil:
		return
	case err == nil && (a.Seq > b.Seq() || length != b.Prefix().Bits() || a.Cooling != (st == block.Cooling)):
		err = fmt.Errorf("cooling %v, /%d, sequence number %d of a block with %d", a.Cooling, length, a.Seq, b.Seq())
		fallthrough
	default:
		d.c.add(Problem{Kind: Damaged, Key: r.Key, Addr: at, Block: b.Prefix(), Detail: fmt.Sprint(err)})
		d.unreadable = append(d.unreadable, at)
	}
}

func (d *detail) guard(key string) store.Op {
	return store.Op{Kind: store.Guard, Key: key, Expect: d.c.revs[key]}
}

// compare reads the index records that there should be and those that were listed, and reports what differs. It reports false
// if the record behind them has changed.
func (d *detail) compare(behind store.Record) (bool, error) {
	keys := append(make([]string, 0, 1+len(d.want)), d.behind)
	for key := range d.want {
		keys = append(keys, key)
	}
	for _, key := range d.c.listed[d.name] {
		if _, wanted := d.want[key]; !wanted {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys[1:])
	n := len(keys)
	for _, a := range d.strays {
		keys = append(keys, a.key) // a block that is not there may have come and gone meanwhile
	}
	got, err := d.c.in.Get(d.c.ctx, nil, keys...)
	if err != nil || got[0].Rev != behind.Rev {
		return false, err
	}
	for _, r := range got[n:] {
		if r.Rev != d.c.revs[r.Key] {
			return false, nil
		}
	}
	for _, r := range got[1:n] {
		d.judge(r, d.behind)
	}
	return true, nil
}

// judge reports an index record that is not what it should be. It rests on the record behind it.
func (d *detail) judge(r store.Record, behind string) {
	want, wanted := d.want[r.Key]
	rewrite := []store.Op{{Kind: store.Put, Key: r.Key, Value: want, Expect: r.Rev}, d.guard(behind)}
	switch {
	case wanted && r.Rev == 0:
		d.c.add(Problem{Kind: MissingIndex, Key: r.Key})
		d.c.step(fmt.Sprintf("write index record %q", r.Key), rewrite...)
	case !wanted && r.Rev != 0:
		d.c.stale(r.Key, r.Rev, behind)
	case wanted && r.Value != want:
		d.c.add(Problem{Kind: StaleIndex, Key: r.Key, Detail: "value"})
		d.c.step(fmt.Sprintf("rewrite index record %q", r.Key), rewrite...)
	}
}

// aged examines a bucket of memos, and reports false if it has changed meanwhile.
func (d *detail) aged() (bool, error) {
	c := d.c
	behind := make(map[string]bool) // the keys of memos
	keys := make(map[string]bool)
	for _, key := range c.listed[d.name] {
		keys[key] = true
		if key[:1] == kindAged {
			key = key[agedTimeEnd:]
		}
		keys[key], behind[key] = true, true
	}
	recs, err := c.in.Get(c.ctx, nil, slices.Sorted(maps.Keys(behind))...)
	if err != nil {
		return false, err
	}
	for _, r := range recs {
		if m, err := decodeMemo(r.Key, r.Value, r.Rev != 0); err == nil && r.Rev != 0 {
			keys[agedKey(m.at, r.Key)] = true
		}
	}
	got, err := c.in.Get(c.ctx, nil, slices.Sorted(maps.Keys(keys))...)
	if err != nil {
		return false, err
	}
	var entries []store.Record
	for _, r := range got {
		c.revs[r.Key] = r.Rev
		if !behind[r.Key] {
			entries = append(entries, r)
			continue
		}
		m, err := decodeMemo(r.Key, r.Value, r.Rev != 0)
		switch {
		case r.Rev == 0:
		case err != nil:
			c.add(Problem{Kind: Damaged, Key: r.Key, Detail: err.Error()})
		case !keys[agedKey(m.at, r.Key)]:
			return false, nil
		default:
			d.want[agedKey(m.at, r.Key)] = ""
		}
	}
	for _, r := range entries {
		d.judge(r, r.Key[agedTimeEnd:])
	}
	return true, nil
}
