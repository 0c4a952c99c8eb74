package prefixes

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every key begins with X; an ipset.Engine on the same store leaves such records alone.
// doc.go describes the records. <prefix> is the family, '4' or '6', the address and the
// length, so prefixes sort by address, and a larger one before a smaller one that begins
// at the same address.
const (
	keyRoots    = "Xr" // the root pools
	kindHolding = "Xh" // <prefix>: a holding
	kindOwner   = "Xo" // <owner> 0 <prefix>: the length of the pool that it is held from
	kindPage    = "Xf" // <pool> <depth> <address>: a page
)

// Limits of a request, in bytes.
const (
	MaxOwner      = 1024
	MaxAttributes = 4096
)

const recordVersion = 1

// appendID appends the part of a key that names a prefix.
func appendID(dst []byte, p netip.Prefix) []byte {
	if p.Addr().Is4() {
		a := p.Addr().As4()
		return append(append(append(dst, '4'), a[:]...), byte(p.Bits()))
	}
	a := p.Addr().As16()
	return append(append(append(dst, '6'), a[:]...), byte(p.Bits()))
}

// idLen returns the length of what appendID appends, by its first byte.
func idLen(family byte) int {
	if family == '4' {
		return 1 + 4 + 1
	}
	return 1 + 16 + 1
}

// parseID is the inverse of appendID.
func parseID(s string) (netip.Prefix, bool) {
	if s == "" || s[0] != '4' && s[0] != '6' || len(s) != idLen(s[0]) {
		return netip.Prefix{}, false
	}
	a, _ := netip.AddrFromSlice([]byte(s[1 : len(s)-1]))
	p := netip.PrefixFrom(a, int(s[len(s)-1]))
	return p, addr.Check(p) == nil
}

func holdingKey(p netip.Prefix) string {
	var buf [20]byte
	return string(appendID(append(buf[:0], kindHolding...), p))
}

func appendOwnerKey(dst []byte, owner string, p netip.Prefix) []byte {
	return appendID(append(append(append(dst, kindOwner...), owner...), 0), p)
}

func ownerKey(owner string, p netip.Prefix) string {
	var buf [128]byte
	return string(appendOwnerKey(buf[:0], owner, p))
}

// ownerRange returns the index entries of an owner.
func ownerRange(owner string) store.Range {
	return store.Range{From: kindOwner + owner + "\x00", To: kindOwner + owner + "\x01"}
}

// parseOwnerKey is the inverse of ownerKey.
func parseOwnerKey(key string) (owner string, p netip.Prefix, ok bool) {
	owner, id, ok := strings.Cut(strings.TrimPrefix(key, kindOwner), "\x00")
	if !ok {
		return "", p, false
	}
	p, ok = parseID(id)
	return owner, p, ok
}

// insideRange returns the keys of the holdings in a prefix, itself included. The zero
// Prefix has all.
func insideRange(p netip.Prefix) store.Range {
	if !p.IsValid() {
		return store.Range{From: kindHolding, To: kindHolding + "\xff"}
	}
	return store.Range{From: holdingKey(p), To: holdingKey(lastIn(p)) + "\x00"}
}

