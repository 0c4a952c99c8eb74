package ipset

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/selector"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// Use is what an address is for; a set of bits in a [Pool].
type Use uint8

const (
	// Workload addresses go to pods, containers and virtual machines.
	Workload Use = 1 << iota
	// Tunnel addresses go to the tunnel devices of hosts.
	Tunnel
	// LoadBalancer addresses go to services.
	LoadBalancer

	allUses     = Workload | Tunnel | LoadBalancer
	defaultUses = Workload | Tunnel
)

// Pool is a prefix that is divided into blocks. A zero field selects the default that its comment names.
//
// A pool may lie in another one, to any depth. Each address belongs to the smallest pool around it, whether or not that pool is
// enabled, so settings and limits of the outer pool do not apply to it. A nested prefix is made of whole blocks of the pool around it.
type Pool struct {
	Name   string // UTF-8
	Prefix netip.Prefix
	// BlockBits is the prefix length of a block, /26 or /122 by default. A block may hold up to 2^64 addresses.
	BlockBits int
	// Nodes and Namespaces select the owners and namespaces that the pool serves; the zero selector matches all.
	Nodes, Namespaces Selector `json:",omitempty"`
	// Uses are the uses that the pool's addresses may have; Workload and Tunnel by default.
	Uses Use
	// Disabled stops assignment from the pool. Addresses that are held stay held.
	Disabled bool
	// Manual restricts the pool to calls that name it.
	Manual bool
	// Order says which address of a block is handed out next: the one that was released first by default, the lowest, or one at
	// random. The block is chosen before: the owner's blocks in address order, then a free one from a place that the owner's name
	// fixes, with Lowest from the first of the pool on. So Lowest and Random are of the whole pool where it is one block. Cost:
	// [block.Block.PeekOrder].
	Order Order `json:",omitempty"`
	// Index lists up to 8 keys of attributes by which [Engine.IPsByAttribute] finds the addresses of the pool. An assignment writes
	// one small record more for each of them that it has an attribute of. A key that comes or goes applies to the addresses that are
	// assigned from then on; [Engine.Reindex] applies it to the others.
	Index []string `json:",omitempty"`
	// Priority puts the pool before those with a lower one, whatever blocks the owner has: an address comes from a pool of lower
	// Priority only if no pool of a higher one that qualifies can give one. Among equals an owner's existing blocks come first,
	// then the pools in the order of their names.
	Priority int
	// Ranges, if any, are the only addresses of the prefix that automatic assignment takes.
	Ranges []netipx.IPRange `json:",omitempty"`
	// MaxBlocksPerHost limits the blocks of this pool that one owner claims; 0 is no limit but that of the [Config].
	MaxBlocksPerHost int
	// Subnet says that the pool is one subnet of hosts: its network and broadcast addresses, or its subnet-router anycast
	// address for IPv6, are not assigned automatically. It has no effect on pools of one or two addresses.
	Subnet bool `json:",omitempty"`
	// Cooldown is how long a released address is kept from others.
	Cooldown time.Duration
	// Draining lists the block sizes that the pool had and that blocks may still have.
	Draining []int `json:",omitempty"`
}

// check fills in defaults and refuses what cannot be.
func (p *Pool) check() error {
	if err := block.CheckName("pool", p.Name); err != nil {
		return err
	}
	if !utf8.ValidString(p.Name) { // the catalog is JSON, which would make other names equal
		return wrap(ipalloc.Error{Op: "check", Field: "pool", Text: p.Name, Reason: "it is not UTF-8", Err: ipalloc.ErrInvalid})
	}
	if err := block.CheckPrefix(p.Prefix); err != nil {
		return wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: err})
	}
	width := p.Prefix.Addr().BitLen()
	if p.BlockBits == 0 {
		p.BlockBits = max(width-6, p.Prefix.Bits())
	}
	if p.BlockBits < p.Prefix.Bits() || p.BlockBits > width || width-p.BlockBits > 64 {
		return wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Err: fmt.Errorf("%w: /%d", errBadBlockSize, p.BlockBits)})
	}
	if p.Uses == 0 {
		p.Uses = defaultUses
	}
	if p.Uses&^allUses != 0 {
		return wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: errUnknownUse})
	}
	if err := checkIndex(p.Index); err != nil {
		return wrap(ipalloc.Error{Op: "check", Field: "Index", Name: p.Name, Err: err})
	}
	if p.Order > Random {
		return wrap(ipalloc.Error{Op: "check", Field: "Order", Name: p.Name, Err: fmt.Errorf("%w: %s", errBadArgument, p.Order)})
	}
	if p.MaxBlocksPerHost < 0 || p.Cooldown < 0 {
		return wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: errBadConfig})
	}
	for _, r := range p.Ranges {
		if !r.IsValid() || !p.Prefix.Contains(r.From()) || !p.Prefix.Contains(r.To()) {
			return wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Err: fmt.Errorf("%w: range %s", errBadAddress, r)})
		}
	}
	for _, sel := range []Selector{p.Nodes, p.Namespaces} {
		if _, err := sel.compile(); err != nil {
			return wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: err})
		}
	}
	return nil
}

