package nodeipam

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// pool is a prefix that is handed out in children of one size. What is taken of it
// is in the allocator's spaces.
type pool struct {
	prefix   netip.Prefix // invalid if an entry lacks the family
	block    block
	size     uint8     // prefix length of a child
	cursor   addr.U128 // address of the child where the search begins
	slot     int       // of a pool of slots
	draining bool
}

func newPool(p netip.Prefix, size int) pool {
	return pool{prefix: p, block: blockOf(p), size: uint8(size), cursor: blockOf(p).key}
}

// next returns the child that the pool would hand out now.
func (a *Allocator) next(pl *pool) (p netip.Prefix, ok bool) {
	s := a.spaceOf(pl.prefix)
	from := pl.cursor
	if a.lowest {
		from = pl.block.key
	}
	key, ok := s.next(pl.block, pl.size, from)
	if !ok && from != pl.block.key {
		key, ok = s.next(pl.block, pl.size, pl.block.key)
	}
	if !ok {
		return netip.Prefix{}, false
	}
	return block{key, pl.size}.prefix(pl.prefix.Addr().Is4()), true
}

// moveBehind moves the cursor of the pool behind its child p, wrapping.
func (a *Allocator) moveBehind(pl *pool, p netip.Prefix) {
	if a.lowest || !pl.has(p) {
		return
	}
	b := blockOf(p)
	if pl.cursor = pl.block.key; b.last() != pl.block.last() {
		pl.cursor = b.last().Add(addr.U128{Lo: 1})
	}
}

// contains reports whether p is inside the pool, whatever its size.
func (pl *pool) contains(p netip.Prefix) bool {
	return p.Bits() >= pl.prefix.Bits() && pl.prefix.Contains(p.Addr())
}

// has reports whether p is a child of the pool.
func (pl *pool) has(p netip.Prefix) bool { return p.Bits() == int(pl.size) && pl.contains(p) }

// isCursor reports whether the pool has a child that begins at key.
func (pl *pool) isCursor(key addr.U128) bool {
	return pl.block.contains(key) && truncate(key, pl.size) == key
}
