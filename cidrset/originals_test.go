package cidrset_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// The cases that the cidrset of Kubernetes is tested with, as facts about ours; where
// ours departs, the case says so.

// Ordinal to child and back.
func TestOrdinalToChild(t *testing.T) {
	for _, c := range []struct {
		pool    string
		bits    int
		ordinal uint64
		want    string
	}{
		{"127.123.3.0/16", 24, 0, "127.123.0.0/24"}, {"127.123.0.0/16", 24, 15, "127.123.15.0/24"},
		{"192.168.5.219/28", 32, 0, "192.168.5.208/32"}, {"192.168.5.208/28", 32, 5, "192.168.5.213/32"},
		{"2001:0db8:1234:3::/48", 64, 0, "2001:db8:1234::/64"}, {"2001:0db8:1234::/48", 64, 3, "2001:db8:1234:3::/64"},
		{"2001:db8:1234::/48", 64, 65535, "2001:db8:1234:ffff::/64"}, {"2001:db8::/32", 48, 0, "2001:db8::/48"},
		{"2001:db8::/32", 48, 15, "2001:db8:f::/48"}, {"2001:db8::/32", 48, 65535, "2001:db8:ffff::/48"},
		{"2001:db8:85a3::8a2e:0:0/80", 96, 5, "2001:db8:85a3::5:0:0/96"}, {"2001:db8:85a3::/48", 80, 16, "2001:db8:85a3:0:10::/80"},
		{"2001:db8:7422::/48", 80, 0x3ff0001, "2001:db8:7422:3ff:1::/80"}, {"2001:db8::/56", 72, 0x1234, "2001:db8:0:12:3400::/72"},
		{"2001:db8:0:5::/64", 120, 0x1234567, "2001:db8:0:5::1:2345:6700/120"}, {"10.0.0.0/8", 32, 0xfffffe, "10.255.255.254/32"},
	} {
		// What is written in a flag is masked before it comes here.
		pool := netip.MustParsePrefix(c.pool).Masked()
		s, err := cidrset.New(pool, c.bits)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Occupy(pool); err != nil {
			t.Fatal(err)
		}
		release(t, s, c.want, 1)
		next(t, s, c.want)
		// Its ordinal is how many are free below it when it is all that is taken.
		if _, err := s.Release(pool); err != nil {
			t.Fatal(err)
		}
		occupy(t, s, c.want, 1)
		if got, ok := place(s); !ok || got != c.ordinal {
			t.Fatalf("%s of %s in /%d is at %d, want %d", c.want, c.pool, c.bits, got, c.ordinal)
		}
	}
}

// place returns how many children are free below the one taken.
func place(s *cidrset.Set) (n uint64, ok bool) {
	taken := slices.Collect(s.All())
	if len(taken) != 1 {
		return 0, false
	}
	for p := range s.FreePrefixes() {
		if p.Addr().Less(taken[0].Addr()) {
			n += capacity(s.ChildBits() - p.Bits())
		}
	}
	return n, true
}

// Which children a prefix takes, as the first and the last.
func TestOccupyRanges(t *testing.T) {
	for _, c := range []struct {
		pool        string
		bits        int
		p           string
		first, last string
	}{
		{"127.0.0.0/8", 16, "127.0.0.0/8", "127.0.0.0/16", "127.255.0.0/16"},
		{"127.0.0.0/8", 16, "127.0.0.0/16", "127.0.0.0/16", "127.0.0.0/16"},
		{"127.0.0.0/8", 16, "127.16.0.0/16", "127.16.0.0/16", "127.16.0.0/16"},
		{"127.0.0.0/8", 16, "127.0.0.0/9", "127.0.0.0/16", "127.127.0.0/16"},
		{"127.0.0.0/8", 16, "127.128.0.0/9", "127.128.0.0/16", "127.255.0.0/16"},
		{"127.0.0.0/8", 16, "126.0.0.0/7", "127.0.0.0/16", "127.255.0.0/16"}, // larger than the pool
		{"127.0.0.0/7", 16, "127.0.0.0/16", "127.0.0.0/16", "127.0.0.0/16"},  // host bits of the pool: masked by the caller
		{"127.0.0.0/7", 16, "126.0.0.0/8", "126.0.0.0/16", "126.255.0.0/16"},
		{"127.0.0.0/7", 16, "127.0.0.0/8", "127.0.0.0/16", "127.255.0.0/16"},
		{"2001:db8::/32", 48, "2001:db8:f::/48", "2001:db8:f::/48", "2001:db8:f::/48"},
		{"2001:db8::/32", 48, "2001:db8:f000::/36", "2001:db8:f000::/48", "2001:db8:ffff::/48"},
		{"2001:db8::/32", 48, "2001:db8:8000:7::/64", "2001:db8:8000::/48", "2001:db8:8000::/48"}, // smaller than a child
		{"2001:db8:1234::/48", 66, "2001:db8:1234:1::/64", "2001:db8:1234:1::/66", "2001:db8:1234:1:c000::/66"},
		{"2001:db8:1234::/48", 66, "::/0", "2001:db8:1234::/66", "2001:db8:1234:ffff:c000::/66"},
	} {
		pool := netip.MustParsePrefix(c.pool).Masked()
		s := newSet(t, pool.String(), c.bits)
		if _, err := s.Occupy(pfx(c.p)); err != nil {
			t.Fatal(err)
		}
		check(t, s)
		taken := slices.Collect(s.All())
		if len(taken) == 0 || taken[0] != pfx(c.first) || taken[len(taken)-1] != pfx(c.last) || uint64(len(taken)) != s.Stats().Used {
			t.Fatalf("Occupy(%s) of %s takes %v, want %s to %s", c.p, c.pool, taken, c.first, c.last)
		}
		blocks := slices.Collect(s.UsedPrefixes())
		if len(blocks) != 1 {
			t.Fatalf("Occupy(%s) of %s takes %v", c.p, c.pool, blocks)
		}
	}
}

