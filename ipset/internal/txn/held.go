package txn

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// What a handle holds is asked before an answer is repeated, a lease renewed or an address released. The index names the places,
// but only the block says who holds them now; therefore every question goes through the block, and the commit rests on it.

// CheckOpen returns an error if a pool of an address that is held is closed.
func (ce *CatalogEntry) CheckOpen(held ...Place) error {
	for _, h := range held {
		if at := h.Be.Addr(h.X); ce.Closed(ce.Containing(at)) {
			return cause.Wrap(ipalloc.Error{Op: "find", Addr: at, Err: cause.Closed})
		}
	}
	return nil
}

// RefuseHeld returns an error if the rules of now would keep automatic assignment from an address that is held.
func (ce *CatalogEntry) RefuseHeld(q *pool.Choice, held ...Place) error {
	for _, h := range held {
		a, rules := h.Be.Addr(h.X), *q
		i := ce.Containing(a)
		if rules.Family = record.Family(h.Be.At); i < 0 {
			return cause.Wrap(ipalloc.Error{Op: "find", Addr: a, Err: cause.Outside})
		}
		if err := ce.Refuse(i, &rules, a, h.Be.At, h.Be.Owner()); err != nil {
			return cause.Wrap(ipalloc.Error{Op: "find", Addr: a, Err: err})
		}
	}
	return nil
}

// Extend moves the ends of those of some addresses that are held under a lease, and returns these.
func (t *Txn) Extend(held []Place, until int64) []alloc.Allocation {
	var extended []alloc.Allocation
	for _, h := range held {
		t.Change(h.Be)
		if h.Be.Extend(h.X, h.Seq, until) {
			_, a := h.Be.Look(h.X)
			h.Until = until
			extended = append(extended, a.AllocationOf(h.Be.Addr(h.X), h.Be.At.Bits(), h.Holder))
		}
	}
	return extended
}

// InTheWay is the error for an address that is as al says: who has it, until when, and why if it was declined.
func InTheWay(al alloc.Allocation, err error) error {
	e := ipalloc.Error{Op: "find", Addr: al.Address, Holder: al.Holder(), Until: al.Until, Err: err}
	if handle, reason, ok := al.Declined(); ok {
		e.Holder, e.Reason = "", fmt.Sprintf("%v: declined by %q: %s", err, handle, reason)
	}
	return cause.Wrap(e)
}

// Changes reports whether the transaction gives an address to a handle or takes one from it.
func (t *Txn) Changes(handle string) bool {
	for _, e := range t.Entries() {
		be, ok := e.(*BlockEntry)
		if !ok {
			continue
		}
		for _, c := range be.Changes.List {
			if holds(c.Was, handle) {
				return true
			}
			if be.Block == nil {
				continue
			}
			if _, a := be.Look(c.X); holds(a, handle) {
				return true
			}
		}
	}
	return false
}

// holds reports whether a handle is one of the holders of an address, which is nil if it has no record.
func holds(a *block.Address, handle string) bool {
	if a == nil || a.Cooling {
		return false
	}
	_, ok := a.Find(alloc.Guard{Handle: handle})
	return ok
}

// Place is an ordinal of a block and one of its holders.
type Place struct {
	Be *BlockEntry
	X  uint64
	block.Holder
	From alloc.Owner // the former host, if the holding moves in this commit
}

// HeldBy returns the addresses that a handle holds, in address order, until the next call. The transaction rests on the blocks.
func (t *Txn) HeldBy(cat *CatalogEntry, handle string) ([]Place, error) {
	r := record.HandleRange(handle)
	recs, err := t.ListStored(r)
	if err != nil {
		return nil, err
	}
	first := store.Record{Key: r.From}
	if len(recs) > 0 && recs[0].Key == r.From {
		first = recs[0]
	}
	if err := t.See(first); err != nil {
		return nil, err
	}
	if t.ids, err = record.IdsIn(t.ids[:0], recs, len(r.From)); err != nil {
		return nil, err
	}
	return t.HeldAt(cat, t.ids, nil, handle)
}

// HeldAt returns those of some addresses, each with the prefix length of its block, that a handle holds: under the sequence number
// of each, if there are any. The result lasts until the next call.
func (t *Txn) HeldAt(cat *CatalogEntry, ids []netip.Prefix, seqs []uint64, handle string) ([]Place, error) {
	f := t.fetching()
	for _, id := range ids {
		f.Add(id.Masked(), id.Addr())
	}
	if err := f.Run(); err != nil {
		return nil, err
	}
	held := t.held[:0]
	for i, id := range ids {
		be, err := t.Block(cat, id.Masked())
		if err != nil {
			return nil, err
		}
		if be.Block == nil {
			continue
		}
		x, err := be.Block.Ordinal(id.Addr())
		if err != nil {
			continue
		}
		if st, a := be.Look(x); st == block.Held {
			g := alloc.Guard{Handle: handle}
			if seqs != nil {
				g.Seq = seqs[i]
			}
			if h, ok := a.Find(g); ok {
				held = append(held, Place{Be: be, X: x, Holder: h})
			}
		}
	}
	if len(held) <= placesMost {
		t.held = held
	}
	return held, nil
}

// placesMost is for how many addresses of a handle the transaction keeps room.
const placesMost = 64
