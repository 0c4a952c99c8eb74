package record

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A page of a pool is one word: of level 0, which of 64 blocks in a row exist; of level n, which of 64 pages of
// level n-1 are full. 1 is taken. The geometry depends on family and block size only, not on pools, so pools are
// split and merged without touching it. A page without a record is all clear, and a page that is all clear has no
// record.
//
// The record of a page of level 0 has the mark too: the highest sequence number of the blocks deleted below it. When the last block
// goes, so does the page, and the mark passes to the floor of the page, which it shares with every 64th page of its block size. A page
// that comes takes its mark from its floor. So what remains of all blocks that ever were is 64 records a block size at most.
//
// For example, in 10.0.0.0/24 with blocks of four addresses, 10.0.0.176/30 is block 44 of its page and 10.0.0.180/30 block 45. The page
// has the index 0xa0000, and its floor the index 0, the lowest six bits of that. S is the sequence number of the last assignment in a
// block:
//
//	                                page              floor
//	nothing was assigned            -                 -
//	.176/30 is claimed: S 1         44, mark 0        -
//	three more addresses: S 4       44, mark 0        -
//	.180/30 is claimed: S 1         44 45, mark 0     -
//	.176/30 is empty and deleted    45, mark 4        -
//	.180/30 is deleted, with S 1    -                 mark 4
//	.176/30 is claimed: S 5         44, mark 4        mark 4
//
// The last row shows the reason for the mark: a guard with the sequence number of a holding in the former block matches nothing in the
// new one.

// PageID names a page of the space of all blocks of one size.
type PageID struct {
	V6   bool
	Bits uint8 // prefix length of the blocks
	space.ID
}

// MaxPages is how many page records the making or deletion of a block usually changes at most. They are the page of the block,
// its floor, and the pages above that become full or cease to be full.
const MaxPages = 5

// FloorLevel stands for the level in the key of a floor. No space has so many levels.
const FloorLevel = 0xff

// Floor returns the floor of a page of level 0.
func (id PageID) Floor() PageID {
	id.Level, id.Index = FloorLevel, addr.U128{Lo: id.Index.Lo & 63}
	return id
}

// Key returns the key of the page's record.
func (id PageID) Key() string {
	b := make([]byte, 0, 20)
	b = append(b, KindPage...)
	if !id.V6 {
		b = append(b, '4', id.Bits, id.Level)
		return string(binary.BigEndian.AppendUint32(b, uint32(id.Index.Lo)))
	}
	b = append(b, '6', id.Bits, id.Level)
	b = binary.BigEndian.AppendUint64(b, id.Index.Hi)
	return string(binary.BigEndian.AppendUint64(b, id.Index.Lo))
}

// PageRange returns the range of the pages of one level of a block size with an index from first to last. With open, it returns
// the range of the first page from there on, of that size or a longer one.
func PageRange(v6 bool, size, level int, first, last addr.U128, open bool) store.Range {
	from := PageID{v6, uint8(size), space.ID{Level: uint8(level), Index: first}}.Key()
	if open {
		return store.Range{From: from, To: from[:2] + "\xff", Limit: 1}
	}
	return store.Range{From: from, To: PageID{v6, uint8(size), space.ID{Level: uint8(level), Index: last}}.Key() + "\x00"}
}

// ParsePageKey is the inverse of key.
func ParsePageKey(s string) (PageID, bool) {
	if len(s) != 8 && len(s) != 20 || s[0] != KindPage[0] || (s[1] == '4') != (len(s) == 8) || s[1] != '4' && s[1] != '6' {
		return PageID{}, false
	}
	id := PageID{s[1] == '6', s[2], space.ID{Level: s[3]}}
	b := []byte(s[4:])
	if id.V6 {
		id.Index = addr.U128{Hi: binary.BigEndian.Uint64(b), Lo: binary.BigEndian.Uint64(b[8:])}
	} else {
		id.Index.Lo = uint64(binary.BigEndian.Uint32(b))
	}
	return id, true
}

// Up returns the page above and the position in it; ok is false for the page that spans the whole family.
func (id PageID) Up() (up PageID, child uint, ok bool) {
	up = id
	up.ID, child, ok = id.Parent(int(id.Bits))
	return up, child, ok
}

// LeafOf returns the page that says whether a block exists, and the block's position in it.
func LeafOf(p netip.Prefix) (PageID, uint) {
	leaf, child := space.Leaf(OrdinalOf(p))
	return PageID{p.Addr().Is6(), uint8(p.Bits()), leaf}, child
}

// Block returns the block at a position of a page of level 0.
func (id PageID) Block(i int) netip.Prefix {
	return BlockAt(id.V6, int(id.Bits), id.Index.Shl(space.Bits).Or(addr.U128{Lo: uint64(i)}))
}

// OrdinalOf returns the number of a block among all of its size and family, from address 0.
func OrdinalOf(p netip.Prefix) addr.U128 {
	return addr.FromAddr(p.Addr()).Shr(uint(p.Addr().BitLen() - p.Bits()))
}

// BlockAt is the inverse of ordinalOf.
func BlockAt(v6 bool, bits int, n addr.U128) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(n.Shl(uint(128-bits)).Addr6(), bits)
	}
	return netip.PrefixFrom(n.Shl(uint(32-bits)).Addr4(), bits)
}

// Page is the content of a page.
type Page struct {
	Word uint64
	// Mark is the highest sequence number of the blocks deleted below this page of level 0, or of the pages that this floor has
	// outlived. A new block starts after it.
	Mark uint64
}

const pageVersion = 1

func (p Page) Encode() string { return string(p.Append(nil)) }

func (p Page) Append(dst []byte) []byte {
	c := wire.Write(dst)
	p.code(c)
	return c.B
}

func (p *Page) code(c *wire.Coder) {
	c.Version(pageVersion)
	wire.Word(c, &p.Word)
	wire.Uint(c, &p.Mark)
}

func DecodePage(rec store.Record) (p Page, err error) {
	if rec.Rev == 0 {
		return p, nil
	}
	c := wire.Read(rec.Value)
	p.code(c)
	if _, ok := ParsePageKey(rec.Key); !ok {
		c.Fail("key")
	}
	if err := c.End(); err != nil {
		return Page{}, fmt.Errorf("%w: page of a pool %q", err, rec.Key)
	}
	return p, nil
}

// StartOf returns the block of a pool where the searches of an owner begin. The owner's name fixes it, so hosts that start at
// the same time search in different places, and a host that returns searches where it was before. The pool's blocks have the
// prefix length size, at least the pool's own.
func StartOf(o alloc.Owner, pool netip.Prefix, size int) netip.Prefix {
	h := HashOf(o.String())
	mix := func(x uint64) uint64 { // a finaliser: every bit depends on all
		x = (x ^ x>>33) * 0xff51afd7ed558ccd
		x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
		return x ^ x>>33
	}
	n := addr.U128{Hi: mix(h + 1), Lo: mix(h)}.And(addr.Low(uint(size - pool.Bits())))
	first := netip.PrefixFrom(pool.Addr(), size)
	return BlockAt(pool.Addr().Is6(), size, OrdinalOf(first).Or(n))
}

// HashOf returns the FNV-1a hash of a name.
func HashOf(name string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
