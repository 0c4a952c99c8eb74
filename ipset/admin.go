package ipset

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// change applies f to a copy of the catalog and commits what it leaves; what is left as it was is not written.
func (e *Engine) change(ctx context.Context, op string, f func(t *txn, c *catalog) error) error {
	if err := e.run.Do(ctx, &catalogPlan{f: f}); err != nil {
		return wrap(ipalloc.Error{Op: op, Err: err})
	}
	return nil
}

// catalogPlan changes the catalog.
type catalogPlan struct {
	f func(t *txn, c *catalog) error
}

// Plan implements [occ.Plan]. The catalog takes a commit of its own: what is in the same batch must not rest on the old one.
func (p *catalogPlan) Plan(t *txn) error {
	if t.Pending() {
		return occ.ErrFirst
	}
	now, err := t.catalog()
	if err != nil {
		return err
	}
	next := now.clone()
	if err := p.f(t, next); err != nil {
		return err
	}
	if err := next.prepare(); err != nil {
		return err
	}
	if err := t.adopt(now.catalog, next); err != nil {
		return err
	}
	if raise, err := t.mayRepeat(now.catalog, next); err != nil {
		return err
	} else if raise {
		if next.Generation++; next.Generation > maxGeneration {
			return errExhausted
		}
	}
	value, err := next.encode()
	if err != nil {
		return err
	}
	if same, err := now.encode(); err != nil || now.Rev != 0 && value == same {
		return err
	}
	if limit := t.e.limits.Value; limit > 0 && len(value) > limit {
		return fmt.Errorf("%w: catalog of %d bytes, at most %d", ipalloc.ErrLimit, len(value), limit)
	}
	if err := t.Room(2); err != nil {
		return err
	}
	t.setCatalog(next, value)
	return nil
}

// clone returns a catalog that shares nothing that can change.
func (c *catalog) clone() *catalog {
	d := &catalog{Version: c.Version, Generation: c.Generation, Config: c.Config, Reserved: slices.Clone(c.Reserved)}
	for _, p := range c.Pools {
		d.Pools = append(d.Pools, p.clone())
	}
	return d
}

// Config returns the configuration.
func (e *Engine) Config(ctx context.Context) (Config, error) {
	c, err := e.readCatalog(ctx)
	if err != nil {
		return Config{}, err
	}
	return c.Config, nil
}

// SetConfig replaces the configuration. It returns [ipalloc.ErrInvalid] for one that contradicts itself.
func (e *Engine) SetConfig(ctx context.Context, cfg Config) error {
	return e.change(ctx, "configure", func(_ *txn, c *catalog) error {
		c.Config = cfg
		return cfg.check()
	})
}

// Pools returns all pools, in the order in which they are tried.
func (e *Engine) Pools(ctx context.Context) ([]Pool, error) {
	c, err := e.readCatalog(ctx)
	if err != nil {
		return nil, err
	}
	return c.clone().Pools, nil
}

// readCatalog reads the catalog as it is now.
func (e *Engine) readCatalog(ctx context.Context) (*catalog, error) {
	if e.decoded.Load() != nil {
		recs, err := e.store.Get(ctx, nil, catalogKey)
		if err != nil {
			return nil, err
		}
		if d := e.decoded.Load(); d.rev == recs[0].Rev && d.rev != 0 {
			return d.catalog, nil
		}
	}
	recs, err := e.store.Get(ctx, nil, catalogKey, poolsKey)
	if err != nil {
		return nil, err
	}
	return e.decodePools(recs[0], recs[1])
}

// decodedCatalog is a catalog with its revision. It does not change any more.
type decodedCatalog struct {
	rev uint64
	*catalog
}

// decodeCatalog returns the catalog of a root that has been read. The pools are read and decoded once for every revision. It returns
// [ipalloc.ErrConflict] if the root has changed since.
func (e *Engine) decodeCatalog(ctx context.Context, root store.Record) (*catalog, error) {
	if d := e.decoded.Load(); d != nil && d.rev == root.Rev && root.Rev != 0 {
		return d.catalog, nil
	}
	if root.Rev == 0 {
		return decodeCatalog("")
	}
	recs, err := e.db.Get(ctx, nil, catalogKey, poolsKey) // plans call it, too
	if err != nil {
		return nil, err
	}
	if recs[0].Rev != root.Rev {
		return nil, store.Conflict("ipset", catalogKey)
	}
	return e.decodePools(recs[0], recs[1])
}

