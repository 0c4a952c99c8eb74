package cidrset_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
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

// In every pool of up to 2^6 children, from every cursor, with every one child
// free, it is found.
func TestAllocateNextFindsTheOneFree(t *testing.T) {
	for order := range 7 {
		child := func(i int) string {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i << (8 - order))}), 24+order).String()
		}
		n := 1 << order
		for at := range n {
			for free := range n {
				s := newSet(t, "10.0.0.0/24", 24+order)
				if err := s.AllocateN(make([]netip.Prefix, at)); err != nil { // moves the cursor
					t.Fatal(err)
				}
				occupy(t, s, "10.0.0.0/24", uint64(n-at))
				release(t, s, child(free), 1)
				next(t, s, child(free))
				if got := s.Cursor(); got != pfx(child((free+1)%n)) {
					t.Fatalf("after %s the cursor is at %v", child(free), got)
				}
			}
		}
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

// A set that is rebuilt from what another one told answers on as that one, if it is given its cursor.
func TestSetCursor(t *testing.T) {
	var copied *cidrset.Set
	s := newSet(t, "10.0.0.0/29", 32, cidrset.OnChange(func(c cidrset.Change) {
		for _, p := range c.Prefixes {
			if c.Op == cidrset.OpRelease {
				_, _ = copied.Release(p)
			} else {
				_, _ = copied.Occupy(p)
			}
		}
	}))
	copied = newSet(t, "10.0.0.0/29", 32)
	next(t, s, "10.0.0.0/32")
	next(t, s, "10.0.0.1/32")
	release(t, s, "10.0.0.0/32", 1)
	if err := copied.SetCursor(s.Cursor()); err != nil {
		t.Fatal(err)
	}
	next(t, copied, "10.0.0.2/32")
	next(t, s, "10.0.0.2/32")
	for text, want := range map[string]error{
		"10.0.0.8/32": ipalloc.ErrOutOfRange, "10.0.0.0/29": ipalloc.ErrOutOfRange, "10.0.0.0/8": ipalloc.ErrOutOfRange,
		"10.0.0.1/31": ipalloc.ErrInvalid, "::/128": ipalloc.ErrOutOfRange,
	} {
		if err := s.SetCursor(pfx(text)); !errors.Is(err, want) {
			t.Errorf("SetCursor(%s) = %v, want %v", text, err, want)
		}
	}
	if got := s.Cursor(); got != pfx("10.0.0.3/32") {
		t.Errorf("the cursor went to %v", got)
	}
	if err := s.SetCursor(pfx("10.0.0.7/32")); err != nil {
		t.Fatal(err)
	}
	next(t, s, "10.0.0.7/32")
	next(t, s, "10.0.0.0/32")
}
