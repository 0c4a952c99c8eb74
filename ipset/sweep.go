package ipset

import (
	"context"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// SweepArgs say what [Engine.Sweep] tidies. Blocks go back only as far as the fields say; what would grow for ever if nobody
// swept it has an age at which it goes.
type SweepArgs struct {
	// IdleAfter gives back blocks that have been empty for that long.
	IdleAfter time.Duration
	// Keep is the number of blocks that an owner keeps all the same.
	Keep int
	// Unselected gives back empty blocks of pools that no longer select their host, however long they are empty.
	Unselected bool
	// RequestsAfter forgets the answers to request keys that are older: a day if it is 0, never if it is below.
	RequestsAfter time.Duration
	// StickyAfter forgets what sticky handles had that have held nothing for about as long: 30 days if it is 0, never
	// if it is below.
	StickyAfter time.Duration
}

// Swept is what a sweep did.
type Swept struct {
	// Advanced is the number of blocks in which leases or cooldowns ended; blocks without owner that were empty then are gone.
	Advanced int
	// Returned are the blocks that were given back.
	Returned []netip.Prefix
	// Requests and Sticky are the numbers of answers and of sticky handles forgotten.
	Requests, Sticky int
}

// Sweep does what only time brings about: it ends leases and cooldowns in blocks that nobody touches, gives back
// blocks that are idle or no longer selected, and forgets old request keys and sticky handles. Call it every minute or so,
// from any one engine: nothing else forgets these. It reads the indexes, not the blocks, so that its cost is what there is to
// do; each step is a commit of its own, and an interrupted sweep is simply repeated.
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
		return s, &Error{Op: "sweep", Err: err}
	}
	return s, nil
}

// sweepDue advances the blocks whose time has come.
func (e *Engine) sweepDue(ctx context.Context, s *Swept) error {
	now := stamp(e.now())
	r := store.Range{From: kindDue, To: dueKey(now+1, netip.PrefixFrom(netip.IPv4Unspecified(), 0))[:dueTimeEnd], Limit: 256}
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			p, ok := netip.Prefix{}, false
			if len(rec.Key) > dueTimeEnd {
				p, ok = parseBlockID(rec.Key[dueTimeEnd:])
			}
			if !ok {
				continue // Check reports it
			}
			for plan := (advancePlan{block: p, more: true}); plan.more; {
				if err := e.do(ctx, &plan); err != nil {
					return err
				}
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

// plan implements plan.
func (p *advancePlan) plan(t *txn) error {
	p.more = false
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	be, err := t.block(cat, p.block)
	if err != nil || be.Block == nil || be.index() == be.was && len(be.touches) == 0 {
		return err
	}
	p.more = be.lease != 0 && be.lease <= t.now
	return t.drop(cat, []drop{{be: be}}, &draft{})
}

// sweepIdle gives back blocks that are empty.
func (e *Engine) sweepIdle(ctx context.Context, a SweepArgs, s *Swept) error {
	now := stamp(e.now())
	cat, err := e.readCatalog(ctx)
	if err != nil {
		return err
	}
	r := store.Range{From: kindEmpty, To: kindEmpty + "\xff", Limit: 256}
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			p, ok := parseBlockID(rec.Key[1:])
			if !ok {
				continue
			}
			b, err := e.blockOf(ctx, p.Addr())
			if err != nil {
				return err
			}
			if b == nil || b.owner.Kind == Nobody {
				continue
			}
			d := disownPlan{owner: b.owner, blocks: []netip.Prefix{p}, mustBeEmpty: true, keep: a.Keep}
			since := parseIndexValue(rec.Value)
			switch {
			case a.Unselected && !e.selected(cat, b):
				d.keep = 0
			case a.IdleAfter > 0 && now-since >= int64(a.IdleAfter):
				d.emptySince = now - int64(a.IdleAfter)
			default:
				continue
			}
			if err := e.do(ctx, &d); err != nil {
				return err
			}
			s.Returned = append(s.Returned, d.released...)
		}
		if len(recs) < r.Limit {
			return nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// selected reports whether the pool of a block still serves its host, with blocks of this size.
func (e *Engine) selected(cat *catalog, b *Block) bool {
	i := cat.containing(b.prefix.Addr())
	if i < 0 || cat.Pools[i].BlockBits != b.prefix.Bits() {
		return false
	}
	if b.owner.Kind != Host {
		return true
	}
	labels, ok := e.hosts(b.owner.Name)
	return ok && cat.selectsNode(i, b.owner.Name, labels)
}
