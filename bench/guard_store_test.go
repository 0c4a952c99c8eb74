package bench

import (
	"context"
	"testing"

	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// trips counts the calls of a store, and the operations of its commits.
type trips struct {
	*store.Memory
	calls [4]int // gets, lists, commits, operations
}

func (s *trips) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	s.calls[0]++
	return s.Memory.Get(ctx, dst, keys...)
}

func (s *trips) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	s.calls[1]++
	return s.Memory.List(ctx, r)
}

func (s *trips) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	s.calls[2]++
	s.calls[3] += len(ops)
	return s.Memory.Commit(ctx, ops)
}

// TestGuardTrips counts what a pair of calls asks of its store in steady state, and what it
// allocates. The counts are exact. On a store that is not in memory, a round trip costs more than
// anything that an engine computes.
func TestGuardTrips(t *testing.T) {
	for _, c := range []struct {
		name string
		most [5]float64 // gets, lists, commits, operations, allocations
		open func(store.Store) side
	}{
		{"ipset/assign/release=handle", [5]float64{0, 2, 2, 9, 15}, ipsetPair},
		{"ipset/autoassign/release=address", [5]float64{0, 0, 2, 9, 10}, ipsetAutoPair},
		{"ipset/autoassign/request=key", [5]float64{0, 0.04, 2.04, 13, 19}, ipsetRequestPair},
		{"prefixes/assign/release=owner", [5]float64{0, 1, 2, 9, 19}, prefixesPair},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &trips{Memory: store.NewMemory()}
			do := c.open(s)
			do(64)
			s.calls = [4]int{}
			const n = 64
			do(n)
			var got [5]float64
			for i, calls := range s.calls {
				got[i] = float64(calls) / n
			}
			if !raced && !invariant.Enabled {
				got[4] = testing.AllocsPerRun(256, func() { do(1) })
			}
			for i, what := range []string{"gets", "lists", "commits", "operations", "allocations"} {
				t.Logf("%.2f %s, at most %v", got[i], what, c.most[i])
				if got[i] > c.most[i] {
					t.Errorf("%.2f %s, want at most %v", got[i], what, c.most[i])
				}
			}
		})
	}
}
