package storm

import (
	"flag"
	"testing"
	"testing/synctest"

	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

func run(t *testing.T, seed uint64) (history string, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { history, err = Run(seed) })
	return history, err
}

var count = flag.Int("seeds", 1000, "number of storms")

// TestStorm has the storms of the seeds from 0 on: each has its own plan of faults and calls.
func TestStorm(t *testing.T) {
	for seed := range seeds.Each(t, *count, *count) {
		if history, err := run(t, seed); err != nil {
			if seeds.Chosen() {
				t.Log(history)
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestSameSeed has some storms twice: their histories are equal.
func TestSameSeed(t *testing.T) {
	for seed := range uint64(100) {
		first, _ := run(t, seed)
		if again, _ := run(t, seed); first != again {
			t.Errorf("seed %d:\n%s\n%s", seed, first, again)
			break
		}
	}
}
