package wire

import "encoding/binary"

// Holder is one holder of an address as records have it. It stands here because two packages read it: that of a block, which knows what
// the parts mean, and package alloc, where an allocation lists the holders of its address.
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
type Holder struct {
	Kind              byte // of the host: 0 for none, 1 a machine, 2 a virtual one
	Host, Handle      string
	Active, Alternate Attributes
	Seq               uint64
	Until             int64
	Borrowed          bool
	Indexed           uint64
	Since             uint32 // when the holder got the address, in seconds since 1970; 0 is not known
}

const (
	addrBorrowed  = 1 << 1
	addrUntil     = 1 << 2
	addrHost      = 1 << 3
	addrVirtual   = 1 << 4
	addrHandle    = 1 << 5
	addrActive    = 1 << 6
	addrAlternate = 1 << 7
	addrIndexed   = 1 << 9
	addrSince     = 1 << 10

	// HolderFlags are those that a holder may have.
	HolderFlags = addrBorrowed | addrUntil | addrHost | addrVirtual | addrHandle | addrActive | addrAlternate | addrIndexed | addrSince
)

// Flags returns those that say what follows of a holder.
func (h *Holder) Flags() (flags uint64) {
	for i, set := range [...]bool{false, h.Borrowed, h.Until != 0, h.Kind == 1, h.Kind == 2, h.Handle != "", h.Active.code != "", h.Alternate.code != ""} {
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

// Append appends what the flags announce.
func (h *Holder) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, h.Seq)
	if h.Until != 0 {
		dst = binary.AppendVarint(dst, h.Until)
	}
	for _, s := range [...]string{h.Host, h.Handle, h.Active.code, h.Alternate.code} {
		if s != "" {
			dst = AppendString(dst, s)
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

// Read is the inverse of Append. The strings are parts of that of the reader.
func (h *Holder) Read(r *Reader, flags uint64) {
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
		h.Kind, h.Host = 1, text(addrHost)
	case addrVirtual:
		h.Kind, h.Host = 2, text(addrVirtual)
	case addrHost | addrVirtual:
		r.Fail("host")
	}
	h.Handle, h.Active, h.Alternate = text(addrHandle), Attributes{text(addrActive)}, Attributes{text(addrAlternate)}
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
	case h.Borrowed && h.Kind == 0:
		r.Fail("host")
	}
}

// SetShared gives an *alloc.Allocation, which package alloc alone can change, the coded share and all holders, its own among them.
var SetShared func(allocation any, code string)

// Share reads a coded share, and returns the coded holders that follow it.
func Share(code string) (most int, key, holders string) {
	if code == "" {
		return 0, "", ""
	}
	r := Reader{S: code}
	most = int(r.Uvarint())
	key = r.Bytes(r.Uvarint())
	return most, key, r.S
}
