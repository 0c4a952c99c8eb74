package assign

import (
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Every search that comes upon a block of whatever owner asks the same two questions: what the block is to the owner of the call, and what the
// call may do with it.

// standing is what a block is to the owner of a call.
type standing uint8

const (
	own     standing = 1 << iota
	orphan           // nobody's
	idle             // another's, empty for so long that it may be taken over
	foreign          // another's
)

func (p *AssignPlan) standing(t *txn.Txn, be *txn.BlockEntry) standing {
	switch {
	case be.Owner() == p.Owner || p.adopted(be):
		return own
	case be.Owner().Kind == alloc.Nobody:
		return orphan
	case be.IsEmpty() && be.Since() <= t.IdleSince():
		return idle
	}
	return foreign
}

// meet picks from a block with room that a search has met if it is of a kind that the search is for. An idle one is taken over and an
// orphan adopted if the limits allow it: borrowing from orphans instead would keep them without owner, and with every host that leaves
// a block in use, fewer blocks would have one. From any other one addresses are borrowed unless affinity is strict.
func (p *AssignPlan) meet(t *txn.Txn, s *Search, i int, be *txn.BlockEntry, of standing) error {
	is := p.standing(t, be)
	if p.taken[be] && is != own || p.goes(be) {
		return nil
	}
	if be.At.Bits() != p.cat.Pools[i].BlockBits && of&idle != 0 {
		if done, err := p.replace(t, s, i, be, is); done || err != nil {
			return err
		}
	}
	if is&of == 0 {
		t.Sure(&be.Cell)
		return nil
	}
	may, err := false, error(nil)
	if is == idle || is == orphan {
		may, err = p.mayClaim(t, i)
	}
	switch n := len(p.picks); {
	case err != nil:
		return err
	case may && is == idle && !p.unusable(i, be.At) && !p.picked(be):
		return p.takeOver(t, s, i, be)
	case of == idle:
	case p.cat.Config.Strict && is != own && !(may && is == orphan):
		t.Sure(&be.Cell)
		switch free, _ := be.Free(); {
		case len(p.next(be, i, 1)) > 0 && is == orphan:
			p.reason(s, i, alloc.ReasonLimitReached)
		case len(p.next(be, i, 1)) > 0:
			p.reason(s, i, alloc.ReasonForeignLeft)
		case free > 0 && !p.cuts(be.At):
			p.reason(s, i, alloc.ReasonReservedLeft)
		}
	case !p.pickFrom(t, s, i, be):
		t.Sure(&be.Cell)
	case may && is == orphan:
		return p.adopt(t, &p.picks[n])
	}
	return nil
}
