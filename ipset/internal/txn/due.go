package txn

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// Time ends leases and cooldowns without a commit; the plan that next meets the block writes that beside its own changes. Where the
// limits of the store leave no room for it, the plan ends with ErrDue, time is written in commits of its own, and the plan is
// made again. A plan therefore decides by the present, not by what fits into its commit.

// ErrDue is the answer of a plan that met blocks in which more has ended than its commit can write.
type ErrDue struct{ Blocks []netip.Prefix }

func (e *ErrDue) Error() string { return "leases or cooldowns have ended, and are written first" }

// Do carries out a plan, after what has to be written first.
func (e *Engine) Do(ctx context.Context, p occ.Plan[*Txn]) error {
	for {
		err := e.Run.Do(ctx, p)
		if err == nil {
			return nil
		}
		var due *ErrDue
		switch {
		case errors.As(err, &due):
			err = e.writeDue(ctx, due.Blocks)
		case errors.Is(err, errRootless):
			err = e.Run.Do(ctx, rootPlan{})
		}
		if err != nil {
			return err
		}
	}
}

// writeDue writes what time has changed in blocks. In a [store.Together] that may be more than its one commit takes, and it is no change
// of the caller's, so it is written to the store below first. What Together has read of these blocks has then changed, so it begins anew.
func (e *Engine) writeDue(ctx context.Context, blocks []netip.Prefix) error {
	if e.Others != nil && e.Limits.Ops > 0 && !e.Dry {
		below := &Engine{
			DB: e.Others, Limits: e.Others.Limits(), Now: e.Now, Labels: e.Labels, Skew: e.Skew, Keep: e.Keep, Tries: e.Tries, Retry: e.Retry, Import: e.Import,
		}
		below.Start()
		if _, err := below.Advance(ctx, blocks); err != nil {
			return err
		}
	}
	_, err := e.Advance(ctx, blocks)
	return err
}

// Advance writes what time has changed in blocks, in as many commits as that takes. It returns the leases that it ended, each as its
// holder had the address.
func (e *Engine) Advance(ctx context.Context, blocks []netip.Prefix) (ended []alloc.Allocation, err error) {
	err = e.InSteps(blocks, func(step []netip.Prefix) (int, error) {
		for p := (advancePlan{blocks: step}); len(p.blocks) > 0; p.blocks = p.rest {
			if err := e.Run.Do(ctx, &p); err != nil {
				return 0, err
			}
			ended = append(ended, p.ended...)
		}
		return len(step), nil
	})
	return ended, err
}

// advancePlan writes what time has changed in blocks, and deletes those in which nothing is left if nobody owns them.
type advancePlan struct {
	blocks []netip.Prefix
	rest   []netip.Prefix // blocks in which more has ended than this commit took
	ended  []alloc.Allocation
}

// Plan implements [occ.Plan].
func (p *advancePlan) Plan(t *Txn) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	if err := t.readDue(p.blocks); err != nil {
		return err
	}
	return occ.Fit(t, len(p.blocks), func(n int) error { return p.advance(t, cat, n) })
}

// advance writes the first n blocks.
func (p *advancePlan) advance(t *Txn, cat *CatalogEntry, n int) error {
	var drops Drops
	drops.Begin(t, cat)
	p.rest, p.ended = slices.Clone(p.blocks[n:]), nil
	for _, b := range p.blocks[:n] {
		be, err := t.entry(b)
		if err != nil {
			return err
		}
		t.Guard(&be.Cell)
		if be.Block == nil {
			continue
		}
		all, err := t.advanceSome(cat, be, t.mostEndsAlone(cat, be))
		if err != nil {
			return err
		}
		if record.IndexOf(be.Block) == be.Shown && len(be.Changes.List) == 0 {
			continue
		}
		drops.Advance(be)
		p.ended = append(p.ended, be.ended(t.Past)...)
		if !all {
			p.rest = append(p.rest, b)
		}
	}
	return drops.Drop()
}

