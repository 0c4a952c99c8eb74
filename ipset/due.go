package ipset

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
)

// Time ends leases and cooldowns without a commit; the plan that next meets the block writes that beside its own changes. Where the
// limits of the store leave no room for it, the plan ends with errDue, time is written in commits of its own, and the plan is
// made again. A plan therefore decides by the present, not by what fits into its commit.

// errDue is the answer of a plan that met blocks in which more has ended than its commit can write.
type errDue struct{ blocks []netip.Prefix }

func (e *errDue) Error() string { return "leases or cooldowns have ended, and are written first" }

// do carries out a plan, after what has to be written first.
func (e *Engine) do(ctx context.Context, p occ.Plan[*txn]) error {
	for {
		err := e.run.Do(ctx, p)
		if err == nil {
			return nil
		}
		var due *errDue
		if !errors.As(err, &due) {
			return err
		}
		for _, b := range due.blocks {
			if err := e.advance(ctx, b); err != nil {
				return err
			}
		}
	}
}

// advance writes what time has changed in a block, in as many commits as that takes.
func (e *Engine) advance(ctx context.Context, b netip.Prefix) error {
	for p := (advancePlan{block: b, more: true}); p.more; {
		if err := e.run.Do(ctx, &p); err != nil {
			return err
		}
	}
	return nil
}

// advanceSome ends leases and cooldowns of a block, at most so many each beside those that wait to be written. It reports whether
// that is all that have ended by now.
func (t *txn) advanceSome(cat *catalogEntry, be *blockEntry, most int) (all bool, err error) {
	if lease, cooled := be.Due(t.past); lease || cooled {
		if most -= len(be.changes.List); most <= 0 {
			return false, nil
		}
		if lease && be.Absent() > 0 {
			err = t.fetchAll(be)
		} else if cooled {
			err = t.fetchCooling(be)
		}
		if err != nil {
			return false, err
		}
		be.AdvanceTo(t.past, cat.cooldown(be.at), most)
	}
	return !be.isDue(t.past), nil
}

// isDue reports whether a lease or a cooldown has ended that the cached block still has.
func (be *blockEntry) isDue(past int64) bool {
	if be.Block == nil {
		return false
	}
	lease, cooled := be.Due(past)
	return lease || cooled
}

// mostEnds is how many leases and cooldowns each a plan ends in one block beside its own changes: a third of what a commit
// takes, at up to three records a lease and one for each indexed attribute.
func (t *txn) mostEnds(cat *catalogEntry, be *blockEntry) int {
	if limit := t.e.limits.Ops; limit > 0 {
		return max(1, limit/(8+2*len(cat.index(be.at))))
	}
	return math.MaxInt
}

// mostEndsAlone is mostEnds for a commit that does nothing else.
func (t *txn) mostEndsAlone(cat *catalogEntry, be *blockEntry) int {
	if limit := t.e.limits.Ops; limit > 0 {
		return max(1, (limit-opsPerBlock-maxPages)/(opsPerAddress+1+len(cat.index(be.at))))
	}
	return math.MaxInt
}

// Room is [occ.Txn.Room] for a plan that met blocks with ended leases or cooldowns: without them it may fit.
func (t *txn) Room(n int) error {
	err := t.Txn.Room(n)
	if len(t.aged) > 0 && errors.Is(err, ipalloc.ErrLimit) {
		return &errDue{slices.Clone(t.aged)}
	}
	return err
}
