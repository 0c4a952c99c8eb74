package cidrset_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// Lowest first looks at nothing but what is free.
func TestLowestFirst(t *testing.T) {
	s := newSet(t, "10.0.0.0/29", 32, cidrset.LowestFirst())
	next(t, s, "10.0.0.0/32")
	next(t, s, "10.0.0.1/32")
	release(t, s, "10.0.0.0/32", 1)
	next(t, s, "10.0.0.0/32")
	occupy(t, s, "10.0.0.2/31", 2)
	next(t, s, "10.0.0.4/32")
	release(t, s, "10.0.0.3/32", 1)
	batch := make([]netip.Prefix, 3)
	if err := s.AllocateN(batch); err != nil || batch[0] != pfx("10.0.0.3/32") || batch[1] != pfx("10.0.0.5/32") || batch[2] != pfx("10.0.0.6/32") {
		t.Fatal(batch, err)
	}
	if got := s.Cursor(); got != pfx("10.0.0.0/32") {
		t.Fatalf("the cursor is at %v", got)
	}
	next(t, s, "10.0.0.7/32")
	if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
}

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

// Draining at random gives each child once, also through batches.
func TestRandomDrains(t *testing.T) {
	for _, batch := range []int{1, 7, 64} {
		s := newSet(t, "10.0.0.0/18", 28, cidrset.Random(rand.NewPCG(1, 1)))
		seen := map[netip.Prefix]bool{}
		ordered := true
		var prev netip.Prefix
		dst := make([]netip.Prefix, batch)
		for {
			if batch == 1 {
				dst[0], _ = s.AllocateNext()
				if !dst[0].IsValid() {
					break
				}
			} else if err := s.AllocateN(dst); err != nil {
				break
			}
			for _, p := range dst {
				ordered = ordered && (!prev.IsValid() || prev.Addr().Less(p.Addr()))
				prev = p
				if seen[p] {
					t.Fatalf("%v twice", p)
				}
				seen[p] = true
			}
		}
		if len(seen) != 1024/batch*batch || ordered {
			t.Fatalf("%d seen, ordered: %v", len(seen), ordered)
		}
		used(t, s, uint64(len(seen)))
		check(t, s)
	}
	// Of 2^64 children, the draw is over all 64 bits, the first one as well.
	s := newSet(t, "fd00::/64", 128, cidrset.Random(rand.NewPCG(9, 9)))
	var first, later [8]byte
	for i := range uint64(64) {
		p, err := newSet(t, "fd00::/64", 128, cidrset.Random(rand.NewPCG(i, i))).AllocateNext()
		q, err2 := s.AllocateNext()
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		a, b := p.Addr().As16(), q.Addr().As16()
		for i := range first {
			first[i] |= a[8+i]
			later[i] |= b[8+i]
		}
	}
	if all := [8]byte{255, 255, 255, 255, 255, 255, 255, 255}; first != all || later != all {
		t.Fatalf("the bits drawn are %x and %x", first, later)
	}
	used(t, s, 64)
	occupy(t, s, "fd00::/64", 1<<64-64)
	release(t, s, "fd00::77/128", 1)
	next(t, s, "fd00::77/128")
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

// Policy and cooldown go together; a policy asks fresh children only.
func TestPolicyWithCooldown(t *testing.T) {
	opt, clock := cooldown(60)
	s := newSet(t, "10.0.0.0/29", 32, opt, cidrset.Random(rand.NewPCG(1, 3)))
	first, err := s.AllocateNext()
	if err != nil {
		t.Fatal(err)
	}
	release(t, s, first.String(), 1)
	clock.second += 100
	for range 7 { // it has cooled, but never-used ones come first
		p, err := s.AllocateNext()
		if err != nil || p == first {
			t.Fatal(p, err)
		}
	}
	next(t, s, first.String())
	if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
}
