package block

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/internal/wire"
)

// Each held or cooling address has a record of its own, so that what an assignment writes does not grow with its block.
// Whoever writes an address record writes the block's record in the same commit, on the revision that it has read. So
// address records need no expectation of their own: at a given revision of the block, its addresses are what they are.

// Identity is whose an address is and what the caller keeps with it.
type Identity struct {
	Host   Owner
	Handle string
	// Active are the attributes of the present owner, Alternate those of the one that may take over.
	Active, Alternate Attributes
}

// Address is what an address record says.
type Address struct {
	Identity
	Seq      uint64
	Until    int64 // the end of the lease, 0 without one; of a cooling address the moment it is free
	Cooling  bool
	Borrowed bool // the host was not the block's owner when it got the address: an index record says so
}

// The coded address, version 1. Numbers are uvarints, signed ones zig-zag; a string is its length and its bytes.
//
//	1                 version
//	flags             what follows, see below
//	prefix length     of the block, one byte
//	sequence number
//	until             signed, with addrUntil: nanoseconds since 1970
//	host              string, with addrHost or addrVirtual
//	handle            string, with addrHandle
//	active            string, with addrActive: coded attributes
//	alternate         string, with addrAlternate
//
// All bits of the flags are in use: what else an address will have, such as more holders, needs another version.
const (
	addressVersion = 1

	addrCooling   = 1 << 0
	addrBorrowed  = 1 << 1
	addrUntil     = 1 << 2
	addrHost      = 1 << 3
	addrVirtual   = 1 << 4
	addrHandle    = 1 << 5
	addrActive    = 1 << 6
	addrAlternate = 1 << 7
)

// Append appends the coded address of a block of the given prefix length to dst.
func (a *Address) Append(dst []byte, length int) []byte {
	flags := byte(0)
	for i, set := range [...]bool{a.Cooling, a.Borrowed, a.Until != 0, a.Host.Kind == Host, a.Host.Kind == Virtual, a.Handle != "", a.Active.code != "", a.Alternate.code != ""} {
		if set {
			flags |= 1 << i
		}
	}
	dst = append(dst, addressVersion, flags, byte(length))
	dst = binary.AppendUvarint(dst, a.Seq)
	if a.Until != 0 {
		dst = binary.AppendVarint(dst, a.Until)
	}
	for _, s := range [...]string{a.Host.Name, a.Handle, a.Active.code, a.Alternate.code} {
		if s != "" {
			dst = wire.AppendString(dst, s)
		}
	}
	return dst
}

// DecodeAddress reads an address record and the prefix length of its block. The strings are parts of s.
func DecodeAddress(s string) (a Address, length int, err error) {
	r := wire.Reader{S: s}
	if v := r.Byte(); v != addressVersion {
		r.Fail("version")
	}
	flags := r.Byte()
	length = int(r.Byte())
	a.Seq = r.Uvarint()
	a.Cooling, a.Borrowed = flags&addrCooling != 0, flags&addrBorrowed != 0
	if flags&addrUntil != 0 {
		if a.Until = r.Varint(); a.Until == 0 {
			r.Fail("time")
		}
	}
	text := func(flag byte) string {
		if flags&flag == 0 {
			return ""
		}
		s := r.Bytes(r.Uvarint())
		if s == "" {
			r.Fail("empty string")
		}
		return s
	}
	switch flags & (addrHost | addrVirtual) {
	case addrHost:
		a.Host = Owner{Host, text(addrHost)}
	case addrVirtual:
		a.Host = Owner{Virtual, text(addrVirtual)}
	case addrHost | addrVirtual:
		r.Fail("host")
	}
	a.Handle, a.Active.code, a.Alternate.code = text(addrHandle), text(addrActive), text(addrAlternate)
	switch {
	case r.Err != nil:
	case r.S != "":
		r.Fail("bytes after the address")
	case a.Seq == 0 || a.Cooling && a.Until == 0:
		r.Fail("sequence number or time")
	case a.Borrowed && a.Host.Kind == Nobody, a.Host.Kind != Nobody && a.Host.Check() != nil:
		r.Fail("host")
	case len(a.Handle) > maxName || strings.IndexByte(a.Handle, 0) >= 0:
		r.Fail("handle")
	case !a.Active.valid() || !a.Alternate.valid():
		r.Fail("attributes")
	}
	if r.Err != nil {
		return Address{}, 0, fmt.Errorf("%w: address record", r.Err)
	}
	return a, length, nil
}

// At returns what becomes of an address by the time now: a lease that has ended cools, and what has cooled is free.
func (a Address) At(now, cooldown int64) (Address, bool) {
	if a.Until != 0 && !a.Cooling && a.Until <= now {
		a.Cooling, a.Until = true, Later(a.Until, cooldown)
	}
	return a, !a.Cooling || a.Until > now
}

// Allocation describes an address of a block of the given prefix length.
func (a *Address) Allocation(at netip.Addr, length int) Allocation {
	return Allocation{
		Address: at, Block: netip.PrefixFrom(at, length).Masked(), Host: a.Host, Handle: a.Handle,
		Attributes: a.Active, Alternate: a.Alternate, Seq: a.Seq, Until: Unstamp(a.Until), Cooling: a.Cooling,
	}
}