// decodePools decodes a catalog and keeps it.
func (e *Engine) decodePools(root, pools store.Record) (*catalog, error) {
	c, err := decodeRooted(root, pools)
	if err != nil || root.Rev == 0 {
		return c, err
	}
	e.decoded.Store(&decodedCatalog{root.Rev, c})
	return c, nil
}

// AddPool adds a pool. If it lies in another pool, it takes over the addresses of its prefix; if others lie in it, they keep theirs.
// Blocks that exist in its prefix are served by it; those of another size drain.
//
// It returns [ipalloc.ErrInvalid] for a pool with an impossible name, prefix, block size, range, use, limit or selector, and for one
// that is, or of which another is, a part of a block of the pool around; [ipalloc.ErrExists] if another pool has its name or its
// prefix. Then nothing changes. The error names the pool in the way.
func (e *Engine) AddPool(ctx context.Context, p Pool) error {
	p = p.clone()
	if err := p.check(); err != nil {
		return err
	}
	return e.change(ctx, "add", func(_ *txn, c *catalog) error {
		if c.byName(p.Name) >= 0 {
			return wrap(ipalloc.Error{Op: "add", Name: p.Name, Err: errPoolExists})
		}
		if err := c.unlike(&p); err != nil {
			return err
		}
		c.Pools = append(c.Pools, p.clone())
		return nil
	})
}

// unlike refuses a pool that another has the prefix of.
func (c *catalog) unlike(p *Pool) error {
	for _, q := range c.Pools {
		if q.Prefix == p.Prefix && q.Name != p.Name {
			return wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Holder: q.Name, Err: errOverlap})
		}
	}
	return nil
}

// UpdatePool replaces the pool of p's name by p. The prefix may become one that contains the present one. A changed BlockBits
// resizes: blocks of the
// old size drain, that is, keep their addresses, give none to automatic assignment, and go when they are empty. A call that names an
// address still gets it from such a block, because the block is where its record is. Draining is kept by the
// engine; sizes that have drained leave it with the next update.
//
// If nothing differs, nothing is written.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, [ipalloc.ErrInvalid] for a prefix that does not contain the present
// one, or the errors of AddPool; then nothing changes.
func (e *Engine) UpdatePool(ctx context.Context, p Pool) error {
	p = p.clone()
	if err := p.check(); err != nil {
		return err
	}
	return e.change(ctx, "update", func(t *txn, c *catalog) error {
		i := c.byName(p.Name)
		if i < 0 {
			return wrap(ipalloc.Error{Op: "update", Name: p.Name, Err: errUnknownPool})
		}
		was := c.Pools[i].Prefix
		if p.Prefix.Bits() > was.Bits() || !p.Prefix.Contains(was.Addr()) {
			return wrap(ipalloc.Error{Op: "update", Name: p.Name, Err: fmt.Errorf("%w: a pool can grow and not shrink or move", errBadArgument)})
		}
		if err := c.unlike(&p); err != nil {
			return err
		}
		next := p.clone()
		next.Draining = nil
		now, err := t.catalog()
		if err != nil {
			return err
		}
		// A size that drains can only vanish, the present one may be claimed at this moment.
		for _, size := range c.Pools[i].Draining {
			if has, err := t.hasBlocks(was, now.inner[now.byName(p.Name)], size); err != nil {
				return err
			} else if has {
				next.drain(size)
			}
		}
		next.drain(c.Pools[i].BlockBits)
		c.Pools[i] = next
		return nil
	})
}

// RemovePool removes a pool from the catalog. Its blocks stay until they are released; [Engine.Drain] lists the addresses that are
// still held. The pool around it, if there is one, serves its addresses from then on; blocks of another size than that pool's drain.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, and [ipalloc.ErrInvalid] if a pool in it would be a part of a block of
// the pool around; then nothing changes.
func (e *Engine) RemovePool(ctx context.Context, name string) error {
	return e.change(ctx, "remove", func(_ *txn, c *catalog) error {
		i := c.byName(name)
		if i < 0 {
			return wrap(ipalloc.Error{Op: "remove", Name: name, Err: errUnknownPool})
		}
		c.Pools = slices.Delete(c.Pools, i, i+1)
		return nil
	})
}

