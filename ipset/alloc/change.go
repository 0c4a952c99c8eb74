package alloc

import (
	"net/netip"
)

// Change is one change made by a commit. Fields that the comment of its Kind does not
// name are zero.
type Change struct {
	Kind ChangeKind
	// Address is the address that changed. Was and Is are its record before and after the commit, zero for none.
	Address netip.Addr
	Was, Is Allocation
	// Block is the block that changed, Owner its owner after the commit and Former its owner before.
	Block         netip.Prefix
	Owner, Former Owner

	Pool, FormerPool         *Pool
	Reserved, FormerReserved []Reservation
	Config, FormerConfig     *Config

	// Unknown is set if the state before the commit is not known. That is possible only
	// for the first change to each record when Changes starts after a revision. The
	// change is then reported as if there had been no record. For example, a renewed
	// lease is reported as AddressAssigned. Pools and settings are one record, so all of
	// them are then reported in their present state.
	Unknown bool
}

// Commit is the changes of one commit.
type Commit struct {
	// Rev is the revision of the commit. Pass it to Changes to continue after this
	// commit.
	Rev uint64
	// Present is set for the state at the start, which is reported as if one commit had
	// made it. More is set if another part of that state follows.
	Present, More bool
	Changes       []Change
}

// ChangeKind is the kind of a Change. The zero value is no kind.
type ChangeKind uint8

const (
	// AddressAssigned: the address is held; Is has the holder. Was is set if the address
	// was cooling. Each holder of a shared address has an AddressAssigned when it joins
	// and an AddressReleased when it leaves; Seq distinguishes them.
	AddressAssigned ChangeKind = iota + 1
	// AddressReleased: the holder in Was no longer holds the address. The address is free
	// if no AddressAssigned of the same commit follows and it has no other holder.
	AddressReleased
	// AddressCooling: the address was released, or declined, and is free at Is.Until. Was has the former holder.
	AddressCooling
	// AddressCooled: the address is free. Was has the former holder.
	AddressCooled
	// LeaseChanged: the holder is the same, and the lease was renewed and expires at
	// another time.
	LeaseChanged
	// AttributesChanged: the holder is the same, and its attributes have changed.
	AttributesChanged
	// HostChanged: the holder is the same, on another host.
	HostChanged
	// BlockClaimed: Owner got the block. Former is its previous owner, the zero Owner if
	// it had none.
	BlockClaimed
	// BlockOrphaned: the block no longer has an owner. Former was its owner.
	BlockOrphaned
	// BlockReturned: the block no longer exists. Former was its owner.
	BlockReturned
	// PoolAdded, PoolChanged and PoolRemoved: Pool is the pool after the commit, FormerPool before it.
	PoolAdded
	PoolChanged
	PoolRemoved
	// ReservationsChanged: Reserved are the reservations after the commit, FormerReserved before it.
	ReservationsChanged
	// ConfigChanged: Config is the configuration after the commit, FormerConfig before it.
	ConfigChanged
)

// kindNames are the texts of the kinds.
var kindNames = [...]string{
	"", "assigned", "released", "cooling", "cooled", "lease changed", "attributes changed", "host changed", "block claimed",
	"block orphaned", "block returned", "pool added", "pool changed", "pool removed", "reservations changed", "configuration changed",
}

// String returns the kind in a few words.
func (k ChangeKind) String() string { return nameOf(kindNames[:], "kind", k) }

// MarshalText returns the text of String. It fails with [ipalloc.ErrInvalid] for an
// unknown kind.
func (k ChangeKind) MarshalText() ([]byte, error) { return writeName(kindNames[:], "kind", k) }

// UnmarshalText reads the text of MarshalText. It fails with [ipalloc.ErrInvalid] for any
// other text.
func (k *ChangeKind) UnmarshalText(text []byte) error { return readName(kindNames[:], "kind", k, text) }
