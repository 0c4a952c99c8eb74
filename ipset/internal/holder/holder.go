// Package holder codes one holder of an address, with its host, handle, lease and attributes. Two packages have holders in types of their
// own: block keeps them in records, and the allocations of alloc list them.
package holder

import (
	"encoding/binary"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// Parts points to the parts of a holder.
//
// Coded it is, after its flags:
//
//	sequence number
//	until             signed, with addrUntil: nanoseconds since 1970
//	host              string, with addrHost or addrVirtual
//	handle            string, with addrHandle
//	active            string, with addrActive: coded attributes
//	alternate         string, with addrAlternate
//	indexed           with addrIndexed: the bits of the active attributes that an index lists
//	since             with addrSince: seconds since 1970, four bytes, the first one the highest
type Parts struct {
	Kind              *uint8 // of the host: 0 for none, 1 a machine, 2 a virtual one
	Host, Handle      *string
	Active, Alternate *Attributes
	Seq               *uint64
	Until             *int64
	Borrowed          *bool
	Indexed           *uint64
	First             *bool   // the holding that keeps other first holdings of the handle away; nil where that does not matter
	Since             *uint32 // when the holder got the address, in seconds since 1970; 0 is not known
}

const (
	// AddrCooling and AddrShared are flags of an address, for the package that codes it.
	AddrCooling   = 1 << 0
	addrBorrowed  = 1 << 1
	addrUntil     = 1 << 2
	addrHost      = 1 << 3
	addrVirtual   = 1 << 4
	addrHandle    = 1 << 5
	addrActive    = 1 << 6
	addrAlternate = 1 << 7
	AddrShared    = 1 << 8
	addrIndexed   = 1 << 9
	addrSince     = 1 << 10
	addrFirst     = 1 << 11
)

// Flags returns the flags of a holder, which announce its coded parts.
func (h *Parts) Flags() (flags uint64) {
	if *h.Borrowed {
		flags |= addrBorrowed
	}
	if *h.Until != 0 {
		flags |= addrUntil
	}
	if k := uint64(*h.Kind); k < 3 {
		flags |= k * addrHost
	}
	if *h.Handle != "" {
		flags |= addrHandle
	}
	if h.Active.code != "" {
		flags |= addrActive
	}
	if h.Alternate.code != "" {
		flags |= addrAlternate
	}
	if *h.Indexed != 0 {
		flags |= addrIndexed
	}
	if *h.Since != 0 {
		flags |= addrSince
	}
	if h.First != nil && *h.First {
		flags |= addrFirst
	}
	return flags
}

// Code codes the parts that the flags announce. Other parts are left alone; to read, all must be zero. Strings that are read are parts of
// the coder's string.
func (h *Parts) Code(c *wire.Coder, flags uint64) {
	wire.Uint(c, h.Seq)
	if flags&addrUntil != 0 {
		wire.Int(c, h.Until)
	}
	if flags&(addrHost|addrVirtual) != 0 {
		wire.String(c, h.Host)
	}
	if flags&addrHandle != 0 {
		wire.String(c, h.Handle)
	}
	if flags&addrActive != 0 {
		wire.String(c, &h.Active.code)
	}
	if flags&addrAlternate != 0 {
		wire.String(c, &h.Alternate.code)
	}
	if flags&addrIndexed != 0 {
		wire.Uint(c, h.Indexed)
	}
	if c.Writes {
		if flags&addrSince != 0 {
			c.B = binary.BigEndian.AppendUint32(c.B, *h.Since)
		}
		return
	}
	if flags&addrSince != 0 {
		if s := c.Bytes(4); c.Err == nil {
			*h.Since = binary.BigEndian.Uint32([]byte(s))
		}
	}
	*h.Borrowed, *h.Kind = flags&addrBorrowed != 0, uint8(flags/addrHost&3)
	if h.First != nil {
		*h.First = flags&addrFirst != 0
	} else {
		flags &^= addrFirst
	}
	if *h.Seq == 0 || flags&addrFirst != 0 && *h.Handle == "" || h.Flags() != flags&^(AddrCooling|AddrShared) || *h.Borrowed && *h.Kind == 0 || (*h.Kind == 0) != (*h.Host == "") {
		c.Fail("holder")
	}
}

// CodeFurther codes a holder of a shared address after the first: its flags and the parts that they announce.
func (h *Parts) CodeFurther(c *wire.Coder) {
	flags := h.Flags()
	if wire.Uint(c, &flags); flags&(AddrCooling|AddrShared) != 0 {
		c.Fail("flags")
	}
	h.Code(c, flags)
}

// SetShared gives an *alloc.Allocation, which package alloc alone can change, the coded share and all holders, its own among them.
var SetShared func(allocation any, code string)

// CodeShare codes the share of an address, which precedes its further holders: how many may hold it, and their sharing key.
func CodeShare(c *wire.Coder, most *int, key *string) {
	wire.Uint(c, most)
	wire.String(c, key)
}

// Share reads a coded share, "" for none, and returns the coded holders that follow it.
func Share(code string) (most int, key, holders string) {
	if code == "" {
		return 0, "", ""
	}
	c := wire.Read(code)
	CodeShare(c, &most, &key)
	return most, key, c.S
}
