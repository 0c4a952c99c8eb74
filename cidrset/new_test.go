package cidrset_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// CS1: what is impossible is refused, with the pool and the reason in the text.
func TestNewRefuses(t *testing.T) {
	mapped := netip.MustParseAddr("::ffff:10.0.0.0")
	for _, c := range []struct {
		pool netip.Prefix
		bits int
		kind error
		why  error // of internal/addr
		word string
	}{
		{netip.Prefix{}, 24, cidrset.ErrBadPool, addr.ErrInvalid, "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33), 33, cidrset.ErrBadPool, addr.ErrInvalid, "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), -1), 24, cidrset.ErrBadPool, addr.ErrInvalid, "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("fd00::"), 129), 129, cidrset.ErrBadPool, addr.ErrInvalid, "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.5.0"), 16), 24, cidrset.ErrBadPool, addr.ErrUnmasked, "10.0.5.0/16"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 0), 8, cidrset.ErrBadPool, addr.ErrUnmasked, "10.0.0.1/0"},
		{netip.PrefixFrom(netip.MustParseAddr("fd00::1"), 64), 96, cidrset.ErrBadPool, addr.ErrUnmasked, "fd00::1/64"},
		{netip.PrefixFrom(mapped, 112), 120, cidrset.ErrBadPool, addr.ErrMapped, "::ffff:10.0.0.0/112"},
		{netip.PrefixFrom(mapped, 128), 128, cidrset.ErrBadPool, addr.ErrMapped, "::ffff:10.0.0.0/128"},
		{netip.PrefixFrom(netip.MustParseAddr("::ffff:0:0"), 96), 104, cidrset.ErrBadPool, addr.ErrMapped, "4-in-6"},

		{pfx("10.0.0.0/16"), 15, cidrset.ErrBadBits, addr.ErrBits, "/15, want /16 to /32"},
		{pfx("10.0.0.0/16"), 33, cidrset.ErrBadBits, addr.ErrBits, "/33, want /16 to /32"},
		{pfx("10.0.0.0/16"), -1, cidrset.ErrBadBits, addr.ErrBits, "10.0.0.0/16"},
		{pfx("10.0.0.0/16"), math.MaxInt, cidrset.ErrBadBits, addr.ErrBits, "10.0.0.0/16"},
		{pfx("10.0.0.1/32"), 31, cidrset.ErrBadBits, addr.ErrBits, "/31, want /32 to /32"},
		{pfx("0.0.0.0/0"), 33, cidrset.ErrBadBits, addr.ErrBits, "/33, want /0 to /32"},
		{pfx("0.0.0.0/0"), -1, cidrset.ErrBadBits, addr.ErrBits, "0.0.0.0/0"},
		{pfx("fd00::/48"), 47, cidrset.ErrBadBits, addr.ErrBits, "/47, want /48 to /112"},
		{pfx("fd00::/48"), 113, cidrset.ErrBadBits, addr.ErrBits, "/113, want /48 to /112"},
		{pfx("fd00::/65"), 129, cidrset.ErrBadBits, addr.ErrBits, "/129, want /65 to /128"},
		{pfx("::/0"), 65, cidrset.ErrBadBits, addr.ErrBits, "/65, want /0 to /64"},
		{pfx("fd00::1/128"), 127, cidrset.ErrBadBits, addr.ErrBits, "/127, want /128 to /128"},
	} {
		s, err := cidrset.New(c.pool, c.bits)
		if s != nil || !errors.Is(err, c.why) {
			t.Fatalf("New(%v, %d) = %v, %v, want %q", c.pool, c.bits, s, err, c.why)
		}
		refused(t, err, "new", c.kind, c.word)
		var e *cidrset.Error
		if errors.As(err, &e); e.Pool != c.pool || e.Prefix.IsValid() || !e.Until.IsZero() {
			t.Fatalf("New(%v, %d) fails with %+v", c.pool, c.bits, e)
		}
		for _, other := range []error{cidrset.ErrBadPool, cidrset.ErrBadBits, cidrset.ErrBadOption} {
			if other != c.kind && errors.Is(err, other) {
				t.Fatalf("New(%v, %d) fails with %v, which is also %q", c.pool, c.bits, err, other)
			}
		}
	}
	// A zone cannot get into a netip.Prefix: the text does not parse, and the
	// constructor of the package drops it.
	if p, err := netip.ParsePrefix("fe80::%eth0/64"); err == nil {
		t.Fatalf("%v parses", p)
	}
	zoned := netip.PrefixFrom(netip.MustParseAddr("fe80::%eth0"), 64)
	if s, err := cidrset.New(zoned, 80); err == nil && s.Pool().Addr().Zone() != "" {
		t.Fatalf("a set of the zoned pool %v", s.Pool())
	}
}

