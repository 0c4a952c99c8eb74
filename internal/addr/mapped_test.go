package addr_test

import (
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// 4-in-6 is refused, but for an IPv6 pool that contains ::ffff:0:0/96:
// what it hands out there it must take back.
func TestMappedChildren(t *testing.T) {
	mapped := func(s string, bits int) netip.Prefix { return netip.PrefixFrom(netip.MustParseAddr(s), bits) }
	for _, c := range []struct {
		pool   string
		child  int
		p      netip.Prefix
		err    error // of Codec.Check
		lo, hi uint64
		rel    addr.Relation
	}{
		{"::/64", 96, mapped("::ffff:0.0.0.0", 96), nil, 0xffff, 0xffff, addr.Whole},
		{"::/64", 96, mapped("::ffff:10.0.0.0", 104), nil, 0xffff, 0xffff, addr.Part},
		{"::/64", 128, mapped("::ffff:10.0.0.1", 128), nil, 0xffff_0a000001, 0xffff_0a000001, addr.Whole},
		{"::/64", 128, mapped("::ffff:10.0.0.0", 104), nil, 0xffff_0a000000, 0xffff_0affffff, addr.Whole},
		{"::/80", 96, mapped("::ffff:0.0.0.0", 96), nil, 0xffff, 0xffff, addr.Whole},
		{"::/80", 97, mapped("::ffff:128.0.0.0", 97), nil, 0x1ffff, 0x1ffff, addr.Whole},
		{"::/0", 64, mapped("::ffff:10.0.0.1", 128), nil, 0, 0, addr.Part},
		{"::/64", 128, mapped("::ffff:10.0.0.1", 104), addr.ErrUnmasked, 0, 0, 0},
		{"::/64", 96, mapped("::ffff:10.0.0.1", 96), addr.ErrUnmasked, 0, 0, 0},
		{"2001:db8::/64", 128, mapped("::ffff:10.0.0.1", 128), addr.ErrMapped, 0, 0, addr.Foreign},
		{"0:0:0:1::/64", 96, mapped("::ffff:0.0.0.0", 96), addr.ErrMapped, 0, 0, addr.Foreign},
		{"10.0.0.0/8", 32, mapped("::ffff:10.0.0.1", 128), addr.ErrMapped, 0, 0, addr.Foreign},
		{"0.0.0.0/0", 32, mapped("::ffff:10.0.0.1", 128), addr.ErrMapped, 0, 0, addr.Foreign},
	} {
		cd := codec(t, c.pool, c.child)
		if err := cd.Check(c.p); err != c.err {
			t.Errorf("%s in /%d: Check(%s) = %v, want %v", c.pool, c.child, c.p, err, c.err)
		}
		if c.err == addr.ErrUnmasked {
			continue
		}
		if lo, hi, r := cd.Locate(c.p); lo != c.lo || hi != c.hi || r != c.rel {
			t.Errorf("%s in /%d: %s is [%d, %d] %d, want [%d, %d] %d", c.pool, c.child, c.p, lo, hi, r, c.lo, c.hi, c.rel)
		}
		if c.rel == addr.Foreign {
			if i, ok := cd.Ordinal(c.p.Addr()); ok {
				t.Errorf("%s in /%d: %s has ordinal %d, want none", c.pool, c.child, c.p.Addr(), i)
			}
		}
		if c.rel == addr.Whole && c.lo == c.hi && cd.Prefix(c.lo) != c.p {
			t.Errorf("%s in /%d: child %d is %s, want %s", c.pool, c.child, c.lo, cd.Prefix(c.lo), c.p)
		}
	}
}

// Codec.Check differs from Check for 4-in-6 prefixes only.
func TestCodecCheckIsCheck(t *testing.T) {
	cd := codec(t, "::/64", 128)
	for _, p := range []netip.Prefix{
		{}, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("::/0"),
		netip.PrefixFrom(netip.MustParseAddr("::1"), 64), netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 8),
		netip.PrefixFrom(netip.MustParseAddr("::1"), 129), netip.PrefixFrom(netip.MustParseAddr("::1"), 128),
	} {
		if got, want := cd.Check(p), addr.Check(p); got != want {
			t.Errorf("Codec.Check(%s) = %v, Check says %v", p, got, want)
		}
	}
}
