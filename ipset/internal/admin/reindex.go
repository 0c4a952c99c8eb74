package admin

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// The keys that a pool lists count for new holders at once. For those that hold addresses already the index is written by this call, in
// steps, because a pool may have millions.

// Reindex carries out the call of that name.
func (e *Admin) Reindex(ctx context.Context, pool string) (changed int, err error) {
	fail := func(err error) (int, error) {
		return changed, cause.Wrap(ipalloc.Error{Op: "reindex", Name: pool, Err: err})
	}
	cat, err := e.ReadCatalog(ctx)
	if err != nil {
		return fail(err)
	}
	i := cat.ByName(pool)
	if i < 0 {
		return fail(cause.UnknownPool)
	}
	var ids []netip.Prefix
	step := func() error {
		err := e.InSteps(ids, func(part []netip.Prefix) (int, error) {
			p := reindexPlan{ids: part}
			if err := e.Do(ctx, &p); err != nil {
				return 0, err // a batch may still be at it
			}
			changed += p.n
			return p.done, nil
		})
		ids = ids[:0]
		return err
	}
	for al, err := range e.Allocations(ctx, cat.Pools[i].Prefix) {
		if err != nil {
			return fail(err)
		}
		if al.Cooling || cat.Containing(al.Address) != i {
			continue
		}
		if ids = append(ids, al.Prefix()); len(ids) == txn.StepBlocks {
			if err := step(); err != nil {
				return fail(err)
			}
		}
	}
	if err := step(); err != nil {
		return fail(err)
	}
	return changed, nil
}

// reindexPlan brings the index records of some addresses in line with their pools.
type reindexPlan struct {
	ids []netip.Prefix // with the prefix lengths of their blocks
	// done is how many of them the commit has taken, n how many of those it changed.
	done, n int
}

// Plan implements [occ.Plan].
func (p *reindexPlan) Plan(t *txn.Txn) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	return occ.Fit(t, len(p.ids), func(n int) error {
		p.n, p.done = 0, n
		held, err := t.HeldAt(cat, p.ids[:n], nil, "")
		for _, h := range held {
			if _, a := h.Be.Look(h.X); !a.IsMarked(cat.Index(h.Be.At)) {
				t.Change(h.Be)
				h.Be.Change(h.X).Mark(cat.Index(h.Be.At))
				p.n++
			}
		}
		return err
	})
}
