package alloc

import (
	"net/netip"
	"slices"
)

// HostReport is what one owner has.
type HostReport struct {
	Owner Owner
	// Blocks is the number of blocks that it owns. Used, Cooling and Available count their addresses, of any holder.
	Blocks                   int
	Used, Cooling, Available Count
	// Borrowed is the number of addresses that it holds in blocks of others, Lent the number that others hold in its blocks.
	Borrowed, Lent int
	// Limits are the limits of blocks that apply to it, the Config's first.
	Limits []BlockLimit
}

// AtLimit reports whether the owner has as many blocks as it may have, in all pools or in
// one.
func (r HostReport) AtLimit() bool {
	return slices.ContainsFunc(r.Limits, func(l BlockLimit) bool { return l.Blocks >= l.Max })
}

// BlockLimit is a limit of blocks and how many of them an owner has.
type BlockLimit struct {
	Pool        string // empty for that of the Config
	Blocks, Max int
}

// Borrowing is an address that is held for a host which did not own the block when it got the address.
type Borrowing struct {
	Host    Owner
	Address netip.Addr
	Block   netip.Prefix
}

// Utilization counts the addresses of a pool or a block by state. Capacity = Used + Cooling + Reserved + Draining + Available. In
// a pool, the last three include addresses in no block. A pool does not count the addresses of the pools that lie in it, so that
// the sum over all pools counts every address once.
type Utilization struct {
	// Pool is empty for blocks outside every pool.
	Pool   string
	Prefix netip.Prefix
	Owner  Owner // of a block
	// Capacity is all addresses that it serves. Used are held. Cooling are released and not yet free. Reserved are free, and kept
	// from automatic assignment: by a reservation, by the pool's ranges or for the host. Draining are free, but kept by a block of
	// another size than the pool's, see ReasonDrainingLeft. Available can be assigned now.
	Capacity, Used, Cooling, Reserved, Draining, Available Count
	Blocks                                                 []Utilization // of a pool, in address order
	// Nested are the prefixes of the pools that lie directly in this one, in address order. Their addresses do not count here.
	Nested []netip.Prefix
}
