package alloc

import (
	"net/netip"
)

// Change is one thing that a commit changed. The fields that its Kind does not name are zero.
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

	// Unknown is set if the state before the commit is not known, which happens only to the first change of a record after a
	// start at a revision. The change is then reported as if there had been no record: a renewed lease, for example, as
	// AddressAssigned. Pools and settings are one record, so all of them are then reported as they are.
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

// ChangeKind says what a Change is. The zero value is no kind.
type ChangeKind uint8

const (
	// AddressAssigned: the address is held; Is has the holder. Was is set if the address was cooling. Each holder of a
	// shared address has an AddressAssigned when it joins and an AddressReleased when it leaves; Seq tells them apart.
	AddressAssigned ChangeKind = iota + 1
	// AddressReleased: the holder in Was does not hold the address any more. If no AddressAssigned of the same commit follows, and
	// there is no other holder, the address is free.
	AddressReleased
	// AddressCooling: the address was released, or declined, and is free at Is.Until. Was has the former holder.
	AddressCooling
	// AddressCooled: the address is free. Was has the former holder.
	AddressCooled
	// LeaseChanged: the holder is the same, and the lease ends at another time: it was renewed.
	LeaseChanged
	// AttributesChanged: the holder is the same, and its attributes have changed.
	AttributesChanged
	// HostChanged: the holder is the same, on another host.
	HostChanged
	// BlockClaimed: Owner got the block. Former is its owner before, the zero Owner if it had none.
	BlockClaimed
	// BlockOrphaned: the block has no owner any more. Former was its owner.
	BlockOrphaned
	// BlockReturned: the block does not exist any more. Former was its owner.
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

// String returns a few words.
func (k ChangeKind) String() string { return nameOf(kindNames[:], "kind", k) }

// MarshalText returns what String returns. It returns [ipalloc.ErrInvalid] for an unknown kind.
func (k ChangeKind) MarshalText() ([]byte, error) { return writeName(kindNames[:], "kind", k) }

// UnmarshalText reads what MarshalText writes. It returns [ipalloc.ErrInvalid] for anything else.
func (k *ChangeKind) UnmarshalText(text []byte) error { return readName(kindNames[:], "kind", k, text) }
