package addr_test

import (
	"errors"
	"math/big"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

func codec(t testing.TB, pool string, child int) addr.Codec {
	t.Helper()
	c, err := addr.NewCodec(netip.MustParsePrefix(pool), child)
	if err != nil {
		t.Fatalf("NewCodec(%s, %d): %v", pool, child, err)
	}
	return c
}

// codecCases are children by ordinal. The first three groups are the arithmetic of
// the original (index to block, block to index), put as cases of our own; the rest
// is what it cannot do.
var codecCases = []struct {
	pool  string
	child int
	ord   uint64
	want  string
}{
	// IPv4
	{"127.123.0.0/16", 24, 0, "127.123.0.0/24"},
	{"127.123.0.0/16", 24, 15, "127.123.15.0/24"},
	{"127.123.0.0/16", 24, 255, "127.123.255.0/24"},
	{"192.168.5.208/28", 32, 0, "192.168.5.208/32"},
	{"192.168.5.208/28", 32, 5, "192.168.5.213/32"},
	{"192.168.5.208/28", 32, 15, "192.168.5.223/32"},
	{"172.0.0.0/8", 16, 0, "172.0.0.0/16"},
	{"172.0.0.0/8", 16, 123, "172.123.0.0/16"},
	{"172.0.0.0/8", 16, 168, "172.168.0.0/16"},
	{"172.0.0.0/8", 16, 224, "172.224.0.0/16"},
	{"10.7.0.0/16", 24, 12, "10.7.12.0/24"},
	{"10.7.0.0/16", 24, 151, "10.7.151.0/24"},
	{"10.244.0.0/14", 23, 511, "10.247.254.0/23"},
	{"10.0.0.0/8", 26, 1<<18 - 1, "10.255.255.192/26"},
	// IPv6 within the upper half, and exactly up to it
	{"be00::/8", 16, 0, "be00::/16"},
	{"be00::/8", 16, 0xef, "beef::/16"},
	{"be00::/8", 16, 0x68, "be68::/16"},
	{"be00::/8", 16, 0x24, "be24::/16"},
	{"beef::/16", 24, 0x12, "beef:1200::/24"},
	{"beef::/16", 24, 0x97, "beef:9700::/24"},
	{"2001:db8::/32", 48, 0, "2001:db8::/48"},
	{"2001:db8::/32", 48, 15, "2001:db8:f::/48"},
	{"2001:db8::/32", 48, 6425, "2001:db8:1919::/48"},
	{"2001:db8:1234::/48", 64, 15, "2001:db8:1234:f::/64"},
	{"2001:db8:1234::/48", 64, 65535, "2001:db8:1234:ffff::/64"},
	{"2001:db8:85a3::/50", 63, 6425, "2001:db8:85a3:3232::/63"},
	// IPv6 across the halves, and within the lower one
	{"2001:db8:1234::/48", 80, 1, "2001:db8:1234:0:1::/80"},
	{"2001:db8:1234::/48", 80, 0xffff, "2001:db8:1234:0:ffff::/80"},
	{"2001:db8:1234::/48", 80, 0x10000, "2001:db8:1234:1::/80"},
	{"2001:db8:1234::/48", 80, 0xabcd1234, "2001:db8:1234:abcd:1234::/80"},
	{"2001:db8:1234::/48", 80, 1<<32 - 1, "2001:db8:1234:ffff:ffff::/80"},
	{"2001:db8:1234:ff00::/56", 72, 0, "2001:db8:1234:ff00::/72"},
	{"2001:db8:1234:ff00::/56", 72, 15, "2001:db8:1234:ff00:f00::/72"},
	{"2001:db8:1234:ff00::/56", 72, 6425, "2001:db8:1234:ff19:1900::/72"},
	{"2001:db8:1234:ff00::/56", 72, 65535, "2001:db8:1234:ffff:ff00::/72"},
	{"2001:db8:1234:0:1200::/80", 96, 15, "2001:db8:1234:0:1200:f::/96"},
	{"2001:db8:1234:ff00::/80", 96, 6425, "2001:db8:1234:ff00:0:1919::/96"},
	{"2001:db8:0:7::/64", 120, 1, "2001:db8:0:7::100/120"},
	{"2001:db8:0:7::/64", 120, 0xabcdef, "2001:db8:0:7::abcd:ef00/120"},
	{"2001:db8:0:7::/64", 120, 1<<56 - 1, "2001:db8:0:7:ffff:ffff:ffff:ff00/120"},
	// All 64 bits of an ordinal
	{"2001:db8:0:7::/64", 128, 1<<64 - 1, "2001:db8:0:7:ffff:ffff:ffff:ffff/128"},
	{"2001:db8:0:7::/64", 128, 1 << 63, "2001:db8:0:7:8000::/128"},
	{"2001:db8::/32", 96, 0x0123456789abcdef, "2001:db8:123:4567:89ab:cdef::/96"},
	{"8000::/1", 65, 1<<64 - 1, "ffff:ffff:ffff:ffff:8000::/65"},
	{"::/0", 64, 1<<64 - 1, "ffff:ffff:ffff:ffff::/64"},
	{"::/0", 64, 0x20010db800000000, "2001:db8::/64"},
	// A pool that is its only child, and whole families
	{"0.0.0.0/0", 0, 0, "0.0.0.0/0"},
	{"0.0.0.0/0", 1, 1, "128.0.0.0/1"},
	{"0.0.0.0/0", 32, 1<<32 - 1, "255.255.255.255/32"},
	{"10.0.0.9/32", 32, 0, "10.0.0.9/32"},
	{"10.0.0.8/31", 32, 1, "10.0.0.9/32"},
	{"::/0", 0, 0, "::/0"},
	{"::/0", 1, 1, "8000::/1"},
	{"2001:db8::9/128", 128, 0, "2001:db8::9/128"},
	{"2001:db8::8/127", 128, 1, "2001:db8::9/128"},
	{"2001:db8:0:2::/63", 64, 1, "2001:db8:0:3::/64"},
	{"2001:db8:0:2::/63", 65, 3, "2001:db8:0:3:8000::/65"},
}

// Each case both ways.
func TestCodecTable(t *testing.T) {
	for _, c := range codecCases {
		cd := codec(t, c.pool, c.child)
		want := netip.MustParsePrefix(c.want)
		if got := cd.Prefix(c.ord); got != want {
			t.Errorf("%s in /%d: child %d is %s, want %s", c.pool, c.child, c.ord, got, want)
		}
		if got, ok := cd.Ordinal(want.Addr()); !ok || got != c.ord {
			t.Errorf("%s in /%d: %s has ordinal %d %v, want %d", c.pool, c.child, want, got, ok, c.ord)
		}
		if lo, hi, r := cd.Locate(want); lo != c.ord || hi != c.ord || r != addr.Whole {
			t.Errorf("%s in /%d: %s is [%d, %d] %d, want ordinal %d, whole", c.pool, c.child, want, lo, hi, r, c.ord)
		}
	}
}

// What a codec refuses, at the boundary of each rule.
func TestNewCodecRefuses(t *testing.T) {
	for _, c := range []struct {
		pool  netip.Prefix
		child int
		want  error
	}{
		{netip.Prefix{}, 24, addr.ErrInvalid},
		{netip.PrefixFrom(netip.MustParseAddr("127.123.3.0"), 16), 24, addr.ErrUnmasked},
		{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104), 120, addr.ErrMapped},
		{netip.MustParsePrefix("10.0.0.0/8"), -1, addr.ErrBits},
		{netip.MustParsePrefix("10.0.0.0/8"), 7, addr.ErrBits},
		{netip.MustParsePrefix("10.0.0.0/8"), 8, nil},
		{netip.MustParsePrefix("10.0.0.0/8"), 32, nil},
		{netip.MustParsePrefix("10.0.0.0/8"), 33, addr.ErrBits},
		{netip.MustParsePrefix("10.0.0.0/8"), 1 << 30, addr.ErrBits},
		{netip.MustParsePrefix("0.0.0.0/0"), 32, nil},
		{netip.MustParsePrefix("10.0.0.1/32"), 31, addr.ErrBits},
		{netip.MustParsePrefix("10.0.0.1/32"), 32, nil},
		{netip.MustParsePrefix("::/0"), 64, nil},
		{netip.MustParsePrefix("::/0"), 65, addr.ErrBits},
		{netip.MustParsePrefix("2001:db8::/32"), 31, addr.ErrBits},
		{netip.MustParsePrefix("2001:db8::/32"), 32, nil},
		{netip.MustParsePrefix("2001:db8::/32"), 96, nil},
		{netip.MustParsePrefix("2001:db8::/32"), 97, addr.ErrBits},
		{netip.MustParsePrefix("2001:db8::/63"), 127, nil},
		{netip.MustParsePrefix("2001:db8::/63"), 128, addr.ErrBits},
		{netip.MustParsePrefix("2001:db8::/64"), 128, nil},
		{netip.MustParsePrefix("2001:db8::/64"), 129, addr.ErrBits},
		{netip.MustParsePrefix("2001:db8::/100"), 128, nil},
		{netip.MustParsePrefix("2001:db8::1/128"), 127, addr.ErrBits},
	} {
		cd, err := addr.NewCodec(c.pool, c.child)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("NewCodec(%s, %d): %v, want %v", c.pool, c.child, err, c.want)
		}
		if err != nil && cd != (addr.Codec{}) {
			t.Errorf("NewCodec(%s, %d) fails and returns a codec", c.pool, c.child)
		}
	}
}

