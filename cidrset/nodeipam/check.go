package nodeipam

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/claims"
)

// Check recomputes all derived state and returns the first difference. It covers the
// shape and the summaries of the trie, the claims of nodes and reservations, the pools,
// entries, cursors and counts. O(n). It holds the allocator's lock.
func (a *Allocator) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.checkOwners()
	for i := range a.spaces {
		if err == nil {
			err = a.spaces[i].Check()
		}
	}
	if err == nil {
		err = a.policy.check()
	}
	if err != nil {
		return opError("check", &ipalloc.Error{Err: ipalloc.ErrCorrupt, Reason: err.Error()})
	}
	return nil
}

// checkOwners compares the claims of nodes and reservations with those in the tries.
func (a *Allocator) checkOwners() error {
	terminating, held := 0, map[*claim]netip.Prefix{}
	for name, o := range a.owners {
		if o.name != name || len(o.prefixes) == 0 {
			return fmt.Errorf("node %q is kept as %q and has %d prefixes", o.name, name, len(o.prefixes))
		}
		if o.terminating {
			terminating++
		}
		for i, p := range o.prefixes {
			if err := addr.Check(p); err != nil || o.claim(i).Owner != o {
				return fmt.Errorf("node %q holds a bad %v", name, p)
			}
			held[o.claim(i)] = p
		}
	}
	if terminating != a.terminating {
		return fmt.Errorf("%d nodes terminate, counted %d", terminating, a.terminating)
	}
	reservations, kept := 0, 0
	var err error
	for i := range a.spaces {
		a.spaces[i].Overlapping(claims.Block{}, func(b claims.Block, c *claim) bool {
			for ; c != nil; c = c.Next() {
				if c.Owner == nil {
					if reservations++; a.kept[i].Reservation(b) == nil {
						err = fmt.Errorf("the reservation %v is not listed", b.Prefix(i == 0))
					}
				} else if held[c] != b.Prefix(i == 0) {
					err = fmt.Errorf("%v is claimed for %q, which does not hold it", b.Prefix(i == 0), c.Owner.name)
				}
				delete(held, c)
			}
			return true
		})
	}
	for i := range a.kept {
		if err == nil {
			err = a.kept[i].Check()
		}
		a.kept[i].Overlapping(claims.Block{}, func(claims.Block, *claim) bool { kept++; return true })
	}
	if err == nil && kept != reservations {
		err = fmt.Errorf("%d reservations, listed %d", reservations, kept)
	}
	if err == nil && (len(held) != 0 || reservations != a.reservations) {
		err = fmt.Errorf("%d claims and %d reservations are not in the tries", len(held), a.reservations-reservations)
	}
	return err
}
