package assign

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A host may want its block before its first address: to announce a route, or to find out early that it gets none. The search is
// that of an assignment without borrowing, and no address is taken.

// EnsureBlock carries out the call of that name.
func (e *Assigner) EnsureBlock(ctx context.Context, a alloc.AssignArgs) (blocks []netip.Prefix, err error) {
	fail := func(err error) ([]netip.Prefix, error) {
		fault := ipalloc.Error{Op: "ensure block", Owner: a.Owner.String(), Err: err}
		pool.Describe(err, &fault)
		return nil, cause.Wrap(fault)
	}
	a.Request, a.Sticky, a.Choose, a.Also = "", false, alloc.Choice{}, nil
	a.Use = cmp.Or(a.Use, alloc.Workload)
	a.Num4, a.Num6 = min(a.Num4, 1), min(a.Num6, 1)
	all := args{AssignArgs: a}
	all.choose()
	if err := all.check(); err != nil {
		return fail(err)
	}
	labels, ok := e.Labels(a.Owner)
	if !ok {
		return fail(cause.UnknownOwner)
	}
	p := ensurePlan{AssignPlan: AssignPlan{args: all, node: labels}}
	if err := e.Do(ctx, &p); err != nil {
		return fail(err)
	}
	return p.blocks, nil
}

// ensurePlan picks a block where the owner has none, only from what becomes the owner's, and takes no address.
type ensurePlan struct {
	AssignPlan
	blocks []netip.Prefix
}

// Plan implements [occ.Plan].
func (p *ensurePlan) Plan(t *txn.Txn) error {
	p.reset()
	p.blocks = nil
	if err := p.begin(t); err != nil {
		return err
	}
	for i := range p.searches {
		s := &p.searches[i]
		own, err := p.ownIn(t, s)
		if err != nil {
			return err
		}
		p.blocks = append(p.blocks, own...)
		if s.want == 0 || len(own) > 0 {
			continue
		}
		for s.want > 0 && s.nextTier() {
			if err := p.pickNew(t, s); err != nil {
				return err
			}
			if s.want > 0 {
				if err := p.timed(t, s); err != nil {
					return err
				}
			}
		}
		if s.want == 0 {
			continue
		}
		if err := p.short(t, s); err != nil {
			return err
		}
		for _, short := range p.result.Short {
			if short.Reason == alloc.ReasonLimitReached {
				return fmt.Errorf("%w: %d of %d", cause.BlockLimit, short.Limit.Blocks, short.Limit.Max)
			}
		}
		return p.tooFew()
	}
	for i := range p.picks {
		p.picks[i].ordinals = nil
		p.blocks = append(p.blocks, p.picks[i].be.At)
	}
	return p.commit(t)
}

// ownIn returns the owner's blocks that the search may use.
func (p *ensurePlan) ownIn(t *txn.Txn, s *Search) (own []netip.Prefix, err error) {
	all, err := t.BlocksOf(p.Owner)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		if i := p.cat.Containing(b.Addr()); s.Serves(i) && p.serves(i, b) {
			own = append(own, b)
		}
	}
	return own, nil
}

// pickNew picks from a block that is not the owner's yet and becomes it.
func (p *ensurePlan) pickNew(t *txn.Txn, s *Search) error {
	return p.pickIn(t, s, p.pickFree, p.pickEmpty, p.pickOrphans)
}
