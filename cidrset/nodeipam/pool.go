package nodeipam

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/claims"
)

// pool is a prefix that is allocated in children of one size. The allocator's spaces hold
// its taken parts.
type pool struct {
	prefix   netip.Prefix // invalid if an entry lacks the family
	block    claims.Block
	size     uint8     // prefix length of a child
	cursor   addr.U128 // address of the child where the search begins
	slot     int       // of a pool of slots
	draining bool
}

func newPool(p netip.Prefix, size int) pool {
	return pool{prefix: p, block: claims.BlockOf(p), size: uint8(size), cursor: claims.BlockOf(p).Key}
}

// next returns the child that the pool would allocate now.
func (a *Allocator) next(pl *pool) (p netip.Prefix, ok bool) {
	s := a.spaceOf(pl.prefix)
	from := pl.cursor
	if a.lowest {
		from = pl.block.Key
	}
	key, ok := s.Next(pl.block, pl.size, from)
	if !ok && from != pl.block.Key {
		key, ok = s.Next(pl.block, pl.size, pl.block.Key)
	}
	if !ok {
		return netip.Prefix{}, false
	}
	return claims.Block{Key: key, Bits: pl.size}.Prefix(pl.prefix.Addr().Is4()), true
}

// moveBehind moves the cursor of the pool just after its child p, wrapping.
func (a *Allocator) moveBehind(pl *pool, p netip.Prefix) {
	if a.lowest || !pl.has(p) {
		return
	}
	b := claims.BlockOf(p)
	if pl.cursor = pl.block.Key; b.Last() != pl.block.Last() {
		pl.cursor = b.Last().Add(addr.U128{Lo: 1})
	}
}

// contains reports whether p, of any size, is inside the pool.
func (pl *pool) contains(p netip.Prefix) bool {
	return p.Bits() >= pl.prefix.Bits() && pl.prefix.Contains(p.Addr())
}

// has reports whether p is a child of the pool.
func (pl *pool) has(p netip.Prefix) bool { return p.Bits() == int(pl.size) && pl.contains(p) }
