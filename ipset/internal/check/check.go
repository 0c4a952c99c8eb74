package check

import (
	"context"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A check trusts nothing that can be derived: it derives every index record, list and page again from blocks and addresses, with the
// functions of the writer, and compares.

// Check examines a snapshot of all records, in key order as [store.Store.List] returns them: that every record can be read,
// that blocks neither overlap nor lie where no pool made them, that every address record is what its block says, and that every
// index record, number of blocks of an owner and page of a pool is what the blocks and addresses say. If uses is not nil it is compared
// with what is held. Neither a cooling address counts as unused nor one with a lease, which ends by itself unless its holder
// renews it.
//
// It is pure. The report's Repair can be read before it is given to [Operator.Repair]. It keeps some 200 bytes a block and, of
// what is in order, nothing for an address without uses and some 80 bytes with them; see [Operator.Check].
func Check(recs []store.Record, uses iter.Seq[audit.InUse]) *audit.Report {
	byKey := func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(recs, byKey) {
		recs = slices.SortedStableFunc(slices.Values(recs), byKey)
	}
	c := newChecker(context.Background(), Snapshot(recs), math.MinInt64, store.Limits{})
	_ = c.run(uses) // a snapshot can be read
	return c.rep
}

// Check carries out the call of that name.
func (e *Checker) Check(ctx context.Context, uses iter.Seq[audit.InUse]) (*audit.Report, error) {
	now, err := e.Past()
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "check", Err: err})
	}
	c := newChecker(ctx, e.Store, now, e.Limits)
	if err := c.run(uses); err != nil {
		return nil, err
	}
	return c.rep, nil
}
