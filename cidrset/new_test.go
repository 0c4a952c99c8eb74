package cidrset_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// What is impossible is refused, with the pool and the reason in the text.
func TestNewRefuses(t *testing.T) {
	mapped := netip.MustParseAddr("::ffff:10.0.0.0")
	for _, c := range []struct {
		pool  netip.Prefix
		bits  int
		field string
		word  string
	}{
		{netip.Prefix{}, 24, "pool", "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33), 33, "pool", "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), -1), 24, "pool", "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("fd00::"), 129), 129, "pool", "not a valid"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.5.0"), 16), 24, "pool", "10.0.5.0/16"},
		{netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 0), 8, "pool", "10.0.0.1/0"},
		{netip.PrefixFrom(netip.MustParseAddr("fd00::1"), 64), 96, "pool", "fd00::1/64"},
		{netip.PrefixFrom(mapped, 112), 120, "pool", "::ffff:10.0.0.0/112"},
		{netip.PrefixFrom(mapped, 128), 128, "pool", "::ffff:10.0.0.0/128"},
		{netip.PrefixFrom(netip.MustParseAddr("::ffff:0:0"), 96), 104, "pool", "4-in-6"},

		{pfx("10.0.0.0/16"), 15, "childBits", "want /16 to /32"},
		{pfx("10.0.0.0/16"), 33, "childBits", "want /16 to /32"},
		{pfx("10.0.0.0/16"), -1, "childBits", "10.0.0.0/16"},
		{pfx("10.0.0.0/16"), math.MaxInt, "childBits", "10.0.0.0/16"},
		{pfx("10.0.0.1/32"), 31, "childBits", "want /32 to /32"},
		{pfx("0.0.0.0/0"), 33, "childBits", "want /0 to /32"},
		{pfx("0.0.0.0/0"), -1, "childBits", "0.0.0.0/0"},
		{pfx("fd00::/48"), 47, "childBits", "want /48 to /112"},
		{pfx("fd00::/48"), 113, "childBits", "want /48 to /112"},
		{pfx("fd00::/65"), 129, "childBits", "want /65 to /128"},
		{pfx("::/0"), 65, "childBits", "want /0 to /64"},
		{pfx("fd00::1/128"), 127, "childBits", "want /128 to /128"},
	} {
		s, err := cidrset.New(c.pool, c.bits)
		if s != nil {
			t.Fatalf("New(%v, %d) = %v, %v", c.pool, c.bits, s, err)
		}
		refused(t, err, "new", ipalloc.ErrInvalid, c.field, c.word)
		var e *ipalloc.Error
		errors.As(err, &e)
		want := ipalloc.Error{Package: "cidrset", Op: "new", Field: "pool", Prefix: c.pool, Reason: e.Reason, Err: ipalloc.ErrInvalid}
		if c.field == "childBits" {
			want.Field, want.Prefix, want.Pool, want.Bits = c.field, netip.Prefix{}, c.pool, c.bits
		}
		if *e != want {
			t.Fatalf("New(%v, %d) fails with %+v", c.pool, c.bits, e)
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

// Everything from one child to 2^64, at any length of both families.
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
				if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
					t.Fatalf("%v in /%d: full is %v", pool, child, err)
				}
				last := netip.PrefixFrom(lastAddr(pool), child).Masked()
				release(t, s, last.String(), 1)
				next(t, s, last.String())
			}
			if _, err := cidrset.New(pool, bits+65); !errors.Is(err, ipalloc.ErrInvalid) {
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

// Options that are nothing, impossible or against each other.
func TestNewRefusesOptions(t *testing.T) {
	now := func() time.Time { return time.Time{} }
	receive := func(cidrset.Change) {}
	random := func() cidrset.Option { return cidrset.Random(rand.NewPCG(1, 1)) }
	data := snapshot(t, newSet(t, "10.0.0.0/16", 24))
	for i, c := range []struct {
		field, word string
		opts        []cidrset.Option
	}{
		{"opts[0]", "nil option", []cidrset.Option{nil}},
		{"opts[1]", "nil option", []cidrset.Option{cidrset.LowestFirst(), nil}},
		{"LowestFirst", "a second policy", []cidrset.Option{cidrset.LowestFirst(), cidrset.LowestFirst()}},
		{"Random", "a second policy", []cidrset.Option{cidrset.LowestFirst(), random()}},
		{"LowestFirst", "a second policy", []cidrset.Option{random(), cidrset.LowestFirst()}},
		{"Random", "a second policy", []cidrset.Option{random(), random()}},
		{"Random", "no source", []cidrset.Option{cidrset.Random(nil)}},
		{"Cooldown", "a duration of 0s", []cidrset.Option{cidrset.Cooldown(0, now)}},
		{"Cooldown", "a duration of -1s", []cidrset.Option{cidrset.Cooldown(-time.Second, now)}},
		{"Cooldown", "no clock", []cidrset.Option{cidrset.Cooldown(time.Second, nil)}},
		{"Cooldown", "a second cooldown", []cidrset.Option{cidrset.Cooldown(time.Second, now), cidrset.Cooldown(time.Minute, now)}},
		{"OnChange", "no function", []cidrset.Option{cidrset.OnChange(nil)}},
		{"OnChange", "a second function", []cidrset.Option{cidrset.OnChange(receive), cidrset.OnChange(receive)}},
	} {
		t.Run(fmt.Sprint(i, c.word), func(t *testing.T) {
			for op, f := range map[string]func() (*cidrset.Set, error){
				"new":     func() (*cidrset.Set, error) { return cidrset.New(pfx("10.0.0.0/16"), 24, c.opts...) },
				"restore": func() (*cidrset.Set, error) { return cidrset.Restore(pfx("10.0.0.0/16"), 24, data, c.opts...) },
			} {
				s, err := f()
				var e *ipalloc.Error
				if s != nil || !errors.As(err, &e) || e.Field != c.field || e.Pool != pfx("10.0.0.0/16") {
					t.Fatalf("%s: %v, %v, want field %s", op, s, err, c.field)
				}
				refused(t, err, op, ipalloc.ErrInvalid, "10.0.0.0/16", c.word)
			}
		})
	}
	// The order of options says nothing.
	for _, opts := range [][]cidrset.Option{
		{cidrset.Cooldown(time.Second, now), cidrset.LowestFirst(), cidrset.OnChange(receive)},
		{cidrset.OnChange(receive), random(), cidrset.Cooldown(time.Second, now)},
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
	_, bits := s.AllocatePrefix(26)
	_, shape := cidrset.New(pfx("10.0.0.0/24"), 23)
	_, bytes := cidrset.Restore(pfx("10.0.0.0/16"), 24, nil)
	tight := occupied(t, "10.0.0.0/30", 32, "10.0.0.0/32 10.0.0.2/32")
	_, fit := tight.AllocatePrefix(31)
	occupy(t, tight, "10.0.0.0/30", 2)
	_, full := tight.AllocateNext()
	for _, c := range []struct {
		err  error
		want string
	}{
		{cooling, "cidrset: allocate in 10.0.0.0/24: cooling until 1970-01-01T00:17:40Z"},
		{alien, "cidrset: occupy fd00::/64 in 10.0.0.0/24: out of range"},
		{small, "cidrset: release 10.0.0.0/26 in 10.0.0.0/24: a child is a /25"},
		{large, "cidrset: release 10.0.0.0/8 in 10.0.0.0/24: larger than the pool"},
		{dirty, "cidrset: occupy 10.0.0.1/25 in 10.0.0.0/24: prefix: has host bits set"},
		{bits, "cidrset: allocate /26 in 10.0.0.0/24: bits: want /24 to /25"},
		{shape, "cidrset: new /23 in 10.0.0.0/24: childBits: want /24 to /32"},
		{bytes, "cidrset: restore in 10.0.0.0/16: corrupt: not a snapshot of this kind"},
		{full, "cidrset: allocate in 10.0.0.0/30: full"},
		{fit, "cidrset: allocate /31 in 10.0.0.0/30: no free prefix of that length (largest is /32)"},
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
