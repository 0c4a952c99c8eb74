package ipset

import (
	"context"
	"math"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// SweepArgs says what [Engine.Sweep] returns and forgets. Blocks are returned only as the fields say. Request keys and sticky
// handles have a default age, because without one they would accumulate.
type SweepArgs struct {
	// IdleAfter returns blocks that have been empty for that long; 0 returns none for their age.
	IdleAfter time.Duration
	// Keep is the number of blocks that an owner keeps even if they are idle.
	Keep int
	// Unselected returns empty blocks of pools that no longer select their host, whatever their age.
	Unselected bool
	// RequestsAfter forgets the answers to request keys that are older. 0 is a day; a negative value keeps them.
	RequestsAfter time.Duration
	// StickyAfter forgets the last addresses of sticky handles that have held nothing for about that long. 0 is 30 days; a
	// negative value keeps them.
	StickyAfter time.Duration
}

// Swept reports what a sweep did.
type Swept struct {
	// Advanced is the number of blocks in which leases or cooldowns ended. Blocks without owner that became empty are deleted.
	Advanced int
	// Returned are the blocks that were given back.
	Returned []netip.Prefix
	// Requests and Sticky are the numbers of answers and of sticky handles forgotten.
	Requests, Sticky int
}

// Sweep ends leases and cooldowns in blocks that no other call touches, returns blocks that are idle or no longer selected, and
// forgets old request keys and sticky handles. Call it every minute or so from one engine. It reads indexes, so its cost follows
// what is due, not what is held. Each step is a commit of its own; repeat a sweep that was interrupted.
func (e *Engine) Sweep(ctx context.Context, a SweepArgs) (Swept, error) {
	var s Swept
	err := e.sweepDue(ctx, &s)
	if err == nil && (a.IdleAfter > 0 || a.Unselected) {
		err = e.sweepIdle(ctx, a, &s)
	}
	if err == nil {
		s.Requests, err = e.sweepAged(ctx, kindRequest, a.RequestsAfter, 24*time.Hour)
	}
	if err == nil {
		s.Sticky, err = e.sweepAged(ctx, kindSticky, a.StickyAfter, 30*24*time.Hour)
	}
	if err != nil {
		return s, wrap(ipalloc.Error{Op: "sweep", Err: err})
	}
	return s, nil
}

// sweepDue advances the blocks whose time has come.
func (e *Engine) sweepDue(ctx context.Context, s *Swept) error {
	now, err := e.past()
	if err != nil {
		return err
	}
	r := dueBy(now)
	r.Limit = 256
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			p, ok := parseDueKey(rec.Key)
			if !ok {
				continue // Check reports it
			}
			if err := e.advance(ctx, p); err != nil {
				return err
			}
			s.Advanced++
		}
		if len(recs) < r.Limit {
			return nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// advancePlan writes what time has changed in a block, and deletes it if nobody owns it and nothing is left.
type advancePlan struct {
	block netip.Prefix
	more  bool // leases have ended that this commit did not take
}

// Plan implements [occ.Plan].
func (p *advancePlan) Plan(t *txn) error {
	p.more = false
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	be, err := t.entry(p.block)
	if err != nil {
		return err
	}
	t.Guard(&be.Cell)
	if be.Block == nil {
		return nil
	}
	all, err := t.advanceSome(cat, be, t.mostEndsAlone(cat, be))
	if err != nil || indexOf(be.Block) == be.shown && len(be.changes.List) == 0 {
		return err
	}
	p.more = !all
	return t.drop(cat, []drop{{be: be}})
}

// sweepIdle gives back blocks that are empty. The index says since when each is; blocks that are due are read a page of the index
// at a time, and all of a page when what matters is their host. The blocks of an owner go together.
func (e *Engine) sweepIdle(ctx context.Context, a SweepArgs, s *Swept) error {
	before := int64(math.MinInt64)
	if a.IdleAfter > 0 {
		now, err := e.past()
		if err != nil {
			return err
		}
		before = block.Later(now, -int64(a.IdleAfter))
	}
	cat, err := e.readCatalog(ctx)
	if err != nil {
		return err
	}
	r := store.Range{From: kindEmpty, To: kindEmpty + "\xff", Limit: sweepPage}
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return err
		}
		var due []netip.Prefix
		for _, rec := range recs {
			if p, ok := parseBlockID(rec.Key[1:]); ok && (a.Unselected || parseIndexValue(rec.Value) <= before) {
				due = append(due, p)
			}
		}
		if err := e.giveBack(ctx, cat, a, before, due, s); err != nil {
			return err
		}
		if len(recs) < r.Limit {
			return nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// sweepPage is how many records of the index of empty blocks are read at a time.
const sweepPage = 1024

// giveBack gives back those of the blocks that are idle or no longer selected.
func (e *Engine) giveBack(ctx context.Context, cat *catalog, a SweepArgs, before int64, blocks []netip.Prefix, s *Swept) error {
	type part struct {
		owner    Owner
		selected bool
	}
	parts := make(map[part][]netip.Prefix)
	var order []part
	err := e.eachBlock(ctx, blocks, func(b *block.Block) {
		if b.Owner().Kind == Nobody {
			return
		}
		p := part{b.Owner(), !a.Unselected || e.selected(cat, b)}
		if p.selected && (b.Since() > before || !b.IsEmpty()) {
			return
		}
		if parts[p] == nil {
			order = append(order, p)
		}
		parts[p] = append(parts[p], b.Prefix())
	})
	if err != nil {
		return err
	}
	for _, p := range order {
		d := disownPlan{owner: p.owner, mustBeEmpty: true}
		if p.selected {
			d.keep, d.emptySince = a.Keep, before
		}
		if d.keep > 0 {
			// An owner that has no more than it keeps is left alone without a commit.
			if owned, err := e.BlocksOf(ctx, p.owner); err != nil {
				return err
			} else if len(owned) <= d.keep {
				continue
			}
		}
		err := e.inSteps(parts[p], stepCost{opsPerBlock, 1}, func(step []netip.Prefix) error {
			d := d
			d.blocks = step
			if err := e.do(ctx, &d); err != nil {
				return err
			}
			s.Returned = append(s.Returned, d.released...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// selected reports whether the pool of a block still serves its host, with blocks of this size.
func (e *Engine) selected(cat *catalog, b *block.Block) bool {
	i := cat.containing(b.Prefix().Addr())
	if i < 0 || cat.Pools[i].BlockBits != b.Prefix().Bits() {
		return false
	}
	labels, ok := e.labels(b.Owner())
	return ok && cat.selectsNode(i, b.Owner().Name, labels)
}
