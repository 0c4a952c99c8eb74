package addr_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// One table for both doors. A prefix cannot carry a zone, so ErrZone is
// a matter of addresses.
func TestCheckAddr(t *testing.T) {
	for _, c := range []struct {
		name string
		a    netip.Addr
		want error
	}{
		{"zero", netip.Addr{}, addr.ErrInvalid},
		{"IPv4", netip.MustParseAddr("10.0.0.1"), nil},
		{"unspecified IPv4", netip.IPv4Unspecified(), nil},
		{"IPv6", netip.MustParseAddr("2001:db8::1"), nil},
		{"unspecified IPv6", netip.IPv6Unspecified(), nil},
		{"link-local without zone", netip.MustParseAddr("fe80::1"), nil},
		{"zoned", netip.MustParseAddr("fe80::1%eth0"), addr.ErrZone},
		{"zoned ::", netip.IPv6Unspecified().WithZone("1"), addr.ErrZone},
		{"4-in-6", netip.MustParseAddr("::ffff:10.0.0.1"), addr.ErrMapped},
		{"zoned 4-in-6", netip.MustParseAddr("::ffff:10.0.0.1%eth0"), addr.ErrMapped},
		{"just below 4-in-6", netip.MustParseAddr("::fffe:ffff:ffff"), nil},
		{"just above 4-in-6", netip.MustParseAddr("::1:0:0:0"), nil},
		{"IPv4-compatible, not mapped", netip.MustParseAddr("::10.0.0.1"), nil},
		{"NAT64", netip.MustParseAddr("64:ff9b::a00:1"), nil},
	} {
		if got := addr.CheckAddr(c.a); got != c.want {
			t.Errorf("%s: CheckAddr(%s) = %v, want %v", c.name, c.a, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	from := func(s string, bits int) netip.Prefix { return netip.PrefixFrom(netip.MustParseAddr(s), bits) }
	for _, c := range []struct {
		name string
		p    netip.Prefix
		want error
	}{
		{"zero", netip.Prefix{}, addr.ErrInvalid},
		{"no address", netip.PrefixFrom(netip.Addr{}, 8), addr.ErrInvalid},
		{"negative length", from("10.0.0.0", -1), addr.ErrInvalid},
		{"IPv4 /33", from("10.0.0.0", 33), addr.ErrInvalid},
		{"IPv6 /129", from("2001:db8::", 129), addr.ErrInvalid},
		{"IPv4 /0", from("0.0.0.0", 0), nil},
		{"IPv4 /1", from("128.0.0.0", 1), nil},
		{"IPv4 /31", from("10.0.0.2", 31), nil},
		{"IPv4 /32", from("10.0.0.3", 32), nil},
		{"IPv6 /0", from("::", 0), nil},
		{"IPv6 /1", from("8000::", 1), nil},
		{"IPv6 /63", from("2001:db8:0:2::", 63), nil},
		{"IPv6 /64", from("2001:db8:0:3::", 64), nil},
		{"IPv6 /65", from("2001:db8:0:3:8000::", 65), nil},
		{"IPv6 /127", from("2001:db8::2", 127), nil},
		{"IPv6 /128", from("2001:db8::3", 128), nil},
		{"host bits in IPv4 /0", from("0.0.0.1", 0), addr.ErrUnmasked},
		{"host bits in IPv4 /16", from("127.123.3.0", 16), addr.ErrUnmasked},
		{"host bits in IPv4 /31", from("10.0.0.1", 31), addr.ErrUnmasked},
		{"host bits in IPv6 /0", from("8000::", 0), addr.ErrUnmasked},
		{"host bits in IPv6 /63", from("2001:db8:0:3::", 63), addr.ErrUnmasked},
		{"host bits in IPv6 /64, low half only", from("2001:db8::1", 64), addr.ErrUnmasked},
		{"host bits in IPv6 /127", from("2001:db8::1", 127), addr.ErrUnmasked},
		{"4-in-6 /128", from("::ffff:10.0.0.1", 128), addr.ErrMapped},
		{"4-in-6 /104", from("::ffff:10.0.0.0", 104), addr.ErrMapped},
		{"4-in-6 /96", from("::ffff:0.0.0.0", 96), addr.ErrMapped},
		{"4-in-6 with host bits", from("::ffff:10.0.0.1", 104), addr.ErrMapped},
		{"zone dropped by PrefixFrom", from("fe80::%eth0", 64), nil},
	} {
		if got := addr.Check(c.p); got != c.want {
			t.Errorf("%s: Check(%s) = %v, want %v", c.name, c.p, got, c.want)
		}
	}
}

// The reasons tell each other apart and say what is wrong.
func TestReasonsAreDistinct(t *testing.T) {
	all := []error{addr.ErrInvalid, addr.ErrMapped, addr.ErrZone, addr.ErrUnmasked, addr.ErrBits}
	for i, a := range all {
		if a.Error() == "" {
			t.Errorf("reason %d has no text", i)
		}
		for _, b := range all[i+1:] {
			if errors.Is(a, b) || a.Error() == b.Error() {
				t.Errorf("%v and %v are the same", a, b)
			}
		}
	}
}
