package cidrset

import "net/netip"

// Op is the kind of a [Change].
type Op uint8

// The kinds of changes.
const (
	OpAllocate Op = iota + 1 // the set chose the prefixes
	OpOccupy                 // the caller named them
	OpRelease                // the caller gave them back
)

// String returns "allocate", "occupy" or "release".
func (o Op) String() string {
	switch o {
	case OpAllocate:
		return "allocate"
	case OpOccupy:
		return "occupy"
	case OpRelease:
		return "release"
	}
	return "unknown"
}

// Change is one change of a [Set], as passed to the function given to [OnChange].
// Occupying the prefixes of OpAllocate and OpOccupy in another set and releasing
// those of OpRelease, in order, takes the same children there.
type Change struct {
	Op       Op
	Prefixes []netip.Prefix // owned by the receiver
}

// changed queues a change for the receiver, if there is one. The lock is held.
func (s *Set) changed(op Op, ps ...netip.Prefix) {
	if s.changes != nil {
		s.queue(op, ps)
	}
}

func (s *Set) queue(op Op, ps []netip.Prefix) {
	s.changes.Add(Change{Op: op, Prefixes: append([]netip.Prefix(nil), ps...)})
}