// The text says what was asked and what would do.
func TestErrBitsNamesTheRange(t *testing.T) {
	_, err := addr.NewCodec(netip.MustParsePrefix("2001:db8::/32"), 97)
	if got, want := err.Error(), "child prefix length out of range: /97, want /32 to /96"; got != want {
		t.Errorf("error is %q, want %q", got, want)
	}
}

// How a prefix lies to the pool. Foreign neighbours are the nearest
// ones: the prefix just below and just above.
func TestLocate(t *testing.T) {
	const all = ^uint64(0)
	for _, c := range []struct {
		pool   string
		child  int
		p      string
		lo, hi uint64
		rel    addr.Relation
	}{
		{"127.0.0.0/8", 16, "127.0.0.0/8", 0, 255, addr.Whole},
		{"127.0.0.0/8", 16, "64.0.0.0/2", 0, 255, addr.Larger},
		{"127.0.0.0/8", 16, "126.0.0.0/7", 0, 255, addr.Larger},
		{"127.0.0.0/8", 16, "0.0.0.0/0", 0, 255, addr.Larger},
		{"127.0.0.0/8", 16, "127.0.0.0/16", 0, 0, addr.Whole},
		{"127.0.0.0/8", 16, "127.128.0.0/9", 128, 255, addr.Whole},
		{"127.0.0.0/8", 16, "127.5.64.0/18", 5, 5, addr.Part},
		{"127.0.0.0/8", 16, "127.255.255.255/32", 255, 255, addr.Part},
		{"127.0.0.0/8", 16, "126.0.0.0/8", 0, 0, addr.Foreign},
		{"127.0.0.0/8", 16, "128.0.0.0/8", 0, 0, addr.Foreign},
		{"127.0.0.0/8", 16, "126.255.255.255/32", 0, 0, addr.Foreign},
		{"127.0.0.0/8", 16, "128.0.0.0/32", 0, 0, addr.Foreign},
		{"127.0.0.0/8", 16, "128.0.0.0/1", 0, 0, addr.Foreign},
		{"127.0.0.0/8", 16, "7f00::/8", 0, 0, addr.Foreign},
		{"127.0.0.0/8", 16, "::/0", 0, 0, addr.Foreign},
		{"127.0.0.0/8", 32, "127.0.0.0/16", 0, 65535, addr.Whole},
		{"126.0.0.0/7", 16, "127.0.0.0/15", 256, 257, addr.Whole},
		{"126.0.0.0/7", 15, "127.0.0.0/15", 128, 128, addr.Whole},
		{"126.0.0.0/7", 18, "127.0.0.0/15", 1024, 1031, addr.Whole},
		{"0.0.0.0/0", 32, "0.0.0.0/0", 0, 1<<32 - 1, addr.Whole},
		{"0.0.0.0/0", 0, "255.255.255.255/32", 0, 0, addr.Part},
		{"10.0.0.1/32", 32, "10.0.0.0/31", 0, 0, addr.Larger},
		{"10.0.0.1/32", 32, "10.0.0.0/32", 0, 0, addr.Foreign},
		{"10.0.0.1/32", 32, "10.0.0.1/32", 0, 0, addr.Whole},
		{"2001:beef:1200::/40", 48, "2001:beef:1200::/40", 0, 255, addr.Whole},
		{"2001:beef:1200::/40", 48, "2001:beef::/34", 0, 255, addr.Larger},
		{"2001:beef:1200::/40", 48, "2001:beef:12ff::/48", 255, 255, addr.Whole},
		{"2001:beef:1200::/40", 48, "2001:beef:1201:8000::/49", 1, 1, addr.Part},
		{"2001:beef:1200::/40", 48, "2001:beef:11ff::/48", 0, 0, addr.Foreign},
		{"2001:beef:1200::/40", 48, "2001:beef:1300::/48", 0, 0, addr.Foreign},
		{"2001:beef:1200::/40", 48, "32.1.190.239/32", 0, 0, addr.Foreign},
		{"2001:beef:1200::/40", 48, "0.0.0.0/0", 0, 0, addr.Foreign},
		{"2001:beef:1200::/48", 64, "2001:beef:1200::/48", 0, 65535, addr.Whole},
		{"2001:beef:7e00::/39", 48, "2001:beef:7f00::/47", 256, 257, addr.Whole},
		{"2001:beef:7e00::/39", 47, "2001:beef:7f00::/47", 128, 128, addr.Whole},
		{"2001:beef:7e00::/39", 50, "2001:beef:7f00::/47", 1024, 1031, addr.Whole},
		{"2001:db8::/48", 80, "2001:db8:0:8000::/49", 1 << 31, 1<<32 - 1, addr.Whole},
		{"2001:db8::/48", 80, "2001:db8:0:1:8000::/65", 1<<16 | 1<<15, 1<<17 - 1, addr.Whole},
		{"2001:db8:0:7::/64", 128, "2001:db8:0:7::/64", 0, all, addr.Whole},
		{"2001:db8:0:7::/64", 128, "2001:db8:0:7:8000::/65", 1 << 63, all, addr.Whole},
		{"2001:db8:0:7::/64", 128, "2001:db8:0:7:ffff:ffff:ffff:fffe/127", all - 1, all, addr.Whole},
		{"2001:db8:0:7::/64", 128, "2001:db8:0:6::/63", 0, all, addr.Larger},
		{"2001:db8:0:7::/64", 128, "2001:db8:0:6:ffff:ffff:ffff:ffff/128", 0, 0, addr.Foreign},
		{"2001:db8:0:7::/64", 128, "2001:db8:0:8::/128", 0, 0, addr.Foreign},
		{"::/0", 64, "::/0", 0, all, addr.Whole},
		{"::/0", 64, "8000::/1", 1 << 63, all, addr.Whole},
		{"::/0", 0, "2001:db8::/32", 0, 0, addr.Part},
		{"2001:db8::1/128", 128, "2001:db8::/127", 0, 0, addr.Larger},
		{"2001:db8::1/128", 128, "2001:db8::/128", 0, 0, addr.Foreign},
	} {
		cd := codec(t, c.pool, c.child)
		lo, hi, rel := cd.Locate(netip.MustParsePrefix(c.p))
		if lo != c.lo || hi != c.hi || rel != c.rel {
			t.Errorf("%s in /%d: %s is [%d, %d] %d, want [%d, %d] %d", c.pool, c.child, c.p, lo, hi, rel, c.lo, c.hi, c.rel)
		}
	}
}

