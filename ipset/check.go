package ipset

import (
	"context"
	"iter"
)

// Check reads everything of the engine's space and examines it; see the function [Check]. uses may be nil. To check a whole
// store, check the space without a name and each of [Engine.Spaces].
//
// It reads a page of records at a time, each address and each index record once if they agree. Commits may be made meanwhile:
// what does not agree is read again, with the block that it is about, in one consistent view, and is a problem if it does
// not agree there either. [Report.Unsettled] counts what changed too often for that.
//
// uses is iterated after everything that is held has been read, and has to yield what is in use at that moment, or later. What does
// not agree with it is read once more, so nothing assigned or released meanwhile is a problem. A list that was made before the
// check lacks what has been assigned since, which counts as unused: do not repair by it while others assign. A lease that has ended
// holds nothing.
func (e *Engine) Check(ctx context.Context, uses iter.Seq[InUse]) (*Report, error) {
	return e.check.Check(ctx, uses)
}
