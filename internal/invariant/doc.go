// Package invariant holds assertions and step counters that cost nothing unless
// the program is built with the tag "invariants".
//
// A caller guards every use with the constant [Enabled], so that the compiler
// removes both the test and its arguments from an ordinary build:
//
//	if invariant.Enabled {
//		invariant.Step(1)
//	}
//
// Steps are what the complexity promises of package bitmap are stated in: one
// step is one 64-bit word or one tree node looked at. Tests read them with
// [Steps] to prove a bound that no clock could.
package invariant
