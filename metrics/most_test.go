package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// The hosts with most blocks are the first of all in order, and the others are summed.
func TestMost(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for count := range 40 {
		var hosts []hostView
		for i := range count {
			hosts = append(hosts, hostView{alloc.HostOwner(fmt.Sprintf("%02d", i)), float64(random.IntN(4)), float64(random.IntN(3))})
		}
		all := most(slices.Clone(hosts), max(count, 1))
		for i := 1; i < len(all); i++ {
			if a, b := all[i-1], all[i]; a.blocks < b.blocks || a.blocks == b.blocks && (a.used < b.used || a.used == b.used && a.owner.Name > b.owner.Name) {
				t.Fatalf("%v before %v", a, b)
			}
		}
		for n := 1; n < 12; n++ {
			got, others := most(hosts, n), hostView{}
			if count <= n {
				if !slices.Equal(got, all) {
					t.Fatalf("%d of %d: %v", n, count, got)
				}
				continue
			}
			for _, h := range all[n:] {
				others.blocks += h.blocks
				others.used += h.used
			}
			if !slices.Equal(got, append(slices.Clone(all[:n]), others)) {
				t.Fatalf("%d of %d: %v", n, count, got)
			}
		}
	}
}
