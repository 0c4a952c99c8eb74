package cidrset_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// The worked example of the specification, then the way round.
func TestAllocateNextGoesRound(t *testing.T) {
	s := newSet(t, "10.0.0.0/29", 32)
	at := func(want string) {
		t.Helper()
		if got := s.Cursor(); got != pfx(want) {
			t.Fatalf("the cursor is at %v, want %s", got, want)
		}
	}
	at("10.0.0.0/32")
	next(t, s, "10.0.0.0/32")
	next(t, s, "10.0.0.1/32")
	at("10.0.0.2/32")
	release(t, s, "10.0.0.1/32", 1) // does not rewind
	at("10.0.0.2/32")
	next(t, s, "10.0.0.2/32")
	occupy(t, s, "10.0.0.3/32", 1) // does not move it, though it is what comes next
	at("10.0.0.3/32")
	occupy(t, s, "10.0.0.6/32", 1)
	at("10.0.0.3/32")
	next(t, s, "10.0.0.4/32")
	if p, err := s.AllocatePrefix(32); err != nil || p != pfx("10.0.0.1/32") { // leaves it alone.
		t.Fatal(p, err)
	}
	at("10.0.0.5/32")
	release(t, s, "10.0.0.0/31", 2)
	next(t, s, "10.0.0.5/32")
	next(t, s, "10.0.0.7/32")
	at("10.0.0.0/32") // the last one is followed by the first
	next(t, s, "10.0.0.0/32")
	next(t, s, "10.0.0.1/32")
	for range 2 {
		if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
			t.Fatalf("full is %v", err)
		}
		at("10.0.0.2/32")
	}
	release(t, s, "10.0.0.1/32", 1) // at once, because nothing else is free
	next(t, s, "10.0.0.1/32")
	at("10.0.0.2/32")
	if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
}

// Full is found at once, whatever the size and the policy.
func TestFullIsConstant(t *testing.T) {
	for _, pool := range []struct {
		pool        string
		bits        int
		first, last string
	}{
		{"10.0.0.0/30", 32, "10.0.0.0/32", "10.0.0.3/32"}, {"10.0.0.0/8", 28, "10.0.0.0/28", "10.255.255.240/28"},
		{"fd00::/48", 112, "fd00::/112", "fd00::ffff:ffff:ffff:ffff:0/112"},
	} {
		for _, k := range kinds {
			s := occupied(t, pool.pool, pool.bits, pool.pool, k.options()...)
			for _, p := range []string{pool.first, pool.last} { // the cursor in the middle and at the start
				k.wait()
				release(t, s, p, 1)
				k.wait()
				next(t, s, p)
				before := invariant.Steps()
				_, err := s.AllocateNext()
				if steps := invariant.Steps() - before; steps > 4 {
					t.Fatalf("%s of %s: full takes %d steps", k.name, pool.pool, steps)
				}
				if !errors.Is(err, ipalloc.ErrFull) {
					t.Fatalf("%s of %s: full is %v", k.name, pool.pool, err)
				}
				if err = s.AllocateN(make([]netip.Prefix, 3)); !errors.Is(err, ipalloc.ErrFull) {
					t.Fatal(err)
				}
			}
		}
	}
}
