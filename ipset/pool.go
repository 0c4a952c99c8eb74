package ipset

import (
	"context"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/selector"
)

// Pool is a prefix that is divided into blocks. A zero field selects the default that its comment names.
//
// A pool may lie in another one, to any depth. Each address belongs to the smallest pool around it, whether or not that pool is
// enabled, so settings and limits of the outer pool do not apply to it. A nested prefix is made of whole blocks of the pool around it.
type Pool struct {
	Name   string // UTF-8
	Prefix netip.Prefix
	// BlockBits is the prefix length of a block, /26 or /122 by default. A block may hold up to 2^64 addresses.
	BlockBits int
	// Nodes and Namespaces select the owners and namespaces that the pool serves; the zero selector matches all.
	Nodes, Namespaces selector.Selector `json:",omitempty"`
	// Uses are the uses that the pool's addresses may have; Workload and Tunnel by default.
	Uses Use
	// Disabled stops assignment from the pool. Addresses that are held stay held.
	Disabled bool
	// Manual restricts the pool to calls that name it.
	Manual bool
	// Order says which address of a block is handed out next: the one that was released first by default, the lowest, or one at
	// random. The block is chosen before: the owner's blocks in address order, then a free one from a place that the owner's name
	// fixes, with Lowest from the first of the pool on. So Lowest and Random are of the whole pool where it is one block. Cost:
	// [Block.PeekOrder].
	Order Order `json:",omitempty"`
	// Index lists up to 8 keys of attributes by which [Engine.IPsByAttribute] finds the addresses of the pool. An assignment writes
	// one small record more for each of them that it has an attribute of. A key that comes or goes applies to the addresses that are
	// assigned from then on; [Operator.Reindex] applies it to the others.
	Index []string `json:",omitempty"`
	// Priority puts the pool before those with a lower one, whatever blocks the owner has: an address comes from a pool of lower
	// Priority only if no pool of a higher one that qualifies can give one. Among equals an owner's existing blocks come first,
	// then the pools in the order of their names.
	Priority int
	// Ranges, if any, are the only addresses of the prefix that automatic assignment takes.
	Ranges []netipx.IPRange `json:",omitempty"`
	// MaxBlocksPerHost limits the blocks of this pool that one owner claims; 0 is no limit but that of the [Config].
	MaxBlocksPerHost int
	// Subnet says that the pool is one subnet of hosts: its network and broadcast addresses, or its subnet-router anycast
	// address for IPv6, are not assigned automatically. It has no effect on pools of one or two addresses.
	Subnet bool `json:",omitempty"`
	// Cooldown is how long a released address is kept from others.
	Cooldown time.Duration
	// Draining lists the block sizes that the pool had and that blocks may still have.
	Draining []int `json:",omitempty"`
}

// Pools returns all pools, in the order in which they are tried.
func (e *Engine) Pools(ctx context.Context) ([]Pool, error) {
	found, err := e.admin.Pools(ctx)
	var pools []Pool
	for _, p := range found {
		pools = append(pools, Pool(p))
	}
	return pools, err
}

// AddPool adds a pool. If it lies in another pool, it takes over the addresses of its prefix; if others lie in it, they keep theirs.
// Blocks that exist in its prefix are served by it; those of another size drain. If the store has an equal pool, nothing is written,
// so a program may add its pools at each start.
//
// It returns [ipalloc.ErrInvalid] for a pool with an impossible name, prefix, block size, range, use, limit or selector, and for one
// that is, or of which another is, a part of a block of the pool around; [ipalloc.ErrExists] if another pool has its prefix, which
// the error names, or its name, with the first field that differs in Field. Then nothing changes.
func (e *Engine) AddPool(ctx context.Context, p Pool) error {
	return e.admin.AddPool(ctx, pool.Pool(p))
}

// UpdatePool replaces the pool of p's name by p. The prefix may become one that contains the present one. A changed BlockBits
// resizes: blocks of the
// old size drain, that is, keep their addresses, give none to automatic assignment, and go when they are empty. A call that names an
// address still gets it from such a block, because the block is where its record is. Draining is kept by the
// engine; sizes that have drained leave it with the next update.
//
// If nothing differs, nothing is written.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, [ipalloc.ErrInvalid] for a prefix that does not contain the present
// one, or the errors of AddPool; then nothing changes.
func (e *Engine) UpdatePool(ctx context.Context, p Pool) error {
	return e.admin.UpdatePool(ctx, pool.Pool(p))
}

// RemovePool removes a pool from the catalog. Its blocks stay until they are released; [Operator.Drain] lists the addresses that are
// still held. The pool around it, if there is one, serves its addresses from then on; blocks of another size than that pool's drain.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, and [ipalloc.ErrInvalid] if a pool in it would be a part of a block of
// the pool around; then nothing changes.
func (e *Engine) RemovePool(ctx context.Context, name string) error {
	return e.admin.RemovePool(ctx, name)
}
