package nodeipam

import (
	"fmt"
	"net/netip"
	"testing"
)

// records returns n nodes with a prefix of both families.
func records(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		v4 := netip.AddrFrom4([4]byte{10, byte(i >> 12), byte(i >> 4), byte(i << 4)})
		v6 := netip.AddrFrom16([16]byte{0: 0xfd, 5: byte(i >> 16), 6: byte(i >> 8), 7: byte(i)})
		nodes[i] = Node{Name: fmt.Sprintf("node-%06d.example", i), Prefixes: []netip.Prefix{netip.PrefixFrom(v4, 28), netip.PrefixFrom(v6, 64)}}
	}
	return nodes
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		nodes := records(n)
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				a := mustNew(b, dual("10.0.0.0/8", 28, "fd00::/32", 64))
				if problems := a.Load(nodes); len(problems) != 0 {
					b.Fatal(problems[0])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/node")
		})
	}
}

// Allocate and release at several sizes: the cost must not grow with the number
// of nodes but as its logarithm.
func BenchmarkAllocateRelease(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			a := mustNew(b, dual("10.0.0.0/8", 28, "fd00::/32", 64))
			a.Load(records(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Allocate(Node{Name: "another"}); err != nil {
					b.Fatal(err)
				}
				a.Release("another")
			}
		})
	}
}
