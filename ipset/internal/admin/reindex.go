package admin

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
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
	p.n, p.done = 0, 0
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	held, err := t.HeldAt(cat, p.ids, nil, "")
	if err != nil {
		return err
	}
	held = slices.DeleteFunc(held, func(h txn.Place) bool {
		_, a := h.Be.Look(h.X)
		return a.IsMarked(cat.Index(h.Be.At))
	})
	p.done = len(p.ids)
	b := t.Budget()
	for i, h := range held {
		_, a := h.Be.Look(h.X)
		n := record.RecordsOf(a) + pool.MaxIndex*a.Count()
		if i == 0 || held[i-1].Be != h.Be {
			n = t.BlockOps(h.Be, n, false, false)
		}
		if !b.Take(n, 0) {
			held, p.done = held[:i], slices.Index(p.ids, netip.PrefixFrom(h.Be.Addr(h.X), h.Be.At.Bits()))
			break
		}
	}
	if err := t.Room(b.Ops); err != nil {
		return err
	}
	for _, h := range held {
		h.Be.Change(h.X).Mark(cat.Index(h.Be.At))
		t.Change(h.Be)
	}
	p.n = len(held)
	return nil
}