// Ordinal takes any address, so it has to refuse what is not one of the
// pool's family by itself.
func TestOrdinalRefuses(t *testing.T) {
	for _, c := range []struct {
		pool  string
		child int
		a     netip.Addr
	}{
		{"10.0.0.0/8", 24, netip.Addr{}},
		{"10.0.0.0/8", 24, netip.MustParseAddr("9.255.255.255")},
		{"10.0.0.0/8", 24, netip.MustParseAddr("11.0.0.0")},
		{"10.0.0.0/8", 24, netip.MustParseAddr("::ffff:10.0.0.1")},
		{"10.0.0.0/8", 24, netip.MustParseAddr("::10.0.0.1")},
		{"0.0.0.0/0", 32, netip.MustParseAddr("::")},
		{"0.0.0.0/0", 0, netip.Addr{}},
		{"2001:db8::/64", 128, netip.Addr{}},
		{"2001:db8::/64", 128, netip.MustParseAddr("2001:db8::1%eth0")},
		{"2001:db8::/64", 128, netip.MustParseAddr("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff")},
		{"2001:db8::/64", 128, netip.MustParseAddr("2001:db8:0:1::")},
		{"2001:db8::/64", 128, netip.MustParseAddr("10.0.0.1")},
		{"2001:db8::/48", 64, netip.MustParseAddr("a001:db8::")}, // differs in the top bit only
		{"::/0", 64, netip.MustParseAddr("0.0.0.0")},
		{"::/0", 0, netip.Addr{}},
	} {
		cd := codec(t, c.pool, c.child)
		if i, ok := cd.Ordinal(c.a); ok {
			t.Errorf("%s in /%d: %s has ordinal %d, want none", c.pool, c.child, c.a, i)
		}
	}
}

