// Package fuzz drives every allocator and its twin of internal/test/model with the
// same trace, one fuzz target for each. It exports nothing.
//
// A trace is a byte string (see internal/test/model.Trace). So the same corpus serves
// the fuzzer, the seeded property tests of every "go test", and the comparison with
// other projects' allocators in bench/peers.
package fuzz
