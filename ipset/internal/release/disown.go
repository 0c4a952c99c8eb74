package release

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A caller that gives up blocks and a sweep that returns idle ones take them from their owners by one plan: an empty block is
// deleted, because a free block costs no record, and one in use stays without owner until its last address leaves.

// ownedBlock is a block that its owner may lose.
type ownedBlock struct {
	owner  alloc.Owner
	at     netip.Prefix
	byRule bool // only if it is idle and its owner has more than it keeps
}

// disownPlan takes blocks from their owners, as many as a commit takes, in order.
type disownPlan struct {
	blocks      []ownedBlock
	mustBeEmpty bool
	afresh      bool  // others have written the blocks since they were read
	idleSince   int64 // byRule takes blocks that have been empty since then or before
	keep        int   // byRule leaves the owner so many
	done        int   // how many of the blocks are dealt with
	released    []netip.Prefix
	refused     netip.Prefix
}

// Plan implements [occ.Plan].
func (p *disownPlan) Plan(t *txn.Txn) error {
	cat, err := t.Catalog()
	if err == nil {
		err = p.read(t)
	}
	if err != nil {
		return err
	}
	return occ.Fit(t, len(p.blocks), func(n int) error { return p.take(t, cat, n) })
}

// take takes the first n blocks.
func (p *disownPlan) take(t *txn.Txn, cat *txn.CatalogEntry, n int) error {
	p.released, p.refused, p.done = p.released[:0], netip.Prefix{}, n
	chosen, err := p.choose(t, cat)
	if err != nil {
		return err
	}
	for _, be := range chosen {
		t.Change(be)
		p.released = append(p.released, be.At)
		if be.IsEmpty() {
			be.Set(nil)
		} else {
			o := be.Owner()
			be.Disown()
			be.Forget(o)
		}
	}
	return nil
}

// read reads what the choice needs in one or two round trips: blocks, owners, and the pages of blocks that may go.
func (p *disownPlan) read(t *txn.Txn) error {
	var blocks, empty []netip.Prefix
	var keys []string
	for _, b := range p.blocks {
		blocks = append(blocks, b.at)
		leaf, _ := record.LeafOf(b.at)
		keys = append(keys, record.BlockKey(record.KindBlock, b.at), record.OwnerKey(b.owner), leaf.Key(), leaf.Floor().Key())
	}
	if p.afresh {
		slices.Sort(keys)
		return t.Read(slices.Compact(keys)...)
	}
	if err := t.Warm(blocks); err != nil {
		return err
	}
	for _, at := range blocks {
		if be := t.Blocks.Get(at); be != nil && be.Block != nil && be.IsEmpty() {
			empty = append(empty, at)
		}
	}
	return t.WarmPages(empty)
}

// choose finds the blocks to take. It changes none of them.
func (p *disownPlan) choose(t *txn.Txn, cat *txn.CatalogEntry) (chosen []*txn.BlockEntry, err error) {
	var used []netip.Prefix
	for _, b := range p.blocks[:p.done] {
		be, err := t.Block(cat, b.at)
		if err != nil {
			return nil, err
		}
		oe, err := t.Owner(b.owner)
		if err != nil {
			return nil, err
		}
		switch {
		case be.Block == nil || be.Owner() != b.owner || b.byRule && p.keep > 0 && oe.Get().N <= p.keep:
			continue
		case !be.IsEmpty() && p.mustBeEmpty, b.byRule && be.Since() > p.idleSince:
			p.refused = b.at
			continue
		}
		if be.IsEmpty() {
			err = t.Vacate(be)
		} else if be.Used() > 0 {
			used = append(used, b.at)
		}
		if err == nil {
			err = t.Take(b.owner, b.at)
		}
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, be)
	}
	// The addresses say whether any is held for the owner: if none is, the block need not name it any more.
	return chosen, t.FetchPlaces(used)
}
