package claims

import "fmt"

// Check recomputes every summary and walks the list of spare nodes.
func (s *Space[O]) Check() error {
	used := 0
	if s.root != 0 {
		if _, err := s.checkNode(Block{}, s.root, &used); err != nil {
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
func (s *Space[O]) checkNode(half Block, at uint32, used *int) (best uint8, err error) {
	if at == 0 {
		return half.Bits, nil
	}
	*used++
	n := &s.nodes[at]
	b := Block{n.key, n.bits}
	if n.bits < half.Bits || !half.Contains(n.key) || truncate(n.key, n.bits) != n.key {
		return 0, fmt.Errorf("a node of %d bits is not where it hangs", n.bits)
	}
	if n.claims == nil && (n.child[0] == 0 || n.child[1] == 0) {
		return 0, fmt.Errorf("a node of %d bits neither claims nor branches", n.bits)
	}
	for c, prev := n.claims, (*Claim[O])(nil); c != nil; c, prev = c.next, c {
		if c.prev != prev {
			return 0, fmt.Errorf("a claim of a node of %d bits does not know the one before it", n.bits)
		}
		if prev != nil && prev.Owner != nil && c.Owner == nil {
			return 0, fmt.Errorf("a node of %d bits has a reservation behind another claim", n.bits)
		}
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
	if n.bits > half.Bits {
		best = half.Bits + 1 // the other half of it is free
	}
	return best, nil
}