// SplitPool replaces a pool by 2^bits pools of equal size with the same settings, named after it and their order: a-0,
// a-1 and so on. Blocks stay where they are; nothing but the catalog is written.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, [ipalloc.ErrInvalid] for more than 8 bits or less than 1 and if a
// part would be smaller than a block, and [ipalloc.ErrExists] if a name is taken or a pool in it is as large as a part or
// larger. A block larger than a part stops it, too.
func (e *Engine) SplitPool(ctx context.Context, name string, bits int) error {
	return e.change(ctx, "split", func(t *txn, c *catalog) error {
		i := c.byName(name)
		if i < 0 {
			return wrap(ipalloc.Error{Op: "split", Name: name, Err: errUnknownPool})
		}
		p := c.Pools[i]
		if bits < 1 || bits > 8 {
			return fmt.Errorf("%w: split in 2^%d", errBadArgument, bits)
		}
		for _, q := range c.Pools {
			if q.Prefix.Bits() > p.Prefix.Bits() && q.Prefix.Bits() <= p.Prefix.Bits()+bits && p.Prefix.Overlaps(q.Prefix) {
				return wrap(ipalloc.Error{Op: "split", Name: name, InTheWay: q.Prefix, Holder: q.Name, Err: errOverlap})
			}
		}
		for _, size := range append([]int{p.BlockBits}, p.Draining...) {
			if p.Prefix.Bits()+bits > size {
				return wrap(ipalloc.Error{Op: "split", Name: name, Err: fmt.Errorf("%w: parts of /%d, blocks of /%d", errBadBlockSize, p.Prefix.Bits()+bits, size)})
			}
		}
		if p.Subnet { // the ends of the whole stay what they are, those of the parts are addresses like others
			free, err := p.freeRanges()
			if err != nil {
				return err
			}
			p.Ranges, p.Subnet = free, false
		}
		c.Pools = slices.Delete(c.Pools, i, i+1)
		first := ordinalOf(netip.PrefixFrom(p.Prefix.Addr(), p.Prefix.Bits()+bits))
		for n := range uint64(1) << bits {
			part := p.clone()
			part.Name = fmt.Sprintf("%s-%d", name, n)
			at := first
			at.Lo |= n
			part.Prefix = blockAt(p.Prefix.Addr().Is6(), p.Prefix.Bits()+bits, at)
			if part.Ranges = cut(p.Ranges, part.Prefix); len(p.Ranges) > 0 && len(part.Ranges) == 0 {
				part.Disabled = true // none of its addresses may be taken
			}
			c.Pools = append(c.Pools, part)
		}
		return nil
	})
}

// cut returns the parts of the ranges that lie in p.
func cut(rs []netipx.IPRange, p netip.Prefix) []netipx.IPRange {
	var out []netipx.IPRange
	last := lastAddr(p)
	for _, r := range rs {
		from, to := r.From(), r.To()
		if from.Less(p.Addr()) {
			from = p.Addr()
		}
		if last.Less(to) {
			to = last
		}
		if !to.Less(from) {
			out = append(out, netipx.IPRangeFrom(from, to))
		}
	}
	return out
}

