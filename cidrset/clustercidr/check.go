package clustercidr

import "fmt"

// Check recomputes everything that is derived and compares: the shape and the
// summaries of the index, that it holds exactly what nodes and reservations claim,
// the counts by entry, the order of entries and reservations, the cursors. It
// returns the first difference. O(n). Safe for concurrent use; the allocator is
// locked meanwhile.
func (a *Allocator) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkEntries(); err != nil {
		return fmt.Errorf("clustercidr: check: %w", err)
	}
	if err := a.checkOwners(); err != nil {
		return fmt.Errorf("clustercidr: check: %w", err)
	}
	for i := range a.spaces {
		if err := a.spaces[i].check(); err != nil {
			return fmt.Errorf("clustercidr: check: %v: %w", Family(i+1), err)
		}
	}
	return nil
}

func (a *Allocator) checkEntries() error {
	for i, e := range a.entries {
		name := e.spec.Name
		if i > 0 && a.entries[i-1].spec.Name >= name {
			return fmt.Errorf("entry %q out of order", name)
		}
		again, err := newEntry(e.spec)
		if err != nil {
			return err
		}
		if !again.same(e) || again.capacity != e.capacity {
			return fmt.Errorf("entry %q changed", name)
		}
		if e.terminating && a.nodes[name] == 0 {
			return fmt.Errorf("entry %q is terminating without nodes", name)
		}
		for _, f := range a.families {
			if !e.has(f) {
				return fmt.Errorf("entry %q lacks %v", name, f)
			}
		}
		for j := range e.pools {
			pl := &e.pools[j]
			if pl.prefix != again.pools[j].prefix || pl.size != again.pools[j].size || pl.block != again.pools[j].block {
				return fmt.Errorf("pool %v of entry %q changed", pl.prefix, name)
			}
			if pl.prefix.IsValid() && (!pl.block.contains(pl.cursor) || truncate(pl.cursor, pl.size) != pl.cursor) {
				return fmt.Errorf("cursor of entry %q is no child of %v", name, pl.prefix)
			}
		}
	}
	return nil
}

// checkOwners counts what nodes and reservations claim.
func (a *Allocator) checkOwners() error {
	var claims, indexed [2]int
	nodes, foreign := map[string]int{}, 0
	for name, o := range a.owners {
		if o.name != name || len(o.prefixes) == 0 || len(o.prefixes) != len(o.claims) {
			return fmt.Errorf("node %q has %d prefixes and %d claims", name, len(o.prefixes), len(o.claims))
		}
		if o.entry != "" {
			nodes[o.entry]++
		} else if foreign++; true {
			if e, _ := a.fitting(o.prefixes); e != nil {
				return fmt.Errorf("node %q fits entry %q and is recorded with none", name, e.spec.Name)
			}
		}
		for i, p := range o.prefixes {
			f := familyOf(p) - 1
			claims[f]++
			if o.claims[i].owner != o || !a.spaces[f].holds(blockOf(p), &o.claims[i]) {
				return fmt.Errorf("node %q: %v is not in the index", name, p)
			}
		}
	}
	if len(nodes) != len(a.nodes) || foreign != a.foreign {
		return fmt.Errorf("nodes of %d entries and %d of none, counted %d and %d", len(nodes), foreign, len(a.nodes), a.foreign)
	}
	for name, n := range nodes {
		if a.nodes[name] != n {
			return fmt.Errorf("entry %q has %d nodes, counted %d", name, n, a.nodes[name])
		}
	}
	for i, r := range a.reserved {
		f := familyOf(r.prefix) - 1
		claims[f]++
		if r.claim.owner != nil || !a.spaces[f].holds(blockOf(r.prefix), r.claim) {
			return fmt.Errorf("reservation %v is not in the index", r.prefix)
		}
		if i > 0 && compareReservation(a.reserved[i-1], r.prefix) >= 0 {
			return fmt.Errorf("reservation %v out of order", r.prefix)
		}
	}
	for f := range a.spaces {
		a.spaces[f].each(block{}, func(_ block, c *claim) {
			for ; c != nil; c = c.next {
				indexed[f]++
			}
		})
	}
	if claims != indexed {
		return fmt.Errorf("%v claims in the index, %v held", indexed, claims)
	}
	return nil
}

// holds reports whether c is a claim of b in the space.
func (s *space) holds(b block, c *claim) (found bool) {
	for at := s.root; at != 0; {
		n := &s.nodes[at]
		if n.bits == b.bits && n.key == b.key {
			for x := n.claims; x != nil; x = x.next {
				found = found || x == c
			}
			return found
		}
		if n.bits >= b.bits || !(block{n.key, n.bits}).contains(b.key) {
			return false
		}
		at = n.child[bit(b.key, n.bits)]
	}
	return false
}

// check recomputes every summary and the list of spare nodes.
func (s *space) check() error {
	used := 0
	if s.root != 0 {
		if _, err := s.checkNode(block{}, s.root, &used); err != nil {
			return err
		}
	}
	for i := s.spare; i != 0; i = s.nodes[i].child[0] {
		if used++; used >= len(s.nodes) {
			return fmt.Errorf("the spare nodes go round in circles")
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
