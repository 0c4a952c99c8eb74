package ipset

import (
	"context"
)

// Repair carries out the steps of a report, each in a commit of its own on the revisions that were checked, and returns the
// number of steps done. It leaves out a step whose records have changed; the next check looks at them again. It goes on after a
// step that is refused otherwise, such as with [ipalloc.ErrCorrupt], and returns those errors together at the end. Any other
// error ends it.
func (e *Engine) Repair(ctx context.Context, steps []Step) (done int, err error) {
	return e.check.Repair(ctx, steps)
}
