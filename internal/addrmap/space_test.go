package addrmap

import (
	"math/rand/v2"
	"net/netip"
	"slices"
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
		if err := c.s.Check(); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.s.LargestFree(); got.String() != c.want {
			t.Errorf("%v with %d spans: %v, want %s", c.s.Pool, len(c.s.Spans), got, c.want)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, s := range []*Space{
		{},
		{Pool: netip.MustParsePrefix("10.0.0.1/24")},
		space("10.0.0.0/24", 23),
		space("10.0.0.0/24", 33),
		space("10.0.0.0/24", 26, span("10.0.1.0/26", Used, "")),
		space("10.0.0.0/24", 26, span("10.0.0.0/25", Used, ""), span("10.0.0.64/26", Idle, "")),
	} {
		if s.Check() == nil {
			t.Errorf("%+v", s)
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

// What gaps and prefixes find is what each address says.
func TestGapsAreWhatAddressesSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		pool := netip.MustParsePrefix("10.0.0.0/23")
		if rng.IntN(2) == 0 {
			pool = netip.MustParsePrefix("fd00::fe00/119")
		}
		s, all := random(rng, pool)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		base, _ := Of(pool)
		for _, blocks := range []bool{false, true} {
			got := make([]bool, len(all))
			for lo, hi := range s.gaps(blocks) {
				last := netip.Prefix{}
				for p := range s.prefixes(lo, hi) {
					plo, phi := Of(p)
					if p != p.Masked() || last.IsValid() && last.Overlaps(p) {
						t.Fatalf("%v after %v", p, last)
					}
					for i := plo.Sub(base).Lo; i <= phi.Sub(base).Lo; i++ {
						got[i] = true
					}
					last = p
				}
			}
			want := make([]bool, len(all))
			for i, st := range all {
				want[i] = st == Free || st == Idle && !blocks
			}
			if !slices.Equal(got, want) {
				t.Fatal(pool, blocks)
			}
		}
	}
}
