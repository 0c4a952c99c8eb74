package ipset

import (
	"context"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
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
// forgets old request keys and sticky handles. Call it every minute or so from one engine. Many blocks go into one commit, as many as
// the store's limits allow; repeat a sweep that was interrupted.
//
// Its cost follows what is due. The engine remembers the empty blocks, some 60 bytes each, and lists them again after IdleAfter;
// a sweep with Unselected lists all of them, because their hosts' labels may have changed. Idle blocks that Keep leaves to their owners
// cost two reads in 1,000.
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
	r.Limit = readMost
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return err
		}
		var due []netip.Prefix
		for _, rec := range recs {
			if p, ok := parseDueKey(rec.Key); ok { // else Check reports it
				due = append(due, p)
			}
		}
		if err := e.advance(ctx, due); err != nil {
			return err
		}
		s.Advanced += len(due)
		if len(recs) < r.Limit {
			return nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
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
