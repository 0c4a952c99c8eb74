package ipset

import (
	"context"
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Hosts returns a report for every owner of a block and every borrower. Owners with the
// most addresses in use come first; equal ones are sorted by name. It reads the records
// of all blocks and of borrowed addresses, not of other addresses: O(blocks + borrowed
// addresses). The result is not a consistent snapshot.
func (e *Engine) Hosts(ctx context.Context) ([]alloc.HostReport, error) {
	hosts, err := e.query.Hosts(ctx)
	return hosts, cause.Op("hosts", err)
}

// IPsByHost returns the addresses that are held for a host, in address order. It includes
// addresses that the host has borrowed, and omits addresses of its blocks that other
// hosts have borrowed. Cost: four round trips. It fails with [ipalloc.ErrInvalid] for an
// invalid owner.
func (e *Engine) IPsByHost(ctx context.Context, o alloc.Owner) ([]alloc.Allocation, error) {
	held, err := e.release.IPsByHost(ctx, o)
	return held, cause.Op("IPs by host", err)
}

// BlocksOf returns the blocks of an owner in address order. Cost: one round trip.
func (e *Engine) BlocksOf(ctx context.Context, o alloc.Owner) ([]netip.Prefix, error) {
	blocks, err := e.query.BlocksOf(ctx, o)
	return blocks, cause.Op("blocks of", err)
}

// RenameHost moves everything of a host to a new name: its blocks, and the addresses that
// are held for it there and elsewhere. It returns the addresses as they are held
// afterwards, and the blocks. Each address keeps its handle, attributes and lease, and has
// a new sequence number, so late calls for the former name with a guard fail. The former
// name's request keys fail with [ipalloc.ErrMismatch]. Addresses that other hosts borrowed
// from its blocks stay theirs. Limits of blocks do not apply.
//
// RenameHost makes one commit if everything fits, otherwise as many as needed. Repeat an
// interrupted call to continue it; set Merge if the call is older than
// [Options].RequestsAfter. RenameHost changes nothing if the host has nothing. Stop the
// host first: a block or an address that it gets during the call may stay with the former
// name.
//
// It fails with [ipalloc.ErrExists] if the new name has blocks or addresses, unless Merge
// is set. It fails with [ipalloc.ErrLimit] if the record of a shared address would take
// more than 256 KiB, and with [ipalloc.ErrInvalid]. After an error of the store it
// returns the addresses and blocks moved so far.
func (o Operator) RenameHost(ctx context.Context, a alloc.RenameArgs) (moved []alloc.Allocation, blocks []netip.Prefix, err error) {
	moved, blocks, err = o.e.release.RenameHost(ctx, a)
	return moved, blocks, cause.Op("rename host", err)
}

// Borrowings yields the borrowed addresses, by host, then in address order. An error is
// the last value that it yields. It reads only index records, a page at a time, so its
// cost grows with the number of borrowed addresses. The result is not a consistent
// snapshot.
func (o Operator) Borrowings(ctx context.Context) iter.Seq2[alloc.Borrowing, error] {
	return cause.Each("borrowings", o.e.query.Borrowings(ctx))
}

// ClaimAffinity assigns an owner every block in p that is part of a pool. It makes
// missing blocks and adopts blocks without owner; blocks that the owner already has count
// as claimed. Blocks of other owners, blocks beyond a limit and blocks of a disabled pool
// are failures in the result. Each block is one commit; repeat an interrupted claim to
// resume it.
//
// It fails with [ipalloc.ErrInvalid] for an impossible owner or prefix, with
// [ipalloc.ErrNotFound] if no pool overlaps the prefix, and with [ipalloc.ErrLimit] for
// more than 65,536 blocks. After an error of the store it returns the blocks claimed so
// far.
func (e *Engine) ClaimAffinity(ctx context.Context, p netip.Prefix, o alloc.Owner) (claimed []netip.Prefix, failed []alloc.ClaimFailure, err error) {
	claimed, failed, err = e.release.ClaimAffinity(ctx, p, o)
	return claimed, failed, cause.Op("claim affinity", err)
}

// DisownBlocks removes blocks from their owners. It deletes an empty block, and leaves a
// block in use without owner unless OnlyEmpty is set. It does not touch blocks of other
// owners, or blocks larger than the prefix. It returns the disowned blocks.
//
// It fails with [ipalloc.ErrInvalid] without Owner and Pool, with both, or for an
// impossible prefix. It fails with [ipalloc.ErrNotFound] for a pool that does not exist.
// With OnlyEmpty it fails with [ipalloc.ErrInUse] if a block was in use, after it has
// disowned all others. It also fails with any error of the store. It works in steps of a
// few blocks each.
func (e *Engine) DisownBlocks(ctx context.Context, a alloc.DisownArgs) (blocks []netip.Prefix, err error) {
	switch {
	case (a.Owner == alloc.Owner{}) == (a.Pool == "") || a.Pool != "" && a.Prefix != (netip.Prefix{}):
		err = cause.Invalid("Owner", "an owner or a pool, and not both")
	case a.Pool != "":
		blocks, err = e.release.ReleasePool(ctx, a.Pool, a.OnlyEmpty)
	default:
		blocks, err = e.release.DisownBlocks(ctx, a.Owner, a.Prefix, a.OnlyEmpty)
	}
	return blocks, cause.Op("disown blocks", err)
}

// ReleaseByHost releases every address that is held for a host, in its own blocks and in
// the blocks that it borrowed from, and returns them. Addresses that others borrowed from
// its blocks stay held, and its blocks stay its own: use [Engine.DisownBlocks] to release
// these.
//
// Each step is one commit. Repeat an interrupted call to resume it. It fails with
// [ipalloc.ErrInvalid]. After an error of the store it returns the addresses released so
// far.
func (e *Engine) ReleaseByHost(ctx context.Context, o alloc.Owner) (released []netip.Addr, err error) {
	released, err = e.release.ReleaseByHost(ctx, o)
	return released, cause.Op("release by host", err)
}

// RemoveHost releases every address that is held for a host, and then disowns all its
// blocks. Blocks with addresses that others have borrowed stay without owner. It is
// ReleaseByHost followed by DisownBlocks, and is resumed in the same way.
func (e *Engine) RemoveHost(ctx context.Context, o alloc.Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	released, blocks, err = e.release.RemoveHost(ctx, o)
	return released, blocks, cause.Op("remove host", err)
}
