package ipset

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The first byte of a key; README.md of package store lists them. In a key that names a block or an address the family follows,
// '4' or '6', and the address.
const (
	kindCatalog = "c"
	kindBlock   = "b"
	kindAddress = "a"
	kindPage    = "s"
	kindOwner   = "o"
	kindHandle  = "h"
	kindHost    = "n"
	kindIndex   = "i"
	kindFormer  = "f"
	kindRoom    = "r"
	kindOwnRoom = "w"
	kindEmpty   = "e"
	kindDue     = "d"
	kindMemo    = "m"
	kindAged    = "t"
	kindSpace   = "x" // all records of a named space, for which see store.Space; no kind comes after it
)

// The two kinds of memos.
const (
	kindRequest = kindMemo + "q"
	kindSticky  = kindMemo + "l"
)

// isForeign reports whether a record belongs to another program that shares the store: its key begins with an upper-case letter.
func isForeign(key string) bool { return key[0] >= 'A' && key[0] <= 'Z' }

// catalogKey is the key of the root of the catalog, poolsKey that of its pools.
const (
	catalogKey = kindCatalog
	poolsKey   = kindCatalog + "p"
)

// appendBlockID appends the part of a key that names a block: family, base address, prefix length. Blocks sort by
// address, and of two that begin at the same address the larger one comes first.
func appendBlockID(dst []byte, p netip.Prefix) []byte {
	if p.Addr().Is4() {
		dst = append(dst, '4')
	} else {
		dst = append(dst, '6')
	}
	return append(wire.AppendAddr(dst, p.Addr()), byte(p.Bits()))
}

// blockKey returns the key of the given kind for a block.
func blockKey(kind string, p netip.Prefix) string {
	var buf [20]byte
	return string(appendBlockID(append(buf[:0], kind...), p))
}

// parseBlockID is the inverse of appendBlockID for a block.
func parseBlockID(s string) (netip.Prefix, bool) {
	p, ok := parseID(s)
	return p, ok && p == p.Masked()
}

// parseID is the inverse of appendBlockID for a block, or for an address with the prefix length of its block.
func parseID(s string) (netip.Prefix, bool) {
	if len(s) != 6 && len(s) != 18 || (s[0] == '4') != (len(s) == 6) || s[0] != '4' && s[0] != '6' {
		return netip.Prefix{}, false
	}
	a, _ := netip.AddrFromSlice([]byte(s[1 : len(s)-1]))
	p := netip.PrefixFrom(a, int(s[len(s)-1]))
	return p, p.IsValid() && !a.Is4In6()
}

// blockRange returns the keys of the given kind of all blocks that begin in p.
func blockRange(kind string, p netip.Prefix) store.Range {
	from := appendBlockID([]byte(kind), p)
	from[len(from)-1] = 0
	to := appendBlockID([]byte(kind), netip.PrefixFrom(lastAddr(p), p.Bits()))
	to[len(to)-1] = 0xff // no prefix is that long
	return store.Range{From: string(from), To: string(to)}
}

// blockBefore returns the range that holds the last block that begins at or before a. Blocks do not overlap, so that no other
// can have a.
func blockBefore(a netip.Addr) store.Range {
	key := blockKey(kindBlock, netip.PrefixFrom(a, a.BitLen()))
	return store.Range{From: key[:2], To: key + "\x00", Limit: 1, Reverse: true}
}

// lastAddr returns the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	width := p.Addr().BitLen()
	u := addr.FromAddr(p.Addr()).Or(addr.Low(uint(width - p.Bits())))
	if width == 32 {
		return u.Addr4()
	}
	return u.Addr6()
}

// appendAddressKey appends the key of the record of an address.
func appendAddressKey(dst []byte, a netip.Addr) []byte {
	if a.Is4() {
		return wire.AppendAddr(append(dst, kindAddress+"4"...), a)
	}
	return wire.AppendAddr(append(dst, kindAddress+"6"...), a)
}

// addressKey returns the key of the record of an address.
func addressKey(a netip.Addr) string {
	var buf [18]byte
	return string(appendAddressKey(buf[:0], a))
}

// parseAddressKey is the inverse of addressKey.
func parseAddressKey(s string) (netip.Addr, bool) {
	if len(s) != 6 && len(s) != 18 || s[:1] != kindAddress || (s[1] == '4') != (len(s) == 6) || s[1] != '4' && s[1] != '6' {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice([]byte(s[2:]))
}

// addressRange returns the keys of the records of all addresses of p.
func addressRange(p netip.Prefix) store.Range {
	return store.Range{From: addressKey(p.Addr()), To: addressKey(lastAddr(p)) + "\x00"}
}

// appendNameKey appends the key of the index record that a handle, or an owner by its code, has an address or a block: for an
// address, at is the address with the prefix length of its block.
func appendNameKey(dst []byte, kind, name string, at netip.Prefix) []byte {
	dst = append(append(dst, kind...), name...)
	return appendBlockID(append(dst, 0), at)
}

// handleRange returns the keys of all addresses that a handle holds.
func handleRange(handle string) store.Range {
	return store.Range{From: kindHandle + handle + "\x00", To: kindHandle + handle + "\x01"}
}

// ownerKey returns the key of the list of blocks of an owner. It ends like no other, so that it is a prefix of itself alone.
func ownerKey(o Owner) string { return kindOwner + o.Code() + "\x00" }

// codeRange returns the keys of a kind that name an owner: of all addresses that a host has borrowed, of the blocks that were its
// own, or of those that are and have room.
func codeRange(kind string, o Owner) store.Range {
	key := kind + o.Code()
	return store.Range{From: key + "\x00", To: key + "\x01"}
}

// dueKey returns the key under which a block waits for a moment.
func dueKey(at int64, p netip.Prefix) string { return string(appendDueKey(nil, at, p)) }

func appendDueKey(dst []byte, at int64, p netip.Prefix) []byte {
	return appendBlockID(binary.BigEndian.AppendUint64(append(dst, kindDue...), uint64(at)), p)
}

// dueTimeEnd is where the time in such a key ends.
const dueTimeEnd = 1 + 8

// parseDueKey returns the block of such a key.
func parseDueKey(key string) (netip.Prefix, bool) {
	if len(key) <= dueTimeEnd {
		return netip.Prefix{}, false
	}
	return parseBlockID(key[dueTimeEnd:])
}

// dueBy returns the keys of the blocks that are due at a moment.
func dueBy(at int64) store.Range {
	return store.Range{From: kindDue, To: dueKey(max(at, 0)+1, netip.PrefixFrom(netip.IPv4Unspecified(), 0))[:dueTimeEnd]}
}

// agedKey returns the key under which a memo is found by its age.
func agedKey(at int64, key string) string {
	b := append(make([]byte, 0, agedTimeEnd+len(key)), kindAged...)
	b = binary.BigEndian.AppendUint64(append(b, key[1]), uint64(at))
	return string(append(b, key...))
}

// isAgedKey reports whether agedKey may have made a key.
func isAgedKey(s string) bool {
	return strings.HasPrefix(s, kindAged) && len(s) > agedTimeEnd && isMemoKey(s[agedTimeEnd:]) && s[1] == s[agedTimeEnd+1]
}

// isMemoKey reports whether a key is one of a memo.
func isMemoKey(key string) bool {
	return len(key) > 2 && (key[:2] == kindRequest || key[:2] == kindSticky)
}

// agedTimeEnd is where the time in such a key ends.
const agedTimeEnd = 2 + 8

// family returns 4 or 6.
func family(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 4
	}
	return 6
}
