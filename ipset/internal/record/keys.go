package record

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A key sorts as its subject does: a block by its address, a due time by its moment. Every walk in the engine is therefore one range of
// the store, and every page of it ends at a key from which the next one begins.

// EndOf returns the end of the range of a kind.
func EndOf(kind string) string { return string(kind[0] + 1) }

// The first byte of a key; README.md of package store lists them. In a key that names a block or an address the family follows,
// '4' or '6', and the address.
const (
	KindCatalog = "c"
	KindBlock   = "b"
	KindAddress = "a"
	KindPage    = "s"
	KindOwner   = "o"
	KindHandle  = "h"
	KindHost    = "n"
	KindIndex   = "i"
	KindShare   = "k"
	KindRoom    = "r"
	KindOwnRoom = "w"
	KindEmpty   = "e"
	KindDue     = "d"
	KindMemo    = "m"
	KindAged    = "t"
	KindSpace   = "x" // all records of a named space, for which see store.Space; no kind comes after it
)

// The two kinds of memos.
const (
	KindRequest = KindMemo + "q"
	KindSticky  = KindMemo + "l"
)

// EndOfMemos returns the end of the range of a kind of memos.
func EndOfMemos(kind string) string { return kind[:1] + string(kind[1]+1) }

// IsForeign reports whether a record belongs to another program that shares the store: its key begins with an upper-case letter.
func IsForeign(key string) bool { return key[0] >= 'A' && key[0] <= 'Z' }

// CatalogKey is the key of the root of the catalog, PoolsKey the key of its pools.
const (
	CatalogKey = KindCatalog
	PoolsKey   = KindCatalog + "p"
)

// AppendBlockID appends the part of a key that names a block: family, base address, prefix length. Blocks sort by
// address, and of two that begin at the same address the larger one comes first.
func AppendBlockID(dst []byte, p netip.Prefix) []byte {
	if p.Addr().Is4() {
		dst = append(dst, '4')
	} else {
		dst = append(dst, '6')
	}
	return append(wire.AppendAddr(dst, p.Addr()), byte(p.Bits()))
}

// BlockKey returns the key of the given kind for a block.
func BlockKey(kind string, p netip.Prefix) string {
	var buf [20]byte
	return string(AppendBlockID(append(buf[:0], kind...), p))
}

// ParseBlockID is the inverse of AppendBlockID for a block.
func ParseBlockID(s string) (netip.Prefix, bool) {
	p, ok := ParseID(s)
	return p, ok && p == p.Masked()
}

// ParseID is the inverse of AppendBlockID for a block, or for an address with the prefix length of its block.
func ParseID(s string) (netip.Prefix, bool) {
	if len(s) != 6 && len(s) != 18 || (s[0] == '4') != (len(s) == 6) || s[0] != '4' && s[0] != '6' {
		return netip.Prefix{}, false
	}
	a, _ := netip.AddrFromSlice([]byte(s[1 : len(s)-1]))
	p := netip.PrefixFrom(a, int(s[len(s)-1]))
	return p, p.IsValid() && !a.Is4In6()
}

// BlockRange returns the keys of the given kind of all blocks that begin in p.
func BlockRange(kind string, p netip.Prefix) store.Range {
	var buf [64]byte
	b := AppendBlockID(append(buf[:0], kind...), p)
	n := len(b)
	b[n-1] = 0
	b = AppendBlockID(append(b, kind...), netip.PrefixFrom(LastAddr(p), p.Bits()))
	b[2*n-1] = 0xff // no prefix is that long
	keys := string(b)
	return store.Range{From: keys[:n], To: keys[n:]}
}

// BlockBefore returns the range that holds the last block that begins at or before a. Blocks do not overlap, so that no other
// can have a.
func BlockBefore(a netip.Addr) store.Range {
	key := BlockKey(KindBlock, netip.PrefixFrom(a, a.BitLen()))
	return store.Range{From: key[:2], To: key + "\x00", Limit: 1, Reverse: true}
}

// LastAddr returns the highest address of a prefix.
func LastAddr(p netip.Prefix) netip.Addr {
	width := p.Addr().BitLen()
	u := addr.FromAddr(p.Addr()).Or(addr.Low(uint(width - p.Bits())))
	if width == 32 {
		return u.Addr4()
	}
	return u.Addr6()
}

// AppendAddressKey appends the key of the record of an address.
func AppendAddressKey(dst []byte, a netip.Addr) []byte {
	if a.Is4() {
		return wire.AppendAddr(append(dst, KindAddress+"4"...), a)
	}
	return wire.AppendAddr(append(dst, KindAddress+"6"...), a)
}

// AddressKey returns the key of the record of an address.
func AddressKey(a netip.Addr) string {
	var buf [18]byte
	return string(AppendAddressKey(buf[:0], a))
}

