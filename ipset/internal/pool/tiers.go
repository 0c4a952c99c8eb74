package pool

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Tiers are the pools that may serve an assignment in one family. Pools of one priority are tried together.
type Tiers struct {
	Cat    *Catalog
	Choice Choice
	Pools  []int  // that may serve, in order, as far as they have been looked for
	Seen   int    // how many pools have been looked at
	few    [4]int // room for as many, so that they need no allocation
	// Once tiered is set, the pools of one priority are tried at present, and the first of them is at tier.
	tier, priority int
	tiered         bool
}

// Choose begins the choice of the pools that may serve. They are tried by priority, and within a priority as the call names them, or else
// by name. Choose looks only for the pools that are needed. So the cost of a call does not grow with the number of pools behind the pools
// that serve it. It returns [ipalloc.ErrNotFound] if a name is no pool's, and if no pool qualifies.
func (s *Tiers) Choose(c *Catalog, q Choice) error {
	s.Cat, s.Choice, s.Pools, s.Seen, s.tier, s.tiered = c, q, s.few[:0], 0, 0, false
	if len(q.Names) > 0 {
		s.Seen = len(c.Pools)
		for _, name := range q.Names {
			i := c.ByName(name)
			if i < 0 {
				return cause.Wrap(ipalloc.Error{Op: "choose", Name: name, Err: cause.UnknownPool})
			}
			if c.Qualifies(i, &s.Choice) && !slices.Contains(s.Pools, i) {
				s.Pools = append(s.Pools, i)
			}
		}
		slices.SortStableFunc(s.Pools, func(i, j int) int { return cmp.Compare(c.Pools[j].Priority, c.Pools[i].Priority) })
	}
	if _, ok := s.Pool(0); !ok {
		return s.noPool()
	}
	return nil
}

// Pool returns the k-th pool of the tier; ok is false if there are not so many.
func (s *Tiers) Pool(k int) (i int, ok bool) {
	i, ok = s.Any(s.tier + k)
	return i, ok && (!s.tiered || s.Cat.Pools[i].Priority == s.priority)
}

// NextTier goes on to the pools of the next lower priority, the highest at first, and reports whether there are any. Before it is
// called all pools are one tier.
func (s *Tiers) NextTier() bool {
	for _, ok := s.Pool(0); ok && s.tiered; _, ok = s.Pool(0) {
		s.tier++
	}
	i, ok := s.Any(s.tier)
	if ok {
		s.tiered, s.priority = true, s.Cat.Pools[i].Priority
	}
	return ok
}

// Any returns the k-th pool that qualifies, of any priority.
func (s *Tiers) Any(k int) (i int, ok bool) {
	for ; len(s.Pools) <= k; s.Seen++ {
		if s.Seen == len(s.Cat.Pools) {
			return 0, false
		}
		if s.Cat.Qualifies(s.Seen, &s.Choice) {
			s.Pools = append(s.Pools, s.Seen)
		}
	}
	return s.Pools[k], true
}

// Serves reports whether pool i is in the tier.
func (s *Tiers) Serves(i int) bool {
	if i < 0 || s.Cat == nil {
		return false // in no pool, or of a family that is not asked for
	}
	if s.tiered && s.Cat.Pools[i].Priority != s.priority {
		return false
	}
	switch {
	case i < s.Seen && len(s.Choice.Names) > 0: // the pools are in the order of these
		return slices.Contains(s.Pools, i)
	case i < s.Seen:
		_, ok := slices.BinarySearch(s.Pools, i)
		return ok
	}
	return s.Cat.Qualifies(i, &s.Choice)
}

// ServesPart reports whether a pool of the tier serves an address of a block.
func (s *Tiers) ServesPart(block netip.Prefix) bool {
	if s.Cat == nil {
		return false
	}
	for from := block.Addr(); ; {
		i, end := s.Cat.Served(from, block)
		if s.Serves(i) {
			return true
		}
		if end == record.LastAddr(block) {
			return false
		}
		from = end.Next()
	}
}

// Span returns the keys of an index from the first to the last of the tried pools.
func (s *Tiers) Span(kind string) store.Range {
	first, last := s.Cat.Pools[s.Pools[0]].Prefix, s.Cat.Pools[s.Pools[0]].Prefix
	for _, i := range s.Pools[1:] {
		at := s.Cat.Pools[i].Prefix
		if at.Addr().Less(first.Addr()) {
			first = at
		}
		if last.Addr().Less(at.Addr()) {
			last = at
		}
	}
	r := record.BlockRange(kind, first)
	if last != first {
		r.To = record.BlockRange(kind, last).To
	}
	return r
}

// noPool is the error of a choice that no pool serves. Pools that the caller has not named are left out if it has named some.
func (s *Tiers) noPool() error {
	fault := &Shortage{Is: cause.NoPool}
	for i := range s.Cat.Pools {
		if name := s.Cat.Pools[i].Name; len(s.Choice.Names) == 0 || slices.Contains(s.Choice.Names, name) {
			fault.Short = append(fault.Short, alloc.Shortage{Family: s.Choice.Family, Pool: name, Reason: s.Cat.Obstacle(i, &s.Choice).Reason()})
		}
	}
	return fault
}
