package ipset

import (
	"context"
	"iter"

	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Check reads everything of the engine's space and examines it: that every record can be read, that blocks neither overlap nor lie where
// no pool made them, that every address record is what its block says, and that every index record, number of blocks of an owner and
// page of a pool is what the blocks and addresses say. If uses is not nil it is compared with what is held. A cooling address,
// and one with a lease, never count as unused: a lease ends by itself unless its holder renews it. To check a whole store, check the space
// without a name and each of [Operator.Spaces].
//
// The report's Repair can be read before it is given to [Operator.Repair]. A check keeps some 200 bytes a block and, of what is in
// order, nothing for an address without uses and some 80 bytes with them.
//
// It reads a page of records at a time, each address and each index record once if they agree. Commits may be made meanwhile:
// what does not agree is read again, with the block that it is about, in one consistent view, and is a problem if it does
// not agree there either. [audit.Report.Unsettled] counts what changed too often for that.
//
// uses is iterated after everything that is held has been read, and has to yield what is in use at that moment, or later. What does
// not agree with it is read once more, so nothing assigned or released meanwhile is a problem. A list that was made before the
// check lacks what has been assigned since, which counts as unused: do not repair by it while others assign. A lease that has ended
// holds nothing.
//
// Where a later release has written a block, an address, an answer to a request or the pools in a form that this one does not read,
// the report says so and has no Repair: only that release knows what they hold.
func (o Operator) Check(ctx context.Context, uses iter.Seq[audit.InUse]) (*audit.Report, error) {
	r, err := o.e.check.Check(ctx, uses)
	return r, cause.Op("check", err)
}

// Repair carries out the steps of a report, each in a commit of its own on the revisions that were checked, and returns the
// number of steps done. It leaves out a step whose records have changed; the next check looks at them again. It goes on after a
// step that is refused otherwise, such as with [ipalloc.ErrCorrupt], and returns those errors together at the end. Any other
// error ends it.
func (o Operator) Repair(ctx context.Context, steps []audit.Step) (done int, err error) {
	return o.e.check.Repair(ctx, steps)
}
