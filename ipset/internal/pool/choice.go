package pool

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// Which pools may serve a request, and which of their addresses, is decided in one place, so that an assignment, a renewal, a dry run and
// a report of a host give the same answer. The page of ipset has the table of rules and callers.

// Choice has the arguments that decide which pools may serve an assignment.
type Choice struct {
	Family int // 4 or 6
	Use    alloc.Use
	Owner  alloc.Owner       // that the addresses are for
	Node   map[string]string // labels of the host
	Space  map[string]string // labels of the namespace
	Names  []string          // pools asked for; none is all
	Named  bool              // an address asks for its pool, in place of Names
	Both   bool              // pools asked for must match the selectors too
	Ends   uint64            // addresses reserved at the ends of each block
	// AnyAddr allows also the addresses that automatic assignment leaves out, because the caller names one.
	AnyAddr bool
}

// Obstacle is the reason that keeps a pool from serving a choice.
type Obstacle uint8

const (
	None        Obstacle = iota
	Family               // it has addresses of the other family
	Unnamed              // other pools are asked for, or it is manual and none is
	Disabled             // it is disabled or closed
	Use                  // it is for other uses
	SmallBlocks          // its blocks are not larger than what is reserved of them
	Nodes                // it does not select the host
	Namespaces           // it does not select the namespace
)

// Reason returns the reason that a shortage gives for an obstacle.
func (o Obstacle) Reason() alloc.Reason { return alloc.ReasonCommitFull + alloc.Reason(o) }

// Serve returns the error of a call that pool i may not serve, nil if it may.
func (c *Catalog) Serve(i int, q *Choice) error {
	in := c.Obstacle(i, q)
	if in == None {
		return nil
	}
	return &Shortage{[]alloc.Shortage{{Family: q.Family, Pool: c.Pools[i].Name, Reason: in.Reason()}}, cause.NoPool}
}

// Refuse returns the error of an assignment for an address of pool i, nil if the caller may have the address as soon as it is free.
// The block of the address is at, even if it does not exist. Its owner is of, if the owner keeps it. The limits of blocks belong to
// the plan. It is pure.
func (c *Catalog) Refuse(i int, q *Choice, a netip.Addr, at netip.Prefix, of alloc.Owner) error {
	if err := c.Serve(i, q); err != nil {
		return err
	}
	p := &c.Pools[i]
	_, avoided := p.Avoid.Cover(netip.PrefixFrom(a, a.BitLen()))
	switch {
	case q.AnyAddr:
	case avoided:
		return cause.Wrap(ipalloc.Error{Op: "assign", Name: p.Name, Addr: a, Err: cause.KeptBack})
	case at.Bits() != p.BlockBits && !c.ServesAll(i, at):
		return &Shortage{[]alloc.Shortage{{Family: q.Family, Pool: p.Name, Reason: alloc.ReasonDrainingLeft, InTheWay: at}}, cause.Short}
	}
	if c.Config.Strict && of.Kind != alloc.Nobody && of != q.Owner {
		return cause.Wrap(ipalloc.Error{Op: "assign", Name: p.Name, Prefix: at, Holder: of.String(), Err: cause.Strict})
	}
	return nil
}

// Qualifies reports whether pool i may serve. It is pure.
func (c *Catalog) Qualifies(i int, q *Choice) bool { return c.Obstacle(i, q) == None }

// Obstacle returns the first thing that keeps pool i from serving, None if it may. It is pure.
//
// A pool must be enabled, of the family and for the use, and its blocks must have more addresses than are reserved at
// their ends. Asked for by name, it is taken as it is unless both is set; otherwise it must be automatic and select both
// the host and the namespace.
func (c *Catalog) Obstacle(i int, q *Choice) Obstacle {
	p := &c.Pools[i]
	asked := q.Named || len(q.Names) > 0 && slices.Contains(q.Names, p.Name)
	switch {
	case record.Family(p.Prefix) != q.Family:
		return Family
	case !asked && (len(q.Names) > 0 || p.Manual):
		return Unnamed
	case p.Disabled || c.Closed(i):
		return Disabled
	case p.Uses&q.Use == 0:
		return Use
	case p.tooSmall(q.Ends):
		return SmallBlocks
	case asked && !q.Both:
		return None
	case !c.SelectsNode(i, q.Owner.Name, q.Node):
		return Nodes
	case !c.SelectsSpace(i, q.Space):
		return Namespaces
	}
	return None
}

// Closed reports whether pool i serves no call at all, because it or a pool around it is closed. -1 is no pool, which is not closed.
func (c *Catalog) Closed(i int) bool { return i >= 0 && c.Pools[i].shut && !c.Import }

// tooSmall reports whether nothing is left of a block when ends addresses are reserved.
func (p *Pool) tooSmall(ends uint64) bool {
	hostBits := p.Prefix.Addr().BitLen() - p.BlockBits
	return hostBits < 64 && ends >= 1<<hostBits
}

// SelectsNode reports whether pool i selects a host.
func (c *Catalog) SelectsNode(i int, host string, labels map[string]string) bool {
	m := c.Pools[i].nodes
	if m == nil {
		return true
	}
	_, ok := m.Match(host, labels)
	return ok
}

// SelectsSpace reports whether pool i selects a namespace.
func (c *Catalog) SelectsSpace(i int, labels map[string]string) bool {
	m := c.Pools[i].spaces
	if m == nil {
		return true
	}
	_, ok := m.Match("", labels)
	return ok
}
