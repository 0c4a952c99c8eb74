package cidrset_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
)

// Random picks are among what is free, each as likely as the other, all
// distinct, and the same for the same source.
func TestRandom(t *testing.T) {
	const n, rounds = 32, 6400
	counts := map[netip.Prefix]int{}
	s := newSet(t, "10.0.0.0/26", 32, cidrset.Random(rand.NewPCG(4, 2)))
	for i := range uint64(n) { // every other one is taken
		occupy(t, s, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(2 * i)}), 32).String(), 1)
	}
	for range rounds {
		p, err := s.AllocateNext()
		if err != nil {
			t.Fatal(err)
		}
		counts[p]++
		if _, err := s.Release(p); err != nil {
			t.Fatal(err)
		}
	}
	chi := 0.0
	for p, k := range counts {
		d := float64(k) - rounds/n
		chi += d * d / (rounds / n)
		if p.Addr().As4()[3]%2 == 0 {
			t.Fatalf("%v was taken", p)
		}
	}
	// 61.1 is what 31 degrees of freedom exceed once in a thousand.
	if len(counts) != n || chi > 61.1 {
		t.Fatalf("%d different, chi-square %.1f", len(counts), chi)
	}
	if got := s.Cursor(); got != pfx("10.0.0.0/32") {
		t.Fatalf("the cursor is at %v", got)
	}
}

// The same trace with the same source and clock gives the same answers and the
// same bytes, whatever the policy.
func TestDeterministic(t *testing.T) {
	for _, k := range kinds {
		var answers [2]bytes.Buffer
		for i := range answers {
			opt, clock := cooldown(5)
			opts := k.options()
			if k.name == "cooldown" { // on a clock of its own
				opts = []cidrset.Option{opt}
			} else if len(opts) > 1 {
				opts = []cidrset.Option{opt, cidrset.LowestFirst()}
			}
			s := newSet(t, "10.0.0.0/22", 28, opts...)
			rng := rand.New(rand.NewPCG(8, 8))
			for range 500 {
				clock.second += rng.Int64N(3) - 1
				var p netip.Prefix
				var err error
				switch p = randomPrefix(rng, s); rng.IntN(5) {
				case 0, 1:
					p, err = s.AllocateNext()
				case 2:
					p, err = s.AllocatePrefix(p.Bits())
				case 3:
					_, err = s.Occupy(p)
				case 4:
					_, err = s.Release(p)
				}
				answers[i].WriteString(p.String())
				if err != nil {
					answers[i].WriteString(err.Error())
				}
				answers[i].Write(snapshot(t, s))
			}
		}
		if !bytes.Equal(answers[0].Bytes(), answers[1].Bytes()) {
			t.Fatalf("%s: another run, other answers", k.name)
		}
	}
}

// randomPrefix returns an aligned prefix in the pool, most often a child.
func randomPrefix(rng *rand.Rand, s *cidrset.Set) netip.Prefix {
	b := s.Pool().Addr().AsSlice()
	for i := s.Pool().Bits(); i < s.ChildBits(); i++ {
		if rng.IntN(2) == 1 {
			b[i/8] |= 0x80 >> (i % 8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, s.ChildBits()-rng.IntN(rng.IntN(s.ChildBits()-s.Pool().Bits()+1)+1)).Masked()
}
