package metrics

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// The largest prefix without blocks, beside the complement that netipx computes.
func TestLargestFree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, pool := range []string{"10.0.0.0/24", "0.0.0.0/0", "255.255.255.0/24", "10.0.0.7/32", "::/0", "2001:db8::/32", "ffff:ffff:ffff:ffff::/64"} {
		u := alloc.Utilization{Prefix: netip.MustParsePrefix(pool)}
		width := u.Prefix.Addr().BitLen()
		for n := range 40 {
			var set netipx.IPSetBuilder
			set.AddPrefix(u.Prefix)
			var taken netipx.IPSetBuilder
			for range n {
				bits := u.Prefix.Bits() + random.IntN(min(9, width-u.Prefix.Bits()+1))
				b, err := addressIn(random, u.Prefix).Prefix(bits)
				if err != nil {
					t.Fatal(err)
				}
				if b == u.Prefix && n%2 == 0 {
					continue
				}
				taken.AddPrefix(b)
				set.RemovePrefix(b)
			}
			blocks, err := taken.IPSet()
			if err != nil {
				t.Fatal(err)
			}
			u.Blocks, u.Nested = nil, nil
			var kept []netipx.IPRange
			for _, p := range blocks.Prefixes() {
				switch random.IntN(4) {
				case 0:
					u.Nested = append(u.Nested, p)
					continue
				case 1:
					kept = append(kept, netipx.RangeOfPrefix(p))
					continue
				}
				u.Blocks = append(u.Blocks, alloc.Utilization{Prefix: p})
			}
			free, err := set.IPSet()
			if err != nil {
				t.Fatal(err)
			}
			want := -1
			for _, p := range free.Prefixes() {
				if want < 0 || p.Bits() < want {
					want = p.Bits()
				}
			}
			if got := largestFree(&u, kept); got != want {
				t.Fatalf("%s with %v: /%d, want /%d", pool, blocks.Prefixes(), got, want)
			}
		}
	}
	if got := largestFree(&alloc.Utilization{Blocks: []alloc.Utilization{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}}}, nil); got != -1 {
		t.Errorf("blocks outside every pool: %d", got)
	}
}

// addressIn returns a random address of p.
func addressIn(random *rand.Rand, p netip.Prefix) netip.Addr {
	b := slices.Clone(p.Addr().AsSlice())
	for i := range b {
		keep := max(0, min(8, p.Bits()-8*i))
		b[i] |= byte(random.Uint32()) & byte(0xff>>keep)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