// Every pool length with every child length of both families, at the first,
// second, middle and last ordinals, against arithmetic on big integers.
func TestCodecRoundTripsEveryLength(t *testing.T) {
	pools := []netip.Addr{
		netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("172.29.85.170"), netip.MustParseAddr("255.255.255.255"),
		netip.MustParseAddr("::"), netip.MustParseAddr("2001:db8:85a3:5a5a:a5a5:8a2e:370:7334"),
		netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
	}
	for _, a := range pools {
		for length := range a.BitLen() + 1 {
			pool := netip.PrefixFrom(a, length).Masked()
			for child := length; child <= min(a.BitLen(), length+64); child++ {
				cd, err := addr.NewCodec(pool, child)
				if err != nil {
					t.Fatal(err)
				}
				roundTrip(t, &cd, pool, child)
			}
		}
	}
}

func roundTrip(t *testing.T, cd *addr.Codec, pool netip.Prefix, child int) {
	width, order := pool.Addr().BitLen(), child-pool.Bits()
	last := uint64(1)<<order - 1 // all ones for an order of 64
	if cd.Pool() != pool || cd.ChildBits() != child || cd.Order() != order || cd.Last() != last {
		t.Fatalf("%s in /%d: pool %s, /%d, order %d, last %d", pool, child, cd.Pool(), cd.ChildBits(), cd.Order(), cd.Last())
	}
	if lo, hi, r := cd.Locate(pool); lo != 0 || hi != last || r != addr.Whole {
		t.Fatalf("%s in /%d: the pool is [%d, %d] %d", pool, child, lo, hi, r)
	}
	for _, i := range []uint64{0, 1, last / 3, last/2 + 1, last - 1, last} {
		if i > last {
			continue
		}
		first := new(big.Int).Lsh(new(big.Int).SetUint64(i), uint(width-child))
		first.Add(first, toBig(addr.FromAddr(pool.Addr())))
		end := new(big.Int).Lsh(big.NewInt(1), uint(width-child))
		end.Add(end, first).Sub(end, big.NewInt(1))
		a, z := bigAddr(first, width), bigAddr(end, width)
		if got := cd.Prefix(i); got != netip.PrefixFrom(a, child) || cd.Addr(i) != a {
			t.Fatalf("%s in /%d: child %d is %s from %s, want %s/%d", pool, child, i, got, cd.Addr(i), a, child)
		}
		if got, want := cd.PrefixOf(i, pool.Bits()), netip.PrefixFrom(a, pool.Bits()); got != want {
			t.Fatalf("%s in /%d: PrefixOf(%d) = %s, want %s", pool, child, i, got, want)
		}
		if err := cd.Check(cd.Prefix(i)); err != nil {
			t.Fatalf("%s in /%d: refuses its own child %d: %v", pool, child, i, err)
		}
		for _, in := range []netip.Addr{a, z} {
			if got, ok := cd.Ordinal(in); !ok || got != i {
				t.Fatalf("%s in /%d: %s has ordinal %d %v, want %d", pool, child, in, got, ok, i)
			}
		}
		want := addr.Part
		if child == width {
			want = addr.Whole
		}
		for _, p := range []netip.Prefix{netip.PrefixFrom(a, width), netip.PrefixFrom(z, width)} {
			if lo, hi, r := cd.Locate(p); lo != i || hi != i || r != want {
				t.Fatalf("%s in /%d: %s is [%d, %d] %d, want %d %d", pool, child, p, lo, hi, r, i, want)
			}
		}
	}
	outside(t, cd, pool)
}

