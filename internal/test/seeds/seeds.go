// Package seeds hands out the seeds of random tests and reports how much was tried.
//
// A test loops over [Each] and makes one round of each seed. Its rounds are the same each
// time, so a change that breaks one breaks it everywhere. Two variables change that, as
// make prove does:
//
//	IPALLOC_SEED=N       begin with seed N; without the other variable, that round alone
//	IPALLOC_FOR=30s      add seeds until the time is over
//
// A round that fails prints its seed. The line that repeats it is IPALLOC_SEED=N go test
// -run with the name of the test.
package seeds

import (
	"iter"
	"os"
	"strconv"
	"testing"
	"time"
)

// The variables of the environment.
const (
	Seed = "IPALLOC_SEED"
	For  = "IPALLOC_FOR"
)

// Chosen reports whether the environment chooses the seeds. A test must not expect then
// that its rounds meet a rare case.
func Chosen() bool { return os.Getenv(Seed) != "" || os.Getenv(For) != "" }

// Each yields the seeds 0 to full-1, or 0 to short-1 under -short, unless the environment
// chooses others. It prints the number of rounds, and the seed of a round that fails.
func Each(t testing.TB, short, full int) iter.Seq[uint64] {
	t.Helper()
	n := uint64(full)
	if testing.Short() {
		n = uint64(short)
	}
	first, length := chosen(t)
	if Chosen() {
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
		deadline := time.Now().Add(length)
		for seed-first < n || length > 0 && time.Now().Before(deadline) {
			running = true
			more := yield(seed)
			running = false
			tell()
			seed++
			if !more {
				break
			}
		}
		Tried(t, seed-first, "rounds")
	}
}

// Tried prints how much a test tried, in the form that make prove adds up.
func Tried(t testing.TB, n uint64, what string) {
	t.Helper()
	t.Logf("tried: %d %s", n, what)
}

// chosen returns the first seed and the time that the environment names.
func chosen(t testing.TB) (first uint64, length time.Duration) {
	t.Helper()
	var err error
	if s := os.Getenv(Seed); s != "" {
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", Seed, err)
		}
	}
	if s := os.Getenv(For); s != "" {
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", For, err)
		}
	}
	return first, length
}
