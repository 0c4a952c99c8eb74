package check

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A difference that the scan has seen may be a commit in between. Each suspect group is read again until its records stay the same
// throughout, and only then is it called a problem.

// checkTries is how often a group is read while it changes.
const checkTries = 16

// readCatalog reads the catalog.
func (c *checker) readCatalog() error {
	recs, err := c.in.Get(c.ctx, nil, record.CatalogKey, record.PoolsKey)
	if err != nil {
		return err
	}
	c.root, c.pools = recs[0].Rev, recs[1].Rev
	if cat, err := pool.DecodeRooted(recs[0], recs[1]); err != nil {
		c.add(audit.Problem{Kind: audit.Damaged, Key: record.PoolsKey, Detail: c.unreadable(err)})
	} else {
		c.cat = cat
	}
	return nil
}

// places verifies where the blocks lie. What is wrong is reported if the blocks still exist under this catalog.
func (c *checker) places() error {
	for n, p := range c.blocks {
		var wrong []audit.Problem
		if n > 0 && c.blocks[n-1].Overlaps(p) {
			wrong = append(wrong, audit.Problem{Kind: audit.Overlapping, Prefix: p, Detail: "with " + c.blocks[n-1].String()})
		}
		switch i := c.cat.Containing(p.Addr()); {
		case i < 0:
			wrong = append(wrong, audit.Problem{Kind: audit.NoPool, Prefix: p})
		case p.Bits() != c.cat.Pools[i].BlockBits && !slices.Contains(c.cat.Pools[i].Draining, p.Bits()):
			wrong = append(wrong, audit.Problem{Kind: audit.WrongSize, Prefix: p, Detail: fmt.Sprintf("pool %s has /%d", c.cat.Pools[i].Name, c.cat.Pools[i].BlockBits)})
		}
		if len(wrong) == 0 {
			continue
		}
		recs, err := c.in.Get(c.ctx, nil, record.CatalogKey, record.BlockKey(record.KindBlock, p), record.BlockKey(record.KindBlock, c.blocks[max(n-1, 0)]))
		switch {
		case err != nil:
			return err
		case recs[0].Rev != c.root || recs[1].Rev == 0 || wrong[0].Kind == audit.Overlapping && recs[2].Rev == 0:
			c.rep.Unsettled++
		default:
			if b, err := block.Decode(p, recs[1].Value); err == nil && b.Owner().Kind != alloc.Nobody && wrong[len(wrong)-1].Kind == audit.NoPool {
				wrong[len(wrong)-1].Detail = "owner " + b.Owner().String()
			}
			c.rep.Problems = append(c.rep.Problems, wrong...)
		}
	}
	return nil
}

// suspects settles every suspect group: blocks first, then owners, pages from the lowest level on, and memos.
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
		name := c.nameOf(r.Key, r.Value)
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
		problems, steps, held := len(c.rep.Problems), len(c.rep.Repair), len(c.held)
		v := &view{c: c, name: name, from: make(map[string]uint64), want: make(map[string]string), also: make(map[string]string)}
		examine := map[string]func() (bool, error){record.KindBlock: v.block, record.KindOwner: v.owner, record.KindPage: v.page, record.KindAged: v.aged}[name[:1]]
		if done, err := examine(); done || err != nil {
			return err
		}
		c.rep.Problems, c.rep.Repair, c.held = c.rep.Problems[:problems], c.rep.Repair[:steps], c.held[:held]
	}
	c.rep.Unsettled++
	return nil
}

// view is one group while it is settled.
type view struct {
	c    *checker
	name string
	from map[string]uint64 // revisions of the records that others follow from
	want map[string]string // the records that follow from them
	also map[string]string // other values that follow for one of those: of the first holdings of a handle that has several
	// remade is set for a block that the repair makes of its addresses: the next check looks at its index records.
	remade bool
}

// get reads records and notes their revisions.
func (v *view) get(keys ...string) ([]store.Record, error) {
	recs, err := v.c.in.Get(v.c.ctx, nil, keys...)
	for _, r := range recs {
		v.from[r.Key] = r.Rev
	}
	return recs, err
}

func (v *view) guard(key string) store.Op {
	return store.Op{Kind: store.Guard, Key: key, Expect: v.from[key]}
}

