package fuzz

import (
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestIPAMSpacesAgainstTwin runs traces in spaces of one store, a step of each in turn. Pools, hosts and handles have the same
// names in all of them, and each space answers as if it were alone.
func TestIPAMSpacesAgainstTwin(t *testing.T) {
	for seed := range seeds.Each(t, 20, 20) {
		db := store.NewMemory()
		var sides []*ipamReplay
		var traces []*model.Trace
		for i, name := range []string{"", "red", "red2"} {
			in := store.Store(db)
			if name != "" {
				var err error
				if in, err = store.Space(db, name); err != nil {
					t.Fatal(err)
				}
			}
			r := newIPAMReplay(t, ipamPools, in)
			r.begin([2]int{0, 3})
			sides, traces = append(sides, r), append(traces, model.NewTrace(randomBytes(seed*3+uint64(i)+5000, 600)))
		}
		for range 300 {
			for i, r := range sides {
				r.next(traces[i])
			}
		}
	}
}
