package clustercidr

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// reservation is a prefix that is nobody's.
type reservation struct {
	prefix netip.Prefix
	claim  *claim
}

func compareReservation(r reservation, p netip.Prefix) int {
	if c := r.prefix.Addr().Compare(p.Addr()); c != 0 {
		return c
	}
	return r.prefix.Bits() - p.Bits()
}

// Reserve takes p out of circulation, in the pools of all entries, those included
// that are added later, until [Allocator.Unreserve]. Nodes that hold something
// inside keep it and are listed, ascending by prefix, as problems that match
// [ErrReserved]. Again for the same prefix it only lists them.
//
// It fails with an [*Error] that matches [ErrBadPrefix]; nothing has changed then.
// O(log n), and what nodes hold inside p. Safe for concurrent use.
func (a *Allocator) Reserve(p netip.Prefix) ([]*Error, error) {
	if err := addr.Check(p); err != nil {
		return nil, &Error{Op: "reserve", Prefix: p, Err: fmt.Errorf("%w: %w", ErrBadPrefix, err)}
	}
	a.mu.Lock()
	if a.reserve(p) {
		a.tell(Change{Op: OpReserve, Prefix: p})
	}
	problems := a.inside(p)
	a.mu.Unlock()
	a.deliver()
	return problems, nil
}

// reserve adds a reservation and reports whether it was new.
func (a *Allocator) reserve(p netip.Prefix) bool {
	i, found := slices.BinarySearchFunc(a.reserved, p, compareReservation)
	if found {
		return false
	}
	r := reservation{p, &claim{}}
	a.reserved = slices.Insert(a.reserved, i, r)
	a.spaces[familyOf(p)-1].put(blockOf(p), r.claim)
	return true
}

// inside lists the nodes that hold something that overlaps p.
func (a *Allocator) inside(p netip.Prefix) (problems []*Error) {
	f := familyOf(p)
	list := func(b block, c *claim) {
		var names []string
		for ; c != nil; c = c.next {
			if c.owner != nil {
				names = append(names, c.owner.name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			problems = append(problems, &Error{Op: "reserve", Node: name, Entry: a.owners[name].entry, Prefix: b.prefix(f), Err: ErrReserved})
		}
	}
	a.spaces[f-1].around(blockOf(p), list)
	a.spaces[f-1].each(blockOf(p), list)
	return problems
}

// Unreserve takes back the reservation of exactly p and reports whether there was
// one. What no node holds and no other reservation covers becomes free. O(log n).
// Safe for concurrent use.
func (a *Allocator) Unreserve(p netip.Prefix) bool {
	a.mu.Lock()
	i, found := slices.BinarySearchFunc(a.reserved, p, compareReservation)
	if found {
		a.spaces[familyOf(p)-1].remove(blockOf(p), a.reserved[i].claim)
		a.reserved = slices.Delete(a.reserved, i, i+1)
		wake(&a.freed)
		a.tell(Change{Op: OpUnreserve, Prefix: p})
	}
	a.mu.Unlock()
	a.deliver()
	return found
}

// Reserved returns the reservations, ascending, a prefix before those inside it.
// Safe for concurrent use.
func (a *Allocator) Reserved() []netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()
	prefixes := make([]netip.Prefix, len(a.reserved))
	for i, r := range a.reserved {
		prefixes[i] = r.prefix
	}
	return prefixes
}