// block examines a block. Every commit that writes the record of an address or an index record of a block writes the block's
// record, so what was read while that has not changed is one consistent view.
func (v *view) block() (bool, error) {
	c := v.c
	p, _ := record.ParseBlockID(v.name[1:])
	leaf, _ := record.LeafOf(p)
	recs, err := v.get(v.name, leaf.Key(), leaf.Floor().Key())
	if err != nil {
		return false, err
	}
	addrs, _, err := c.in.List(c.ctx, record.AddressRange(p))
	if err != nil {
		return false, err
	}
	b, err := block.Decode(p, recs[0].Value)
	if err != nil && recs[0].Rev != 0 {
		c.add(audit.Problem{Kind: audit.Damaged, Key: v.name, Prefix: p, Detail: c.unreadable(err)})
	}
	again := &remake{block: recs[0], leaf: []store.Op{v.guard(leaf.Key()), v.guard(leaf.Floor().Key())}}
	var unreadable []netip.Addr
	for _, r := range addrs {
		at, ok := record.ParseAddressKey(r.Key)
		if of := c.containing(at); !ok || of.IsValid() && of != p && !names(r, at, p) {
			continue // reported before, or of a block that overlaps
		}
		v.from[r.Key] = r.Rev
		if b != nil {
			if !v.address(b, at, r) {
				unreadable = append(unreadable, at)
			}
		} else {
			again.take(c, p, at, r)
		}
	}
	sources := []string{v.name}
	if b == nil {
		sources = append(sources, leaf.Key(), leaf.Floor().Key()) // a block that is not there may have come and gone meanwhile
		for _, s := range again.addrs {
			sources = append(sources, s.Key)
		}
		v.remade = again.stands() && !c.overlaps(p)
	} else {
		if !c.groups[v.name].held {
			c.hold(b)
		}
		v.lost(b, unreadable)
		for x := range c.records(b) {
			value := string(x.AppendValue(nil, c.at))
			if was, twice := v.want[string(c.buf)]; twice {
				v.also[string(c.buf)] += was
			}
			v.want[string(c.buf)] = value
		}
		if err := b.Check(); err != nil {
			c.add(audit.Problem{Kind: audit.Damaged, Key: v.name, Prefix: p, Detail: err.Error()})
		}
	}
	done, err := v.compare(sources, func(string) string { return v.name })
	if done && b == nil && again.stands() {
		c.gone[p] = again
	}
	return done, err
}

// names reports whether the record of an address names a block: one that has come since the blocks were read, in place of another.
func names(r store.Record, at netip.Addr, p netip.Prefix) bool {
	_, length, err := block.DecodeAddress(r.Value)
	return err == nil && length == p.Bits() && p.Contains(at)
}

// containing returns the prefix of the block that an address is in.
func (c *checker) containing(a netip.Addr) netip.Prefix {
	i, _ := slices.BinarySearchFunc(c.blocks, netip.PrefixFrom(a, a.BitLen()), record.ComparePrefix)
	for _, p := range c.blocks[max(i-1, 0):min(i+1, len(c.blocks))] {
		if p.Contains(a) {
			return p
		}
	}
	return netip.Prefix{}
}

// address gives an address to its block, and reports false for a record that does not go with it.
func (v *view) address(b *block.Block, at netip.Addr, r store.Record) bool {
	x, _ := b.Ordinal(at)
	if st, _ := b.Look(x); st != block.Held && st != block.Cooling {
		v.c.free[at] = true
		v.c.add(audit.Problem{Kind: audit.StrayAddress, Key: r.Key, Addr: at, Prefix: b.Prefix(), Detail: "the block says that it is free"})
		v.c.step(fmt.Sprintf("remove the record of %s", at), store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev}, v.guard(v.name))
		return true
	}
	err := b.LoadRecord(x, r.Value)
	if err != nil {
		v.c.add(audit.Problem{Kind: audit.Damaged, Key: r.Key, Addr: at, Prefix: b.Prefix(), Detail: v.c.unreadable(err)})
	}
	return err == nil
}

