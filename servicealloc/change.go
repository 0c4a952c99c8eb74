package servicealloc

// Kind says what a [Change] did.
type Kind string

// The kinds of changes.
const (
	// Allocated means that the addresses and ports are taken, named or chosen.
	Allocated Kind = "allocated"
	// Released means that the addresses and ports are given back.
	Released Kind = "released"
	// Replaced means that the owner now holds what the change lists, with what an
	// open transaction has taken.
	Replaced Kind = "replaced"
	// RangeSet means that the range was added, or changed to what the change says.
	RangeSet Kind = "range set"
	// RangeRemoved means that the range of that name was removed.
	RangeRemoved Kind = "range removed"
)

// Change is one change of an allocator, as [OnChange] delivers it. Its slices belong
// to the receiver. A [Range] or [Ports] fills in Addrs or Ports alone. A registry is
// rebuilt from its changes in order: [Registry.Release] the owner and, unless the
// change is a release, [Registry.Load] the grant.
type Change struct {
	Kind Kind
	Grant
	Range RangeInfo // of RangeSet and RangeRemoved
}