// clone returns a pool that shares nothing that can change.
func (p Pool) clone() Pool {
	p.Ranges, p.Draining, p.Index = slices.Clone(p.Ranges), slices.Clone(p.Draining), slices.Clone(p.Index)
	p.Nodes, p.Namespaces = p.Nodes.clone(), p.Namespaces.clone()
	return p
}

// Config applies to all pools. The zero value is the default.
type Config struct {
	// Strict forbids taking addresses from blocks of others.
	Strict bool
	// NoAutoBlocks forbids AutoAssign and AssignIP to claim blocks; it needs Strict.
	NoAutoBlocks bool
	// MaxBlocksPerHost limits the blocks that one owner claims, over all pools; 0 is no limit.
	MaxBlocksPerHost int
}

// check refuses what contradicts itself.
func (c Config) check() error {
	switch {
	case c.NoAutoBlocks && !c.Strict:
		return fmt.Errorf("%w: without automatic blocks, affinity must be strict", errBadConfig)
	case c.MaxBlocksPerHost < 0:
		return fmt.Errorf("%w: a limit of %d blocks", errBadConfig, c.MaxBlocksPerHost)
	}
	return nil
}

// maxBlocks returns the limit of blocks per owner; asked narrows it if it is above 0.
func (c Config) maxBlocks(asked int) int {
	limit := c.MaxBlocksPerHost
	if limit == 0 {
		limit = math.MaxInt
	}
	if asked > 0 {
		limit = min(limit, asked)
	}
	return limit
}

// catalog is what every commit depends on.
type catalog struct {
	Version    int
	Generation uint64 // raised by changes of pools after which sequence numbers could repeat
	Config     Config
	Pools      []Pool // by priority, then name
	Reserved   []netipx.IPRange

	names  map[string]int // pools by name
	places []int          // pools in address order, of two that begin together the larger first
	outer  []int          // by pool: the one that it lies in, -1 for none
	inner  []addrRanges   // by pool: what those in it serve

	// By pool: what automatic assignment may not take, nil for nothing; and the selectors, compiled.
	avoid         []addrRanges
	seeds         []uint64 // of the random order
	indexed       bool     // a pool has an Index
	nodes, spaces []*selector.Selector
}

const (
	// genShift is where the generation begins in a sequence number. A change of pools that raises it every minute takes 31 years to
	// reach its end; 1,000 allocations a second under one page take 34 years to reach the next generation, which Check reports.
	genShift      = 40
	maxGeneration = 1<<(64-genShift) - 1
)

// prepare checks everything and derives what is looked up often, in O(n log n) of pools, ranges and reservations.
func (c *catalog) prepare() error {
	if err := c.Config.check(); err != nil {
		return err
	}
	slices.SortFunc(c.Pools, func(a, b Pool) int {
		if a.Priority != b.Priority {
			return cmp.Compare(b.Priority, a.Priority)
		}
		return strings.Compare(a.Name, b.Name)
	})
	set, err := setOf(c.Reserved)
	if err != nil {
		return err
	}
	reserved := addrRanges(set.Ranges())
	n := len(c.Pools)
	c.avoid, c.names, c.places = make([]addrRanges, n), make(map[string]int, n), make([]int, n)
	c.seeds = make([]uint64, n)
	c.nodes, c.spaces = make([]*selector.Selector, n), make([]*selector.Selector, n)
	for i := range c.Pools {
		p := &c.Pools[i]
		if err := p.check(); err != nil {
			return err
		}
		c.indexed = c.indexed || len(p.Index) > 0
		if _, twice := c.names[p.Name]; twice {
			return wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: errPoolExists})
		}
		c.names[p.Name], c.places[i], c.seeds[i] = i, i, hashOf(p.Name)
		if c.nodes[i], err = p.Nodes.compile(); err != nil {
			return err
		}
		if c.spaces[i], err = p.Namespaces.compile(); err != nil {
			return err
		}
	}
	return c.derive(reserved)
}

