package ipset

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc"
)

// EnsureBlock makes sure that an owner has a block in one of the pools that may serve the arguments, and returns the owner's
// blocks there, which need not have room. Without any it claims one, as AutoAssign would, and assigns no address. Num4 and Num6
// say which families; their values do not count.
//
// Errors as for AutoAssign, nothing claimed; [ipalloc.ErrLimit] if there is a block and it may not be claimed,
// [ipalloc.ErrFull] if there is none.
func (e *Engine) EnsureBlock(ctx context.Context, a AssignArgs) (blocks []netip.Prefix, err error) {
	fail := func(err error) ([]netip.Prefix, error) {
		return nil, wrap(ipalloc.Error{Op: "ensure block", Owner: a.Owner.String(), Err: err})
	}
	a.Request, a.Sticky, a.Contiguous, a.Aligned, a.Also, a.Addresses = "", false, false, false, nil, nil
	a.Num4, a.Num6 = min(a.Num4, 1), min(a.Num6, 1)
	if err := a.check(); err != nil {
		return fail(err)
	}
	labels, ok := e.labels(a.Owner)
	if !ok {
		return fail(errUnknownOwner)
	}
	p := ensurePlan{assignPlan: assignPlan{AssignArgs: a, node: labels}}
	if err := e.do(ctx, &p); err != nil {
		return fail(err)
	}
	return p.blocks, nil
}

// ensurePlan picks a block where the owner has none, only from what becomes the owner's, and takes no address.
type ensurePlan struct {
	assignPlan
	blocks []netip.Prefix
}

// Plan implements [occ.Plan].
func (p *ensurePlan) Plan(t *txn) error {
	p.reset()
	p.blocks = nil
	if err := p.begin(t); err != nil {
		return err
	}
	for i := range p.searches {
		s := &p.searches[i]
		own := p.ownIn(s)
		p.blocks = append(p.blocks, own...)
		if s.want == 0 || len(own) > 0 {
			continue
		}
		for s.want > 0 && s.nextTier() {
			if err := p.pickNew(t, s); err != nil {
				return err
			}
		}
		if s.want == 0 {
			continue
		}
		if err := p.short(t, s); err != nil {
			return err
		}
		for _, short := range p.result.Short {
			if short.Reason == LimitReached {
				return errBlockLimit
			}
		}
		return p.tooFew()
	}
	for i := range p.picks {
		p.picks[i].ordinals = nil
		p.blocks = append(p.blocks, p.picks[i].be.at)
	}
	return p.commit(t)
}

// ownIn returns the owner's blocks that the search may use.
func (p *ensurePlan) ownIn(s *search) (own []netip.Prefix) {
	for k := range p.own.Get().len() {
		b := p.own.Get().at(k)
		if i := p.cat.containing(b.Addr()); s.serves(i) && b.Bits() == p.cat.Pools[i].BlockBits {
			own = append(own, b)
		}
	}
	return own
}

// pickNew picks from a block that is not the owner's yet and becomes it.
func (p *ensurePlan) pickNew(t *txn, s *search) error {
	return p.pickIn(t, s, p.pickFree, p.pickEmpty, p.pickOrphans)
}