// readDue reads blocks again, and those of their addresses that are needed to end leases and cooldowns: two round trips.
func (t *Txn) readDue(blocks []netip.Prefix) error {
	if len(blocks) == 1 {
		return nil // mostly it is cached as it is
	}
	keys := make([]string, len(blocks))
	for i, b := range blocks {
		keys[i] = record.BlockKey(record.KindBlock, b)
	}
	if err := t.Read(keys...); err != nil {
		return err
	}
	f := Fetch{T: t}
	for _, b := range blocks {
		be := t.Blocks.Get(b)
		if !be.IsDue(t.Past) || len(f.Addrs) > fetchMost {
			continue
		}
		for _, x := range be.absentDue(t.Past) {
			f.Add(b, be.Addr(x))
		}
	}
	return f.Run()
}

// absentDue returns the ordinals that are not loaded and that have to be to end the leases or cooldowns that are over.
func (be *BlockEntry) absentDue(past int64) []uint64 {
	lease, cooled := be.Due(past)
	switch {
	case lease:
		return be.AppendAbsent(nil)
	case cooled:
		return be.absentCooling()
	}
	return nil
}

// advanceSome ends leases and cooldowns of a block, at most so many each beside those that wait to be written. It reports whether
// that is all that have ended by now.
func (t *Txn) advanceSome(cat *CatalogEntry, be *BlockEntry, most int) (all bool, err error) {
	if be.IsDue(t.Past) {
		if most -= len(be.Changes.List); most <= 0 {
			return false, nil
		}
		if err := t.fetchOrdinals(be, be.absentDue(t.Past)); err != nil {
			return false, err
		}
		be.AdvanceTo(t.Past, cat.Cooldown(be.At), most)
	}
	return !be.IsDue(t.Past), nil
}

// ended returns the leases that a change of the block has ended, each as its holder had the address.
func (be *BlockEntry) ended(past int64) (all []alloc.Allocation) {
	for _, c := range be.Changes.List {
		if c.Was == nil || c.Was.Cooling {
			continue
		}
		_, now := be.Look(c.X)
		for h := range c.Was.Holders() {
			if h.Until == 0 || h.Until > past {
				continue
			}
			if now != nil && !now.Cooling {
				if _, held := now.Find(alloc.Guard{Handle: h.Handle, Seq: h.Seq}); held {
					continue // one of more than this commit takes
				}
			}
			all = append(all, c.Was.AllocationOf(be.Addr(c.X), be.At.Bits(), h))
		}
	}
	return all
}

// IsDue reports whether a lease or a cooldown has ended that the cached block still has.
func (be *BlockEntry) IsDue(past int64) bool {
	if be.Block == nil {
		return false
	}
	lease, cooled := be.Due(past)
	return lease || cooled
}

// mostEnds is how many leases and cooldowns each a plan ends in one block beside its own changes: a third of what a commit
// takes, at up to three records a lease and one for each indexed attribute.
func (t *Txn) mostEnds(cat *CatalogEntry, be *BlockEntry) int {
	if limit := t.E.Limits.Ops; limit > 0 {
		return max(1, limit/(8+2*len(cat.Index(be.At))))
	}
	return math.MaxInt
}

// perBlock is the most that a block and its pages add to a commit.
const perBlock = 12

// mostEndsAlone is mostEnds for a commit that does nothing else: at up to four records a lease.
func (t *Txn) mostEndsAlone(cat *CatalogEntry, be *BlockEntry) int {
	if limit := t.E.Limits.Ops; limit > 0 {
		return max(1, (limit-perBlock)/(4+len(cat.Index(be.At))))
	}
	return math.MaxInt
}

// Room is [occ.Txn.Room] for a plan that met blocks with ended leases or cooldowns: without them it may fit.
func (t *Txn) Room() error {
	err := t.Txn.Room()
	if len(t.aged) > 0 && errors.Is(err, ipalloc.ErrLimit) {
		return &ErrDue{slices.Clone(t.aged)}
	}
	return err
}