// derive finds what follows from pools and reservations together: which pools lie in which, and what each may not assign.
func (c *catalog) derive(reserved addrRanges) error {
	slices.SortFunc(c.places, func(i, j int) int { return comparePrefix(c.Pools[i].Prefix, c.Pools[j].Prefix) })
	if err := c.nest(); err != nil {
		return err
	}
	for i := range c.Pools {
		var err error
		if c.avoid[i], err = c.Pools[i].avoided(reserved, c.inner[i]); err != nil {
			return err
		}
	}
	return nil
}

// avoided returns what automatic assignment may not take of a pool; inner is what other pools serve of it.
func (p *Pool) avoided(reserved, inner addrRanges) (addrRanges, error) {
	last := lastAddr(p.Prefix)
	var inside addrRanges
	for _, r := range reserved.from(p.Prefix.Addr()) {
		if last.Less(r.From()) {
			break
		}
		inside = append(inside, cut([]netipx.IPRange{r}, p.Prefix)...)
	}
	if len(p.Ranges) == 0 && !p.Subnet && (inner == nil || inside == nil) {
		return inside, nil
	}
	var sb netipx.IPSetBuilder
	if len(p.Ranges) > 0 {
		sb.AddPrefix(p.Prefix)
	}
	for _, r := range p.Ranges {
		sb.RemoveRange(r)
	}
	if p.Subnet && p.Prefix.Addr().BitLen()-p.Prefix.Bits() > 1 {
		if sb.Add(p.Prefix.Addr()); p.Prefix.Addr().Is4() {
			sb.Add(last)
		}
	}
	for _, r := range inside {
		sb.AddRange(r)
	}
	for _, r := range inner {
		sb.RemoveRange(r)
	}
	set, err := sb.IPSet()
	if err != nil {
		return nil, err
	}
	return set.Ranges(), nil
}

// freeRanges returns the addresses of a pool that no setting of its own keeps from automatic assignment.
func (p *Pool) freeRanges() ([]netipx.IPRange, error) {
	avoid, err := p.avoided(nil, nil)
	if err != nil {
		return nil, err
	}
	var sb netipx.IPSetBuilder
	sb.AddPrefix(p.Prefix)
	for _, r := range avoid {
		sb.RemoveRange(r)
	}
	set, err := sb.IPSet()
	if err != nil {
		return nil, err
	}
	return set.Ranges(), nil
}

func setOf(rs []netipx.IPRange) (*netipx.IPSet, error) {
	var sb netipx.IPSetBuilder
	for _, r := range rs {
		if !r.IsValid() || r.From().Is4In6() || r.From().Zone() != "" {
			return nil, fmt.Errorf("%w: reservation %s", errBadAddress, r)
		}
		sb.AddRange(r)
	}
	return sb.IPSet()
}

// byName returns the index of a pool, -1 if there is none.
func (c *catalog) byName(name string) int {
	if c.names == nil { // not prepared: it is being changed
		return slices.IndexFunc(c.Pools, func(p Pool) bool { return p.Name == name })
	}
	if i, ok := c.names[name]; ok {
		return i
	}
	return -1
}

// cooldown returns how long an address released from a block is kept from others.
func (c *catalog) cooldown(block netip.Prefix) int64 {
	if i := c.containing(block.Addr()); i >= 0 {
		return int64(c.Pools[i].Cooldown)
	}
	return 0
}

// mayClaim reports whether an owner of blocks may have one more of pool i; asked narrows the limit if it is above 0.
func (c *catalog) mayClaim(blocks blockList, i, asked int) bool {
	if c.Config.NoAutoBlocks || blocks.len() >= c.Config.maxBlocks(asked) {
		return false
	}
	pool, n := &c.Pools[i], 0
	if pool.MaxBlocksPerHost == 0 {
		return true
	}
	for k := range blocks.len() {
		if at := blocks.at(k).Addr(); pool.Prefix.Contains(at) && (c.inner[i] == nil || c.containing(at) == i) {
			n++
		}
	}
	return n < pool.MaxBlocksPerHost
}