// CS1: everything from one child to 2^64, at any length of both families.
func TestNewTakesEveryPossiblePool(t *testing.T) {
	for _, root := range []netip.Addr{netip.MustParseAddr("10.171.205.239"), netip.MustParseAddr("2001:db8:aaaa:5555:aaaa:5555:aaaa:5555")} {
		width := root.BitLen()
		for bits := 0; bits <= width; bits++ {
			pool := netip.PrefixFrom(root, bits).Masked()
			for child := bits; child <= min(width, bits+64); child++ {
				s, err := cidrset.New(pool, child)
				if err != nil {
					t.Fatal(err)
				}
				if s.Pool() != pool || s.ChildBits() != child {
					t.Fatalf("a set of %v in /%d says %v in /%d", pool, child, s.Pool(), s.ChildBits())
				}
				if want := capacity(child - bits); s.Stats() != (cidrset.Stats{Capacity: want, Free: want, LargestFree: bits}) {
					t.Fatalf("%v in /%d: %+v", pool, child, s.Stats())
				}
				// The first child, then the last one; both come back.
				first := netip.PrefixFrom(pool.Addr(), child)
				next(t, s, first.String())
				if n, err := s.Occupy(pool); err != nil || n != capacity(child-bits)-1+saturated(child-bits) {
					t.Fatalf("%v in /%d: occupying the rest takes %d, %v", pool, child, n, err)
				}
				if _, err := s.AllocateNext(); err != cidrset.ErrFull {
					t.Fatalf("%v in /%d: full is %v", pool, child, err)
				}
				last := netip.PrefixFrom(lastAddr(pool), child).Masked()
				release(t, s, last.String(), 1)
				next(t, s, last.String())
			}
			if _, err := cidrset.New(pool, bits+65); !errors.Is(err, cidrset.ErrBadBits) {
				t.Fatalf("New(%v, %d): %v", pool, bits+65, err)
			}
		}
	}
}

// capacity returns 2^order, saturating.
func capacity(order int) uint64 {
	if order == 64 {
		return ^uint64(0)
	}
	return 1 << order
}

// saturated returns 1 where capacity is one short.
func saturated(order int) uint64 { return uint64(order / 64) }

