package ipset

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A space page is one word: of level 0, which of 64 blocks in a row exist; of level n, which of 64 pages of
// level n-1 are full. 1 is taken. The geometry depends on family and block size only, not on pools, so pools are
// split and merged without touching it. A page that was never written is all clear.

// pageID names a page.
type pageID struct {
	v6    bool
	bits  uint8 // prefix length of the blocks
	level uint8
	index addr.U128 // of the page among those of its level, from address 0
}

// maxPages is how many pages the coming or going of a block usually changes at most: of levels that become full or cease to be.
const maxPages = 4

// pageBits is log2 of the children of a page.
const pageBits = 6

// key returns the key of the page's record.
func (id pageID) key() string {
	b := make([]byte, 0, 20)
	b = append(b, kindPage...)
	if !id.v6 {
		b = append(b, '4', id.bits, id.level)
		return string(binary.BigEndian.AppendUint32(b, uint32(id.index.Lo)))
	}
	b = append(b, '6', id.bits, id.level)
	b = binary.BigEndian.AppendUint64(b, id.index.Hi)
	return string(binary.BigEndian.AppendUint64(b, id.index.Lo))
}

// pageRange returns the range of the pages of one level of a block size with an index from first to last; with open, that of the
// first page of that size or a longer one.
func pageRange(v6 bool, size, level int, first, last addr.U128, open bool) store.Range {
	from := pageID{v6: v6, bits: uint8(size), level: uint8(level), index: first}.key()
	if open {
		return store.Range{From: from, To: from[:2] + "\xff", Limit: 1}
	}
	return store.Range{From: from, To: pageID{v6: v6, bits: uint8(size), level: uint8(level), index: last}.key() + "\x00"}
}

// parsePageKey is the inverse of key.
func parsePageKey(s string) (pageID, bool) {
	if len(s) != 8 && len(s) != 20 || s[0] != kindPage[0] || (s[1] == '4') != (len(s) == 8) || s[1] != '4' && s[1] != '6' {
		return pageID{}, false
	}
	id := pageID{v6: s[1] == '6', bits: s[2], level: s[3]}
	b := []byte(s[4:])
	if id.v6 {
		id.index = addr.U128{Hi: binary.BigEndian.Uint64(b), Lo: binary.BigEndian.Uint64(b[8:])}
	} else {
		id.index.Lo = uint64(binary.BigEndian.Uint32(b))
	}
	return id, true
}

// parent returns the page above and the position in it; ok is false for a page that spans the whole family.
func (id pageID) parent() (up pageID, child uint, ok bool) {
	if pageBits*(int(id.level)+1) >= int(id.bits) {
		return id, 0, false
	}
	up = id
	up.level++
	up.index = id.index.Shr(pageBits)
	return up, uint(id.index.Lo & 63), true
}

// leafOf returns the page that says whether a block exists, and the block's position in it.
func leafOf(p netip.Prefix) (pageID, uint) {
	n := ordinalOf(p)
	return pageID{v6: p.Addr().Is6(), bits: uint8(p.Bits()), index: n.Shr(pageBits)}, uint(n.Lo & 63)
}

// ordinalOf returns the number of a block among all of its size and family, from address 0.
func ordinalOf(p netip.Prefix) addr.U128 {
	return addr.FromAddr(p.Addr()).Shr(uint(p.Addr().BitLen() - p.Bits()))
}

// blockAt is the inverse of ordinalOf.
func blockAt(v6 bool, bits int, n addr.U128) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(n.Shl(uint(128-bits)).Addr6(), bits)
	}
	return netip.PrefixFrom(n.Shl(uint(32-bits)).Addr4(), bits)
}

// page is the content of a page.
type page struct {
	word uint64
	// mark is the highest sequence number of the blocks deleted below this leaf; a new block starts after it.
	mark uint64
}

const pageVersion = 1

func (p page) encode() string {
	var buf [20]byte
	b := binary.BigEndian.AppendUint64(append(buf[:0], pageVersion), p.word)
	return string(binary.AppendUvarint(b, p.mark))
}

func decodePage(s string) (page, error) {
	if s == "" {
		return page{}, nil
	}
	r := &reader{s: s}
	v, word := r.byte(), r.bytes(8)
	p := page{mark: r.uvarint()}
	if r.err != nil || v != pageVersion || r.s != "" {
		return page{}, fmt.Errorf("%w: space page", ipalloc.ErrCorrupt)
	}
	p.word = binary.BigEndian.Uint64([]byte(word))
	return p, nil
}

// StartOf returns the block of a pool at which the walks of an owner begin: a place fixed by its name, so that hosts
// that come at the same time look in different places and one that comes back looks where it was before. size is the
// prefix length of the pool's blocks, from that of the pool on.
func StartOf(o Owner, pool netip.Prefix, size int) netip.Prefix {
	h := uint64(14695981039346656037) // FNV-1a, then a finaliser so that every bit depends on all
	for _, c := range []byte(o.String()) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	mix := func(x uint64) uint64 {
		x = (x ^ x>>33) * 0xff51afd7ed558ccd
		x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
		return x ^ x>>33
	}
	n := addr.U128{Hi: mix(h + 1), Lo: mix(h)}.And(addr.Low(uint(size - pool.Bits())))
	first := netip.PrefixFrom(pool.Addr(), size)
	return blockAt(pool.Addr().Is6(), size, ordinalOf(first).Or(n))
}