// lastIn returns the last prefix in a prefix in the order of keys: a single address.
func lastIn(p netip.Prefix) netip.Prefix {
	last := addr.FromAddr(p.Addr()).Or(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
	if p.Addr().Is4() {
		return netip.PrefixFrom(last.Addr4(), 32)
	}
	return netip.PrefixFrom(last.Addr6(), 128)
}

// appendKey appends the key of a page.
func (id pageID) appendKey(dst []byte) []byte {
	dst = append(appendID(append(dst, kindPage...), id.of()), byte(id.depth()))
	if id.is4() {
		return binary.BigEndian.AppendUint32(dst, uint32(id.base.Lo))
	}
	dst = binary.BigEndian.AppendUint64(dst, id.base.Hi)
	return binary.BigEndian.AppendUint64(dst, id.base.Lo)
}

// key returns the key of a page.
func (id pageID) key() string {
	var buf [48]byte
	return string(id.appendKey(buf[:0]))
}

// pagesRange returns the keys of the pages of a pool.
func pagesRange(pool netip.Prefix) store.Range {
	from := string(appendID([]byte(kindPage), pool))
	return store.Range{From: from, To: from + "\xff"}
}

// parsePageKey is the inverse of appendKey.
func parsePageKey(key string) (id pageID, ok bool) {
	s, ok := strings.CutPrefix(key, kindPage)
	if !ok || s == "" {
		return id, false
	}
	n := idLen(s[0])
	if len(s) != 2*n-1 {
		return id, false
	}
	pool, ok := parseID(s[:n])
	if !ok {
		return id, false
	}
	base, _ := netip.AddrFromSlice([]byte(s[n+1:]))
	id = newPageID(pool, int(s[n]), addr.FromAddr(base))
	bits := pool.Bits() + pageBits*id.depth()
	return id, bits < base.BitLen() && id.depth() < maxDepth && pool.Contains(base) && netip.PrefixFrom(base, bits).Masked().Addr() == base
}

// record is a holding as the store has it.
type record struct {
	Holding
	above string // the lengths of the pools that it is in, the root pool's first
}

// append appends the value of a holding's record: version, the pools above by their
// lengths with their number, the lengths of the children, the owner with its length in
// bytes, the attributes.
func (r *record) append(b []byte) []byte {
	b = append(b, recordVersion, byte(len(r.above)))
	b = append(b, r.above...)
	b = append(b, byte(r.Children.Shortest), byte(r.Children.Longest))
	b = append(binary.AppendUvarint(b, uint64(len(r.Owner))), r.Owner...)
	return append(b, r.Attributes...)
}

// decodeHolding is the inverse of append.
func decodeHolding(p netip.Prefix, value string) (r record, err error) {
	bad := func(what string) (record, error) {
		return record{}, corrupt(p, "record of a holding: "+what)
	}
	s := value
	if err := checkVersion(p, s, recordVersion); err != nil {
		return record{}, err
	}
	if len(s) < 2 || len(s) < 2+int(s[1])+3 {
		return bad("length")
	}
	r.Prefix, r.above, s = p, s[2:2+s[1]], s[2+s[1]:]
	r.Children, s = Sizes{int(s[0]), int(s[1])}, s[2:]
	n, used := uvarint(s)
	if used <= 0 || n == 0 || n > MaxOwner || n > uint64(len(s)-used) || len(s)-used-int(n) > MaxAttributes {
		return bad("owner or attributes")
	}
	r.Owner, r.Attributes = s[used:used+int(n)], s[used+int(n):]
	r.Level = len(r.above)
	for i, last := 0, -1; i < r.Level; i++ {
		if int(r.above[i]) <= last || int(r.above[i]) >= p.Bits() {
			return bad("pools")
		}
		last = int(r.above[i])
	}
	if r.Level == 0 || r.Children != (Sizes{}) && r.Children.check(p) != "" {
		return bad("pools or children")
	}
	r.Pool = r.poolAt(r.Level - 1)
	return r, nil
}

// poolAt returns the pool at a level above the holding; 0 is the root pool.
func (r *record) poolAt(level int) netip.Prefix {
	return netip.PrefixFrom(r.Prefix.Addr(), int(r.above[level])).Masked()
}

// uvarint reads a number in its shortest form of one or two bytes; used is 0 for any
// other.
func uvarint(s string) (n uint64, used int) {
	switch {
	case len(s) > 0 && s[0] < 0x80:
		return uint64(s[0]), 1
	case len(s) > 1 && s[1] > 0 && s[1] < 0x80:
		return uint64(s[0]&0x7f) | uint64(s[1])<<7, 2
	}
	return 0, 0
}

// encodeRoots returns the value of the record of the root pools: version, then for each
// its prefix as in keys and the lengths that it hands out.
func encodeRoots(pools []Pool) string {
	b := []byte{recordVersion}
	for _, p := range pools {
		b = append(appendID(b, p.Prefix), byte(p.Sizes.Shortest), byte(p.Sizes.Longest))
	}
	return string(b)
}

// decodeRoots is the inverse of encodeRoots.
func decodeRoots(value string) (pools []Pool, err error) {
	if err := checkVersion(netip.Prefix{}, value, recordVersion); err != nil {
		return nil, err
	}
	for s := value[1:]; s != ""; {
		n := idLen(s[0])
		if len(s) < n+2 {
			return nil, corrupt(netip.Prefix{}, "record of the root pools: length")
		}
		p, ok := parseID(s[:n])
		pool := Pool{p, Sizes{int(s[n]), int(s[n+1])}}
		if !ok || pool.Sizes.check(p) != "" {
			return nil, corrupt(p, "record of the root pools: prefix or lengths")
		}
		pools, s = append(pools, pool), s[n+2:]
	}
	return pools, nil
}

// checkVersion returns ErrMismatch for the record of a later version than most.
func checkVersion(p netip.Prefix, value string, most byte) error {
	if value == "" || value[0] == 0 {
		return corrupt(p, "a record without a version")
	}
	if value[0] > most {
		return &ipalloc.Error{Package: pkg, Prefix: p, Reason: fmt.Sprintf("a record of version %d", value[0]), Err: ipalloc.ErrMismatch}
	}
	return nil
}

// corrupt returns the error for damaged records; the call that meets it completes it.
func corrupt(p netip.Prefix, reason string) *ipalloc.Error {
	return &ipalloc.Error{Package: pkg, Prefix: p, Reason: reason, Err: ipalloc.ErrCorrupt}
}