// lastAddr returns the highest address of p.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// CS1: options that are nothing, impossible or against each other.
func TestNewRefusesOptions(t *testing.T) {
	now := func() time.Time { return time.Time{} }
	tell := func(cidrset.Change) {}
	random := func() cidrset.Option { return cidrset.Random(rand.NewPCG(1, 1)) }
	data := snapshot(t, newSet(t, "10.0.0.0/16", 24))
	for i, c := range []struct {
		word string
		opts []cidrset.Option
	}{
		{"nil", []cidrset.Option{nil}},
		{"nil", []cidrset.Option{cidrset.LowestFirst(), nil}},
		{"two policies", []cidrset.Option{cidrset.LowestFirst(), cidrset.LowestFirst()}},
		{"two policies", []cidrset.Option{cidrset.LowestFirst(), random()}},
		{"two policies", []cidrset.Option{random(), cidrset.LowestFirst()}},
		{"two policies", []cidrset.Option{random(), random()}},
		{"no random source", []cidrset.Option{cidrset.Random(nil)}},
		{"cooldown of 0s", []cidrset.Option{cidrset.Cooldown(0, now)}},
		{"cooldown of -1s", []cidrset.Option{cidrset.Cooldown(-time.Second, now)}},
		{"without a clock", []cidrset.Option{cidrset.Cooldown(time.Second, nil)}},
		{"two cooldowns", []cidrset.Option{cidrset.Cooldown(time.Second, now), cidrset.Cooldown(time.Minute, now)}},
		{"no function", []cidrset.Option{cidrset.OnChange(nil)}},
		{"two functions", []cidrset.Option{cidrset.OnChange(tell), cidrset.OnChange(tell)}},
	} {
		t.Run(fmt.Sprint(i, c.word), func(t *testing.T) {
			s, err := cidrset.New(pfx("10.0.0.0/16"), 24, c.opts...)
			if s != nil {
				t.Fatal("there is a set")
			}
			refused(t, err, "new", cidrset.ErrBadOption, "10.0.0.0/16", c.word)
			s, err = cidrset.Restore(data, c.opts...)
			if s != nil {
				t.Fatal("there is a restored set")
			}
			refused(t, err, "restore", cidrset.ErrBadOption, c.word)
			if errors.Is(err, cidrset.ErrSnapshot) {
				t.Fatalf("%v blames the snapshot", err)
			}
		})
	}
	// The order of options says nothing.
	for _, opts := range [][]cidrset.Option{
		{cidrset.Cooldown(time.Second, now), cidrset.LowestFirst(), cidrset.OnChange(tell)},
		{cidrset.OnChange(tell), random(), cidrset.Cooldown(time.Second, now)},
	} {
		if _, err := cidrset.New(pfx("10.0.0.0/16"), 24, opts...); err != nil {
			t.Fatal(err)
		}
	}
}

// The text of an error, whole: what was asked and what stands in the way.
func TestErrorText(t *testing.T) {
	defer func(was *time.Location) { time.Local = was }(time.Local)
	time.Local = time.FixedZone("elsewhere", 3600) // times are told in UTC wherever the program runs
	opt, _ := cooldown(60)
	s := occupied(t, "10.0.0.0/24", 25, "10.0.0.0/24", opt)
	release(t, s, "10.0.0.0/25", 1)
	_, cooling := s.AllocateNext()
	_, alien := s.Occupy(pfx("fd00::/64"))
	_, small := s.Release(pfx("10.0.0.0/26"))
	_, large := s.Release(pfx("10.0.0.0/8"))
	_, dirty := s.Occupy(pfx("10.0.0.1/25"))
	_, bits := s.Allocate(26)
	_, shape := cidrset.New(pfx("10.0.0.0/24"), 23)
	_, bytes := cidrset.Restore(nil)
	for _, c := range []struct {
		err  error
		want string
	}{
		{cooling, "cidrset: allocate in 10.0.0.0/24: free space is cooling until 1970-01-01T00:17:40Z"},
		{alien, "cidrset: occupy fd00::/64 in 10.0.0.0/24: not in the pool"},
		{small, "cidrset: release 10.0.0.0/26 in 10.0.0.0/24: smaller than a child: children are /25"},
		{large, "cidrset: release 10.0.0.0/8 in 10.0.0.0/24: not in the pool: larger than it"},
		{dirty, "cidrset: occupy 10.0.0.1/25 in 10.0.0.0/24: bad prefix: has host bits set"},
		{bits, "cidrset: allocate in 10.0.0.0/24: bad prefix length: /26, want /24 to /25"},
		{shape, "cidrset: new in 10.0.0.0/24: bad prefix length: child prefix length out of range: /23, want /24 to /32"},
		{bytes, "cidrset: restore: bad snapshot: not one of a cidrset"},
		{cidrset.ErrFull, "no free space"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("error is %q, want %q", c.err, c.want)
		}
	}
	for op, want := range map[cidrset.Op]string{
		cidrset.OpAllocate: "allocate", cidrset.OpOccupy: "occupy", cidrset.OpRelease: "release", 0: "unknown", 9: "unknown",
	} {
		if got := op.String(); got != want {
			t.Errorf("Op %d is %q, want %q", op, got, want)
		}
	}
}
