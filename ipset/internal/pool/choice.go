package pool

import (
	"slices"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// Which pools may serve a request is decided in one place, so that an assignment, a dry run and a report of a host give the same answer.

// Choice is what decides which pools may serve an assignment.
type Choice struct {
	Family int // 4 or 6
	Use    block.Use
	Host   string            // the owner's name
	Node   map[string]string // labels of the host
	Space  map[string]string // labels of the namespace
	Names  []string          // pools asked for; none is all
	Both   bool              // pools asked for must match the selectors too
	Ends   uint64            // addresses reserved at the ends of each block
}

// Qualifies reports whether pool i may serve. It is pure.
//
// A pool must be enabled, of the family and for the use, and its blocks must be larger than what is reserved of them.
// Asked for by name, it is taken as it is unless both is set; otherwise it must be automatic and select both
// the host and the namespace.
func (c *Catalog) Qualifies(i int, q *Choice) bool {
	p := &c.Pools[i]
	asked := len(q.Names) > 0 && slices.Contains(q.Names, p.Name)
	switch {
	case p.Disabled, record.Family(p.Prefix) != q.Family, p.Uses&q.Use == 0, len(q.Names) > 0 && !asked:
		return false
	case p.tooSmall(q.Ends), p.Manual && !asked:
		return false
	}
	return asked && !q.Both || c.SelectsNode(i, q.Host, q.Node) && c.SelectsSpace(i, q.Space)
}

// tooSmall reports whether nothing is left of a block when ends addresses are reserved.
func (p *Pool) tooSmall(ends uint64) bool {
	hostBits := p.Prefix.Addr().BitLen() - p.BlockBits
	return hostBits < 64 && ends >= 1<<hostBits
}

// SelectsNode reports whether pool i selects a host.
func (c *Catalog) SelectsNode(i int, host string, labels map[string]string) bool {
	m := c.nodes[i]
	if m == nil {
		return true
	}
	_, ok := m.Match(host, labels)
	return ok
}

// SelectsSpace reports whether pool i selects a namespace.
func (c *Catalog) SelectsSpace(i int, labels map[string]string) bool {
	m := c.spaces[i]
	if m == nil {
		return true
	}
	_, ok := m.Match("", labels)
	return ok
}
