// Package seeds provides the seeds of random tests.
//
// A test loops over [Each] and makes one round of each seed. Its rounds are the same each
// time, so a change that breaks one breaks it everywhere. IPALLOC_SEED=N runs the round of
// seed N alone; make prove does so with new seeds.
//
// A round that fails prints its seed. IPALLOC_SEED=N go test -run with the name of the
// test repeats it.
package seeds

import (
	"iter"
	"os"
	"strconv"
	"testing"
)

// Seed is the variable of the environment that names the seed.
const Seed = "IPALLOC_SEED"

// Chosen reports whether the environment chooses the seed. A test must not expect then
// that its round meets a rare case.
func Chosen() bool { return os.Getenv(Seed) != "" }

// Each yields the seeds 0 to full-1, or 0 to short-1 under -short, unless the environment
// chooses one. It prints the seed of a round that fails.
func Each(t testing.TB, short, full int) iter.Seq[uint64] {
	t.Helper()
	n := uint64(full)
	if testing.Short() {
		n = uint64(short)
	}
	first := uint64(0)
	if Chosen() {
		var err error
		if first, err = strconv.ParseUint(os.Getenv(Seed), 10, 64); err != nil {
			t.Fatalf("%s: %v", Seed, err)
		}
		n = 1
	}
	return func(yield func(uint64) bool) {
		t.Helper()
		seed, running, told := first, false, t.Failed()
		tell := func() { // deferred too, because t.Fatal ends the goroutine within yield
			t.Helper()
			if !told && (running || t.Failed()) {
				told = true
				t.Logf("to repeat: %s=%d", Seed, seed)
			}
		}
		defer tell()
		for seed-first < n {
			running = true
			more := yield(seed)
			running = false
			tell()
			seed++
			if !more {
				break
			}
		}
	}
}
