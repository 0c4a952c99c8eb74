package ipset

import (
	"slices"

	"github.com/ipalloc/ipalloc"
)

// choice is what decides which pools may serve an assignment.
type choice struct {
	family int // 4 or 6
	use    Use
	host   string            // the owner's name
	node   map[string]string // labels of the host
	space  map[string]string // labels of the namespace
	names  []string          // pools asked for; none is all
	both   bool              // pools asked for must match the selectors too
	ends   uint64            // addresses reserved at the ends of each block
}

// qualifies reports whether pool i may serve. It is pure.
//
// A pool must be enabled, of the family and for the use, and its blocks must be larger than what is reserved of them.
// Asked for by name, it is taken as it is unless both is set; otherwise it must be automatic and select both
// the host and the namespace.
func (c *catalog) qualifies(i int, q *choice) bool {
	p := &c.Pools[i]
	asked := len(q.names) > 0 && slices.Contains(q.names, p.Name)
	switch {
	case p.Disabled, family(p.Prefix) != q.family, p.Uses&q.use == 0, len(q.names) > 0 && !asked:
		return false
	case p.tooSmall(q.ends), p.Manual && !asked:
		return false
	}
	return asked && !q.both || c.selectsNode(i, q.host, q.node) && c.selectsSpace(i, q.space)
}

// choose begins the choice of the pools that may serve, in the order in which they are tried. They are looked for as far as they
// are needed, so that what a call costs does not grow with the number of pools behind the ones that serve it. It returns
// [ipalloc.ErrNotFound] if a name is no pool's, and if no pool qualifies.
func (s *search) choose(c *catalog, q choice) error {
	s.cat, s.choice, s.pools, s.seen, s.tier, s.tiered = c, q, s.few[:0], 0, 0, false
	if len(q.names) > 0 {
		s.seen = len(c.Pools)
		for _, name := range q.names {
			i := c.byName(name)
			if i < 0 {
				return wrap(ipalloc.Error{Op: "choose", Name: name, Err: errUnknownPool})
			}
			if c.qualifies(i, &s.choice) && !slices.Contains(s.pools, i) {
				s.pools = append(s.pools, i)
			}
		}
		slices.Sort(s.pools)
	}
	if _, ok := s.pool(0); !ok {
		return errNoPool
	}
	return nil
}

// pool returns the k-th pool of the tier; ok is false if there are not so many.
func (s *search) pool(k int) (i int, ok bool) {
	i, ok = s.any(s.tier + k)
	return i, ok && (!s.tiered || s.cat.Pools[i].Priority == s.priority)
}

// nextTier goes on to the pools of the next lower priority, the highest at first, and reports whether there are any. Before it is
// called all pools are one tier.
func (s *search) nextTier() bool {
	for _, ok := s.pool(0); ok && s.tiered; _, ok = s.pool(0) {
		s.tier++
	}
	i, ok := s.any(s.tier)
	if ok {
		s.tiered, s.priority = true, s.cat.Pools[i].Priority
	}
	return ok
}

// any returns the k-th pool that qualifies, of whatever priority.
func (s *search) any(k int) (i int, ok bool) {
	for ; len(s.pools) <= k; s.seen++ {
		if s.seen == len(s.cat.Pools) {
			return 0, false
		}
		if s.cat.qualifies(s.seen, &s.choice) {
			s.pools = append(s.pools, s.seen)
		}
	}
	return s.pools[k], true
}

// serves reports whether pool i is one of the tier.
func (s *search) serves(i int) bool {
	if i < 0 || s.cat == nil {
		return false // in no pool, or of a family that is not asked for
	}
	if s.tiered && s.cat.Pools[i].Priority != s.priority {
		return false
	}
	if i < s.seen {
		_, ok := slices.BinarySearch(s.pools, i)
		return ok
	}
	return s.cat.qualifies(i, &s.choice)
}

// tooSmall reports whether nothing is left of a block when ends addresses are reserved.
func (p *Pool) tooSmall(ends uint64) bool {
	hostBits := p.Prefix.Addr().BitLen() - p.BlockBits
	return hostBits < 64 && ends >= 1<<hostBits
}

// selectsNode reports whether pool i selects a host.
func (c *catalog) selectsNode(i int, host string, labels map[string]string) bool {
	_, ok := c.nodes[i].Match(host, labels)
	return ok
}

// selectsSpace reports whether pool i selects a namespace.
func (c *catalog) selectsSpace(i int, labels map[string]string) bool {
	_, ok := c.spaces[i].Match("", labels)
	return ok
}
