package bench

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// pool6 is the pool of all IPv6 work. Its children are /72 or /96 and have their
// ordinals across the 64-bit halves of an address.
var pool6 = netip.MustParsePrefix("fd00::/32")

// orders6 are log2 of the children of those sets.
var orders6 = []int{40, 64}

func each6(b *testing.B, f func(b *testing.B, order int)) {
	for _, order := range orders6 {
		b.Run(size(order), func(b *testing.B) { f(b, order) })
	}
}

func newSet6(order int) (*cidrset.Set, addr.Codec) {
	bits := pool6.Bits() + order
	return must(cidrset.New(pool6, bits)), must(addr.NewCodec(pool6, bits))
}

// churned6 returns a churn of a set of 2^order children, of which only 2^16 are not
// occupied as a few prefixes, and every second of these.
func churned6(order int) *churn[*cidrset.Set] {
	const open = 16
	s, codec := newSet6(order)
	must(s.Occupy(pool6))
	must(s.Release(codec.PrefixOf(1<<(order-1), codec.ChildBits()-open)))
	child := func(i uint64) netip.Prefix { return codec.Prefix(1<<(order-1) + scatter(i, open)) }
	for i := range uint64(1 << (open - 1)) {
		must(s.Occupy(child(i)))
	}
	win := make([]netip.Prefix, window)
	for i := range win {
		win[i] = child(uint64(i))
	}
	return &churn[*cidrset.Set]{s: s, win: win, bits: windowBits}
}

// BenchmarkIPv6Pair is BenchmarkPair where all but 2^16 children are occupied for
// good, and half of those 2^16 are free.
func BenchmarkIPv6Pair(b *testing.B) {
	each6(b, func(b *testing.B, order int) {
		c := churned6(order)
		for b.Loop() {
			c.step()
		}
	})
}

// BenchmarkIPv6Far is BenchmarkFar.
func BenchmarkIPv6Far(b *testing.B) {
	each6(b, func(b *testing.B, order int) {
		f := newFar(pool6, order)
		for b.Loop() {
			f.step()
		}
	})
}

// BenchmarkIPv6Sparse gives back and occupies one of 4,096 children that are
// scattered all over the set, each alone in its neighbourhood.
func BenchmarkIPv6Sparse(b *testing.B) {
	each6(b, func(b *testing.B, order int) {
		s, codec := newSet6(order)
		win := make([]netip.Prefix, window)
		for i := range win {
			win[i] = codec.Prefix(scatter(uint64(i), order))
			must(s.Occupy(win[i]))
		}
		x := random(1)
		for b.Loop() {
			p := win[x.below(windowBits)]
			if _, err := s.Release(p); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Occupy(p); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkIPv6Range is BenchmarkRange.
func BenchmarkIPv6Range(b *testing.B) {
	each6(b, func(b *testing.B, order int) {
		for _, part6 := range []int{6, 20, order - 4} {
			b.Run(fmt.Sprintf("children=2^%d", part6), func(b *testing.B) {
				s, codec := newSet6(order)
				p := codec.PrefixOf(1<<(order-4), codec.ChildBits()-part6)
				for b.Loop() {
					part(s, p, 1<<part6)
				}
			})
		}
	})
}