// aged examines a bucket of memos and their entries by age.
func (v *view) aged() (bool, error) {
	memos := make(map[string]bool)
	for _, key := range v.c.listed[v.name] {
		memos[strings.TrimPrefix(key, record.KindAged+key[1:min(record.AgedTimeEnd, len(key))])] = true
	}
	sources := slices.Sorted(maps.Keys(memos))
	recs, err := v.get(sources...)
	if err != nil {
		return false, err
	}
	for _, r := range recs {
		if m, err := record.DecodeMemo(r.Key, r.Value, r.Rev != 0); err != nil {
			v.c.add(audit.Problem{Kind: audit.Damaged, Key: r.Key, Detail: v.c.unreadable(err)})
			v.c.step(fmt.Sprintf("forget %q", r.Key), store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev}) // what it says is held stays held
		} else if r.Rev != 0 {
			v.want[record.AgedKey(m.At, r.Key)] = ""
		}
	}
	return v.compare(sources, func(key string) string { return key[record.AgedTimeEnd:] })
}

// compare reads the sources again, with what follows from them and what was listed, and reports what differs; behind is the source
// of a record. It reports false if a source has changed.
func (v *view) compare(sources []string, behind func(key string) string) (bool, error) {
	derived := slices.Collect(maps.Keys(v.want))
	for _, key := range v.c.listed[v.name] {
		if _, wanted := v.want[key]; !wanted && key[:1] != record.KindMemo {
			derived = append(derived, key)
		}
	}
	slices.Sort(derived)
	recs, err := v.c.in.Get(v.c.ctx, nil, append(slices.Clone(sources), derived...)...)
	if err != nil {
		return false, err
	}
	for i, r := range recs {
		want, wanted := v.want[r.Key]
		for also := v.also[r.Key]; also != ""; also = also[len(want):] {
			if id := also[:len(want)]; id != r.Value {
				v.second(r, id)
			}
		}
		switch {
		case i < len(sources):
			if r.Rev != v.from[r.Key] {
				return false, nil
			}
		case !wanted && r.Rev != 0 && !v.remade:
			v.c.stale(r.Key, r.Rev, v.guard(behind(r.Key)))
		case wanted && r.Rev == 0:
			v.put(audit.Problem{Kind: audit.MissingIndex, Key: r.Key}, "write index record %q", r, want, v.guard(behind(r.Key)))
		case wanted && r.Value != want && v.second(r, want):
		case wanted && r.Value != want:
			if _, ok := record.ParseID(r.Value); r.Key[:1] == record.KindHandle && !ok {
				r.Rev = store.AnyRevision // an earlier step removes a record that names no address
			}
			v.put(audit.Problem{Kind: audit.StaleIndex, Key: r.Key, Detail: "wrong value"}, "rewrite index record %q", r, want, v.guard(behind(r.Key)))
		}
	}
	return true, nil
}

// second reports an address that its record calls the first holding of a handle, while the handle has another one. The repair makes it one of the
// others. It reports false if r is not the record of the other one.
func (v *view) second(r store.Record, want string) bool {
	if r.Key[:1] != record.KindHandle || strings.IndexByte(r.Key, 0) >= 0 {
		return false
	}
	first := func(id string) (netip.Prefix, store.Record, block.Address, bool) {
		at, ok := record.ParseID(id)
		if !ok {
			return at, store.Record{}, block.Address{}, false
		}
		recs, err := v.c.in.Get(v.c.ctx, nil, record.AddressKey(at.Addr()))
		if err != nil {
			return at, store.Record{}, block.Address{}, false
		}
		a, _, err := block.DecodeAddress(recs[0].Value)
		if err != nil {
			return at, recs[0], a, false
		}
		h, ok := a.Find(alloc.Guard{Handle: r.Key[1:]})
		return at, recs[0], a, ok && h.First
	}
	if _, _, _, ok := first(r.Value); !ok {
		return false
	}
	at, rec, a, ok := first(want)
	if !ok {
		return false
	}
	blocks, err := v.c.in.Get(v.c.ctx, nil, v.name)
	if err != nil {
		return false
	}
	a.NotFirst()
	v.c.add(audit.Problem{Kind: audit.StaleIndex, Key: rec.Key, Addr: at.Addr(), Detail: "another address is the first one of the handle"})
	v.c.step(fmt.Sprintf("make %s no first address of its handle", at.Addr()),
		store.Op{Kind: store.Put, Key: v.name, Value: blocks[0].Value, Expect: v.from[v.name]}, // no engine may rely on what it has of the address
		store.Op{Kind: store.Put, Key: rec.Key, Value: string(a.Append(nil, at.Bits())), Expect: rec.Rev},
		store.Op{Kind: store.Put, Key: string(record.AppendNameKey(nil, record.KindHandle, r.Key[1:], at)), Expect: store.AnyRevision})
	return true
}

