package assign

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A caller asks for one address in several ways: it names the address, prefers it or held it last. One function picks it in each case.
// [pool.Catalog.Refuse] has the rules of its pool; here is what its block allows, and what becomes of the block.

// refused reports whether an error of pickOne says that the caller can't have the address. Every other one is of the store.
func refused(err error) bool {
	return slices.ContainsFunc([]error{ipalloc.ErrReserved, ipalloc.ErrOccupied, ipalloc.ErrCooling, ipalloc.ErrLimit, ipalloc.ErrNotFound, ipalloc.ErrFull},
		func(is error) bool { return errors.Is(err, is) })
}

// pickOne picks an address of a block as the rules of q allow it. Only with claims the block is made for the owner or becomes the
// owner's. After an error that is refused nothing has changed.
func (p *AssignPlan) pickOne(t *txn.Txn, q *pool.Choice, be *txn.BlockEntry, a netip.Addr, claims bool) error {
	i, made, b := p.cat.Containing(a), p.madeFor(a), be.Block
	is, of, keeps := own, alloc.Owner{}, keep.Is(p.Handle) // for whatever host
	switch {
	case made >= 0:
		b = p.picks[made].fresh
	case b != nil:
		if err := t.Ready(be, a); err != nil {
			return err
		}
		if is = p.standing(t, be); !keeps && (is == foreign || is == idle && q.AnyAddr) {
			of = be.Owner()
		}
	}
	if err := p.cat.Refuse(i, q, a, be.At, of); err != nil {
		return err
	}
	strict, becomes := p.cat.Config.Strict && !keeps, standing(0)
	switch {
	case made >= 0:
	case b == nil:
		becomes = own
	case is == orphan && strict:
		becomes = orphan
	case is == idle && !q.AnyAddr && (strict || errors.Is(p.canHold(b, a), ipalloc.ErrReserved)):
		becomes = idle
	}
	if becomes != 0 && !claims {
		return cause.Claimed
	}
	if becomes != 0 {
		if err := p.mayOwn(t, i, be.At); err != nil {
			return err
		}
	}
	if becomes&(own|idle) != 0 {
		var err error
		if b, err = block.New(be.At, p.blockOptions()); err != nil && is == idle {
			return cause.Claimed
		} else if err != nil {
			return cause.Invalid("Blocks.Head", "%d and %d addresses to reserve leave none of block %s", p.Blocks.Head, p.Blocks.Tail, be.At)
		}
	}
	if err := p.canHold(b, a); err != nil {
		al, _ := b.Lookup(a)
		return txn.InTheWay(al, err)
	}
	x, _ := b.Ordinal(a)
	if made >= 0 {
		p.picks[made].ordinals = append(p.picks[made].ordinals, x)
		return nil
	}
	k, err := p.gain(t, i, be, becomes)
	if err == nil {
		k.ordinals = []uint64{x}
		p.picks = append(p.picks, k)
		p.sticky = len(p.picks)
	}
	return err
}

// canHold returns what keeps an address of a block from the handle.
func (p *AssignPlan) canHold(b *block.Block, a netip.Addr) error {
	x, err := b.Ordinal(a)
	if err == nil {
		err = b.CanHold(x, p.Handle)
	}
	return err
}

// gain returns a pick of a block that becomes the owner's: own if there is none, idle or orphan if it is one, or stays what it is.
func (p *AssignPlan) gain(t *txn.Txn, i int, be *txn.BlockEntry, is standing) (k pick, err error) {
	k.be = be
	switch is {
	case own:
		var gone []*txn.BlockEntry
		if gone, err = t.MakeRoom(p.cat, i, be.At, p.mayGo(t)); err == nil {
			p.gone = append(p.gone, gone...)
			k.fresh, err = t.NewBlock(p.cat, be.At, p.blockOptions())
		}
	case idle:
		if k.fresh, err = p.emptied(t, be); err == nil {
			err = p.acquire(t, be)
		}
	case orphan:
		err = p.adopt(t, &k)
	}
	return k, err
}
