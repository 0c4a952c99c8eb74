package block

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

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
	// Indexed are those of the active attributes that an index lists, as [Attributes.Mark] returns them.
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
//	flags             what follows, see below
//	prefix length     of the block, one byte
//	sequence number
//	until             signed, with addrUntil: nanoseconds since 1970
//	host              string, with addrHost or addrVirtual
//	handle            string, with addrHandle
//	active            string, with addrActive: coded attributes
//	alternate         string, with addrAlternate
//	indexed           with addrIndexed: the bits of the active attributes that an index lists
//	since             with addrSince: seconds since 1970, four bytes, the first one the highest
//	most              with addrShared: how many holders there may be
//	key               string, with addrShared: what the holders have in common
//	further holders   with addrShared: each as flags, sequence number, until, host, handle, active, alternate, indexed,
//	                  since
//
// The flags of the first 7 bits take one byte, so that most records have no more. New ones go to the end.
const (
	addressVersion = 2

	addrCooling   = 1 << 0
	addrBorrowed  = 1 << 1
	addrUntil     = 1 << 2
	addrHost      = 1 << 3
	addrVirtual   = 1 << 4
	addrHandle    = 1 << 5
	addrActive    = 1 << 6
	addrAlternate = 1 << 7
	addrShared    = 1 << 8
	addrIndexed   = 1 << 9
	addrSince     = 1 << 10

	holderFlags  = addrBorrowed | addrUntil | addrHost | addrVirtual | addrHandle | addrActive | addrAlternate | addrIndexed | addrSince
	addressFlags = holderFlags | addrCooling | addrShared
)

// flags returns those that say what follows of a holder.
func (h *Holder) flags() (flags uint64) {
	for i, set := range [...]bool{false, h.Borrowed, h.Until != 0, h.Host.Kind == Host, h.Host.Kind == Virtual, h.Handle != "", h.Active.code != "", h.Alternate.code != ""} {
		if set {
			flags |= 1 << i
		}
	}
	if h.Indexed != 0 {
		flags |= addrIndexed
	}
	if h.Since != 0 {
		flags |= addrSince
	}
	return flags
}

// seconds returns a time of a block, in nanoseconds, as it is kept with an address: from 1 to the year 2106.
func seconds(at int64) uint32 { return uint32(min(max(at/int64(time.Second), 1), math.MaxUint32)) }

// ToSecond returns a time of a block as an [Allocation] has it that is held since then.
func ToSecond(at int64) time.Time { return (&Holder{Since: seconds(at)}).since() }

// since returns when the holder got the address, the zero time if that is not known.
func (h *Holder) since() time.Time { return Unstamp(int64(h.Since) * int64(time.Second)) }

// append appends what the flags announce.
func (h *Holder) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, h.Seq)
	if h.Until != 0 {
		dst = binary.AppendVarint(dst, h.Until)
	}
	for _, s := range [...]string{h.Host.Name, h.Handle, h.Active.code, h.Alternate.code} {
		if s != "" {
			dst = wire.AppendString(dst, s)
		}
	}
	if h.Indexed != 0 {
		dst = binary.AppendUvarint(dst, h.Indexed)
	}
	if h.Since != 0 {
		dst = binary.BigEndian.AppendUint32(dst, h.Since)
	}
	return dst
}

// read is the inverse of append. The strings are parts of that of the reader.
func (h *Holder) read(r *wire.Reader, flags uint64) {
	h.Seq, h.Borrowed = r.Uvarint(), flags&addrBorrowed != 0
	if flags&addrUntil != 0 {
		if h.Until = r.Varint(); h.Until == 0 {
			r.Fail("time")
		}
	}
	text := func(flag uint64) string {
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
		h.Host = Owner{Host, text(addrHost)}
	case addrVirtual:
		h.Host = Owner{Virtual, text(addrVirtual)}
	case addrHost | addrVirtual:
		r.Fail("host")
	}
	h.Handle, h.Active.code, h.Alternate.code = text(addrHandle), text(addrActive), text(addrAlternate)
	if flags&addrIndexed != 0 {
		if h.Indexed = r.Uvarint(); h.Indexed == 0 {
			r.Fail("index")
		}
	}
	if flags&addrSince != 0 {
		if s := r.Bytes(4); r.Err == nil {
			h.Since = binary.BigEndian.Uint32([]byte(s))
		}
		if h.Since == 0 {
			r.Fail("time")
		}
	}
	switch {
	case r.Err != nil:
	case h.Seq == 0:
		r.Fail("sequence number")
	case h.Borrowed && h.Host.Kind == Nobody, h.Host.Kind != Nobody && h.Host.Check() != nil:
		r.Fail("host")
	case len(h.Handle) > maxName || strings.IndexByte(h.Handle, 0) >= 0:
		r.Fail("handle")
	case !h.Active.valid() || !h.Alternate.valid():
		r.Fail("attributes")
	case h.Indexed != 0 && !h.Active.mayIndex(h.Indexed):
		r.Fail("index")
	}
}

// Append appends the coded address of a block of the given prefix length to dst.
func (a *Address) Append(dst []byte, length int) []byte {
	flags := a.flags()
	if a.Cooling {
		flags |= addrCooling
	}
	if a.shared != "" {
		flags |= addrShared
	}
	dst = append(binary.AppendUvarint(append(dst, addressVersion), flags), byte(length))
	return append(a.Holder.append(dst), a.shared...)
}

// DecodeAddress reads an address record and the prefix length of its block. The strings are parts of s.
func DecodeAddress(s string) (a Address, length int, err error) {
	r := wire.Reader{S: s}
	if v := r.Byte(); v != addressVersion {
		r.Fail("version")
	}
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
		a.Cooling, a.Since, a.Until = true, seconds(a.Until), Later(a.Until, cooldown)
	}
	return a, !a.Cooling || a.Until > now
}

// Allocation describes an address of a block of the given prefix length, held by its first holder.
func (a *Address) Allocation(at netip.Addr, length int) Allocation {
	return a.AllocationOf(at, length, a.Holder)
}

// AllocationOf describes an address of a block of the given prefix length as one of its holders has it.
func (a *Address) AllocationOf(at netip.Addr, length int, h Holder) Allocation {
	al := Allocation{
		Address: at, Block: netip.PrefixFrom(at, length).Masked(), Host: h.Host, Handle: h.Handle,
		Attributes: h.Active, Alternate: h.Alternate, Seq: h.Seq, Since: h.since(), Until: Unstamp(h.Until), Cooling: a.Cooling,
	}
	if a.shared != "" {
		rest := a.further()
		al.shared = string(appendHolder([]byte(a.shared[:len(a.shared)-len(rest)]), a.Holder)) + rest
	}
	return al
}
