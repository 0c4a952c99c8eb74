// Package block implements the unit of allocation of package ipset: a block of addresses,
// their holders, and the order of the free ones. It is for programs that keep blocks
// themselves. It is pure: it reads no clock and no store.
//
//	b, err := block.New(prefix, block.Options{Owner: alloc.HostOwner("node-a"), Claimed: now})
//	als := b.AutoAssign(nil, 2, alloc.Claim{Handle: "pod-1"}, now, nil)
//	outcome, err := b.Release(als[0].Address, alloc.Guard{Handle: "pod-1"}, now, time.Minute)
//
// # Terms
//
// A block is a prefix of at most 2^64 addresses. An address is held, free, cooling
// (released, but not yet reusable) or reserved (at the start or end of the block). The
// owner is the block's; a host is the machine that an address is held for. A handle is
// the caller's key of an address, and a sequence number distinguishes one allocation of
// an address from all later ones.
//
// # Cost
//
// Assigning, releasing and looking up an address cost O(1) amortised, and do not allocate
// in steady state. A new block of any size is one span of its queue; memory grows with
// the number of held addresses. Assigning a named address costs O(spans before it) of the
// queue, or O(cooling addresses) if it is cooling.
package block

import (
	"iter"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	core "github.com/ipalloc/ipalloc/ipset/internal/block"
)

// Block is one block of addresses: the holder of each address, and the order of the free
// ones.
//
// Every address is in exactly one state. It is free (in the queue), held, cooling
// (released, in the cooling queue until its time), or reserved (at either end of the
// block, excluded from assignment). The caller passes the time; [Block.Advance] applies
// the changes that time alone causes.
//
// It is not safe for concurrent use. Make a Block with [New] or [Restore]; the zero value
// is unusable. The engine uses the same block through further methods, which report the
// records to write and are not part of this package.
type Block core.Block

// Options configures a new block. The zero value means a block without owner or reserved
// addresses.
type Options struct {
	Owner alloc.Owner
	// Head and Tail are the numbers of addresses at the two ends that are reserved for
	// the host.
	Head, Tail uint64
	// Claimed is when the owner gets the block.
	Claimed time.Time
	// Seq is the last sequence number in use; the block's first assignment gets the next one.
	Seq uint64
}

// New returns an empty block.
//
// It fails with [ipalloc.ErrInvalid] for a prefix that is not masked, and if the block
// has more than 2^64 addresses or Head and Tail leave none to assign.
func New(p netip.Prefix, o Options) (*Block, error) {
	b, err := core.New(p, core.Options(o))
	return (*Block)(b), err
}

// Restore returns a block with content from another system. The addresses in free are
// assigned in that order. The addresses in busy are held or cooling, the cooling ones in
// the order of their release; Allocation.Block is ignored. Free, busy and reserved
// addresses together must be all addresses of the prefix.
//
// It fails as [New] does, and with [ipalloc.ErrCorrupt] if the arguments contradict each
// other.
func Restore(p netip.Prefix, o Options, free []netip.Addr, busy []alloc.Allocation) (*Block, error) {
	b, err := core.Restore(p, core.Options(o), free, busy)
	return (*Block)(b), err
}

func (b *Block) core() *core.Block { return (*core.Block)(b) }

// Prefix returns the prefix of the block.
func (b *Block) Prefix() netip.Prefix { return b.core().Prefix() }

// Owner returns the owner of the block, the zero Owner if it has none.
func (b *Block) Owner() alloc.Owner { return b.core().Owner() }

// Claimed returns when the present owner got the block.
func (b *Block) Claimed() time.Time { return b.core().Claimed() }

// Seq returns the sequence number of the block's last assignment.
func (b *Block) Seq() uint64 { return b.core().Seq() }

// Reserved returns the numbers of addresses at both ends that are excluded from
// assignment.
func (b *Block) Reserved() (head, tail uint64) { return b.core().Reserved() }

// Used returns the number of held addresses; O(1).
func (b *Block) Used() uint64 { return b.core().Used() }

// Cooling returns the number of cooling addresses; O(1).
func (b *Block) Cooling() uint64 { return b.core().Cooling() }

// Free returns the number of addresses that can be assigned, and false if it is 2^64,
// which does not fit a uint64. O(1).
func (b *Block) Free() (uint64, bool) { return b.core().Free() }

// Empty reports whether no address is held or cooling, and since which time.
func (b *Block) Empty() (since time.Time, ok bool) { return b.core().Empty() }

// Lookup returns the allocation of an address, and false if it is neither held nor
// cooling, or not in this block.
func (b *Block) Lookup(at netip.Addr) (alloc.Allocation, bool) { return b.core().Lookup(at) }

// All yields the addresses that are held or cooling, ascending. Results are unspecified if the block changes during iteration.
func (b *Block) All() iter.Seq[alloc.Allocation] { return b.core().All() }

// FreeAddresses yields the free addresses in the order of their assignment.
func (b *Block) FreeAddresses() iter.Seq[netip.Addr] { return b.core().FreeAddresses() }

// Clone returns a block of the same content that shares no memory with b. O(held
// addresses).
func (b *Block) Clone() *Block { return (*Block)(b.core().Clone()) }

// AutoAssign assigns the next n free addresses, or fewer if fewer are free, and appends
// them to dst. It skips addresses in avoid, which keep their place in the queue.
func (b *Block) AutoAssign(dst []alloc.Allocation, n int, c alloc.Claim, now time.Time, avoid *netipx.IPSet) []alloc.Allocation {
	return b.core().AutoAssign(dst, n, c, now, avoid)
}

// Assign assigns one address.
//
// It fails with [ipalloc.ErrOutOfRange] if the block does not contain the address, with
// [ipalloc.ErrReserved] if it is reserved, and with [ipalloc.ErrOccupied] if it is held.
// It fails with [ipalloc.ErrCooling] if the address is cooling, unless the same handle
// released it. On error nothing changes.
func (b *Block) Assign(a netip.Addr, c alloc.Claim, now time.Time) (alloc.Allocation, error) {
	return b.core().Assign(a, c, now)
}

// Release releases an address, which then cools for cooldown. See [alloc.Outcome]. It
// fails with [ipalloc.ErrOutOfRange] if the block does not contain the address. Releasing
// again is never an error.
func (b *Block) Release(a netip.Addr, g alloc.Guard, now time.Time, cooldown time.Duration) (alloc.Outcome, error) {
	return b.core().Release(a, g, now, cooldown)
}

// Renew extends the handle's leases in the block, which now expire ttl after now, and
// returns their number.
func (b *Block) Renew(handle string, ttl time.Duration, now time.Time) int {
	return b.core().Renew(handle, ttl, now)
}

// SetAttributes replaces the attributes of one address; addresses that shared the old
// ones keep them. It fails with [ipalloc.ErrNotHeld] if the address is not held, and with
// [ipalloc.ErrMismatch] if the guard names another holder. On error nothing changes.
func (b *Block) SetAttributes(at netip.Addr, g alloc.Guard, active, alternate alloc.Attributes) error {
	return b.core().SetAttributes(at, g, active, alternate)
}

// Advance applies the changes that are due at now. It releases expired leases, whose
// addresses then cool for cooldown from the expiry, and queues addresses that have
// cooled. It reports whether anything changed. It is safe to repeat. O(1) while nothing
// is due.
func (b *Block) Advance(now time.Time, cooldown time.Duration) bool {
	return b.core().Advance(now, cooldown)
}

// Check verifies that every address is in exactly one state, and that every count matches
// the addresses.
func (b *Block) Check() error { return b.core().Check() }