// Doing it twice, wholly or in part, counts once.
func TestOccupyAndReleaseTwice(t *testing.T) {
	s := newSet(t, "10.42.0.0/16", 24)
	left := uint64(256)
	for _, c := range []struct {
		release bool
		p       string
		n       uint64
	}{
		{false, "10.42.5.0/24", 1}, {false, "10.42.9.0/24", 1}, {false, "10.42.5.0/24", 0},
		{true, "10.42.5.0/24", 1}, {true, "10.42.5.0/24", 0}, {true, "10.42.4.0/22", 0},
		{false, "10.42.8.0/22", 3}, {false, "10.42.0.0/20", 12}, {false, "10.42.0.0/20", 0},
		{true, "10.42.0.0/21", 8}, {true, "10.42.0.0/20", 8}, {true, "10.42.128.0/17", 0},
	} {
		if c.release {
			release(t, s, c.p, c.n)
			left += c.n
		} else {
			occupy(t, s, c.p, c.n)
			left -= c.n
		}
		if got := s.Stats().Free; got != left {
			t.Fatalf("%d are free, want %d", got, left)
		}
	}
	got := 0
	for range 300 {
		if _, err := s.AllocateNext(); err == nil {
			got++
		}
	}
	if got != 256 {
		t.Fatalf("%d allocated, want 256", got)
	}
}

// After all was given back, in whatever order, it comes again in the order of
// the cursor.
func TestDrainAgainAfterReleaseAll(t *testing.T) {
	for _, c := range []struct {
		pool string
		bits int
	}{{"127.123.234.0/16", 24}, {"beef:1234::/16", 24}, {"beef:1234:8000::/48", 64}, {"10.0.0.0/18", 32}} {
		s := newSet(t, netip.MustParsePrefix(c.pool).Masked().String(), c.bits)
		var first, again []netip.Prefix
		drain := func() (ps []netip.Prefix) {
			for {
				p, err := s.AllocateNext()
				if errors.Is(err, ipalloc.ErrFull) {
					return ps
				}
				ps = append(ps, p)
			}
		}
		first = drain()
		if len(first) != int(s.Stats().Capacity) {
			t.Fatalf("%d of %d", len(first), s.Stats().Capacity)
		}
		shuffled := slices.Clone(first)
		for i := range shuffled { // a walk with a stride that meets every one
			shuffled[i] = first[i*37%len(first)]
		}
		for _, p := range shuffled {
			if n, err := s.Release(p); n != 1 || err != nil {
				t.Fatalf("Release(%v) = %d, %v", p, n, err)
			}
		}
		used(t, s, 0)
		if again = drain(); !slices.Equal(first, again) {
			t.Fatalf("%s in /%d: another order the second time", c.pool, c.bits)
		}
		check(t, s)
	}
}

// Half the pool is occupied; the other half is handed out in order, and
// what is released of the first comes when the cursor comes round.
func TestHalfOccupiedThenRefilled(t *testing.T) {
	for _, c := range []struct {
		pool, low, high string
		bits            int
	}{{"127.123.0.0/16", "127.123.0.0/17", "127.123.128.0/17", 24}, {"beef::/40", "beef::/41", "beef:0:80::/41", 48}} {
		s := occupied(t, c.pool, c.bits, c.low)
		half := s.Stats().Free
		for i := range half {
			p, err := s.AllocateNext()
			if err != nil || !pfx(c.high).Overlaps(p) {
				t.Fatalf("%d of %d is %v, %v", i, half, p, err)
			}
		}
		if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
			t.Fatal(err)
		}
		occupy(t, s, c.high, 0)
		release(t, s, c.pool, 2*half)
		occupy(t, s, c.high, half)
		for range half {
			if p, err := s.AllocateNext(); err != nil || !pfx(c.low).Overlaps(p) {
				t.Fatal(p, err)
			}
		}
		used(t, s, 2*half)
	}
}

// One child in all, and IPv6 pools of more than 2^16 children, which the
// original refuses.
func TestFullyAllocatedAndWide(t *testing.T) {
	for _, c := range []struct{ pool, child string }{
		{"127.123.234.0/30", "127.123.234.0/30"}, {"beef:1234::/30", "beef:1234::/30"},
	} {
		pool := netip.MustParsePrefix(c.pool)
		s := newSet(t, pool.Masked().String(), pool.Bits())
		next(t, s, pool.Masked().String())
		if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
			t.Fatal(err)
		}
		release(t, s, pool.Masked().String(), 1)
		next(t, s, pool.Masked().String())
		release(t, s, pool.Masked().String(), 1)
		occupy(t, s, pool.Masked().String(), 1)
		if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		pool string
		bits int
		want string
	}{
		{"beef:1234::/32", 49, "beef:1234:0:8000::/49"}, {"2001:db8:1234::/47", 64, "2001:db8:1234:1::/64"},
		{"fd00::/32", 64, "fd00:0:0:1::/64"}, {"2001:db8:1234:1::/64", 118, "2001:db8:1234:1::400/118"}, {"fd00::/64", 120, "fd00::100/120"},
	} {
		s := newSet(t, c.pool, c.bits)
		next(t, s, netip.PrefixFrom(pfx(c.pool).Addr(), c.bits).String())
		next(t, s, c.want)
	}
}
