package ipset

import (
	"context"
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// ClaimFailure is a block that could not be claimed, and why.
type ClaimFailure struct {
	Block netip.Prefix
	Err   error
}

// HostReport is what one owner has.
type HostReport struct {
	Owner alloc.Owner
	// Blocks is the number of blocks that it owns. Used, Cooling and Available count their addresses, of any holder.
	Blocks                   int
	Used, Cooling, Available alloc.Count
	// Borrowed is the number of addresses that it holds in blocks of others, Lent that of addresses which others hold in its own.
	Borrowed, Lent int
	// Limits are the limits of blocks that apply to it, that of the [Config] first.
	Limits []BlockLimit
}

// AtLimit reports whether a limit forbids the owner another block, of any pool or of one.
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
	Host    alloc.Owner
	Address netip.Addr
	Block   netip.Prefix
}

// Hosts returns a report for every owner of a block and every borrower, those with the most addresses in use first, then by name.
// It reads the records of all blocks and of borrowed addresses, not those of the others: O(blocks + borrowed addresses). Like
// Utilization it is no consistent snapshot.
func (e *Engine) Hosts(ctx context.Context) ([]HostReport, error) {
	found, err := e.query.Hosts(ctx)
	var hosts []HostReport
	for _, h := range found {
		r := HostReport{
			Owner: h.Owner, Blocks: h.Blocks, Used: h.Used, Cooling: h.Cooling, Available: h.Available,
			Borrowed: h.Borrowed, Lent: h.Lent,
		}
		for _, l := range h.Limits {
			r.Limits = append(r.Limits, BlockLimit(l))
		}
		hosts = append(hosts, r)
	}
	return hosts, cause.Op("report", err)
}

// IPsByHost returns the addresses that are held for a host, in address order: those in its own blocks that no other host has
// borrowed, and those that it has borrowed. None is no error. It returns [ipalloc.ErrInvalid]. Cost: four round trips.
func (e *Engine) IPsByHost(ctx context.Context, o alloc.Owner) ([]alloc.Allocation, error) {
	return e.release.IPsByHost(ctx, o)
}

// BlocksOf returns the blocks of an owner in address order. One round trip.
func (e *Engine) BlocksOf(ctx context.Context, o alloc.Owner) ([]netip.Prefix, error) {
	blocks, err := e.query.BlocksOf(ctx, o)
	return blocks, cause.Op("look up", err)
}

// Borrowings yields the borrowed addresses, by host, then in address order; an error is the last thing it yields. It reads index
// records alone, a page at a time: the cost is the number of borrowed addresses, whatever else is held. No snapshot.
func (o Operator) Borrowings(ctx context.Context) iter.Seq2[Borrowing, error] {
	return func(yield func(Borrowing, error) bool) {
		for b, err := range o.e.query.Borrowings(ctx) {
			if !yield(Borrowing(b), err) {
				return
			}
		}
	}
}

// ClaimAffinity gives an owner every block in the part of a prefix that lies in a pool: blocks that do not exist are
// made, those without owner are adopted, those of others, those beyond a limit and those of a disabled pool fail, and those
// the owner has count as claimed. One commit per block; an interrupted claim is resumed by repeating it.
//
// It returns [ipalloc.ErrInvalid] for an owner or a prefix that cannot be, [ipalloc.ErrNotFound] if no pool overlaps the
// prefix, ipalloc.ErrLimit for more
// than 65,536 blocks; or an error of the store and what was done so far.
func (e *Engine) ClaimAffinity(ctx context.Context, p netip.Prefix, o alloc.Owner) (claimed []netip.Prefix, failed []ClaimFailure, err error) {
	claimed, without, err := e.release.ClaimAffinity(ctx, p, o)
	for _, f := range without {
		failed = append(failed, ClaimFailure(f))
	}
	return claimed, failed, err
}

// DisownArgs say which blocks [Engine.DisownBlocks] takes from their owners.
type DisownArgs struct {
	// Owner selects the blocks: all that it owns, or those of them in Prefix if that is set.
	Owner  alloc.Owner
	Prefix netip.Prefix
	// Pool, in place of Owner and Prefix, means every block of the pool of that name, of any owner.
	Pool string
	// OnlyEmpty leaves blocks with their owners in which an address is held.
	OnlyEmpty bool
}

// DisownBlocks takes blocks from their owners: an empty one is deleted, one in use is left without owner unless OnlyEmpty. Blocks of
// others, and blocks larger than the prefix, are not touched. It returns the blocks taken.
//
// Errors: [ipalloc.ErrInvalid] without Owner and Pool, with both, or for a prefix that cannot be; [ipalloc.ErrNotFound] for a pool that
// does not exist; with OnlyEmpty [ipalloc.ErrInUse] if a block was in use, after the others; those of the store. Steps of a few blocks
// each.
func (e *Engine) DisownBlocks(ctx context.Context, a DisownArgs) ([]netip.Prefix, error) {
	switch {
	case (a.Owner == alloc.Owner{}) == (a.Pool == "") || a.Pool != "" && a.Prefix != (netip.Prefix{}):
		return nil, cause.Wrap(ipalloc.Error{Op: "disown", Field: "Owner", Reason: "an owner or a pool, and not both", Err: ipalloc.ErrInvalid})
	case a.Pool != "":
		return e.release.ReleasePool(ctx, a.Pool, a.OnlyEmpty)
	case a.Prefix != (netip.Prefix{}):
		return e.release.ReleaseAffinity(ctx, a.Prefix, a.Owner, a.OnlyEmpty)
	}
	return e.release.DisownBlocks(ctx, a.Owner, a.OnlyEmpty)
}

// ReleaseAddressesOf gives back every address that is held for a host, in its own blocks and in those that it borrowed from, and
// returns them. Addresses that others borrowed from its blocks stay, and so do the blocks: [Engine.DisownBlocks] takes those.
//
// Each step is a commit of its own. Repeat a call that was interrupted. It returns [ipalloc.ErrInvalid], or an error of the
// store with what was given back so far.
func (e *Engine) ReleaseAddressesOf(ctx context.Context, o alloc.Owner) (released []netip.Addr, err error) {
	return e.release.ReleaseAddressesOf(ctx, o)
}

// RemoveHost gives back every address that is held for a host and then all its blocks; those from which others have
// borrowed are left without owner. It is ReleaseAddressesOf and DisownBlocks in this order, and resumed in the same way.
func (e *Engine) RemoveHost(ctx context.Context, o alloc.Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	released, blocks, err = e.release.RemoveHost(ctx, o)
	return released, blocks, cause.Op("remove host", err)
}
