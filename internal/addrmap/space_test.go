package addrmap

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// span returns the span of a prefix.
func span(p string, st State, label string) Span {
	lo, hi := Of(netip.MustParsePrefix(p))
	return Span{lo, hi, st, label}
}

// space returns a space of spans given as prefixes.
func space(pool string, finest int, spans ...Span) *Space {
	s := &Space{Pool: netip.MustParsePrefix(pool), Finest: finest}
	for _, sp := range spans {
		s.Add(sp)
	}
	return s
}

func TestLargestFree(t *testing.T) {
	for _, c := range []struct {
		s    *Space
		want string
	}{
		{space("10.0.0.0/24", 26), "10.0.0.0/24"},
		{space("10.0.0.0/24", 26, span("10.0.0.0/24", Used, "")), "invalid Prefix"},
		{space("10.0.0.0/24", 26, span("10.0.0.0/26", Idle, "a")), "10.0.0.128/25"},
		{space("10.0.0.0/24", 26, span("10.0.0.64/32", Used, "a")), "10.0.0.128/25"},
		{space("10.0.0.0/24", 26, span("10.0.0.0/32", Used, ""), span("10.0.0.255/32", Used, "")), "10.0.0.64/26"},
		{space("::/0", 64), "::/0"},
		{space("::/0", 64, span("::/64", Used, "")), "8000::/1"},
		{space("fd00::/8", 64, span("fd00::/9", Used, "")), "fd80::/9"},
		{space("255.255.255.255/32", 32), "255.255.255.255/32"},
	} {
		if got, _ := c.s.LargestFree(); got.String() != c.want {
			t.Errorf("%v with %d spans: %v, want %s", c.s.Pool, len(c.s.Spans), got, c.want)
		}
	}
}

// random returns a space whose addresses have random states, and these.
func random(rng *rand.Rand, pool netip.Prefix) (*Space, []State) {
	lo, _ := Of(pool)
	s := &Space{Pool: pool}
	all := make([]State, 1<<(pool.Addr().BitLen()-pool.Bits()))
	for i := 0; i < len(all); {
		n := min(1+rng.IntN(40), len(all)-i)
		st := State(rng.IntN(int(Leaked) + 1))
		if st != Free {
			s.Add(Span{lo.Add(addr.U128{Lo: uint64(i)}), lo.Add(addr.U128{Lo: uint64(i + n - 1)}), st, ""})
		}
		for ; n > 0; n-- {
			all[i] = st
			i++
		}
	}
	return s, all
}

// Gaps are the addresses that are free and the idle ones, in prefixes that do not overlap, each with the state of its addresses.
func TestGapsAreWhatAddressesSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		pool := netip.MustParsePrefix("10.0.0.0/23")
		if rng.IntN(2) == 0 {
			pool = netip.MustParsePrefix("fd00::fe00/119")
		}
		s, all := random(rng, pool)
		base, _ := Of(pool)
		got := make([]State, len(all))
		for i := range got {
			got[i] = Used
		}
		last := netip.Prefix{}
		for p, sp := range s.Gaps() {
			lo, hi := Of(p)
			if p != p.Masked() || last.IsValid() && (last.Overlaps(p) || last.Addr().Compare(p.Addr()) > 0) {
				t.Fatalf("%v after %v", p, last)
			}
			for i := lo.Sub(base).Lo; i <= hi.Sub(base).Lo; i++ {
				got[i] = sp.State
			}
			last = p
		}
		for i, st := range all {
			if st.taken() {
				st = Used
			}
			if got[i] != st {
				t.Fatalf("%v: address %d is %v, want %v", pool, i, got[i], st)
			}
		}
		for range s.Gaps() {
			break // a loop may end early
		}
	}
}
