package ipset

import (
	"context"

	"go4.org/netipx"
)

// Config returns the configuration.
func (e *Engine) Config(ctx context.Context) (Config, error) { return e.admin.Config(ctx) }

// SetConfig replaces the configuration. It returns [ipalloc.ErrInvalid] for one that contradicts itself.
func (e *Engine) SetConfig(ctx context.Context, cfg Config) error { return e.admin.SetConfig(ctx, cfg) }

// Pools returns all pools, in the order in which they are tried.
func (e *Engine) Pools(ctx context.Context) ([]Pool, error) { return e.admin.Pools(ctx) }

// AddPool adds a pool. If it lies in another pool, it takes over the addresses of its prefix; if others lie in it, they keep theirs.
// Blocks that exist in its prefix are served by it; those of another size drain.
//
// It returns [ipalloc.ErrInvalid] for a pool with an impossible name, prefix, block size, range, use, limit or selector, and for one
// that is, or of which another is, a part of a block of the pool around; [ipalloc.ErrExists] if another pool has its name or its
// prefix. Then nothing changes. The error names the pool in the way.
func (e *Engine) AddPool(ctx context.Context, p Pool) error { return e.admin.AddPool(ctx, p) }

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
func (e *Engine) UpdatePool(ctx context.Context, p Pool) error { return e.admin.UpdatePool(ctx, p) }

// RemovePool removes a pool from the catalog. Its blocks stay until they are released; [Engine.Drain] lists the addresses that are
// still held. The pool around it, if there is one, serves its addresses from then on; blocks of another size than that pool's drain.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, and [ipalloc.ErrInvalid] if a pool in it would be a part of a block of
// the pool around; then nothing changes.
func (e *Engine) RemovePool(ctx context.Context, name string) error {
	return e.admin.RemovePool(ctx, name)
}

// SplitPool replaces a pool by 2^bits pools of equal size with the same settings, named after it and their order: a-0,
// a-1 and so on. Blocks stay where they are; nothing but the catalog is written.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, [ipalloc.ErrInvalid] for more than 8 bits or less than 1 and if a
// part would be smaller than a block, and [ipalloc.ErrExists] if a name is taken or a pool in it is as large as a part or
// larger. A block larger than a part stops it, too.
func (e *Engine) SplitPool(ctx context.Context, name string, bits int) error {
	return e.admin.SplitPool(ctx, name, bits)
}

// MergePools replaces pools that together make up a prefix by one pool of that name, with the settings of the first. Blocks stay
// where they are; those of another size than the first pool's drain. A pool and pools in it can be merged; other pools in them stay.
//
// It returns [ipalloc.ErrNotFound] if a part is no pool, [ipalloc.ErrInvalid] without parts or if they do not make up one
// prefix, and [ipalloc.ErrExists] if another pool has the name.
func (e *Engine) MergePools(ctx context.Context, name string, parts ...string) error {
	return e.admin.MergePools(ctx, name, parts...)
}

// Reservations returns the addresses that automatic assignment never takes.
func (e *Engine) Reservations(ctx context.Context) (*netipx.IPSet, error) {
	return e.admin.Reservations(ctx)
}

// SetReservations replaces the addresses that automatic assignment never takes, in one commit. Addresses in use stay in use and
// are returned, in address order; finding them reads every block at most once. An error after the commit leaves the
// reservations in force.
func (e *Engine) SetReservations(ctx context.Context, set *netipx.IPSet) (live []Allocation, err error) {
	return e.admin.SetReservations(ctx, set)
}

// Drain disables a pool and returns the allocations of its addresses that are still held. It reads those of the pools in it, too. It returns [ipalloc.ErrNotFound] if there is no
// such pool.
func (e *Engine) Drain(ctx context.Context, name string) (held []Allocation, err error) {
	return e.admin.Drain(ctx, name)
}
