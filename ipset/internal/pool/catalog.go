package pool

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// The catalog is a value: a change of pools makes a copy, prepares it and commits it. Everything that follows from all pools
// together is derived once for each revision, because every assignment asks for it and pools change rarely.

// Clone returns a catalog that shares nothing that can change.
func (c *Catalog) Clone() *Catalog {
	d := &Catalog{Version: c.Version, Generation: c.Generation, Config: c.Config, Import: c.Import, Reserved: slices.Clone(c.Reserved)}
	for _, p := range c.Pools {
		d.Pools = append(d.Pools, p.Clone())
	}
	return d
}

// Unlike refuses a pool with the prefix of another pool.
func (c *Catalog) Unlike(p *Pool) error {
	for _, q := range c.Pools {
		if q.Prefix == p.Prefix && q.Name != p.Name {
			return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Holder: q.Name, Err: cause.Overlap})
		}
	}
	return nil
}

// Index returns the keys of attributes that the pool of a block lists.
func (c *Catalog) Index(block netip.Prefix) []string {
	if !c.indexed {
		return nil
	}
	if i := c.Containing(block.Addr()); i >= 0 {
		return c.Pools[i].Index
	}
	return nil
}

// Catalog is the state that every commit depends on: the pools, the reservations and the configuration.
type Catalog struct {
	Version    int
	Generation uint64 // raised by changes of pools after which sequence numbers could repeat
	Config     alloc.Config
	Pools      []Pool              // by priority, then name
	Reserved   []alloc.Reservation // by range, then By
	Import     bool                // the catalog of an engine that imports, for which no pool is closed

	names   []int      // pools by name
	Places  []int      // pools in address order, of two that begin together the larger first
	indexed bool       // a pool has an Index
	back    AddrRanges // what the reservations keep back
}

const (
	// GenShift is where the generation begins in a sequence number. A change of pools that raises it every minute takes 31 years to
	// reach its end. At 1,000 allocations a second under one page it takes 34 years to reach the next generation, which Check
	// reports.
	GenShift      = 40
	MaxGeneration = 1<<(64-GenShift) - 1
)

// Prepare checks the catalog and derives the tables for look-ups, in O(n log n) of pools, ranges and reservations.
func (c *Catalog) Prepare() error {
	if err := CheckConfig(c.Config); err != nil {
		return err
	}
	slices.SortFunc(c.Pools, func(a, b Pool) int {
		if a.Priority != b.Priority {
			return cmp.Compare(b.Priority, a.Priority)
		}
		return strings.Compare(a.Name, b.Name)
	})
	n := len(c.Pools)
	orders := make([]int, 2*n)
	c.names, c.Places = orders[:n], orders[n:]
	for i := range c.Pools {
		p := &c.Pools[i]
		if err := p.Check(); err != nil {
			return err
		}
		c.indexed = c.indexed || len(p.Index) > 0
		c.names[i], c.Places[i] = i, i
	}
	// The pools are mostly in both orders already, which a sort finds in O(n).
	slices.SortFunc(c.names, func(i, j int) int { return strings.Compare(c.Pools[i].Name, c.Pools[j].Name) })
	for k := 1; k < n; k++ {
		if name := c.Pools[c.names[k]].Name; name == c.Pools[c.names[k-1]].Name {
			return cause.Wrap(ipalloc.Error{Op: "check", Name: name, Err: cause.PoolExists})
		}
	}
	return c.derive()
}

// derive finds the nesting of the pools, and the addresses that each pool may not assign. Both follow from pools and
// reservations together.
func (c *Catalog) derive() error {
	reserved, err := keptBack(c.Reserved)
	if err != nil {
		return err
	}
	c.back = reserved
	slices.SortFunc(c.Places, func(i, j int) int { return record.ComparePrefix(c.Pools[i].Prefix, c.Pools[j].Prefix) })
	if err := c.nest(); err != nil {
		return err
	}
	for _, i := range c.Places {
		p := &c.Pools[i]
		for len(reserved) > 0 && reserved[0].To().Less(p.Prefix.Addr()) {
			reserved = reserved[1:]
		}
		if p.Avoid, err = p.avoided(reserved, p.Inner); err != nil {
			return err
		}
	}
	return nil
}

// ByName returns the index of a pool, -1 if there is none.
func (c *Catalog) ByName(name string) int {
	if c.names == nil { // not prepared: it is being changed
		return slices.IndexFunc(c.Pools, func(p Pool) bool { return p.Name == name })
	}
	k, ok := slices.BinarySearchFunc(c.names, name, func(i int, name string) int { return strings.Compare(c.Pools[i].Name, name) })
	if !ok {
		return -1
	}
	return c.names[k]
}

// Cooldown returns how long an address released from a block is kept from others.
func (c *Catalog) Cooldown(block netip.Prefix) int64 {
	if i := c.Containing(block.Addr()); i >= 0 {
		return int64(c.Pools[i].Cooldown)
	}
	return 0
}

// CooldownOfRelease is Cooldown for a release by this engine. It is 0 in an import, which puts another holder in the
// place at once.
func (c *Catalog) CooldownOfRelease(block netip.Prefix) int64 {
	if c.Import {
		return 0
	}
	return c.Cooldown(block)
}

// MostBlocks returns how many blocks an owner may have in all pools; asked narrows that if it is above 0.
func (c *Catalog) MostBlocks(asked int) int {
	return maxBlocks(c.Config, asked)
}

// AppendKeys appends the keys of the blocks that an address may be in, none if it is in no pool.
func (c *Catalog) AppendKeys(keys []string, a netip.Addr) []string {
	if i := c.Containing(a); i >= 0 {
		for _, p := range c.Pools[i].BlocksOf(a) {
			keys = append(keys, record.BlockKey(record.KindBlock, p))
		}
	}
	return keys
}
