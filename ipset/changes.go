package ipset

import (
	"context"
	"iter"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/query"
)

// ChangeKind says what a [Change] is.
type ChangeKind uint8

const (
	// AddressAssigned: the address is held; Is has the holder. Was is cooling if the address was. Of an address with several
	// holders each has an AddressAssigned when it joins and an AddressReleased when it leaves; Seq tells them apart.
	AddressAssigned = ChangeKind(query.AddressAssigned)
	// AddressReleased: the holder in Was does not hold the address any more. If no AddressAssigned of the same commit follows, and
	// there is no other holder, the address is free.
	AddressReleased = ChangeKind(query.AddressReleased)
	// AddressCooling: the address was released, or declined, and is free at Is.Until. Was has the holder before.
	AddressCooling = ChangeKind(query.AddressCooling)
	// AddressCooled: the address is free. Was has the holder before.
	AddressCooled = ChangeKind(query.AddressCooled)
	// LeaseChanged: the holder is the same, and the lease ends at another time: it was renewed.
	LeaseChanged = ChangeKind(query.LeaseChanged)
	// AttributesChanged: the holder is the same, and its attributes are others.
	AttributesChanged = ChangeKind(query.AttributesChanged)
	// HostChanged: the holder is the same, on another host.
	HostChanged = ChangeKind(query.HostChanged)
	// BlockClaimed: Owner has the block. Former had it before, or is nobody.
	BlockClaimed = ChangeKind(query.BlockClaimed)
	// BlockOrphaned: the block has no owner. Former had it before.
	BlockOrphaned = ChangeKind(query.BlockOrphaned)
	// BlockReturned: the block does not exist any more. Former had it before.
	BlockReturned = ChangeKind(query.BlockReturned)
	// PoolAdded, PoolChanged and PoolRemoved: Pool is the pool after the commit, FormerPool before it.
	PoolAdded   = ChangeKind(query.PoolAdded)
	PoolChanged = ChangeKind(query.PoolChanged)
	PoolRemoved = ChangeKind(query.PoolRemoved)
	// ReservationsChanged: Reserved are the reservations after the commit, FormerReserved before it.
	ReservationsChanged = ChangeKind(query.ReservationsChanged)
	// ConfigChanged: Config is the configuration after the commit, FormerConfig before it.
	ConfigChanged = ChangeKind(query.ConfigChanged)
)

// String returns a few words.
func (k ChangeKind) String() string { return query.ChangeKind(k).String() }

// Change is one thing that a commit changed. The fields that its Kind does not name are zero.
type Change struct {
	Kind ChangeKind
	// Address is the address of the kinds that are about one. Was and Is are its record before and after the commit, zero for none.
	Address netip.Addr
	Was, Is alloc.Allocation
	// Block is the block of the kinds that are about one, Owner its owner after the commit and Former its owner before.
	Block         netip.Prefix
	Owner, Former alloc.Owner

	Pool, FormerPool         *Pool
	Reserved, FormerReserved *netipx.IPSet
	Config, FormerConfig     *Config

	// Unknown is set if the state before is not known, which happens only to the first change of a record after a start at a
	// revision. The change is then reported as if nothing had been before, such as AddressAssigned for a renewed lease. Pools and
	// settings are one record: all of them are reported then, as they are.
	Unknown bool
}

// Commit is what one commit changed.
type Commit struct {
	// Rev is the revision of the commit. Changes continues after it.
	Rev uint64
	// Present is set for the state at the beginning, as if one commit had made it. More is set if a further part of it follows.
	Present, More bool
	Changes       []Change
}

// Changes yields what every commit after revision after changed, in commit order, until ctx ends or the caller breaks the loop. With
// after 0 it yields the present state first, in parts, and then the commits after that state: nothing is missed between the two.
// An error is the last thing it yields.
//
// Commits come from all engines on the store. Those that change no address, block, pool or setting of this engine's space are passed
// over. In a commit, changes of pools and settings come first, then claimed blocks, then addresses in address order, then blocks
// given up.
//
// A change is reported when a commit writes it. A lease that has ended, and an address that has cooled, are reported when some call
// next changes the block, at the latest by [Operator.Sweep].
//
// Changes says what was before from the records that it has seen. It begins with one list of all addresses and blocks and keeps
// their records in memory, so it costs O(n) at the start and some 170 bytes an address with a handle of 40 bytes. With after above 0,
// a record that was changed between that revision and the start may be Unknown once: keep the holders beside the revision if you
// need them.
//
// Errors: [ipalloc.ErrOutOfRange] if the store no longer has the commits after that revision, or if the loop body is so slow that
// the store forgets commits before they are delivered: begin again with 0, and take the state that comes as the outcome of all
// that was missed. [ipalloc.ErrCorrupt] for a record that cannot be read, [ipalloc.ErrVersion] for one of a
// later version. Else the error of the store or of ctx.
//
// No lock is held while the loop body runs, and no goroutine outlives the loop.
func (e *Engine) Changes(ctx context.Context, after uint64) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		for c, err := range e.query.Changes(ctx, after) {
			if !yield(commitOf(c), err) {
				return
			}
		}
	}
}

func commitOf(c query.Commit) Commit {
	out := Commit{Rev: c.Rev, Present: c.Present, More: c.More}
	for _, x := range c.Changes {
		out.Changes = append(out.Changes, Change{
			Kind: ChangeKind(x.Kind), Address: x.Address, Was: x.Was, Is: x.Is, Block: x.Block, Owner: x.Owner, Former: x.Former,
			Pool: (*Pool)(x.Pool), FormerPool: (*Pool)(x.FormerPool), Reserved: x.Reserved, FormerReserved: x.FormerReserved,
			Config: (*Config)(x.Config), FormerConfig: (*Config)(x.FormerConfig), Unknown: x.Unknown,
		})
	}
	return out
}

// Follow watches the catalog and the blocks of some owners, and takes into the cache what another engine changes, until ctx
// ends. It returns the context's error or that of the store. It only saves time: without it, a stale record is found by the
// conflict that it causes, which costs the call that meets it two round trips more.
//
// It is one watch of the store: on the catalog, on the number of blocks of each owner named, and on each of these blocks. What
// arrives does not grow with the number of other owners. When an owner gets a block, the watch begins again with it. One call
// per engine is enough.
func (e *Engine) Follow(ctx context.Context, owners ...alloc.Owner) error {
	return e.query.Follow(ctx, owners...)
}
