package ipset

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// Each held or cooling address has a record of its own, so that what an assignment writes does not grow with its block.
// Whoever writes an address record writes the block's record in the same commit, on the revision that it has read. So
// address records need no expectation of their own: at a given revision of the block, its addresses are what they are.

// identity is whose an address is and what the caller keeps with it.
type identity struct {
	host                      Owner
	handle, active, alternate string
}

// address is what an address record says.
type address struct {
	identity
	seq      uint64
	until    int64 // the end of the lease, 0 without one; of a cooling address the moment it is free
	cooling  bool
	borrowed bool // the host was not the block's owner when it got the address: an index record says so
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

// append appends the coded address of a block of the given prefix length to dst.
func (a *address) append(dst []byte, length int) []byte {
	flags := byte(0)
	for i, set := range [...]bool{a.cooling, a.borrowed, a.until != 0, a.host.Kind == Host, a.host.Kind == Virtual, a.handle != "", a.active != "", a.alternate != ""} {
		if set {
			flags |= 1 << i
		}
	}
	dst = append(dst, addressVersion, flags, byte(length))
	dst = binary.AppendUvarint(dst, a.seq)
	if a.until != 0 {
		dst = binary.AppendVarint(dst, a.until)
	}
	for _, s := range [...]string{a.host.Name, a.handle, a.active, a.alternate} {
		if s != "" {
			dst = appendString(dst, s)
		}
	}
	return dst
}

// decodeAddress reads an address record and the prefix length of its block. The strings are parts of s.
func decodeAddress(s string) (a address, length int, err error) {
	r := reader{s: s}
	if v := r.byte(); v != addressVersion {
		r.fail("version")
	}
	flags := r.byte()
	length = int(r.byte())
	a.seq = r.uvarint()
	a.cooling, a.borrowed = flags&addrCooling != 0, flags&addrBorrowed != 0
	if flags&addrUntil != 0 {
		if a.until = r.varint(); a.until == 0 {
			r.fail("time")
		}
	}
	text := func(flag byte) string {
		if flags&flag == 0 {
			return ""
		}
		s := r.bytes(r.uvarint())
		if s == "" {
			r.fail("empty string")
		}
		return s
	}
	switch flags & (addrHost | addrVirtual) {
	case addrHost:
		a.host = Owner{Host, text(addrHost)}
	case addrVirtual:
		a.host = Owner{Virtual, text(addrVirtual)}
	case addrHost | addrVirtual:
		r.fail("host")
	}
	a.handle, a.active, a.alternate = text(addrHandle), text(addrActive), text(addrAlternate)
	switch {
	case r.err != nil:
	case r.s != "":
		r.fail("bytes after the address")
	case a.seq == 0 || a.cooling && a.until == 0:
		r.fail("sequence number or time")
	case a.borrowed && a.host.Kind == Nobody, a.host.Kind != Nobody && a.host.check() != nil:
		r.fail("host")
	case len(a.handle) > maxName || strings.IndexByte(a.handle, 0) >= 0:
		r.fail("handle")
	case !(Attributes{a.active}).valid() || !(Attributes{a.alternate}).valid():
		r.fail("attributes")
	}
	if r.err != nil {
		return address{}, 0, fmt.Errorf("%w: address record", r.err)
	}
	return a, length, nil
}

// inHandleIndex and inHostIndex say which index records an address has; a nil address has none.
func (a *address) inHandleIndex() bool { return a != nil && !a.cooling && a.handle != "" }
func (a *address) inHostIndex() bool   { return a != nil && !a.cooling && a.borrowed }

// records returns how many records an address has, its own included.
func (a *address) records() int {
	n := 1
	if a.inHandleIndex() {
		n++
	}
	if a.inHostIndex() {
		n++
	}
	return n
}

// at returns what becomes of an address by the time now: a lease that has ended cools, and what has cooled is free.
func (a address) at(now, cooldown int64) (address, bool) {
	if a.until != 0 && !a.cooling && a.until <= now {
		a.cooling, a.until = true, later(a.until, cooldown)
	}
	return a, !a.cooling || a.until > now
}

// allocation describes an address of a block of the given prefix length.
func (a *address) allocation(at netip.Addr, length int) Allocation {
	return Allocation{
		Address: at, Block: netip.PrefixFrom(at, length).Masked(), Host: a.host, Handle: a.handle,
		Attributes: Attributes{a.active}, Alternate: Attributes{a.alternate}, Seq: a.seq, Until: unstamp(a.until), Cooling: a.cooling,
	}
}

// readAllocation describes the address of a record as it is at the moment now, and reports false if it is free by then.
func readAllocation(cat *catalog, key, value string, now int64) (Allocation, bool, error) {
	at, ok := parseAddressKey(key)
	a, length, err := decodeAddress(value)
	if err == nil && (!ok || length > at.BitLen()) {
		err = fmt.Errorf("%w: address record %q", ipalloc.ErrCorrupt, key)
	}
	if err != nil {
		return Allocation{}, false, err
	}
	cooldown := int64(0)
	if cat != nil && !a.cooling && a.until != 0 && a.until <= now {
		cooldown = cat.cooldown(netip.PrefixFrom(at, length))
	}
	a, busy := a.at(now, cooldown)
	return a.allocation(at, length), busy, nil
}

// changes notes what the address records of a block were before a transaction changed them.
type changes struct {
	list  []change
	marks uint64              // which of the first 64 ordinals are in the list
	more  map[uint64]struct{} // the others
	spare []*address          // used up
}

// change is one address that may have changed; was is nil if it had no record.
type change struct {
	x   uint64
	was *address
}

// coolingRecord stands for the record of a cooling address that was not loaded: it exists and is in no index.
var coolingRecord = &address{cooling: true}

// note remembers what the record of an ordinal is, unless a change of it has been noted before.
func (c *changes) note(x uint64, was *address, exists bool) {
	if c == nil {
		return
	}
	if was == nil && exists {
		was = coolingRecord
	}
	if x < 64 {
		if c.marks>>x&1 != 0 {
			return
		}
		c.marks |= 1 << x
	} else {
		if _, ok := c.more[x]; ok {
			return
		}
		if c.more == nil {
			c.more = make(map[uint64]struct{})
		}
		c.more[x] = struct{}{}
	}
	c.list = append(c.list, change{x, was})
}

// make returns an address to be filled in.
func (c *changes) make() *address {
	if len(c.spare) == 0 {
		return new(address)
	}
	a := c.spare[len(c.spare)-1]
	c.spare = c.spare[:len(c.spare)-1]
	return a
}

// spareMost is how many used addresses a block keeps for the next.
const spareMost = 8

// settle empties the list when it has been written.
func (c *changes) settle() {
	for _, ch := range c.list {
		if ch.was != nil && ch.was != coolingRecord && len(c.spare) < spareMost {
			*ch.was = address{}
			c.spare = append(c.spare, ch.was)
		}
	}
	clear(c.list)
	c.list, c.marks = c.list[:0], 0
	clear(c.more)
}