// MergePools replaces pools that together make up a prefix by one pool of that name, with the settings of the first. Blocks stay
// where they are; those of another size than the first pool's drain. A pool and pools in it can be merged; other pools in them stay.
//
// It returns [ipalloc.ErrNotFound] if a part is no pool, [ipalloc.ErrInvalid] without parts or if they do not make up one
// prefix, and [ipalloc.ErrExists] if another pool has the name.
func (e *Engine) MergePools(ctx context.Context, name string, parts ...string) error {
	parts = slices.Clone(parts) // the plan may run after the caller has left
	return e.change(ctx, "merge", func(_ *txn, c *catalog) error {
		if len(parts) == 0 {
			return fmt.Errorf("%w: no pools to merge", errBadArgument)
		}
		var all []Pool
		var merged Pool
		for n, part := range parts {
			i := c.byName(part)
			if i < 0 {
				return wrap(ipalloc.Error{Op: "merge", Name: part, Err: errUnknownPool})
			}
			p := c.Pools[i]
			if n == 0 {
				merged = p.clone()
			}
			merged.drain(append(p.Draining, p.BlockBits)...)
			all = append(all, p)
			c.Pools = slices.Delete(c.Pools, i, i+1)
		}
		whole, free, err := union(all)
		if err != nil {
			return err
		}
		if len(whole) != 1 {
			return wrap(ipalloc.Error{Op: "merge", Name: name, Err: fmt.Errorf("%w: the parts are %d prefixes", ipalloc.ErrInvalid, len(whole))})
		}
		merged.Name, merged.Prefix, merged.Ranges = name, whole[0], nil
		if !free.ContainsPrefix(whole[0]) {
			merged.Ranges = free.Ranges()
		}
		c.Pools = append(c.Pools, merged)
		return nil
	})
}

// union returns the prefixes that pools make up together, and the addresses of their ranges; in a pool that lies in another of them,
// its own ranges count.
func union(pools []Pool) (whole []netip.Prefix, free *netipx.IPSet, err error) {
	slices.SortFunc(pools, func(p, q Pool) int { return p.Prefix.Bits() - q.Prefix.Bits() })
	var all, ranges netipx.IPSetBuilder
	for _, p := range pools {
		all.AddPrefix(p.Prefix)
		if len(p.Ranges) == 0 {
			ranges.AddPrefix(p.Prefix)
			continue
		}
		ranges.RemovePrefix(p.Prefix)
		for _, r := range p.Ranges {
			ranges.AddRange(r)
		}
	}
	set, err := all.IPSet()
	if err != nil {
		return nil, nil, err
	}
	free, err = ranges.IPSet()
	return set.Prefixes(), free, err
}

// Reservations returns the addresses that automatic assignment never takes.
func (e *Engine) Reservations(ctx context.Context) (*netipx.IPSet, error) {
	c, err := e.readCatalog(ctx)
	if err != nil {
		return nil, err
	}
	return setOf(c.Reserved)
}

// SetReservations replaces the addresses that automatic assignment never takes, in one commit. Addresses in use stay in use and
// are returned, in address order; finding them reads every block at most once. An error after the commit leaves the
// reservations in force.
func (e *Engine) SetReservations(ctx context.Context, set *netipx.IPSet) (live []Allocation, err error) {
	if set == nil {
		set = &netipx.IPSet{}
	}
	err = e.change(ctx, "reserve", func(_ *txn, c *catalog) error {
		c.Reserved = slices.Clone(set.Ranges())
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Few prefixes are listed one by one, many by one pass over everything.
	const few = 16
	prefixes := set.Prefixes()
	if len(prefixes) > few {
		prefixes = []netip.Prefix{{}}
	}
	for _, p := range prefixes {
		for al, err := range e.Allocations(ctx, p) {
			if err != nil {
				return live, err
			}
			if !al.Cooling && set.Contains(al.Address) {
				live = append(live, al)
			}
		}
	}
	return live, nil
}

// Drain disables a pool and returns the allocations of its addresses that are still held. It reads those of the pools in it, too. It returns [ipalloc.ErrNotFound] if there is no
// such pool.
func (e *Engine) Drain(ctx context.Context, name string) (held []Allocation, err error) {
	err = e.change(ctx, "drain", func(_ *txn, c *catalog) error {
		i := c.byName(name)
		if i < 0 {
			return wrap(ipalloc.Error{Op: "drain", Name: name, Err: errUnknownPool})
		}
		c.Pools[i].Disabled = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	cat, err := e.readCatalog(ctx)
	if err != nil {
		return nil, err
	}
	i := cat.byName(name)
	if i < 0 {
		return nil, wrap(ipalloc.Error{Op: "drain", Name: name, Err: errUnknownPool}) // removed meanwhile
	}
	for al, err := range e.Allocations(ctx, cat.Pools[i].Prefix) {
		if err != nil {
			return held, err
		}
		if !al.Cooling && cat.containing(al.Address) == i {
			held = append(held, al)
		}
	}
	return held, nil
}