// ParseAddressKey is the inverse of addressKey.
func ParseAddressKey(s string) (netip.Addr, bool) {
	if len(s) != 6 && len(s) != 18 || s[:1] != KindAddress || (s[1] == '4') != (len(s) == 6) || s[1] != '4' && s[1] != '6' {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice([]byte(s[2:]))
	return a, ok && !a.Is4In6()
}

// AddressRange returns the keys of the records of all addresses of p.
func AddressRange(p netip.Prefix) store.Range {
	return store.Range{From: AddressKey(p.Addr()), To: AddressKey(LastAddr(p)) + "\x00"}
}

// AppendNameKey appends the key of the index record of an address or a block under a name: a handle, or the code of an owner.
// For an address, at is the address with the prefix length of its block.
func AppendNameKey(dst []byte, kind, name string, at netip.Prefix) []byte {
	dst = append(append(dst, kind...), name...)
	return AppendBlockID(append(dst, 0), at)
}

// HandleRange returns the keys of all addresses that a handle holds.
func HandleRange(handle string) store.Range {
	to := KindHandle + handle + "\x01"
	return store.Range{From: to[:len(to)-1], To: to}
}

// CodeRange returns the keys of a kind that name an owner. The kinds are KindHost, for the addresses that a host has borrowed;
// KindOwner, for its present and former blocks; and KindOwnRoom, for its present blocks with room.
func CodeRange(kind string, o alloc.Owner) store.Range {
	key := kind + block.OwnerCode(o)
	return store.Range{From: key + "\x00", To: key + "\x01"}
}

// DueKey returns the key under which a block waits for a moment.
func DueKey(at int64, p netip.Prefix) string {
	var buf [DueTimeEnd + 18]byte
	return string(appendDueKey(buf[:0], at, p))
}

func appendDueKey(dst []byte, at int64, p netip.Prefix) []byte {
	return AppendBlockID(binary.BigEndian.AppendUint64(append(dst, KindDue...), uint64(at)), p)
}

// DueTimeEnd is where the time in such a key ends.
const DueTimeEnd = 1 + 8

// ParseDueKey returns the block of such a key.
func ParseDueKey(key string) (netip.Prefix, bool) {
	if len(key) <= DueTimeEnd {
		return netip.Prefix{}, false
	}
	return ParseBlockID(key[DueTimeEnd:])
}

// DueBy returns the keys of the blocks that are due at a moment.
func DueBy(at int64) store.Range {
	return store.Range{From: KindDue, To: DueKey(max(at, 0)+1, netip.PrefixFrom(netip.IPv4Unspecified(), 0))[:DueTimeEnd]}
}

// AgedKey returns the key under which a memo is found by its age.
func AgedKey(at int64, key string) string {
	b := append(make([]byte, 0, AgedTimeEnd), KindAged...)
	b = binary.BigEndian.AppendUint64(append(b, key[1]), uint64(at))
	return string(b) + key
}

// IsAgedKey reports whether agedKey may have made a key.
func IsAgedKey(s string) bool {
	return strings.HasPrefix(s, KindAged) && len(s) > AgedTimeEnd && IsMemoKey(s[AgedTimeEnd:]) && s[1] == s[AgedTimeEnd+1]
}

// AgedAt returns the time in such a key.
func AgedAt(s string) int64 { return int64(binary.BigEndian.Uint64([]byte(s[2:AgedTimeEnd]))) }

// IsMemoKey reports whether a key is the key of a memo.
func IsMemoKey(key string) bool {
	return len(key) > 2 && (key[:2] == KindRequest || key[:2] == KindSticky)
}

// AgedTimeEnd is where the time in such a key ends.
const AgedTimeEnd = 2 + 8

// Family returns 4 or 6.
func Family(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 4
	}
	return 6
}

// Everything returns the prefix of all addresses of a family.
func Everything(family int) netip.Prefix {
	if family == 4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// IdsIn returns the blocks, or the addresses with the prefix lengths of their blocks, that index records name from a place in
// their keys on. It appends them to ids, which is empty.
func IdsIn(ids []netip.Prefix, recs []store.Record, at int) ([]netip.Prefix, error) {
	ids = slices.Grow(ids, len(recs))
	first := false
	for _, rec := range recs {
		id := rec.Key[at:]
		switch {
		case id == "": // the first holding of a handle
			id, first = rec.Value, true
		case id[0] == 0:
			id = id[1:]
		}
		p, ok := ParseID(id)
		if !ok {
			return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, rec.Key)
		}
		ids = append(ids, p)
	}
	if first && len(ids) > 1 {
		slices.SortFunc(ids, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	}
	return ids, nil
}

// After returns the block of the same size as b that has the address after end; the zero prefix if end is the last
// address there is.
func After(b netip.Prefix, end netip.Addr) netip.Prefix {
	if end = end.Next(); !end.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(end, b.Bits()).Masked()
}
