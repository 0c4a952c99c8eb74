package ipset

import (
	"context"
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	core "github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Operator has the calls for operators: the configuration of pools, stored blocks, check
// and repair, and Sweep, which runs every minute. Get one from [Engine.Operator]. It is
// safe for concurrent use, like the engine.
//
//	every minute  Sweep for leases and cooldowns that have ended; a Collector for leaks
//	settings      Config, SetConfig, SetReservations, SplitPool, MergePools, Drain, OpenPool, Reindex
//	hosts         RenameHost
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

// SetConfig replaces the configuration. It fails with [ipalloc.ErrInvalid] if cfg
// contradicts itself.
func (o Operator) SetConfig(ctx context.Context, cfg alloc.Config) error {
	return cause.Op("set config", o.e.admin.SetConfig(ctx, cfg))
}

// Reservations returns the ranges that automatic assignment never takes, in address
// order. [alloc.ReservedSet] makes one set of them.
func (o Operator) Reservations(ctx context.Context) ([]alloc.Reservation, error) {
	rs, err := o.e.admin.Reservations(ctx)
	return rs, cause.Op("reservations", err)
}

// SetReservations replaces the ranges that automatic assignment never takes, in one
// commit; [Operator.ChangePools] adds and removes single ranges. Addresses in use stay in
// use; SetReservations returns them, in address order. To find them it reads every block
// at most once. After an error that follows the commit, the reservations are in force.
//
// It fails with [ipalloc.ErrInvalid] for a range that cannot be reserved, and for an
// impossible note or time of an [alloc.Reservation].
func (o Operator) SetReservations(ctx context.Context, rs []alloc.Reservation) (live []alloc.Allocation, err error) {
	live, err = o.e.admin.SetReservations(ctx, rs)
	return live, cause.Op("set reservations", err)
}

// Drain disables a pool and returns the allocations of its addresses that are still held.
// It also reads, but does not return, the addresses of pools nested in it. It fails with
// [ipalloc.ErrNotFound] if there is no such pool.
func (o Operator) Drain(ctx context.Context, name string) (held []alloc.Allocation, err error) {
	held, err = o.e.admin.Drain(ctx, name)
	return held, cause.Op("drain", err)
}

// OpenPool reopens a closed pool; see [alloc.Pool].Closed. A pool inside another closed
// pool stays out of use until that pool is opened too. It fails with
// [ipalloc.ErrNotFound] if there is no such pool.
func (o Operator) OpenPool(ctx context.Context, name string) error {
	return cause.Op("open pool", o.e.admin.OpenPool(ctx, name))
}

// Importer returns an engine on the same store whose calls also work in closed pools, and
// whose releases do not cool. Use it only to import the addresses that another system
// holds. In all else, including its spaces and dry runs, it is like the engine itself. It
// has a cache of its own.
func (o Operator) Importer() *Engine { return o.e.onto(o.e.spaces.db, false, true) }

// SplitPool replaces a pool by 2^bits pools of equal size with the same settings. Pool a
// becomes a-0, a-1 and so on. Blocks stay where they are; the call writes only the
// catalog. MergePools joins the parts again. Neither call changes which addresses can be
// assigned, automatically or by name. The parts of a Subnet have Ranges in place of
// Subnet, which exclude the same addresses.
//
// It fails with [ipalloc.ErrNotFound] if there is no such pool. It fails with
// [ipalloc.ErrInvalid] if bits is not from 1 to 8, or if a part would be smaller than a
// block, blocks of former sizes included. It fails with [ipalloc.ErrExists] if a name is
// taken, or if a nested pool is as large as a part or larger.
func (o Operator) SplitPool(ctx context.Context, name string, bits int) error {
	return cause.Op("split pool", o.e.admin.SplitPool(ctx, name, bits))
}

// MergePools replaces pools that together make up a prefix by one pool of that name, with
// the settings of the first and the ranges of all. Blocks stay where they are, also
// blocks of another size than the first pool's. A pool can be merged with its nested
// pools; other nested pools stay.
//
// It fails with [ipalloc.ErrNotFound] if a part is not a pool, and with
// [ipalloc.ErrExists] if another pool has the name. It fails with [ipalloc.ErrInvalid]
// without parts or if they do not make up one prefix.
func (o Operator) MergePools(ctx context.Context, name string, parts ...string) error {
	return cause.Op("merge pools", o.e.admin.MergePools(ctx, name, parts...))
}

// Reindex updates the index records of a pool's addresses to match its Index, and returns
// the number of addresses that it changed. Call it after [Engine.UpdatePool] has changed
// Index. It reads every address of the pool, in steps of one commit each; repeat an
// interrupted call. It fails with [ipalloc.ErrNotFound] if there is no such pool, or with
// an error of the store.
func (o Operator) Reindex(ctx context.Context, pool string) (changed int, err error) {
	changed, err = o.e.admin.Reindex(ctx, pool)
	return changed, cause.Op("reindex", err)
}

// BlockOf returns the block that contains an address, nil if there is none. The block is
// a copy, which the caller may change.
func (o Operator) BlockOf(ctx context.Context, a netip.Addr) (*block.Block, error) {
	b, err := o.e.query.BlockOf(ctx, a)
	return (*block.Block)(b), cause.Op("block of", err)
}

// Blocks yields every block in p, in address order. An error is the last value that it
// yields, such as [ipalloc.ErrInvalid] for a prefix with host bits. It reads a few blocks
// at a time, so the result is not a consistent snapshot. The zero prefix stands for all
// blocks of both families. The blocks are copies.
func (o Operator) Blocks(ctx context.Context, p netip.Prefix) iter.Seq2[*block.Block, error] {
	return func(yield func(*block.Block, error) bool) {
		for b, err := range o.e.query.Blocks(ctx, p) {
			if !yield((*block.Block)(b), cause.Op("blocks", err)) {
				return
			}
		}
	}
}

// ImportBlock writes a block unchanged to the store, with its index records. The engine
// owns the block from then on; the caller must not use it afterwards. It writes a block
// with more addresses than one commit can hold in steps. If it is interrupted, the block
// has the addresses written so far, and the others are free.
//
// It fails with [ipalloc.ErrOccupied] if a block of any size is in the way. It fails with
// [ipalloc.ErrNotFound] if no pool contains the block or the pool's blocks have another
// size. The store is unchanged then.
func (o Operator) ImportBlock(ctx context.Context, b *block.Block) error {
	return cause.Op("import block", o.e.admin.ImportBlock(ctx, (*core.Block)(b)))
}

// Remembered yields the records that the space keeps besides held addresses, because a
// caller asked for them. These are the answers to request keys, the last addresses of
// sticky handles, and then the cooling addresses. To get their number, count the values.
// [Operator.Sweep] deletes old ones, and so do calls that add some. Remembered reads every
// such record and every address, some at a time, so the result is not a consistent
// snapshot. An error is the last value that it yields.
func (o Operator) Remembered(ctx context.Context) iter.Seq2[alloc.Remembered, error] {
	return func(yield func(alloc.Remembered, error) bool) {
		for r, err := range o.e.query.Remembered(ctx) {
			if !yield(r, cause.Op("remembered", err)) {
				return
			}
		}
	}
}

// Sweep records expired leases and cooldowns in blocks that no other call touches. It
// returns blocks that are idle or no longer selected, and deletes old request keys and
// sticky handles. Call it every minute or so from one engine. It puts as many blocks into
// one commit as the store's limits allow; repeat an interrupted sweep.
//
// If a file has no space left, it continues in smaller commits, down to one key, and so
// makes room. Sweep works in the space of its engine; [SweepAll] sweeps all spaces of a
// store.
//
// Its cost depends on the number of blocks and keys that are due. The engine remembers
// the empty blocks, some 60 bytes each, and lists them again after IdleAfter. A sweep
// with Unselected lists all of them, because the labels of their hosts may have changed.
// Each 1,000 idle blocks that Keep leaves to their owners cost two reads.
func (o Operator) Sweep(ctx context.Context, a alloc.SweepArgs) (alloc.Swept, error) {
	swept, err := o.e.release.Sweep(ctx, a)
	return swept, cause.Op("sweep", err)
}
