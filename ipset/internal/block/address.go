package block

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
)

// Each held or cooling address has a record of its own, so that what an assignment writes does not grow with its block.
// Whoever writes an address record writes the block's record in the same commit, on the revision that it has read. So
// address records need no expectation of their own: at a given revision of the block, its addresses are what they are.

// Identity is whose an address is and what the caller keeps with it.
type Identity struct {
	Host   alloc.Owner
	Handle string
	// Active are the attributes of the present owner, Alternate those of the one that may take over.
	Active, Alternate alloc.Attributes
	// Indexed are those of the active attributes that an index lists, as [Marks] returns them.
	Indexed uint64
}

// Holder is one holder of an address.
type Holder struct {
	Identity
	Seq      uint64
	Until    int64 // the end of the lease, 0 without one; of a cooling address the moment it is free
	Borrowed bool  // the host was not the block's owner when it got the address: an index record says so
	// Since is when the holder got the address, or when it began to cool, in seconds since 1970; 0 is not known. It fits beside Borrowed
	// and takes four bytes of the record.
	Since uint32
}

// Address is what an address record says. The embedded Holder is the first one; [Address.Holders] yields all.
type Address struct {
	Holder
	Cooling bool
	shared  string // coded Share and further holders, "" for an address that allows no others
}

// The coded address, version 2. Numbers are uvarints, signed ones zig-zag; a string is its length and its bytes.
//
//	2                 version
//	flags             what follows: those of [wire.Holder], addrCooling and addrShared
//	prefix length     of the block, one byte
//	first holder      see [wire.Holder]
//	most              with addrShared: how many holders there may be
//	key               string, with addrShared: what the holders have in common
//	further holders   with addrShared: each as flags and what [wire.Holder] says
//
// The flags of the first 7 bits take one byte, so that most records have no more. New ones go to the end.
const (
	addressVersion = 2

	addrCooling = 1 << 0
	addrShared  = 1 << 8

	addressFlags = wire.HolderFlags | addrCooling | addrShared
)

// ToSecond returns a time of a block as an allocation has it that is held since then.
func ToSecond(at int64) time.Time { return wire.UnstampSeconds(wire.Seconds(at)) }

// coded returns the holder in the form that records have.
func (h *Holder) coded() wire.Holder {
	return wire.Holder{
		Kind: byte(h.Host.Kind), Host: h.Host.Name, Handle: h.Handle, Active: wire.Attributes(h.Active), Alternate: wire.Attributes(h.Alternate),
		Seq: h.Seq, Until: h.Until, Borrowed: h.Borrowed, Indexed: h.Indexed, Since: h.Since,
	}
}

// read reads what the flags announce. The strings are parts of that of the reader.
func (h *Holder) read(r *wire.Reader, flags uint64) {
	var c wire.Holder
	c.Read(r, flags)
	*h = Holder{
		Identity: Identity{
			Host: alloc.Owner{Kind: alloc.OwnerKind(c.Kind), Name: c.Host}, Handle: c.Handle,
			Active: alloc.Attributes(c.Active), Alternate: alloc.Attributes(c.Alternate), Indexed: c.Indexed,
		},
		Seq: c.Seq, Since: c.Since, Until: c.Until, Borrowed: c.Borrowed,
	}
	switch {
	case r.Err != nil:
	case h.Host.Kind != alloc.Nobody && h.Host.Check() != nil:
		r.Fail("host")
	case len(h.Handle) > cause.MaxName || strings.IndexByte(h.Handle, 0) >= 0:
		r.Fail("handle")
	case !c.Active.Valid() || !c.Alternate.Valid():
		r.Fail("attributes")
	case h.Indexed != 0 && !mayIndex(h.Active, h.Indexed):
		r.Fail("index")
	}
}

// Append appends the coded address of a block of the given prefix length to dst.
func (a *Address) Append(dst []byte, length int) []byte {
	h := a.coded()
	flags := h.Flags()
	if a.Cooling {
		flags |= addrCooling
	}
	if a.shared != "" {
		flags |= addrShared
	}
	dst = append(binary.AppendUvarint(append(dst, addressVersion), flags), byte(length))
	return append(h.Append(dst), a.shared...)
}

// DecodeAddress reads an address record and the prefix length of its block. The strings are parts of s.
func DecodeAddress(s string) (a Address, length int, err error) {
	r := wire.Reader{S: s}
	r.Version(addressVersion)
	flags := r.Uvarint()
	if flags&^addressFlags != 0 {
		r.Fail("flags")
	}
	length = int(r.Byte())
	a.read(&r, flags)
	a.Cooling = flags&addrCooling != 0
	switch {
	case r.Err != nil:
	case a.Cooling && (a.Until == 0 || flags&addrShared != 0):
		r.Fail("cooling address")
	case flags&addrShared != 0:
		a.shared = r.S
		a.checkShared(&r)
	case r.S != "":
		r.Fail("bytes after the address")
	}
	if r.Err != nil {
		return Address{}, 0, fmt.Errorf("%w: address record", r.Err)
	}
	return a, length, nil
}

// At returns what becomes of an address by the time now: holders whose lease has ended leave it, with the last of them it
// cools, and what has cooled is free.
func (a Address) At(now, cooldown int64) (Address, bool) {
	for a.shared != "" {
		h, ok := a.firstEnd()
		if !ok || h.Until > now {
			break
		}
		if !a.remove(h.Seq) {
			a = Address{Holder: h}
		}
	}
	if a.Until != 0 && !a.Cooling && a.Until <= now && a.shared == "" {
		a.Cooling, a.Since, a.Until = true, wire.Seconds(a.Until), Later(a.Until, cooldown)
	}
	return a, !a.Cooling || a.Until > now
}

// Allocation describes an address of a block of the given prefix length, held by its first holder.
func (a *Address) Allocation(at netip.Addr, length int) alloc.Allocation {
	return a.AllocationOf(at, length, a.Holder)
}

// AllocationOf describes an address of a block of the given prefix length as one of its holders has it.
func (a *Address) AllocationOf(at netip.Addr, length int, h Holder) alloc.Allocation {
	al := alloc.Allocation{
		Address: at, Block: netip.PrefixFrom(at, length).Masked(), Host: h.Host, Handle: h.Handle,
		Attributes: h.Active, Alternate: h.Alternate, Seq: h.Seq, Since: wire.UnstampSeconds(h.Since), Until: wire.Unstamp(h.Until), Cooling: a.Cooling,
	}
	if a.shared != "" {
		rest := a.further()
		held := al // of its own, so that only an allocation with holders is on the heap
		wire.SetShared(&held, string(append(appendHolder([]byte(a.shared[:len(a.shared)-len(rest)]), a.Holder), rest...)))
		return held
	}
	return al
}
