package servicealloc

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/servicealloc/internal/bands"
)

// chi2 is the chi-square statistic of counts against a uniform expectation.
func chi2(counts []int) (x float64) {
	total := 0
	for _, n := range counts {
		total += n
	}
	want := float64(total) / float64(len(counts))
	for _, n := range counts {
		x += (float64(n) - want) * (float64(n) - want) / want
	}
	return x
}

// limit is beyond the 99.99th percentile of chi-square with k degrees of freedom, for
// the k that are used here: mean k, standard deviation sqrt(2k).
func limit(k int) float64 {
	d := float64(2 * k)
	s := d / 2
	for range 40 { // Newton for the square root of 2k
		s = (s + d/s) / 2
	}
	return float64(k) + 4.5*s
}

// The random start is uniform over the dynamic band: over each address of a /24, where
// the band has 238 of them, and over 97 equal parts of larger ones.
func TestRandomStartIsUniform(t *testing.T) {
	for seed := range uint64(3) {
		r := newRangeT(t, "10.0.0.0/24", Random(rand.NewPCG(seed, 99)))
		counts := make([]int, 238)
		for range 238 * 200 {
			a, _, err := r.AllocateNext()
			if err != nil {
				t.Fatal(err)
			}
			counts[a.As4()[3]-17]++
			r.Release(a)
		}
		if x := chi2(counts); x > limit(237) {
			t.Errorf("/24, seed %d: chi-square %.0f, limit %.0f", seed, x, limit(237))
		}
		for _, p := range []string{"10.0.0.0/16", "10.0.0.0/8", "fd00::/108", "fd00::/64"} {
			if x := partsOf(t, p, seed, 97); x > limit(96) {
				t.Errorf("%s, seed %d: chi-square %.0f, limit %.0f", p, seed, x, limit(96))
			}
		}
	}
}

// partsOf counts picks in equal parts of the dynamic band.
func partsOf(t *testing.T, p string, seed uint64, parts int) float64 {
	r := newRangeT(t, p, Random(rand.NewPCG(seed, 98)))
	size := r.space.Bands[1].Size
	counts := make([]int, parts)
	for range parts * 200 {
		a, _, err := r.AllocateNext()
		if err != nil {
			t.Fatal(err)
		}
		ord, _ := r.codec.locate(a)
		counts[scaleDown(ord-r.space.Split, size, uint64(parts))]++
		r.Release(a)
	}
	return chi2(counts)
}

// scaleDown returns which of parts equal parts of [0, size) x lies in.
func scaleDown(x, size, parts uint64) uint64 {
	return uint64(float64(x) / float64(size) * float64(parts))
}

// A pick from several ranges falls into each in proportion to the free addresses it has,
// those of nested ranges counted once. Kubernetes goes by the order of a map: 51 to 9
// over two equal ranges.
func TestChoiceOfRangeIsWeighted(t *testing.T) {
	for seed := range uint64(3) {
		r := newRegistryT(t, "", Random(rand.NewPCG(seed, 97)))
		for name, p := range map[string]string{"a": "10.0.0.0/24", "inside": "10.0.0.128/25", "b": "10.1.0.0/22", "c": "10.2.0.0/24"} {
			wantErr(t, r.SetRange(rangeOf(name, p)), nil)
		}
		for i := range 119 { // half of c's dynamic ones
			r.Load([]Grant{{Owner: "x", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(17 + i)})}}})
		}
		// a: 254 less the 16 of its own and the 16 of the /25 in it.
		free := []int{222, 958, 119}
		counts := make([]int, 3)
		const n = 20000
		for range n {
			g, err := r.Allocate("o", Request{Addrs: anyBoth[:1]})
			if err != nil {
				t.Fatal(err)
			}
			counts[g.Addrs[0].As4()[1]]++
			r.Release("o", 0)
		}
		x := 0.0
		for i, f := range free {
			want := n * float64(f) / (222 + 958 + 119)
			x += (float64(counts[i]) - want) * (float64(counts[i]) - want) / want
		}
		if x > 18.4 { // 99.99th percentile for 2 degrees of freedom
			t.Errorf("seed %d: %v for %v free, chi-square %.1f", seed, counts, free, x)
		}
	}
}

// Two ranges of 2^64 addresses each are chosen alike often, which needs sums of more
// than 64 bits.
func TestChoiceOfWideRangesIsWeighted(t *testing.T) {
	r := newRegistryT(t, "fd00::/64 fd01::/64 fd02::/64")
	counts := make([]int, 3)
	for range 3000 {
		g := must(r.Allocate("o", Request{Addrs: anyBoth[1:]}))
		counts[g.Addrs[0].As16()[1]]++
		r.Release("o", 0)
	}
	if x := chi2(counts); x > 18.4 { // 99.99th percentile for 2 degrees of freedom
		t.Errorf("%v, chi-square %.1f", counts, x)
	}
}

// scaleWide agrees with scale where both apply, and stays below n.
func TestScale(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	top := ^uint64(0)
	for range 1000 {
		u, n := rng.Uint64(), rng.Uint64()>>rng.IntN(64)
		if got := scaleWide(u, u128(0, n)); got != u128(0, bands.Scale(u, n)) {
			t.Fatal(u, n, got)
		}
		if n > 0 && bands.Scale(u, n) >= n {
			t.Fatal(u, n)
		}
		wide := u128(n, rng.Uint64())
		if got := scaleWide(u, wide); got.Cmp(wide) >= 0 && !wide.IsZero() {
			t.Fatal(u, wide, got)
		}
	}
	if got := scaleWide(top, u128(top, top)); got != u128(top-1, top) {
		t.Error(got)
	}
}

func u128(hi, lo uint64) addr.U128 { return addr.U128{Hi: hi, Lo: lo} }