// outside checks the addresses just below and just above the pool, and the pool
// twice as large.
func outside(t *testing.T, cd *addr.Codec, pool netip.Prefix) {
	width := pool.Addr().BitLen()
	below := pool.Addr().Prev()
	size := new(big.Int).Lsh(big.NewInt(1), uint(width-pool.Bits()))
	above := bigAddr(size.Add(size, toBig(addr.FromAddr(pool.Addr()))), width)
	for _, a := range []netip.Addr{below, above} {
		if !a.IsValid() || pool.Contains(a) {
			continue // the family ends here
		}
		if i, ok := cd.Ordinal(a); ok {
			t.Fatalf("%s in /%d: %s has ordinal %d", pool, cd.ChildBits(), a, i)
		}
		if _, _, r := cd.Locate(netip.PrefixFrom(a, width)); r != addr.Foreign {
			t.Fatalf("%s in /%d: %s is %d, want foreign", pool, cd.ChildBits(), a, r)
		}
	}
	if pool.Bits() > 0 {
		twice := netip.PrefixFrom(pool.Addr(), pool.Bits()-1).Masked()
		if lo, hi, r := cd.Locate(twice); lo != 0 || hi != cd.Last() || r != addr.Larger {
			t.Fatalf("%s in /%d: %s is [%d, %d] %d, want larger", pool, cd.ChildBits(), twice, lo, hi, r)
		}
	}
}