// put reports a record that is not what it should be.
func (v *view) put(p audit.Problem, text string, r store.Record, want string, guards ...store.Op) {
	v.c.add(p)
	v.c.step(fmt.Sprintf(text, r.Key), append([]store.Op{{Kind: store.Put, Key: r.Key, Value: want, Expect: r.Rev}}, guards...)...)
}

// owner examines the record of an owner. What gives a block to the owner, or takes it, writes the record. Which they are is known
// from the blocks, and of those that have come since, from the index.
func (v *view) owner() (bool, error) {
	o, _ := record.ParseOwnerKey(v.name)
	was, err := v.get(v.name)
	if err != nil {
		return false, err
	}
	listed, _, err := v.c.in.List(v.c.ctx, record.CodeRange(record.KindOwner, o))
	if err != nil {
		return false, err
	}
	keys := []string{v.name}
	for _, p := range v.c.owners[o] {
		keys = append(keys, record.BlockKey(record.KindBlock, p))
	}
	for _, r := range listed {
		if p, ok := record.ParseBlockID(r.Key[len(v.name):]); ok {
			keys = append(keys, record.BlockKey(record.KindBlock, p))
		}
	}
	slices.Sort(keys[1:])
	recs, err := v.get(slices.Compact(keys)...)
	if err != nil || recs[0].Rev != was[0].Rev {
		return false, err
	}
	var blocks []netip.Prefix
	var guards []store.Op
	for _, r := range recs[1:] {
		p, _ := record.ParseBlockID(r.Key[1:])
		if b, err := block.Decode(p, r.Value); err == nil && b.Owner() == o {
			blocks, guards = append(blocks, p), []store.Op{v.guard(r.Key)}
		}
	}
	owns := record.OwnedOf(blocks).Settled()
	problem := audit.Problem{Kind: audit.WrongOwner, Key: v.name, Detail: "missing"}
	if recs[0].Rev != 0 {
		is, bad := record.DecodeOwned(recs[0])
		if problem.Detail = fmt.Sprintf("%d blocks %v, owns %d %v", is.N, is.Blocks, owns.N, owns.Blocks); bad != nil {
			problem.Detail = bad.Error()
		}
	}
	switch text, want := "rewrite the blocks of "+o.String(), string(owns.Append(nil)); {
	case owns.N == 0 && recs[0].Rev != 0:
		v.c.add(problem)
		v.c.step(text, store.Op{Kind: store.Delete, Key: v.name, Expect: recs[0].Rev})
	case owns.N > 0 && recs[0].Value != want:
		v.put(problem, strings.ReplaceAll(text, "%", "%%")+"%.0s", recs[0], want, guards...)
	}
	return true, nil
}

// page examines a page of a pool: a bit of the lowest level stands for a block, others for a page that is full. Whoever makes or
// deletes a block writes the page.
func (v *view) page() (bool, error) {
	id, _ := record.ParsePageKey(v.name)
	was, err := v.get(v.name)
	if err != nil {
		return false, err
	}
	is, bad := record.DecodePage(was[0])
	if id.Level == record.FloorLevel && bad == nil && is.Word != 0 {
		bad = fmt.Errorf("%w: it has blocks", ipalloc.ErrCorrupt)
	}
	says := fmt.Sprintf("says %016x", is.Word)
	if bad != nil {
		says = bad.Error()
	}
	if id.Level == record.FloorLevel {
		if bad != nil {
			v.floor(was[0], says)
		}
		return true, nil
	}
	keys := []string{v.name}
	for w := is.Word | v.c.pages[id].Word; w != 0; w &= w - 1 {
		keys = append(keys, under(id, bits.TrailingZeros64(w)))
	}
	recs, err := v.get(keys...)
	if err != nil || recs[0].Rev != was[0].Rev {
		return false, err
	}
	want := record.Page{Mark: is.Mark}
	for i, w := 1, is.Word|v.c.pages[id].Word; w != 0; i, w = i+1, w&(w-1) {
		full := recs[i].Rev != 0 || v.c.remade(keys[i])
		if below, ok := record.ParsePageKey(keys[i]); ok {
			p, err := record.DecodePage(recs[i])
			if known := v.c.pages[below].Word; known != p.Word && v.c.groups[keys[i]].isSuspect() || err != nil {
				p.Word = known // it is repaired
			}
			full = p.Word == space.Full
		}
		if full {
			want.Word |= w & -w
		}
	}
	v.c.pages[id] = record.Page{Word: want.Word}
	if id.Level == 0 && (bad != nil || was[0].Rev == 0 && want.Word != 0) {
		v.c.lost = true
		want.Mark = v.c.generation() << pool.GenShift
	}
	switch {
	case was[0].Rev == 0 && want.Word != 0:
		v.put(audit.Problem{Kind: audit.WrongPage, Key: v.name, Detail: "missing"}, "write page of a pool %q", recs[0], want.Encode())
	case was[0].Rev != 0 && want.Word == 0:
		return true, v.removePage(id, says, want)
	case was[0].Rev != 0 && (bad != nil || is.Word != want.Word):
		v.put(audit.Problem{Kind: audit.WrongPage, Key: v.name, Detail: fmt.Sprintf("%s, blocks say %016x", says, want.Word)}, "rewrite page of a pool %q", recs[0], want.Encode())
	}
	return true, nil
}

