package storm

import (
	"flag"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// TestMain has one processor: on two, goroutines that one event wakes would go on in an order that no seed decides.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

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

// TestPlanted plants faults: the checker of the model's transitions rejects a commit or an answer.
func TestPlanted(t *testing.T) {
	for fault, report := range map[string]string{
		dropsGuard:   "its block is not expected at a revision",
		losesCommit:  "which it was not given",
		releasesLate: "and no call releases it",
	} {
		found := false
		for seed := uint64(0); seed < 200 && !found; seed++ {
			synctest.Test(t, func(*testing.T) {
				_, err := runWith(seed, fault)
				found = err != nil && strings.Contains(err.Error(), report)
			})
		}
		if !found {
			t.Errorf("not found: %s", fault)
		}
	}
}
