package prefixes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// fill returns an allocator with n prefixes of mixed sizes held from a pool of IPv6, and
// some hundred holes.
func fill(b *testing.B, n int) (*prefixes.Allocator, netip.Prefix) {
	b.Helper()
	ctx := context.Background()
	a, err := prefixes.New(store.NewMemory(), prefixes.Options{})
	if err != nil {
		b.Fatal(err)
	}
	pool := netip.MustParsePrefix("2001:db8::/32")
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: pool, Sizes: prefixes.Sizes{Shortest: 33, Longest: 64}}); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		h, err := a.Allocate(ctx, prefixes.Request{Pool: pool, Owner: fmt.Sprint("node-", i), Bits: 56 + rng.IntN(9)})
		if err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			if err := a.Release(ctx, h.Owner, h.Prefix); err != nil {
				b.Fatal(err)
			}
		}
	}
	return a, pool
}

// BenchmarkPair allocates a prefix of a random length and releases it, with n prefixes of
// /56 to /64 held.
func BenchmarkPair(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("held=%d", n), func(b *testing.B) {
			ctx := context.Background()
			a, pool := fill(b, n)
			rng := rand.New(rand.NewPCG(3, 4))
			b.ReportAllocs()
			for b.Loop() {
				h, err := a.Allocate(ctx, prefixes.Request{Pool: pool, Owner: "a-node-with-a-name", Bits: 56 + rng.IntN(9)})
				if err == nil {
					err = a.Release(ctx, h.Owner, h.Prefix)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