// removePage reports a page without blocks. The repair leaves its mark to its floor.
func (v *view) removePage(id record.PageID, says string, want record.Page) error {
	ops := []store.Op{{Kind: store.Delete, Key: v.name, Expect: v.from[v.name]}}
	if id.Level == 0 {
		recs, err := v.get(id.Floor().Key())
		if err != nil {
			return err
		}
		if floor, bad := record.DecodePage(recs[0]); bad == nil && floor.Mark < want.Mark {
			ops = append(ops, store.Op{Kind: store.Put, Key: recs[0].Key, Value: record.Page{Mark: want.Mark}.Encode(), Expect: recs[0].Rev})
		}
	}
	v.c.add(audit.Problem{Kind: audit.WrongPage, Key: v.name, Detail: says + ", there are no blocks"})
	v.c.step(fmt.Sprintf("remove page of a pool %q", v.name), ops...)
	return nil
}

// floor reports a floor that cannot be read. The repair raises the generation in its place.
func (v *view) floor(r store.Record, why string) {
	v.c.lost = true
	v.c.add(audit.Problem{Kind: audit.WrongPage, Key: v.name, Detail: why})
	v.c.step(fmt.Sprintf("remove page of a pool %q", v.name), store.Op{Kind: store.Delete, Key: v.name, Expect: r.Rev})
}

func (g *group) isSuspect() bool { return g != nil && g.suspect }

// under returns the key of the block or of the page that a bit of a page stands for.
func under(id record.PageID, i int) string {
	if id.Level == 0 {
		return record.BlockKey(record.KindBlock, id.Block(i))
	}
	id.Level--
	id.Index = id.Index.Shl(space.Bits).Or(addr.U128{Lo: uint64(i)})
	return id.Key()
}

// generation returns the generation that the sequence numbers of new blocks must have: above all there are if marks are lost.
func (c *checker) generation() uint64 {
	if c.lost || len(c.gone) > 0 {
		return max(c.last, c.cat.Generation) + 1
	}
	return c.last
}

// raise reports a catalog whose generation is behind the sequence numbers in use. Its repair comes first.
func (c *checker) raise() {
	need := c.generation()
	if need <= c.cat.Generation {
		return
	}
	c.add(audit.Problem{Kind: audit.OldGeneration, Key: record.CatalogKey, Detail: fmt.Sprintf("%d, must be %d", c.cat.Generation, need)})
	if c.root != 0 && c.cat.Version == 0 {
		return // it cannot be read, and what it says is more than this
	}
	next := c.cat.Clone()
	next.Generation = need
	if value, err := next.Encode(); err == nil {
		c.rep.Repair = slices.Insert(c.rep.Repair, 0, audit.Step{Text: fmt.Sprintf("raise the generation to %d", need), Ops: []store.Op{
			{Kind: store.Put, Key: record.CatalogKey, Value: pool.RootOf(need, value), Expect: c.root}, {Kind: store.Put, Key: record.PoolsKey, Value: value, Expect: c.pools},
		}})
	}
}
