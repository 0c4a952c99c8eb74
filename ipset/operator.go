package ipset

import (
	"context"
	"iter"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	core "github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Operator has the calls for operating the pools: their configuration, the blocks as they are stored, check and repair, and the sweep
// of every minute. [Engine.Operator] returns it. Safe for concurrent use, as the engine is.
//
//	every minute  Sweep for leases and cooldowns that have ended; a Collector for leaks
//	settings      Config, SetConfig, SetReservations, SplitPool, MergePools, Drain, OpenPool, Reindex
//	blocks        Blocks, BlockOf, Importer, ImportBlock, Borrowings
//	in doubt      Check, Repair
//	spaces        Spaces, RemoveSpace
type Operator struct{ e *Engine }

// Operator returns the operator's calls of the engine.
func (e *Engine) Operator() Operator { return Operator{e} }

// Config returns the configuration.
func (o Operator) Config(ctx context.Context) (alloc.Config, error) {
	c, err := o.e.admin.Config(ctx)
	return c, cause.Op("config", err)
}

// SetConfig replaces the configuration. It returns [ipalloc.ErrInvalid] for one that contradicts itself.
func (o Operator) SetConfig(ctx context.Context, cfg alloc.Config) error {
	return cause.Op("set config", o.e.admin.SetConfig(ctx, cfg))
}

// Reservations returns the addresses that automatic assignment never takes.
func (o Operator) Reservations(ctx context.Context) (*netipx.IPSet, error) {
	set, err := o.e.admin.Reservations(ctx)
	return set, cause.Op("reservations", err)
}

// SetReservations replaces the addresses that automatic assignment never takes, in one commit; [Operator.ChangePools] adds and removes
// single ones. Addresses in use stay in use and
// are returned, in address order; finding them reads every block at most once. An error after the commit leaves the
// reservations in force.
func (o Operator) SetReservations(ctx context.Context, set *netipx.IPSet) (live []alloc.Allocation, err error) {
	live, err = o.e.admin.SetReservations(ctx, set)
	return live, cause.Op("set reservations", err)
}

// Drain disables a pool and returns the allocations of its addresses that are still held. It also reads, but does not return, the
// addresses of pools nested in it. It returns [ipalloc.ErrNotFound] if there is no such pool.
func (o Operator) Drain(ctx context.Context, name string) (held []alloc.Allocation, err error) {
	held, err = o.e.admin.Drain(ctx, name)
	return held, cause.Op("drain", err)
}

// OpenPool ends the closure of a pool; see [alloc.Pool].Closed. A pool that lies in another closed one stays out of use until that is
// opened too. It returns [ipalloc.ErrNotFound] if there is no such pool.
func (o Operator) OpenPool(ctx context.Context, name string) error {
	return cause.Op("open pool", o.e.admin.OpenPool(ctx, name))
}

// Importer returns an engine on the same store whose calls work in closed pools too, and whose releases do not cool. Give it only to a program that brings in what
// another system holds. Everything else, its spaces and dry runs included, is as for the engine itself. It has a cache of its own.
func (o Operator) Importer() *Engine { return o.e.onto(o.e.spaces.db, true) }

// SplitPool replaces a pool by 2^bits pools of equal size with the same settings, named after it and their order: a-0, a-1 and so
// on. Blocks stay where they are; nothing but the catalog is written. MergePools of the parts is the inverse. The same addresses
// can be assigned and named before, in between and afterwards; for a Subnet, the parts have Ranges without its ends.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, [ipalloc.ErrInvalid] for more than 8 bits or less than 1 and if a
// part would be smaller than a block, also one of a former size, and [ipalloc.ErrExists] if a name is taken or a pool in it is
// as large as a part or larger.
func (o Operator) SplitPool(ctx context.Context, name string, bits int) error {
	return cause.Op("split pool", o.e.admin.SplitPool(ctx, name, bits))
}

// MergePools replaces pools that together make up a prefix by one pool of that name, with the settings of the first and the
// ranges of all. Blocks stay where they are; also those of another size than the first pool's. A pool can be merged with pools
// in it; other nested pools stay.
//
// It returns [ipalloc.ErrNotFound] if a part is no pool, [ipalloc.ErrInvalid] without parts or if they do not make up one
// prefix, and [ipalloc.ErrExists] if another pool has the name.
func (o Operator) MergePools(ctx context.Context, name string, parts ...string) error {
	return cause.Op("merge pools", o.e.admin.MergePools(ctx, name, parts...))
}

// Reindex brings the index records of the addresses of a pool in line with its Index and returns the number of addresses that it
// changed. Call it after [Engine.UpdatePool] has changed Index. It reads every address of the pool and goes in steps of a commit
// each; repeat one that was interrupted. It returns [ipalloc.ErrNotFound] if there is no such pool, or an error of the store.
func (o Operator) Reindex(ctx context.Context, pool string) (changed int, err error) {
	changed, err = o.e.admin.Reindex(ctx, pool)
	return changed, cause.Op("reindex", err)
}

// BlockOf returns the block that an address is in, nil if there is none. The block is a copy, which the caller may change.
func (o Operator) BlockOf(ctx context.Context, a netip.Addr) (*block.Block, error) {
	b, err := o.e.query.BlockOf(ctx, a)
	return (*block.Block)(b), cause.Op("block of", err)
}

// Blocks yields every block in p, in address order; an error is the last thing it yields, such as [ipalloc.ErrInvalid] for a prefix
// with host bits. It reads a few at a time, so the result is not a consistent snapshot. The zero prefix is every block of both
// families. The blocks are copies.
func (o Operator) Blocks(ctx context.Context, p netip.Prefix) iter.Seq2[*block.Block, error] {
	return func(yield func(*block.Block, error) bool) {
		for b, err := range o.e.query.Blocks(ctx, p) {
			if !yield((*block.Block)(b), cause.Op("blocks", err)) {
				return
			}
		}
	}
}

// ImportBlock puts a block as it is into the store, with its index records. The engine takes over the block; the caller must
// not use it afterwards. A block with more addresses than one commit can hold is written in steps: an import that is
// interrupted leaves the block with the addresses so far, the others free.
//
// It returns [ipalloc.ErrOccupied] if a block of any size is there already, and [ipalloc.ErrNotFound] if no pool has it
// or the pool's blocks have another size; nothing is changed then.
func (o Operator) ImportBlock(ctx context.Context, b *block.Block) error {
	return cause.Op("import block", o.e.admin.ImportBlock(ctx, (*core.Block)(b)))
}

// Remembered yields what the space keeps besides holdings because a caller asked for it: the answers to request keys, the last addresses of
// sticky handles, then the cooling addresses. Count what it yields to see how many there are. [Operator.Sweep] forgets the old ones. It reads every such
// record and every address, some at a time, so the result is no consistent snapshot. An error is the last thing that it yields.
func (o Operator) Remembered(ctx context.Context) iter.Seq2[alloc.Remembered, error] {
	return func(yield func(alloc.Remembered, error) bool) {
		for r, err := range o.e.query.Remembered(ctx) {
			if !yield(r, cause.Op("remembered", err)) {
				return
			}
		}
	}
}

// Sweep ends leases and cooldowns in blocks that no other call touches, returns blocks that are idle or no longer selected, and
// forgets old request keys and sticky handles. Call it every minute or so from one engine. Many blocks go into one commit, as many as
// the store's limits allow; repeat a sweep that was interrupted.
//
// In a file that has no space left it continues in smaller commits, down to one key, and so makes room. Sweep works in the space of its engine;
// [SweepAll] does it in all spaces of a store.
//
// Its cost depends on the number of blocks and keys that are due. The engine remembers the empty blocks, some 60 bytes each, and
// lists them again after IdleAfter; a sweep with Unselected lists all of them, because their hosts' labels may have changed.
// Each 1,000 idle blocks that Keep leaves to their owners cost two reads.
func (o Operator) Sweep(ctx context.Context, a alloc.SweepArgs) (alloc.Swept, error) {
	swept, err := o.e.release.Sweep(ctx, a)
	return swept, cause.Op("sweep", err)
}
