package assign

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A machine that comes back finds its old address while that is free. The memo is a wish and no claim: the address stays free for
// others meanwhile.

// readLast reads what the handle had last. The commit verifies it, because the memo is replaced.
func (p *AssignPlan) readLast(t *txn.Txn) (err error) {
	p.last, err = t.Memo(record.KindSticky + p.Handle)
	return err
}

// preferred yields the address that the caller wishes for, then those that the handle had last.
func (p *AssignPlan) preferred(yield func(netip.Addr) bool) {
	if p.Wish.IsValid() && !yield(p.Wish) {
		return
	}
	for _, id := range p.last.Ids {
		if a := id.Addr(); a != p.Wish && !yield(a) {
			return
		}
	}
}

// pickSticky picks the preferred addresses, where automatic assignment may take them and they are free, or cooling from the handle's own
// use. A block becomes the owner's for a wish alone.
func (p *AssignPlan) pickSticky(t *txn.Txn, s *Search) error {
	if err := t.FetchAt(p.cat, p.preferred); err != nil {
		return err
	}
	for a := range p.preferred {
		if s.want == 0 || !s.Serves(p.cat.Containing(a)) || slices.Contains(p.Named, a) {
			continue
		}
		be, err := p.locate(t, a)
		if err == nil {
			err = p.pickOne(t, &s.Choice, be, a, a == p.Wish)
		}
		switch {
		case err == nil:
			s.want--
		case errors.Is(err, cause.Covered):
			err = p.timed(t, s) // time may delete what is in the way
		case refused(err):
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stick notes the addresses that the handle has been given, for the next time. Those of a family of which it was given none stay.
func (p *AssignPlan) stick(t *txn.Txn) {
	given := [2][]alloc.Allocation{p.result.V4, p.result.V6}
	if len(given[0])+len(given[1]) == 0 {
		return
	}
	last := p.last
	p.last.Ids, p.last.Seqs = nil, nil
	for i, id := range last.Ids {
		if len(given[record.Family(id)/6]) == 0 {
			p.last.Ids, p.last.Seqs = append(p.last.Ids, id), append(p.last.Seqs, last.Seqs[i])
		}
	}
	t.Remember(&p.last, given[0], given[1])
}
