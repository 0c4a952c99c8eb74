// Package invariant provides step counters and assertions that cost nothing unless the
// program is built with the tag "invariants".
//
// A caller guards every use with the constant [Enabled], because the compiler then
// removes the call and its arguments from an ordinary build:
//
//	if invariant.Enabled {
//		invariant.Step(1)
//	}
//
// The complexity promises of package bitmap are stated in steps. One step is one 64-bit
// word or one tree node read. Tests compare [Steps] with a bound, which the speed of the
// machine does not affect.
package invariant
