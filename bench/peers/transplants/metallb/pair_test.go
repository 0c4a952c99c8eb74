//go:build transplant

package allocator

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/bench/peers/transplants/metallb/config"
	original "github.com/ipalloc/ipalloc/bench/peers/transplants/metallb/original"
)

// BenchmarkPair allocates the address of a service and unassigns it, on the adapter and on MetalLB's own allocator in turn, with 0, 50 and
// 99 % of a /22 held. Both must choose the same address.
func BenchmarkPair(b *testing.B) {
	pools := &config.Pools{ByName: map[string]*config.Pool{"a": {Name: "a", AutoAssign: true, CIDR: []*net.IPNet{ipnet("10.0.0.0/22")}}}}
	for _, held := range []int{0, 512, 1013} {
		b.Run(fmt.Sprintf("%d_held", held), func(b *testing.B) {
			ours, theirs := New(noopCallback), original.New(noopCallback)
			ours.SetPools(pools)
			theirs.SetPools(pools)
			allocate := func(name string) (took, took2 time.Duration) {
				start := time.Now()
				x, err := ours.Allocate(name, svc, "ipv4", ports("tcp/80"), "", "")
				middle := time.Now()
				y, err2 := theirs.Allocate(name, svc, "ipv4", []original.Port{{Proto: "tcp", Port: 80}}, "", "")
				if err != nil || err2 != nil || !x[0].Equal(y[0]) {
					b.Fatalf("%v, %v; theirs %v, %v", x, err, y, err2)
				}
				return middle.Sub(start), time.Since(middle)
			}
			for i := range held {
				allocate(fmt.Sprint(i))
			}
			var sum, sum2 time.Duration
			for b.Loop() {
				took, took2 := allocate("s")
				start := time.Now()
				ours.Unassign("s")
				middle := time.Now()
				theirs.Unassign("s")
				sum, sum2 = sum+took+middle.Sub(start), sum2+took2+time.Since(middle)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(sum.Nanoseconds())/float64(b.N), "ours-ns")
			b.ReportMetric(float64(sum2.Nanoseconds())/float64(b.N), "theirs-ns")
		})
	}
}
