package invariant

import (
	"fmt"
	"sync/atomic"
)

var steps atomic.Uint64

// Step counts n words or nodes read. It does nothing when [Enabled] is
// false. It is safe for concurrent use.
func Step(n int) {
	if Enabled {
		steps.Add(uint64(n))
	}
}

// Steps returns the number of steps that the process has counted since it
// started; always 0 when [Enabled] is false. It is safe for concurrent use.
func Steps() uint64 { return steps.Load() }

// Assert panics with the formatted message if ok is false and [Enabled] is true.
func Assert(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant: " + fmt.Sprintf(format, args...))
	}
}
