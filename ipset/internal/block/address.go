package block

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/holder"
)

// Each held or cooling address has a record of its own, so that the bytes of an assignment do not grow with its block.
// A commit that writes an address record also writes the block's record, on the revision that was read. So address
// records need no expectation of their own: a revision of the block fixes its addresses.

// Identity is the host and the handle of an address, and the attributes that the caller keeps with it.
type Identity struct {
	Host   alloc.Owner
	Handle string
	// Active are the attributes of the present owner, Alternate the attributes of the owner that may take over.
	Active, Alternate alloc.Attributes
	// Indexed marks the active attributes that an index lists, as [Marks] returns them.
	Indexed uint64
}

// Holder is one holder of an address.
type Holder struct {
	Identity
	Seq      uint64
	Until    int64 // the end of the lease, 0 without one; of a cooling address the moment it is free
	Borrowed bool  // the host was not the block's owner when it got the address: an index record says so
	First    bool  // the first holding of its handle: the key of its index record is the handle alone
	// Since is when the holder got the address, or when it began to cool, in seconds since 1970; 0 is not known. It fits beside Borrowed
	// and takes four bytes of the record.
	Since uint32
}

// Address is the content of an address record. The embedded Holder is the first one; [Address.Holders] yields all.
type Address struct {
	Holder
	Cooling bool
	shared  string // coded Share and further holders, "" for an address that allows no others
}

// The coded address, version 1. Numbers are uvarints, signed ones zig-zag; a string is its length and its bytes.
//
//	1                 version
//	flags             what follows: those of [holder.Parts], AddrCooling and AddrShared
//	prefix length     of the block, one byte
//	first holder      see [holder.Parts]
//	most              with AddrShared: how many holders there may be
//	key               string, with AddrShared: what the holders have in common
//	further holders   with AddrShared: each as flags and what [holder.Parts] says
//
// The flags of the first 7 bits take one byte, so that most records have no more. New ones go to the end.
const addressVersion = 1

// ToSecond returns a time of a block as an allocation has it that is held since then.
func ToSecond(at int64) time.Time { return wire.UnstampSeconds(wire.Seconds(at)) }

// parts points to the parts that records have.
func (h *Holder) parts() holder.Parts {
	return holder.Parts{
		Kind: (*uint8)(&h.Host.Kind), Host: &h.Host.Name, Handle: &h.Handle, Active: (*holder.Attributes)(&h.Active), Alternate: (*holder.Attributes)(&h.Alternate),
		Seq: &h.Seq, Until: &h.Until, Borrowed: &h.Borrowed, Indexed: &h.Indexed, First: &h.First, Since: &h.Since,
	}
}

// valid refuses a holder that was read and that no claim can make.
func (h *Holder) valid(c *wire.Coder) {
	switch {
	case c.Writes || c.Err != nil:
	case h.Host.Kind != alloc.Nobody && h.Host.Check() != nil:
		c.Fail("host")
	case len(h.Handle) > cause.MaxName || strings.IndexByte(h.Handle, 0) >= 0:
		c.Fail("handle")
	case !holder.Attributes(h.Active).Valid() || !holder.Attributes(h.Alternate).Valid():
		c.Fail("attributes")
	case h.Indexed != 0 && !mayIndex(h.Active, h.Indexed):
		c.Fail("index")
	}
}

// code codes the record and the prefix length of its block.
func (a *Address) code(c *wire.Coder, length *int) {
	parts, flags := a.parts(), uint64(0)
	if c.Writes {
		flags = parts.Flags()
		if a.Cooling {
			flags |= holder.AddrCooling
		}
		if a.shared != "" {
			flags |= holder.AddrShared
		}
	}
	c.Version(addressVersion)
	wire.Uint(c, &flags)
	wire.Byte(c, length)
	parts.Code(c, flags)
	a.valid(c)
	if flags&holder.AddrShared != 0 {
		wire.Rest(c, &a.shared)
	}
	if c.Writes || c.Err != nil {
		return
	}
	a.Cooling = flags&holder.AddrCooling != 0
	switch {
	case c.S != "":
		c.Fail("bytes after the address")
	case a.Cooling && (a.Until == 0 || a.shared != "" || a.First):
		c.Fail("cooling address")
	case flags&holder.AddrShared != 0:
		c.Err = a.checkShared()
	}
}

// Append appends the coded address of a block of the given prefix length to dst.
func (a *Address) Append(dst []byte, length int) []byte {
	c := wire.Write(dst)
	a.code(c, &length)
	return c.B
}

// DecodeAddress reads an address record and the prefix length of its block. The strings are parts of s.
func DecodeAddress(s string) (a Address, length int, err error) {
	c := wire.Read(s)
	if a.code(c, &length); c.Err != nil {
		return Address{}, 0, fmt.Errorf("%w: address record", c.Err)
	}
	return a, length, nil
}

// At returns the address as it is at the time now, and false if it is free. Holders whose lease has ended leave it; after
// the last holder it cools, and then it is free.
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
		a.Cooling, a.First, a.Since, a.Until = true, false, wire.Seconds(a.Until), Later(a.Until, cooldown)
	}
	return a, !a.Cooling || a.Until > now
}

// Allocation describes an address of a block of the given prefix length, held by its first holder.
func (a *Address) Allocation(at netip.Addr, length int) alloc.Allocation {
	return a.AllocationOf(at, length, a.Holder)
}

// AllocationOf describes an address of a block of the given prefix length, held by h.
func (a *Address) AllocationOf(at netip.Addr, length int, h Holder) alloc.Allocation {
	al := alloc.Allocation{
		Address: at, Block: netip.PrefixFrom(at, length).Masked(), Host: h.Host, Handle: h.Handle,
		Attributes: h.Active, Alternate: h.Alternate, Seq: h.Seq, Since: wire.UnstampSeconds(h.Since), Until: wire.Unstamp(h.Until), Cooling: a.Cooling,
	}
	if a.shared != "" {
		rest := a.further()
		held := al // of its own, so that only an allocation with holders is on the heap
		holder.SetShared(&held, string(append(appendHolder([]byte(a.shared[:len(a.shared)-len(rest)]), a.Holder), rest...)))
		return held
	}
	return al
}
