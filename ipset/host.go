package ipset

import (
	"context"
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Hosts returns a report for every owner of a block and every borrower, those with the most addresses in use first, then by name.
// It reads the records of all blocks and of borrowed addresses, not of other addresses: O(blocks + borrowed addresses). Like that
// of Utilization, the result is no consistent snapshot.
func (e *Engine) Hosts(ctx context.Context) ([]alloc.HostReport, error) {
	hosts, err := e.query.Hosts(ctx)
	return hosts, cause.Op("hosts", err)
}

// IPsByHost returns the addresses that are held for a host, in address order: those in its own blocks that no other host has
// borrowed, and those that it has borrowed. Cost: four round trips. Error: [ipalloc.ErrInvalid] for an
// invalid owner.
func (e *Engine) IPsByHost(ctx context.Context, o alloc.Owner) ([]alloc.Allocation, error) {
	held, err := e.release.IPsByHost(ctx, o)
	return held, cause.Op("IPs by host", err)
}

// BlocksOf returns the blocks of an owner in address order. One round trip.
func (e *Engine) BlocksOf(ctx context.Context, o alloc.Owner) ([]netip.Prefix, error) {
	blocks, err := e.query.BlocksOf(ctx, o)
	return blocks, cause.Op("blocks of", err)
}

// Borrowings yields the borrowed addresses, by host, then in address order; an error is the last thing it yields. It reads only
// index records, a page at a time, so the cost is the number of borrowed addresses and the result is no consistent snapshot.
func (o Operator) Borrowings(ctx context.Context) iter.Seq2[alloc.Borrowing, error] {
	return cause.Each("borrowings", o.e.query.Borrowings(ctx))
}

// ClaimAffinity gives an owner every block in the part of a prefix that lies in a pool. It makes missing blocks and adopts
// those without owner; the owner's own count as claimed. Blocks of other owners, beyond a limit or of a disabled pool are
// failures in the result. One commit per block; repeat an interrupted claim to resume it.
//
// It returns [ipalloc.ErrInvalid] for an impossible owner or prefix, [ipalloc.ErrNotFound] if no pool overlaps the
// prefix, [ipalloc.ErrLimit] for more than 65,536 blocks; or an error of the store, with the blocks claimed so
// far.
func (e *Engine) ClaimAffinity(ctx context.Context, p netip.Prefix, o alloc.Owner) (claimed []netip.Prefix, failed []alloc.ClaimFailure, err error) {
	claimed, failed, err = e.release.ClaimAffinity(ctx, p, o)
	return claimed, failed, cause.Op("claim affinity", err)
}

// DisownBlocks takes blocks from their owners: an empty one is deleted, one in use is left without owner unless OnlyEmpty. Blocks of
// others, and blocks larger than the prefix, are not touched. It returns the blocks taken.
//
// Errors: [ipalloc.ErrInvalid] without Owner and Pool, with both, or for an impossible prefix; [ipalloc.ErrNotFound] for a pool
// that does not exist; with OnlyEmpty [ipalloc.ErrInUse] if a block was in use, after all others were taken; the store's. It
// works in steps of a few blocks each.
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

// ReleaseByHost gives back every address that is held for a host, in its own blocks and in those that it borrowed from, and
// returns them. Addresses that others borrowed from its blocks stay, and so do the blocks: [Engine.DisownBlocks] takes those.
//
// Each step is a commit of its own. Repeat a call that was interrupted. It returns [ipalloc.ErrInvalid], or an error of the
// store with what was given back so far.
func (e *Engine) ReleaseByHost(ctx context.Context, o alloc.Owner) (released []netip.Addr, err error) {
	released, err = e.release.ReleaseByHost(ctx, o)
	return released, cause.Op("release by host", err)
}

// RemoveHost gives back every address that is held for a host and then all its blocks; those from which others have
// borrowed are left without owner. It is ReleaseByHost and DisownBlocks in this order, and resumed in the same way.
func (e *Engine) RemoveHost(ctx context.Context, o alloc.Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	released, blocks, err = e.release.RemoveHost(ctx, o)
	return released, blocks, cause.Op("remove host", err)
}
