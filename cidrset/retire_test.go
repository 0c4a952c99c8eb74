package cidrset

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// A set in a wide pool does not grow with the releases of its life: neither its memory
// nor its snapshot, under every policy, and not after a restart.
func TestCooledRunsAreBounded(t *testing.T) {
	pool := netip.MustParsePrefix("fd00::/64")
	for name, opts := range map[string][]Option{"round robin": nil, "lowest": {LowestFirst()}, "random": {Random(rand.NewPCG(1, 2))}} {
		now := time.Unix(1000, 0)
		opts := append(opts, Cooldown(time.Second, func() time.Time { return now }))
		s, err := New(pool, 128, opts...)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for round := range 4 * mostRuns {
			p, err := s.AllocateNext()
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(10 * time.Second)
			if _, err := s.Release(p); err != nil {
				t.Fatal(err)
			}
			if n := len(s.cooling.runs); n > mostRuns+3 {
				t.Fatalf("%s: %d runs after %d rounds", name, n-1, round+1)
			}
			if (round+1)%mostRuns != 0 {
				continue
			}
			data, _ := s.MarshalBinary()
			if size == 0 {
				size = len(data)
			}
			if len(data) > 2*size+4096 {
				t.Fatalf("%s: a snapshot of %d bytes after %d rounds, of %d after the first", name, len(data), round+1, size)
			}
			if s, err = Restore(pool, 128, data, opts...); err != nil {
				t.Fatal(err)
			}
			if again, _ := s.MarshalBinary(); !bytes.Equal(data, again) {
				t.Fatalf("%s: not the same after a restart", name)
			}
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// Whichever runs leave the queue, no child is handed out before it has cooled, the next
// one is taken of what is free, and every derived value is right.
func TestRetiredRunsHaveCooled(t *testing.T) {
	const children, wait = 64, 10 * time.Second
	for seed := range seeds.Each(t, 40, 40) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		now := time.Unix(1000, 0)
		s, err := New(netip.MustParsePrefix("10.0.0.0/26"), 32, Cooldown(wait, func() time.Time { return now }))
		if err != nil {
			t.Fatal(err)
		}
		s.cooling.most = 1 + int(seed%4)
		var released [children]time.Time
		var taken [children]bool
		got := func(p netip.Prefix) {
			lo, hi, _, _ := s.locate(p)
			for i := lo; i <= hi; i++ {
				if taken[i] || now.Before(released[i].Add(wait)) {
					t.Fatalf("seed %d: %v of %v is taken (%v) or was released %v ago", seed, i, p, taken[i], now.Sub(released[i]))
				}
				taken[i] = true
			}
		}
		for range 600 {
			now = now.Add(time.Duration(rnd.IntN(4)) * time.Second)
			switch rnd.IntN(6) {
			case 0:
				if p, err := s.AllocatePrefix(28 + rnd.IntN(5)); err == nil {
					got(p)
				}
			case 1, 2:
				if p, err := s.AllocateNext(); err == nil {
					got(p)
				} else if !errors.Is(err, ipalloc.ErrFull) && !errors.Is(err, ipalloc.ErrCooling) {
					t.Fatal(err)
				}
			default:
				i := rnd.IntN(children)
				base := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
				p, _ := base.Prefix(27 + rnd.IntN(6))
				lo, hi, _, _ := s.locate(p)
				if _, err := s.Release(p); err != nil {
					t.Fatal(err)
				}
				for i := lo; i <= hi; i++ {
					if taken[i] {
						taken[i], released[i] = false, now
					}
				}
			}
			if err := s.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
