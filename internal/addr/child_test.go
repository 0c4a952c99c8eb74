package addr_test

import (
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Child and Block are short cuts, so they must say what Codec.Check and Locate
// say together.
func TestShortCutsAgreeWithLocate(t *testing.T) {
	for _, c := range []struct {
		pool  string
		child int
	}{
		{"0.0.0.0/0", 0}, {"0.0.0.0/0", 32}, {"10.0.0.0/8", 8}, {"10.0.0.0/8", 24}, {"10.0.0.0/8", 32}, {"10.9.8.7/32", 32},
		{"::/0", 0}, {"::/0", 64}, {"::/64", 96}, {"::/64", 128}, {"::/80", 104}, {"2001:db8::/32", 48}, {"2001:db8::/32", 64}, {"2001:db8::/32", 96},
		{"2001:db8:0:7::/64", 64}, {"2001:db8:0:7::/64", 65}, {"2001:db8:0:7::/64", 128}, {"2001:db8::9/128", 128},
	} {
		cd := codec(t, c.pool, c.child)
		pool := cd.Pool()
		ps := []netip.Prefix{{}, pool, netip.PrefixFrom(pool.Addr(), -1)}
		for _, a := range []netip.Addr{
			pool.Addr(), pool.Addr().Prev(), cd.Addr(cd.Last()), cd.Addr(cd.Last()).Next(), cd.Addr(cd.Last() / 2),
			netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("11.0.0.0"), netip.MustParseAddr("255.255.255.255"),
			netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("2001:db9::"), netip.MustParseAddr("a00::"),
			netip.MustParseAddr("::ffff:0.0.0.0"), netip.MustParseAddr("::ffff:10.0.0.0"),
			netip.MustParseAddr("2001:db8:0:7:ffff:ffff:ffff:ffff"), netip.MustParseAddr("2001:db8:0:7::1"),
		} {
			for bits := -1; bits <= 129; bits++ {
				ps = append(ps, netip.PrefixFrom(a, bits)) // host bits set and invalid ones included
			}
		}
		for _, p := range ps {
			lo, hi, r := uint64(0), uint64(0), addr.Foreign
			if cd.Check(p) == nil {
				lo, hi, r = cd.Locate(p)
			}
			if gotLo, gotHi, ok := cd.Block(p); ok != (r == addr.Whole) || ok && (gotLo != lo || gotHi != hi) {
				t.Errorf("%s in /%d: Block(%s) = %d %d %v, Locate says %d %d %d", c.pool, c.child, p, gotLo, gotHi, ok, lo, hi, r)
			}
			child := r == addr.Whole && p.Bits() == c.child
			if got, ok := cd.Child(p); ok != child || ok && got != lo {
				t.Errorf("%s in /%d: Child(%s) = %d %v, Locate says %d %d %d", c.pool, c.child, p, got, ok, lo, hi, r)
			}
		}
		if n := testing.AllocsPerRun(100, func() { sinkUint, _ = cd.Child(pool); sinkUint, _, _ = cd.Block(pool) }); n != 0 {
			t.Errorf("Child and Block allocate %v times", n)
		}
	}
}

// Child is the inverse of Prefix for IPv4 children of every length, odd ones included,
// and refuses their neighbours of other lengths and what is not masked.
func TestChildOfEveryLength(t *testing.T) {
	for bits := 8; bits <= 32; bits++ {
		cd := codec(t, "10.0.0.0/8", bits)
		for _, i := range []uint64{0, 1 & cd.Last(), cd.Last() / 2, cd.Last()} {
			p := cd.Prefix(i)
			if got, ok := cd.Child(p); !ok || got != i {
				t.Errorf("Child(%v) = %d, %v, want %d", p, got, ok, i)
			}
			if lo, hi, ok := cd.Block(p); !ok || lo != i || hi != i {
				t.Errorf("Block(%v) = %d, %d, %v, want %d", p, lo, hi, ok, i)
			}
			for _, other := range []netip.Prefix{
				netip.PrefixFrom(p.Addr(), bits-1), netip.PrefixFrom(p.Addr(), bits+1), netip.PrefixFrom(p.Addr().Next(), bits),
			} {
				if other == other.Masked() && other.Bits() == bits && cd.Pool().Contains(other.Addr()) {
					continue // a child all the same
				}
				if got, ok := cd.Child(other); ok {
					t.Errorf("Child(%v) of a pool in /%d = %d", other, bits, got)
				}
			}
		}
	}
}
