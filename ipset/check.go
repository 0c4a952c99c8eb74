package ipset

import (
	"context"
	"iter"

	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Check reads all records of the engine's space. It verifies that each can be read, that blocks do not overlap and lie where a
// pool made them, and that address records, index records, block counts of owners and pages of pools agree with the blocks and
// addresses. If uses is not nil it is compared with the addresses held. A cooling address, and one with a lease, never count as
// unused: a lease ends by itself unless its holder renews it. To check a whole store, check the space without a name and each of
// [Operator.Spaces].
//
// The report's Repair can be read before it is given to [Operator.Repair]. A check keeps some 200 bytes a block in memory; for an
// address in order it keeps nothing without uses and some 80 bytes with them.
//
// It reads a page of records at a time, each address and each index record once if they agree. Commits may be made meanwhile:
// records that disagree are read again, with their block, in one consistent view, and are a problem if they disagree there
// too. [audit.Report.Unsettled] counts those that changed too often for that.
//
// uses is iterated after all addresses have been read, and must yield those in use at that moment or later. Addresses that
// disagree with it are read once more, so nothing assigned or released meanwhile is a problem. A list made before the check lacks
// addresses assigned since, which then count as unused: do not repair by it while others assign. A lease that has ended holds
// nothing.
//
// If a later release of this module has written a block, an address, an answer to a request or the pools in a form that this one
// cannot read, the report says so and has no Repair, because only that release can read it.
func (o Operator) Check(ctx context.Context, uses iter.Seq[audit.InUse]) (*audit.Report, error) {
	r, err := o.e.check.Check(ctx, uses)
	return r, cause.Op("check", err)
}

// Repair carries out the steps of a report, each in a commit of its own on the revisions that were checked, and returns the
// number of steps done. It skips a step whose records have changed; the next check examines them again. It continues after a
// step that is refused for another reason, such as [ipalloc.ErrCorrupt], and returns those errors joined at the end. Any other
// error ends it.
func (o Operator) Repair(ctx context.Context, steps []audit.Step) (done int, err error) {
	return o.e.check.Repair(ctx, steps)
}