// bigAddr returns n as an address of the given width, the zero Addr if n does
// not fit.
func bigAddr(n *big.Int, width int) netip.Addr {
	if n.BitLen() > width {
		return netip.Addr{}
	}
	if width == 32 {
		return fromBig(n).Addr4()
	}
	return fromBig(n).Addr6()
}

var (
	sinkPrefix netip.Prefix
	sinkAddr   netip.Addr
	sinkUint   uint64
	sinkErr    error
	sinkU128   addr.U128
)

func TestCodecDoesNotAllocate(t *testing.T) {
	v4, v6 := codec(t, "10.0.0.0/8", 24), codec(t, "2001:db8::/48", 80)
	p4, p6 := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/64")
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"NewCodec", func() { _, sinkErr = addr.NewCodec(p6, 96) }},
		{"Prefix v4", func() { sinkPrefix = v4.Prefix(77) }},
		{"Prefix v6", func() { sinkPrefix = v6.Prefix(1<<31 + 77) }},
		{"PrefixOf v6", func() { sinkPrefix = v6.PrefixOf(1<<16, 64) }},
		{"Addr v4", func() { sinkAddr = v4.Addr(77) }},
		{"Addr v6", func() { sinkAddr = v6.Addr(77) }},
		{"Ordinal v4", func() { sinkUint, _ = v4.Ordinal(p4.Addr()) }},
		{"Ordinal v6", func() { sinkUint, _ = v6.Ordinal(p6.Addr()) }},
		{"Locate v4", func() { sinkUint, _, _ = v4.Locate(p4) }},
		{"Locate v6", func() { sinkUint, _, _ = v6.Locate(p6) }},
		{"Locate foreign", func() { sinkUint, _, _ = v6.Locate(p4) }},
		{"Check", func() { sinkErr = addr.Check(p6) }},
		{"CheckAddr", func() { sinkErr = addr.CheckAddr(p6.Addr()) }},
		{"U128", func() { sinkU128 = addr.FromAddr(p6.Addr()).Add(addr.Low(64)).Shr(3).Sub(addr.Low(7)) }},
	} {
		if n := testing.AllocsPerRun(100, c.f); n != 0 {
			t.Errorf("%s allocates %v times", c.name, n)
		}
	}
}
