package addr_test

import (
	"math/big"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// two128 is the modulus of the arithmetic.
var two128 = new(big.Int).Lsh(big.NewInt(1), 128)

func toBig(u addr.U128) *big.Int {
	n := new(big.Int).SetUint64(u.Hi)
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(u.Lo))
}

// fromBig returns n modulo 2^128, negative n included.
func fromBig(n *big.Int) addr.U128 {
	n = new(big.Int).Mod(n, two128)
	low := new(big.Int).And(n, new(big.Int).SetUint64(^uint64(0)))
	return addr.U128{Hi: new(big.Int).Rsh(n, 64).Uint64(), Lo: low.Uint64()}
}

// numbers are the boundaries of both halves and seeded random numbers of every
// length.
func numbers() (out []addr.U128) {
	halves := []uint64{0, 1, 2, 1<<31 - 1, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0) - 1, ^uint64(0)}
	for _, hi := range halves {
		for _, lo := range halves {
			out = append(out, addr.U128{Hi: hi, Lo: lo})
		}
	}
	rng := rand.New(rand.NewPCG(1, 128))
	for range 60 {
		u := addr.U128{Hi: rng.Uint64(), Lo: rng.Uint64()}
		out = append(out, fromBig(new(big.Int).Rsh(toBig(u), rng.UintN(128))))
	}
	return out
}

// Ordinals cross the 64-bit halves, so the arithmetic under them must.
func TestU128AgreesWithBig(t *testing.T) {
	all := numbers()
	for _, u := range all {
		for _, v := range all {
			x, y := toBig(u), toBig(v)
			for _, c := range []struct {
				op   string
				got  addr.U128
				want *big.Int
			}{
				{"+", u.Add(v), new(big.Int).Add(x, y)},
				{"-", u.Sub(v), new(big.Int).Sub(x, y)},
				{"&", u.And(v), new(big.Int).And(x, y)},
				{"|", u.Or(v), new(big.Int).Or(x, y)},
				{"^", u.Xor(v), new(big.Int).Xor(x, y)},
			} {
				if c.got != fromBig(c.want) {
					t.Fatalf("%x %s %x = %x, want %x", x, c.op, y, toBig(c.got), c.want)
				}
			}
			if got, want := u.Cmp(v), x.Cmp(y); got != want {
				t.Fatalf("Cmp(%x, %x) = %d, want %d", x, y, got, want)
			}
		}
		if got, want := u.IsZero(), toBig(u).Sign() == 0; got != want {
			t.Fatalf("IsZero(%x) = %v", toBig(u), got)
		}
	}
}

func TestU128Shifts(t *testing.T) {
	shifts := []uint{1 << 20, 1<<31 + 1, ^uint(0) - 63, ^uint(0)} // far beyond any width: still 0
	for n := range uint(131) {
		shifts = append(shifts, n)
	}
	for _, u := range numbers() {
		for _, n := range shifts {
			wantL, wantR := addr.U128{}, addr.U128{}
			if n < 128 {
				wantL = fromBig(new(big.Int).Lsh(toBig(u), n))
				wantR = fromBig(new(big.Int).Rsh(toBig(u), n))
			}
			if got := u.Shl(n); got != wantL {
				t.Fatalf("%x << %d = %x, want %x", toBig(u), n, toBig(got), toBig(wantL))
			}
			if got := u.Shr(n); got != wantR {
				t.Fatalf("%x >> %d = %x, want %x", toBig(u), n, toBig(got), toBig(wantR))
			}
		}
	}
}

func TestLow(t *testing.T) {
	one := big.NewInt(1)
	for n := range uint(129) {
		want := new(big.Int).Lsh(one, n)
		want.Sub(want, one)
		if got := addr.Low(n); toBig(got).Cmp(want) != 0 {
			t.Errorf("Low(%d) = %x, want %x", n, toBig(got), want)
		}
	}
	if got := addr.Low(200); got != addr.Low(128) {
		t.Errorf("Low(200) = %x, want all ones", toBig(got))
	}
}

func TestAddressesAreNumbers(t *testing.T) {
	for _, c := range []struct {
		in string
		u  addr.U128
	}{
		{"0.0.0.0", addr.U128{}},
		{"0.0.0.1", addr.U128{Lo: 1}},
		{"10.96.0.1", addr.U128{Lo: 10<<24 | 96<<16 | 1}},
		{"128.0.0.0", addr.U128{Lo: 1 << 31}},
		{"255.255.255.255", addr.U128{Lo: 1<<32 - 1}},
		{"::", addr.U128{}},
		{"::1", addr.U128{Lo: 1}},
		{"::8000:0:0:0", addr.U128{Lo: 1 << 63}},
		{"0:0:0:1::", addr.U128{Hi: 1}},
		{"8000::", addr.U128{Hi: 1 << 63}},
		{"2001:db8:1:2:3:4:5:6", addr.U128{Hi: 0x20010db8_00010002, Lo: 0x00030004_00050006}},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", addr.Low(128)},
		{"::ffff:10.0.0.1", addr.U128{Lo: 0xffff_0a000001}}, // 128 bits, not the IPv4 address
	} {
		a := netip.MustParseAddr(c.in)
		if got := addr.FromAddr(a); got != c.u {
			t.Errorf("FromAddr(%s) = %x, want %x", a, got, c.u)
		}
		back := c.u.Addr6()
		if a.Is4() {
			back = c.u.Addr4()
		}
		if back != a {
			t.Errorf("%x reads back as %s, want %s", c.u, back, a)
		}
	}
	if got := addr.FromAddr(netip.Addr{}); got != (addr.U128{}) {
		t.Errorf("FromAddr of the zero Addr = %x, want 0", got)
	}
	if got := (addr.U128{Hi: 7, Lo: 1<<32 | 5}).Addr4(); got != netip.MustParseAddr("0.0.0.5") {
		t.Errorf("Addr4 = %s, want the low 32 bits, 0.0.0.5", got)
	}
}
