package alloc

import (
	"net/netip"
	"slices"
)

// HostReport counts the blocks and addresses of one owner.
type HostReport struct {
	Owner Owner
	// Blocks is the number of its blocks. Used, Cooling and Available count the addresses
	// of these blocks, of any holder.
	Blocks                   int
	Used, Cooling, Available Count
	// Borrowed is the number of addresses that it holds in blocks of others. Lent is the
	// number that others hold in its blocks.
	Borrowed, Lent int
	// Limits are the block limits that apply to it, the Config's first.
	Limits []BlockLimit
}

// AtLimit reports whether the owner has as many blocks as a limit allows, in all pools or
// in one.
func (r HostReport) AtLimit() bool {
	return slices.ContainsFunc(r.Limits, func(l BlockLimit) bool { return l.Blocks >= l.Max })
}

// BlockLimit is a block limit and the number of blocks that an owner has.
type BlockLimit struct {
	Pool        string // empty for the limit of the Config
	Blocks, Max int
}

// Borrowing is an address that is held for a host that did not own the block when it got
// the address.
type Borrowing struct {
	Host    Owner
	Address netip.Addr
	Block   netip.Prefix
}

// Utilization counts the addresses of a pool or a block by state. Capacity = Used +
// Cooling + Reserved + Draining + Available. In a pool, the last three include addresses
// in no block. A pool does not count the addresses of its nested pools, so the sum over
// all pools counts every address once.
type Utilization struct {
	// Pool is empty for blocks outside every pool.
	Pool   string
	Prefix netip.Prefix
	Owner  Owner // of a block
	// Capacity is the number of addresses that the pool or block serves. Used counts held
	// addresses. Cooling counts released addresses that are not yet free. Reserved counts
	// free addresses that are excluded from automatic assignment: by a reservation, by
	// the pool's ranges or for the host. Draining counts free addresses that a block of
	// another size than the pool's makes unavailable, see ReasonDrainingLeft. Available
	// counts the addresses that can be assigned now.
	Capacity, Used, Cooling, Reserved, Draining, Available Count
	Blocks                                                 []Utilization // of a pool, in address order
	// Nested lists the prefixes of the pools directly inside this one, in address order.
	// Their addresses do not count here.
	Nested []netip.Prefix
}
