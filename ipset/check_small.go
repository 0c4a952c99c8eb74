package ipset

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// readCatalog reads the catalog. It is read after the blocks, so that it has the pools of all of them.
func (c *checker) readCatalog() error {
	recs, err := c.in.Get(c.ctx, nil, catalogKey, poolsKey)
	if err != nil {
		return err
	}
	c.revs[catalogKey], c.revs[poolsKey] = recs[0].Rev, recs[1].Rev
	cat, err := decodeRooted(recs[0], recs[1])
	if err != nil {
		c.add(Problem{Kind: Damaged, Key: poolsKey, Detail: err.Error()})
		return nil
	}
	c.cat = cat
	return nil
}

// holds reports whether records have the revisions that a finding rests on: at one moment, if commits were made during the check.
// If not, the finding is not counted as a problem.
func (c *checker) holds(evidence []store.Op) (bool, error) {
	if !c.live {
		return true, nil
	}
	keys := make([]string, len(evidence))
	for i, op := range evidence {
		keys[i] = op.Key
	}
	recs, err := c.in.Get(c.ctx, nil, keys...)
	if err != nil {
		return false, err
	}
	for i, r := range recs {
		if r.Rev != evidence[i].Expect {
			c.rep.Unsettled++
			return false, nil
		}
	}
	return true, nil
}

// at returns the guard of the record of a block as it was read; of one that is not there.
func (c *checker) at(p netip.Prefix) store.Op {
	op := store.Op{Kind: store.Guard, Key: blockKey(kindBlock, p)}
	i, found := slices.BinarySearchFunc(c.heads, p, func(h head, p netip.Prefix) int {
		if d := h.prefix.Addr().Compare(p.Addr()); d != 0 {
			return d
		}
		return h.prefix.Bits() - p.Bits()
	})
	if found {
		op.Expect = c.heads[i].rev
	}
	return op
}

// places verifies where the blocks lie.
func (c *checker) places() error {
	cat := store.Op{Kind: store.Guard, Key: catalogKey, Expect: c.revs[catalogKey]}
	for n, h := range c.heads {
		if n > 0 && c.heads[n-1].prefix.Overlaps(h.prefix) {
			before := c.heads[n-1].prefix
			if ok, err := c.holds([]store.Op{c.at(before), c.at(h.prefix)}); err != nil {
				return err
			} else if ok {
				c.add(Problem{Kind: Overlapping, Block: h.prefix, Detail: "with " + before.String()})
			}
		}
		i := c.cat.containing(h.prefix.Addr())
		if i >= 0 && (h.prefix.Bits() == c.cat.Pools[i].BlockBits || slices.Contains(c.cat.Pools[i].Draining, h.prefix.Bits())) {
			continue
		}
		p := Problem{Kind: NoPool, Block: h.prefix, Detail: "owner " + h.owner.String()}
		if i >= 0 {
			p = Problem{Kind: WrongSize, Block: h.prefix, Detail: fmt.Sprintf("pool %s has /%d", c.cat.Pools[i].Name, c.cat.Pools[i].BlockBits)}
		}
		if ok, err := c.holds([]store.Op{c.at(h.prefix), cat}); err != nil {
			return err
		} else if ok {
			c.add(p)
		}
	}
	return nil
}

// smallRecords compares the lists of blocks of owners and the space pages with the blocks.
func (c *checker) smallRecords() error {
	listed := make(map[pageID]store.Record)
	for _, r := range c.small {
		c.revs[r.Key] = r.Rev
		if r.Key[:1] == kindPage {
			if id, ok := parsePageKey(r.Key); ok {
				listed[id] = r
			}
			continue
		}
		o, ok := parseOwnerKey(r.Key)
		blocks, err := decodeList(r.Value)
		if ok && err == nil && blocks == listOf(c.owners[o]) {
			continue
		}
		if err := c.owner(o, r.Key, blocks.slice(), fmt.Sprintf("lists %v, owns %v", blocks.slice(), c.owners[o])); err != nil {
			return err
		}
	}
	for o := range c.owners {
		if key := ownerKey(o); c.revs[key] == 0 {
			if err := c.owner(o, key, nil, "missing"); err != nil {
				return err
			}
		}
	}
	return c.spacePages(listed)
}

// owner reports a list of blocks that is wrong.
func (c *checker) owner(o Owner, key string, listed []netip.Prefix, text string) error {
	op := store.Op{Kind: store.Put, Key: key, Value: listOf(c.owners[o]).encode(), Expect: c.revs[key]}
	if len(c.owners[o]) == 0 {
		op = store.Op{Kind: store.Delete, Key: key, Expect: c.revs[key]}
	}
	ops := []store.Op{op}
	for _, p := range c.owners[o] {
		ops = append(ops, c.at(p))
	}
	evidence := slices.Clone(ops)
	for _, p := range listed {
		if p == p.Masked() && !slices.Contains(c.owners[o], p) {
			evidence = append(evidence, c.at(p))
		}
	}
	if ok, err := c.holds(evidence); err != nil || !ok {
		return err
	}
	c.add(Problem{Kind: WrongOwner, Key: key, Detail: text})
	c.step(fmt.Sprintf("rewrite the blocks of %s", o), ops...)
	return nil
}

