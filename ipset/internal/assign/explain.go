package assign

import (
	"cmp"
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// An explanation asks the same code as the assignment, one pool at a time, so that the two cannot disagree.

// Explain carries out the call of that name. Each pool is asked on an engine that dry makes, which writes nothing.
func (e *Assigner) Explain(ctx context.Context, a alloc.AssignArgs, dry func() *Assigner) ([]alloc.Explanation, error) {
	fail := func(err error) ([]alloc.Explanation, error) {
		return nil, cause.Wrap(ipalloc.Error{Op: "explain", Owner: a.Owner.String(), Err: err})
	}
	a.Existing, a.Sticky, a.Partial, a.Request, a.Also = false, false, false, "", nil
	a.Use = cmp.Or(a.Use, alloc.Workload)
	all := args{AssignArgs: a}
	all.choose()
	if err := all.check(); err != nil {
		return fail(err)
	}
	labels, ok := e.Labels(a.Owner)
	if !ok {
		return fail(cause.UnknownOwner)
	}
	cat, err := e.ReadCatalog(ctx)
	if err != nil {
		return fail(err)
	}
	for _, name := range a.Pools {
		if cat.ByName(name) < 0 {
			return fail(cause.Wrap(ipalloc.Error{Op: "explain", Name: name, Err: cause.UnknownPool}))
		}
	}
	var out []alloc.Explanation
	for i := range cat.Pools {
		p, one := &cat.Pools[i], a
		x := alloc.Explanation{Shortage: alloc.Shortage{Family: record.Family(p.Prefix), Pool: p.Name}}
		q := all.choice(labels, x.Family)
		if one.Pools, one.Selectors, one.Num4 = []string{p.Name}, false, 0; x.Family == 4 {
			one.Num4, one.Num6 = a.Num4, 0
		}
		if one.Num4+one.Num6 == 0 {
			q.Family = 10 - x.Family // the one that is asked for
		}
		if in := cat.Obstacle(i, &q); in != pool.None {
			x.Reason = in.Reason()
		} else if got, err := dry().AutoAssign(ctx, &one); len(got.Short) > 0 {
			x.Shortage = got.Short[0]
		} else if errors.Is(err, ipalloc.ErrLimit) {
			x.Reason = alloc.ReasonCommitFull
		} else if err != nil {
			return fail(err)
		} else {
			for _, al := range append(got.V4, got.V6...) {
				x.Gives = append(x.Gives, al.Address)
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// choice is what decides which pools of a family may serve the call.
func (a *args) choice(labels map[string]string, family int) pool.Choice {
	return pool.Choice{
		Family: family, Use: a.Use, Owner: a.Owner, Node: labels, Space: a.Namespace, Names: a.Pools, Both: a.Selectors, Ends: a.Blocks.Head + a.Blocks.Tail,
	}
}
