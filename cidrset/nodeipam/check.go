package nodeipam

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Check recomputes everything that is derived from who holds what, compares it with
// what is kept, and returns the first difference: the shape and the summaries of the
// trie, that it holds exactly what nodes and reservations claim, the pools, entries,
// cursors and counts. O(n). The allocator is locked meanwhile.
func (a *Allocator) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.checkOwners()
	for i := range a.spaces {
		if err == nil {
			err = a.spaces[i].check()
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

// checkOwners compares what nodes and reservations claim with what the tries hold.
func (a *Allocator) checkOwners() error {
	terminating, claims := 0, map[*claim]netip.Prefix{}
	for name, o := range a.owners {
		if o.name != name || len(o.prefixes) == 0 || len(o.prefixes) != len(o.claims) {
			return fmt.Errorf("node %q has %d prefixes and %d claims", name, len(o.prefixes), len(o.claims))
		}
		if o.terminating {
			terminating++
		}
		for i, p := range o.prefixes {
			if err := addr.Check(p); err != nil || o.claims[i].owner != o {
				return fmt.Errorf("node %q holds a bad %v", name, p)
			}
			claims[&o.claims[i]] = p
		}
	}
	if terminating != a.terminating {
		return fmt.Errorf("%d nodes terminate, counted %d", terminating, a.terminating)
	}
	reservations := 0
	var err error
	for i := range a.spaces {
		a.spaces[i].overlapping(block{}, func(b block, c *claim) bool {
			for ; c != nil; c = c.next {
				if c.owner == nil {
					reservations++
				} else if claims[c] != b.prefix(i == 0) {
					err = fmt.Errorf("%v is claimed for %q, which does not hold it", b.prefix(i == 0), c.owner.name)
				}
				delete(claims, c)
			}
			return true
		})
	}
	if err == nil && (len(claims) != 0 || reservations != a.reservations) {
		err = fmt.Errorf("%d claims and %d reservations are not in the tries", len(claims), a.reservations-reservations)
	}
	return err
}

// check recomputes every summary and walks the list of spare nodes.
func (s *space) check() error {
	used := 0
	if s.root != 0 {
		if _, err := s.checkNode(block{}, s.root, &used); err != nil {
			return err
		}
	}
	for i := s.spare; i != 0; i = s.nodes[i].child[0] {
		if used++; used >= len(s.nodes) {
			return fmt.Errorf("the spare nodes form a cycle")
		}
	}
	if used != max(len(s.nodes), 1)-1 {
		return fmt.Errorf("%d nodes used or spare of %d", used, len(s.nodes)-1)
	}
	return nil
}

// checkNode checks the subtree of node at inside the half that it hangs from, and
// returns the length of the largest free block in that half.
func (s *space) checkNode(half block, at uint32, used *int) (best uint8, err error) {
	if at == 0 {
		return half.bits, nil
	}
	*used++
	n := &s.nodes[at]
	b := block{n.key, n.bits}
	if n.bits < half.bits || !half.contains(n.key) || truncate(n.key, n.bits) != n.key {
		return 0, fmt.Errorf("a node of %d bits is not where it hangs", n.bits)
	}
	if n.claims == nil && (n.child[0] == 0 || n.child[1] == 0) {
		return 0, fmt.Errorf("a node of %d bits neither claims nor branches", n.bits)
	}
	best = none
	for side, c := range n.child {
		if c == 0 && n.bits == 128 {
			continue
		}
		inside, err := s.checkNode(b.half(side), c, used)
		if err != nil {
			return 0, err
		}
		best = min(best, inside)
	}
	if n.claims != nil {
		best = none
	}
	if n.best != best {
		return 0, fmt.Errorf("a node of %d bits says its best is /%d, it is /%d", n.bits, n.best, best)
	}
	if n.bits > half.bits {
		best = half.bits + 1 // the other half of it is free
	}
	return best, nil
}
