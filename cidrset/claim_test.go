package cidrset_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// Claim takes all of a prefix or, if a child of it is taken, nothing: the error names
// the lowest such child and the receiver gets no change.
func TestClaim(t *testing.T) {
	var changes []string
	opt, _ := cooldown(60)
	s := occupied(t, "10.0.0.0/16", 24, "10.0.2.0/24 10.0.5.0/24 10.0.6.0/24", opt,
		cidrset.OnChange(func(c cidrset.Change) { changes = append(changes, fmt.Sprint(c.Op, c.Prefixes)) }))
	release(t, s, "10.0.5.0/24", 1)
	changes = nil
	before := snapshot(t, s)
	for p, c := range map[string]struct {
		kind     error
		inTheWay string
	}{
		"10.0.0.0/22": {ipalloc.ErrOccupied, "10.0.2.0/24"}, "10.0.4.0/22": {ipalloc.ErrOccupied, "10.0.6.0/24"},
		"10.0.0.0/16": {ipalloc.ErrOccupied, "10.0.2.0/24"}, "10.0.2.0/24": {ipalloc.ErrOccupied, "10.0.2.0/24"},
		"10.0.0.0/15": {ipalloc.ErrOutOfRange, ""}, "10.1.0.0/24": {ipalloc.ErrOutOfRange, ""}, "fd00::/64": {ipalloc.ErrOutOfRange, ""},
		"10.0.0.0/25": {ipalloc.ErrOutOfRange, ""}, "10.0.0.1/24": {ipalloc.ErrInvalid, ""}, "10.0.8.1/21": {ipalloc.ErrInvalid, ""},
	} {
		err := s.Claim(netip.MustParsePrefix(p))
		refused(t, err, "claim", c.kind, p, "10.0.0.0/16", c.inTheWay)
		var e *ipalloc.Error
		if errors.As(err, &e); c.inTheWay != "" && e.InTheWay != pfx(c.inTheWay) || c.inTheWay == "" && e.InTheWay.IsValid() {
			t.Errorf("Claim(%s): %v is in the way, want %s", p, e.InTheWay, c.inTheWay)
		}
	}
	if len(changes) != 0 || !bytes.Equal(before, snapshot(t, s)) {
		t.Fatalf("a claim that fails changes the set: %v", changes)
	}
	for _, p := range []string{"10.0.0.0/23", "10.0.4.0/23"} { // the second one has a cooling child
		if err := s.Claim(pfx(p)); err != nil || !s.Has(pfx(p)) {
			t.Fatalf("Claim(%s): %v", p, err)
		}
		check(t, s)
	}
	if got := fmt.Sprint(changes); got != "[occupy [10.0.0.0/23] occupy [10.0.4.0/23]]" {
		t.Fatal(got)
	}
	if got := s.Cursor(); got != pfx("10.0.0.0/24") {
		t.Fatalf("the cursor is at %v", got)
	}
}

// Of many claims of one prefix, one succeeds.
func TestClaimConcurrently(t *testing.T) {
	s := newSet(t, "10.0.0.0/16", 24)
	for i := range 64 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(4 * i), 0}), 22)
		won := make([]bool, 4)
		parallel(len(won), func(w int) { won[w] = s.Claim(p) == nil })
		winners := 0
		for _, is := range won {
			if is {
				winners++
			}
		}
		if winners != 1 {
			t.Fatalf("%d claims of %v succeed", winners, p)
		}
	}
}

// An ordinal is the position of a child from the lowest address; Ordinal and Child are
// the inverse of each other, and refuse what is no child.
func TestOrdinals(t *testing.T) {
	for _, c := range []struct {
		pool  string
		bits  int
		i     uint64
		child string
	}{
		{"127.123.0.0/16", 24, 0, "127.123.0.0/24"}, {"127.123.0.0/16", 24, 15, "127.123.15.0/24"}, {"127.123.0.0/16", 24, 255, "127.123.255.0/24"},
		{"192.168.5.208/28", 32, 5, "192.168.5.213/32"}, {"10.0.0.0/8", 25, 1<<17 - 1, "10.255.255.128/25"},
		{"fd00::/48", 64, 0x8001, "fd00:0:0:8001::/64"}, {"fd00::/56", 72, 0x1ff, "fd00:0:0:1:ff00::/72"}, {"::/0", 64, 1<<64 - 1, "ffff:ffff:ffff:ffff::/64"},
	} {
		s := newSet(t, c.pool, c.bits)
		if i, ok := s.Ordinal(pfx(c.child)); !ok || i != c.i {
			t.Errorf("%s in /%d: Ordinal(%s) = %d, %v", c.pool, c.bits, c.child, i, ok)
		}
		if p, ok := s.Child(c.i); !ok || p != pfx(c.child) {
			t.Errorf("%s in /%d: Child(%d) = %v, %v", c.pool, c.bits, c.i, p, ok)
		}
		last := s.Stats().Capacity - 1
		for _, i := range []uint64{last + 1, last + 2, 1 << 63, 1<<64 - 1} {
			if p, ok := s.Child(i); ok != (c.pool == "::/0") || !ok && p.IsValid() {
				t.Errorf("%s in /%d: Child(%d) = %v, %v", c.pool, c.bits, i, p, ok)
			}
		}
		p := pfx(c.child)
		for _, p := range []netip.Prefix{
			{}, s.Pool(), netip.PrefixFrom(p.Addr(), c.bits-1), netip.PrefixFrom(p.Addr(), -1), netip.PrefixFrom(lastAddr(p), c.bits),
			netip.PrefixFrom(p.Addr(), 129), pfx("203.0.113.0/24"), pfx("2001:db8::/64"), pfx("::ffff:127.123.0.0/120"),
		} {
			if p.Bits() == c.bits && p == p.Masked() && s.Pool().Contains(p.Addr()) {
				continue // a child all the same
			}
			if i, ok := s.Ordinal(p); ok {
				t.Errorf("%s in /%d: Ordinal(%v) = %d, %v", c.pool, c.bits, p, i, ok)
			}
		}
	}
}

