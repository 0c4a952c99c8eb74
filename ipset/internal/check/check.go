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

// Check examines a snapshot of all records as [ipset.Operator.Check] examines a store. It is pure.
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