// wrongPage is a space page that is not what the blocks say.
type wrongPage struct {
	id   pageID
	key  string
	page page  // as it is
	err  error // why it cannot be read
}

// spacePages compares the space pages with the blocks, and finds the generation that new blocks must have.
func (c *checker) spacePages(listed map[pageID]store.Record) error {
	var wrong []wrongPage
	for _, r := range c.small {
		if r.Key[:1] != kindPage {
			continue
		}
		id, ok := parsePageKey(r.Key)
		p, err := decodePage(r.Value)
		c.last = max(c.last, p.mark>>genShift)
		if !ok || err != nil || p.word != c.pages[id].word {
			wrong = append(wrong, wrongPage{id, r.Key, p, err})
		}
	}
	for id := range c.pages {
		if key := id.key(); c.revs[key] == 0 {
			wrong = append(wrong, wrongPage{id, key, page{}, ipalloc.ErrCorrupt})
		}
	}
	lost := len(c.gone) > 0
	for i := 0; i < len(wrong); i++ {
		w := wrong[i]
		if ok, err := c.holds(c.pageEvidence(nil, w.id, w.key, listed)); err != nil {
			return err
		} else if !ok {
			wrong = slices.Delete(wrong, i, i+1)
			i--
			continue
		}
		_, named := parsePageKey(w.key)
		lost = lost || w.err != nil && named && w.id.Level == 0
	}
	if lost {
		c.last = max(c.last, c.cat.Generation) + 1
	}
	c.mark = c.last << genShift
	for _, w := range wrong {
		want, rev := c.pages[w.id].word, c.revs[w.key]
		text, detail := "rewrite space page %q", fmt.Sprintf("says %016x, blocks say %016x", w.page.word, want)
		if rev == 0 {
			text, detail = "write space page %q", "missing"
		}
		mark := w.page.mark
		if w.err != nil && w.id.Level == 0 {
			mark = c.mark
		}
		c.add(Problem{Kind: WrongPage, Key: w.key, Detail: detail})
		c.step(fmt.Sprintf(text, w.key), store.Op{Kind: store.Put, Key: w.key, Value: page{want, mark}.encode(), Expect: rev})
	}
	return nil
}

// pageEvidence appends what the finding rests on that a page is wrong: the page, and what stands behind each bit that differs.
func (c *checker) pageEvidence(dst []store.Op, id pageID, key string, listed map[pageID]store.Record) []store.Op {
	dst = append(dst, store.Op{Kind: store.Guard, Key: key, Expect: c.revs[key]})
	p, _ := decodePage(listed[id].Value)
	for diff := p.word ^ c.pages[id].word; diff != 0; diff &= diff - 1 {
		i := bits.TrailingZeros64(diff)
		if id.Level == 0 {
			dst = append(dst, c.at(id.block(i)))
			continue
		}
		child := id
		child.Level--
		child.Index = id.Index.Shl(space.Bits).Or(addr.U128{Lo: uint64(i)})
		if child.Level < 20 { // no key that says otherwise was written by an engine
			dst = c.pageEvidence(dst, child, child.key(), listed)
		}
	}
	return dst
}

// raise reports a catalog whose generation is behind the sequence numbers in use. Its repair comes first.
func (c *checker) raise() {
	need := c.mark >> genShift
	if need <= c.cat.Generation {
		return
	}
	rev := c.revs[catalogKey]
	c.add(Problem{Kind: OldGeneration, Key: catalogKey, Detail: fmt.Sprintf("%d, must be %d", c.cat.Generation, need)})
	if rev != 0 && c.cat.Version == 0 {
		return // it cannot be read, and what it says is more than this
	}
	next := c.cat.clone()
	next.Generation = need
	value, err := next.encode()
	if err != nil {
		return
	}
	step := Step{Text: fmt.Sprintf("raise the generation to %d", need), Ops: []store.Op{
		{Kind: store.Put, Key: catalogKey, Value: rootOf(need, value), Expect: rev}, {Kind: store.Put, Key: poolsKey, Value: value, Expect: c.revs[poolsKey]},
	}}
	c.rep.Repair = slices.Insert(c.rep.Repair, 0, step)
}

// gather collects the addresses in use.
func (c *checker) gather(uses iter.Seq[InUse]) {
	c.used = make(map[netip.Addr][]InUse)
	for u := range uses {
		c.used[u.Address] = append(c.used[u.Address], u)
	}
}
