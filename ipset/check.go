package ipset

import (
	"context"
	"iter"

	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Check reads all records of the engine's space. It verifies that each record is
// readable, that blocks do not overlap and are where a pool made them. It also verifies
// that all other records agree with the blocks and addresses. These are address records,
// index records, block counts of owners and pages of pools. If uses is not nil, Check
// compares it with the held addresses. A cooling address and an address with a lease
// never count as unused, because a lease expires unless its holder renews it. To check a
// whole store, check the space without a name and each of [Operator.Spaces].
//
// Read the report's Repair before you pass it to [Operator.Repair]. A check keeps some
// 200 bytes a block in memory. For a consistent address it keeps nothing, or some 80
// bytes if uses is given.
//
// It reads a page of records at a time, and each address and index record once if they
// agree. Other calls may commit meanwhile. Check reads records that disagree again, with
// their block, in one consistent view, and reports a problem if they disagree there too.
// [audit.Report.Unsettled] counts records that changed too often for that.
//
// Check iterates over uses after it has read all addresses; uses must yield the addresses
// in use at that moment or later. Check reads addresses that disagree with uses once
// more, so an address assigned or released meanwhile is not a problem. A list made before
// the check lacks addresses assigned since, which then count as unused. Do not repair
// with such a list while others assign. An expired lease holds nothing.
//
// A later release of this module may have written a block, an address, an answer to a
// request or the pools in a form unknown to this release. The report then says so and has
// no Repair, because only that release can read them.
func (o Operator) Check(ctx context.Context, uses iter.Seq[audit.InUse]) (*audit.Report, error) {
	r, err := o.e.check.Check(ctx, uses)
	return r, cause.Op("check", err)
}

// Repair carries out the steps of a report and returns the number of steps done. Each
// step is a commit of its own, conditional on the revisions that were checked. It skips a
// step whose records have changed; the next check examines them again. It continues after
// a step that fails for another reason, such as [ipalloc.ErrCorrupt], and returns these
// errors joined at the end. Any other error ends it.
func (o Operator) Repair(ctx context.Context, steps []audit.Step) (done int, err error) {
	return o.e.check.Repair(ctx, steps)
}
