package addr

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// U128 is an unsigned 128-bit number.
type U128 struct{ Hi, Lo uint64 }

// FromAddr returns a as a number: 32 bits for IPv4, 128 for any other address, a
// 4-in-6 one included. The zero Addr gives 0.
func FromAddr(a netip.Addr) U128 {
	if a.Is4() {
		b := a.As4()
		return U128{Lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	if !a.IsValid() {
		return U128{}
	}
	b := a.As16()
	return U128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Addr4 returns the IPv4 address of the low 32 bits.
func (u U128) Addr4() netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(u.Lo))
	return netip.AddrFrom4(b)
}

// Addr6 returns the IPv6 address.
func (u U128) Addr6() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], u.Hi)
	binary.BigEndian.PutUint64(b[8:], u.Lo)
	return netip.AddrFrom16(b)
}

// Add returns u+v modulo 2^128.
func (u U128) Add(v U128) U128 {
	lo, carry := bits.Add64(u.Lo, v.Lo, 0)
	hi, _ := bits.Add64(u.Hi, v.Hi, carry)
	return U128{hi, lo}
}

// Sub returns u-v modulo 2^128.
func (u U128) Sub(v U128) U128 {
	lo, borrow := bits.Sub64(u.Lo, v.Lo, 0)
	hi, _ := bits.Sub64(u.Hi, v.Hi, borrow)
	return U128{hi, lo}
}

// Shl returns u<<n; 0 if n is 128 or more.
func (u U128) Shl(n uint) U128 {
	if n >= 64 {
		return U128{Hi: u.Lo << (n - 64)}
	}
	return U128{u.Hi<<n | u.Lo>>(64-n), u.Lo << n}
}

// Shr returns u>>n; 0 if n is 128 or more.
func (u U128) Shr(n uint) U128 {
	if n >= 64 {
		return U128{Lo: u.Hi >> (n - 64)}
	}
	return U128{u.Hi >> n, u.Lo>>n | u.Hi<<(64-n)}
}

// Or returns the bits in u or v.
func (u U128) Or(v U128) U128 { return U128{u.Hi | v.Hi, u.Lo | v.Lo} }

// And returns the bits in u and v.
func (u U128) And(v U128) U128 { return U128{u.Hi & v.Hi, u.Lo & v.Lo} }

// Xor returns the bits set in exactly one operand.
func (u U128) Xor(v U128) U128 { return U128{u.Hi ^ v.Hi, u.Lo ^ v.Lo} }

// Cmp returns -1, 0 or 1 as u is less than, equal to or greater than v.
func (u U128) Cmp(v U128) int {
	if u.Hi != v.Hi {
		if u.Hi < v.Hi {
			return -1
		}
		return 1
	}
	if u.Lo != v.Lo {
		if u.Lo < v.Lo {
			return -1
		}
		return 1
	}
	return 0
}

// IsZero reports whether u is 0.
func (u U128) IsZero() bool { return u.Hi|u.Lo == 0 }

// Low returns a number of n ones: 2^n - 1, for n up to 128.
func Low(n uint) U128 {
	if n >= 128 {
		return U128{^uint64(0), ^uint64(0)}
	}
	return U128{Lo: 1}.Shl(n).Sub(U128{Lo: 1})
}
