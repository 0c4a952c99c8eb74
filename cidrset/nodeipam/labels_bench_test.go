package nodeipam_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/selector"
)

// overlapping returns an allocator with two entries that share one /8, in children
// of different size, and n nodes that go to them in turn.
func overlapping(tb testing.TB, n int) (*nodeipam.Allocator, []nodeipam.Node) {
	tb.Helper()
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true, Families: []nodeipam.Family{nodeipam.IPv4}})
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range []struct {
		name string
		bits int
	}{{"large", 8}, {"small", 5}} {
		err := a.AddEntry(nodeipam.Entry{
			Name: e.name, IPv4: netip.MustParsePrefix("10.0.0.0/8"), HostBits: e.bits,
			Selector: selector.Selector{{Labels: []selector.Requirement{{Key: "size", Op: selector.In, Values: []string{e.name}}}}},
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	labels := []map[string]string{{"size": "large"}, {"size": "small"}}
	nodes := make([]nodeipam.Node, n)
	for i := range nodes {
		nodes[i] = nodeipam.Node{Name: fmt.Sprintf("node-%06d", i), Labels: labels[i%2]}
	}
	return a, nodes
}

// BenchmarkFillByLabels allocates for n nodes over two overlapping pools of different child
// size; an operation is all of them. 5,000 take less than 15 ms.
func BenchmarkFillByLabels(b *testing.B) {
	for _, n := range []int{1000, 5000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				a, nodes := overlapping(b, n)
				b.StartTimer()
				for i := range nodes {
					if _, err := a.Allocate(nodes[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/node")
		})
	}
}

// BenchmarkPairByLabels releases one node and allocates for it again while n nodes hold
// something.
func BenchmarkPairByLabels(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			a, nodes := overlapping(b, n)
			for i := range nodes {
				if _, err := a.Allocate(nodes[i]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 7919) % n
				if _, ok := a.Release(nodes[i].Name); !ok {
					b.Fatal("held nothing")
				}
				if _, err := a.Allocate(nodes[i]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoadByLabels records n nodes at start-up, each with its entry.
func BenchmarkLoadByLabels(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			a, nodes := overlapping(b, n)
			for i := range nodes {
				if _, err := a.Allocate(nodes[i]); err != nil {
					b.Fatal(err)
				}
			}
			var records []nodeipam.Node
			for r := range a.All() {
				records = append(records, r)
			}
			for b.Loop() {
				b.StopTimer()
				fresh, _ := overlapping(b, 0)
				b.StartTimer()
				if problems := fresh.Load(records); len(problems) > 0 {
					b.Fatal(problems[0])
				}
			}
		})
	}
}