// SetCursor takes every child, at each length of a child from /8 to /32, and the next
// search starts there.
func TestSetCursorToEveryLength(t *testing.T) {
	for bits := 8; bits <= 32; bits++ {
		s := newSet(t, "10.0.0.0/8", bits)
		last := s.Stats().Capacity - 1
		for _, i := range []uint64{0, 1 & last, last / 2, last} {
			p, _ := s.Child(i)
			if err := s.SetCursor(p); err != nil || s.Cursor() != p {
				t.Fatalf("SetCursor(%v): %v, the cursor is at %v", p, err, s.Cursor())
			}
			if got, err := s.AllocateNext(); err != nil || got != p {
				t.Fatalf("AllocateNext() = %v, %v from %v", got, err, p)
			}
			release(t, s, p.String(), 1)
		}
	}
}

// A set prints as its pool and counts, and takes its lock for that.
func TestString(t *testing.T) {
	opt, _ := cooldown(60)
	s := occupied(t, "10.0.0.0/16", 24, "10.0.0.0/22", opt)
	release(t, s, "10.0.1.0/24", 1)
	want := "10.0.0.0/16 in /24: 3 used, 1 cooling, 252 free"
	for _, got := range []string{s.String(), fmt.Sprint(s), fmt.Sprintf("%+v", s)} {
		if got != want {
			t.Errorf("a set prints as %q, want %q", got, want)
		}
	}
}

// A full set answers AllocateNext with one error, which names package, operation and
// pool and costs no allocation.
func TestFullCostsNoAllocation(t *testing.T) {
	for _, k := range kinds[:4] {
		s := occupied(t, "10.0.0.0/16", 24, "10.0.0.0/16", k.options()...)
		_, first := s.AllocateNext()
		refused(t, first, "allocate", ipalloc.ErrFull, "cidrset: allocate in 10.0.0.0/16: full")
		var e *ipalloc.Error
		if errors.As(first, &e); *e != (ipalloc.Error{Package: "cidrset", Op: "allocate", Pool: s.Pool(), Err: ipalloc.ErrFull}) {
			t.Errorf("%s: %+v", k.name, e)
		}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := s.AllocateNext(); err != first {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", k.name, n)
		}
	}
}

// Restore refuses the snapshot of another set than the caller asks for.
func TestRestoreRefusesAnotherSet(t *testing.T) {
	data := snapshot(t, newSet(t, "10.0.0.0/16", 24))
	for _, c := range []struct {
		pool string
		bits int
	}{{"10.0.0.0/16", 25}, {"10.0.0.0/15", 24}, {"10.1.0.0/16", 24}, {"fd00::/48", 64}} {
		s, err := cidrset.Restore(pfx(c.pool), c.bits, data)
		if s != nil {
			t.Errorf("%s in /%d is restored", c.pool, c.bits)
		}
		refused(t, err, "restore", ipalloc.ErrMismatch, c.pool, "10.0.0.0/16 in /24")
	}
	if _, err := cidrset.Restore(pfx("10.0.0.0/16"), 33, data); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}

// A batch for which the random source panics leaves the set as it was, and neither the
// receiver nor later calls see a part of it.
func TestRandomPanicsWithinABatch(t *testing.T) {
	draws, allowed, changes := uint64(0), 100, 0
	source := sourceFunc(func() uint64 {
		if allowed == 0 {
			panic("source")
		}
		allowed--
		draws++
		return draws * 0x9E3779B97F4A7C15
	})
	s := newSet(t, "10.0.0.0/24", 28, cidrset.Random(source), cidrset.OnChange(func(cidrset.Change) { changes++ }),
		cidrset.Cooldown(time.Minute, func() time.Time { return time.Unix(1000, 0) }))
	if _, err := s.AllocateNext(); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, s)
	for panicsAfter := range 5 {
		changes, allowed = 0, panicsAfter
		func() {
			defer func() {
				if recover() != "source" {
					t.Error("the source does not panic")
				}
			}()
			_ = s.AllocateN(make([]netip.Prefix, 8))
		}()
		if changes != 0 || !bytes.Equal(before, snapshot(t, s)) {
			t.Fatalf("%d changes, %v", changes, s)
		}
		check(t, s)
	}
	allowed = 100
	if err := s.AllocateN(make([]netip.Prefix, 8)); err != nil || changes != 1 {
		t.Fatal(err, changes)
	}
	used(t, s, 9)
}
