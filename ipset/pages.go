package ipset

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A space page is one word: of level 0, which of 64 blocks in a row exist; of level n, which of 64 pages of
// level n-1 are full. 1 is taken. The geometry depends on family and block size only, not on pools, so pools are
// split and merged without touching it. A page without a record is all clear, and one that is all clear has no record.
//
// The record of a page of level 0 has the mark too: the highest sequence number of the blocks deleted below it. When the last block
// goes, so does the page, and the mark passes to the floor of the page, which it shares with every 64th page of its block size. A page
// that comes takes its mark from its floor. So what remains of all blocks that ever were is 64 records a block size at most.

// pageID names a page of the space of all blocks of one size.
type pageID struct {
	v6   bool
	bits uint8 // prefix length of the blocks
	space.ID
}

// maxPages is how many records of pages the coming or going of a block usually changes at most: the page, its floor, and those of
// levels that become full or cease to be.
const maxPages = 5

// floorLevel is what the key of a floor has in place of a level. No space has so many levels.
const floorLevel = 0xff

// floor returns the floor of a page of level 0.
func (id pageID) floor() pageID {
	id.Level, id.Index = floorLevel, addr.U128{Lo: id.Index.Lo & 63}
	return id
}

// key returns the key of the page's record.
func (id pageID) key() string {
	b := make([]byte, 0, 20)
	b = append(b, kindPage...)
	if !id.v6 {
		b = append(b, '4', id.bits, id.Level)
		return string(binary.BigEndian.AppendUint32(b, uint32(id.Index.Lo)))
	}
	b = append(b, '6', id.bits, id.Level)
	b = binary.BigEndian.AppendUint64(b, id.Index.Hi)
	return string(binary.BigEndian.AppendUint64(b, id.Index.Lo))
}

// pageRange returns the range of the pages of one level of a block size with an index from first to last; with open, that of the
// first page of that size or a longer one.
func pageRange(v6 bool, size, level int, first, last addr.U128, open bool) store.Range {
	from := pageID{v6, uint8(size), space.ID{Level: uint8(level), Index: first}}.key()
	if open {
		return store.Range{From: from, To: from[:2] + "\xff", Limit: 1}
	}
	return store.Range{From: from, To: pageID{v6, uint8(size), space.ID{Level: uint8(level), Index: last}}.key() + "\x00"}
}

// parsePageKey is the inverse of key.
func parsePageKey(s string) (pageID, bool) {
	if len(s) != 8 && len(s) != 20 || s[0] != kindPage[0] || (s[1] == '4') != (len(s) == 8) || s[1] != '4' && s[1] != '6' {
		return pageID{}, false
	}
	id := pageID{s[1] == '6', s[2], space.ID{Level: s[3]}}
	b := []byte(s[4:])
	if id.v6 {
		id.Index = addr.U128{Hi: binary.BigEndian.Uint64(b), Lo: binary.BigEndian.Uint64(b[8:])}
	} else {
		id.Index.Lo = uint64(binary.BigEndian.Uint32(b))
	}
	return id, true
}

// parent returns the page above and the position in it; ok is false for the page that spans the whole family.
func (id pageID) parent() (up pageID, child uint, ok bool) {
	up = id
	up.ID, child, ok = id.Parent(int(id.bits))
	return up, child, ok
}

// leafOf returns the page that says whether a block exists, and the block's position in it.
func leafOf(p netip.Prefix) (pageID, uint) {
	leaf, child := space.Leaf(ordinalOf(p))
	return pageID{p.Addr().Is6(), uint8(p.Bits()), leaf}, child
}

// block returns the block at a position of a page of level 0.
func (id pageID) block(i int) netip.Prefix {
	return blockAt(id.v6, int(id.bits), id.Index.Shl(space.Bits).Or(addr.U128{Lo: uint64(i)}))
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
	// mark is the highest sequence number of the blocks deleted below this page of level 0, or of the pages that this floor has
	// outlived; a new block starts after it.
	mark uint64
}

const pageVersion = 1

func (p page) encode() string { return string(p.append(nil)) }

func (p page) append(dst []byte) []byte {
	return binary.AppendUvarint(binary.BigEndian.AppendUint64(append(dst, pageVersion), p.word), p.mark)
}

func decodePage(rec store.Record) (page, error) {
	if rec.Rev == 0 {
		return page{}, nil
	}
	r := &wire.Reader{S: rec.Value}
	v, word := r.Byte(), r.Bytes(8)
	p := page{mark: r.Uvarint()}
	if r.Err != nil || v != pageVersion || r.S != "" {
		return page{}, fmt.Errorf("%w: space page", ipalloc.ErrCorrupt)
	}
	p.word = binary.BigEndian.Uint64([]byte(word))
	return p, nil
}

// StartOf returns the block of a pool at which the searches of an owner begin. The owner's name fixes it, so hosts that start
// at the same time search in different places, and a host that returns searches where it was before. size is the
// prefix length of the pool's blocks, from that of the pool on.
func StartOf(o Owner, pool netip.Prefix, size int) netip.Prefix {
	h := hashOf(o.String())
	mix := func(x uint64) uint64 { // a finaliser: every bit depends on all
		x = (x ^ x>>33) * 0xff51afd7ed558ccd
		x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
		return x ^ x>>33
	}
	n := addr.U128{Hi: mix(h + 1), Lo: mix(h)}.And(addr.Low(uint(size - pool.Bits())))
	first := netip.PrefixFrom(pool.Addr(), size)
	return blockAt(pool.Addr().Is6(), size, ordinalOf(first).Or(n))
}

// hashOf returns the FNV-1a hash of a name.
func hashOf(name string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
