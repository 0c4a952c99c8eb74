package release

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// Time ends leases and cooldowns without a commit. What it has ended stays in the records until a plan meets the block; the sweep meets
// the blocks that no plan comes to, and returns blocks that have been empty for long.

// Sweep carries out the call of that name.
func (e *Releaser) Sweep(ctx context.Context, a alloc.SweepArgs) (alloc.Swept, error) {
	var s alloc.Swept
	switch {
	case a.IdleAfter < 0:
		return s, cause.Invalid("IdleAfter", "%v is negative", a.IdleAfter)
	case a.Keep < 0:
		return s, cause.Invalid("Keep", "%d is negative", a.Keep)
	}
	err := e.sweepDue(ctx, &s)
	if err == nil && (a.IdleAfter > 0 || a.Unselected) {
		err = e.sweepIdle(ctx, a, &s)
	}
	if err == nil {
		s.Requests, err = e.sweepAged(ctx, record.KindRequest, cmp.Or(a.RequestsAfter, e.Ages.Requests), 0)
	}
	if err == nil {
		s.Sticky, err = e.sweepAged(ctx, record.KindSticky, cmp.Or(a.StickyAfter, e.Ages.Sticky), 0)
	}
	if err != nil {
		return s, cause.Wrap(ipalloc.Error{Op: "sweep", Err: err})
	}
	return s, nil
}

// sweepDue advances the blocks whose time has come.
func (e *Releaser) sweepDue(ctx context.Context, s *alloc.Swept) error {
	now, err := e.Past()
	if err != nil {
		return err
	}
	for recs, err := range e.Pages(ctx, record.DueBy(now)) {
		if err != nil {
			return err
		}
		var due []netip.Prefix
		for _, rec := range recs {
			if p, ok := record.ParseDueKey(rec.Key); ok { // else Check reports it
				due = append(due, p)
			}
		}
		ended, err := e.Advance(ctx, due)
		s.Ended = append(s.Ended, ended...)
		if err != nil {
			return err
		}
		s.Advanced += len(due)
	}
	return nil
}

// selected reports whether the pool of a block still serves its host.
func (e *Releaser) selected(cat *pool.Catalog, b *block.Block) bool {
	i := cat.Containing(b.Prefix().Addr())
	if i < 0 {
		return false
	}
	labels, ok := e.Labels(b.Owner())
	return ok && cat.SelectsNode(i, b.Owner().Name, labels)
}
