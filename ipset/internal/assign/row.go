package assign

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Neighbouring addresses are found in one block, never across two, because blocks may part ways: one is given up, the other stays.

// inRow reports whether the addresses of a family must be neighbours.
func (a *args) inRow() bool { return a.Contiguous }

// checkRow refuses what cannot be asked of neighbouring addresses.
func (a *args) checkRow() error {
	switch {
	case !a.inRow():
		return nil
	case a.Partial || a.Sticky:
		return cause.Invalid("Choose", "%s goes without Partial and Sticky", a.Choose)
	case a.Aligned && (a.Num4&(a.Num4-1) != 0 || a.Num6&(a.Num6-1) != 0):
		return cause.Invalid("Choose", "aligned %d IPv4 and %d IPv6 addresses: each number must be 0 or a power of two", a.Num4, a.Num6)
	}
	return nil
}

// fits reports whether a block of pool i that is made for the owner has n addresses in a row, if those are asked for and nothing is
// reserved of the pool. It looks at the first block, because all are alike.
func (p *AssignPlan) fits(i, n int) bool {
	if !p.inRow() {
		return true
	}
	pool := &p.cat.Pools[i]
	b, err := block.New(netip.PrefixFrom(pool.Prefix.Addr(), pool.BlockBits), block.Options{Head: p.Blocks.Head, Tail: p.Blocks.Tail})
	return err == nil && len(b.PeekRun(nil, n, p.Aligned, nil)) == n
}
