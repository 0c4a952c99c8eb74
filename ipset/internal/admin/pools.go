package admin

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Each change of the pools is a function on a copy of the catalog, in a commit of its own. A plan that was made on the old
// catalog meets a conflict, so no address is assigned by rules that no longer hold.

// Change applies f to a copy of the catalog and commits what it leaves; what is left as it was is not written.
func (e *Admin) Change(ctx context.Context, op string, f func(t *txn.Txn, c *pool.Catalog) error) error {
	if err := e.Do(ctx, &catalogPlan{f: f}); err != nil {
		return cause.Wrap(ipalloc.Error{Op: op, Err: err})
	}
	return nil
}

// catalogPlan changes the catalog.
type catalogPlan struct {
	f func(t *txn.Txn, c *pool.Catalog) error
}

// Plan implements [occ.Plan]. The catalog takes a commit of its own: what is in the same batch must not rest on the old one.
func (p *catalogPlan) Plan(t *txn.Txn) error {
	if t.Pending() {
		return occ.ErrFirst
	}
	now, err := t.Catalog()
	if err != nil {
		return err
	}
	next := now.Clone()
	if err := p.f(t, next); err != nil {
		return err
	}
	if err := next.Prepare(); err != nil {
		return err
	}
	if err := follow(t, now, next); err != nil {
		return err
	}
	value, err := next.Encode()
	if err != nil {
		return err
	}
	if same, err := now.Encode(); err != nil || now.Rev != 0 && value == same {
		return err
	}
	if limit := t.E.Limits.Value; limit > 0 && len(value) > limit {
		return fmt.Errorf("%w: catalog of %d bytes, at most %d", ipalloc.ErrLimit, len(value), limit)
	}
	if err := t.Rooted(); err != nil {
		return err
	}
	t.SetCatalog(next, value)
	return nil
}

// Config carries out the call of that name.
func (e *Admin) Config(ctx context.Context) (alloc.Config, error) {
	c, err := e.ReadCatalog(ctx)
	if err != nil {
		return alloc.Config{}, err
	}
	return c.Config, nil
}

// SetConfig carries out the call of that name.
func (e *Admin) SetConfig(ctx context.Context, cfg alloc.Config) error {
	return e.Change(ctx, "configure", func(_ *txn.Txn, c *pool.Catalog) error {
		c.Config = cfg
		return pool.CheckConfig(cfg)
	})
}

// Pools carries out the call of that name.
func (e *Admin) Pools(ctx context.Context) ([]alloc.Pool, error) {
	c, err := e.ReadCatalog(ctx)
	if err != nil {
		return nil, err
	}
	var pools []alloc.Pool
	for _, p := range c.Pools {
		pools = append(pools, p.Clone().Pool)
	}
	return pools, nil
}

// AddPool carries out the call of that name.
func (e *Admin) AddPool(ctx context.Context, args alloc.Pool) error {
	p, err := checked(args)
	if err != nil {
		return err
	}
	seed := e.draw(p)
	return e.Change(ctx, "add", func(_ *txn.Txn, c *pool.Catalog) error {
		i := c.ByName(p.Name)
		if i < 0 && len(p.Ranges) > 0 && len(pool.Cut(p.Ranges, p.Prefix)) == 0 { // a mistake rather than a part of a split pool
			return cause.Wrap(ipalloc.Error{Op: "add", Name: p.Name, Prefix: p.Prefix, Err: cause.Invalid("Ranges", "%s is not in the prefix", p.Ranges[0])})
		}
		if i < 0 {
			return add(c, p, seed)
		}
		field := c.Pools[i].Differs(p)
		if field == "" {
			return nil
		}
		reason := "a pool of that name exists with another " + field
		if has := reflect.ValueOf(c.Pools[i]).FieldByName(field); !has.IsZero() {
			reason += fmt.Sprintf(" (%v)", has)
		}
		return cause.Wrap(ipalloc.Error{Op: "add", Field: field, Name: p.Name, Reason: reason, Err: cause.PoolExists})
	})
}

// UpdatePool carries out the call of that name.
func (e *Admin) UpdatePool(ctx context.Context, args alloc.Pool) error {
	p, err := checked(args)
	if err != nil {
		return err
	}
	seed := e.draw(p)
	return e.Change(ctx, "update", func(t *txn.Txn, c *pool.Catalog) error {
		i := c.ByName(p.Name)
		if i < 0 {
			return cause.Wrap(ipalloc.Error{Op: "update", Name: p.Name, Err: cause.UnknownPool})
		}
		return update(c, i, p, seed)
	})
}

// checked returns a checked copy of a pool. Without a block size it is to have that of the pool that it changes, or the default.
func checked(args alloc.Pool) (pool.Pool, error) {
	p := pool.Pool{Pool: args}.Clone()
	size := p.BlockBits
	err := p.Check()
	p.BlockBits = size
	slices.Sort(p.Draining)
	width := p.Prefix.Addr().BitLen()
	for _, bits := range p.Draining {
		if err == nil && (bits < width-64 || bits < 0 || bits > width) {
			err = cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: cause.Invalid("Draining", "/%d is no size of a block", bits)})
		}
	}
	return p, err
}

// draw returns the seed of new pools: 53 bits, which every reader of JSON keeps. It draws none if no pool may need it.
func (e *Admin) draw(ps ...pool.Pool) (seed uint64) {
	draw := rand.Uint64
	if e.Retry.Rand != nil {
		draw = e.Retry.Rand.Uint64
	}
	for slices.ContainsFunc(ps, func(p pool.Pool) bool { return p.Order == alloc.Random && p.Seed == 0 }) && seed == 0 {
		seed = draw() >> 11
	}
	return seed
}

// seeded returns a pool with a seed, if it needs one.
func seeded(p pool.Pool, seed uint64) pool.Pool {
	if p = p.Clone(); p.Order == alloc.Random && p.Seed == 0 {
		p.Seed = seed
	}
	return p
}

// add adds a pool to a catalog.
func add(c *pool.Catalog, p pool.Pool, seed uint64) error {
	if err := c.Unlike(&p); err != nil {
		return err
	}
	c.Pools = append(c.Pools, seeded(p, seed))
	return nil
}

// update replaces pool i of a catalog.
func update(c *pool.Catalog, i int, p pool.Pool, seed uint64) error {
	was := c.Pools[i].Prefix
	if p.Prefix.Bits() > was.Bits() || !p.Prefix.Contains(was.Addr()) {
		return cause.Wrap(ipalloc.Error{Op: "update", Name: p.Name, Err: cause.Invalid("Prefix", "a pool can grow and not shrink or move")})
	}
	if err := c.Unlike(&p); err != nil {
		return err
	}
	p.Seed, p.BlockBits = cmp.Or(p.Seed, c.Pools[i].Seed), cmp.Or(p.BlockBits, c.Pools[i].BlockBits)
	next := seeded(p, seed)
	next.Note = cmp.Or(p.Note, c.Pools[i].Note)
	next.Closed = p.Closed || c.Pools[i].Closed
	next.Draining = nil // adopt notes those that blocks still have
	next.Drain(c.Pools[i].BlockBits)
	c.Pools[i] = next
	return nil
}

// RemovePool carries out the call of that name.
func (e *Admin) RemovePool(ctx context.Context, name string) error {
	return e.Change(ctx, "remove", func(_ *txn.Txn, c *pool.Catalog) error {
		i := c.ByName(name)
		if i < 0 {
			return cause.Wrap(ipalloc.Error{Op: "remove", Name: name, Err: cause.UnknownPool})
		}
		c.Pools = slices.Delete(c.Pools, i, i+1)
		return nil
	})
}

// OpenPool carries out the call of that name.
func (e *Admin) OpenPool(ctx context.Context, name string) error {
	return e.Change(ctx, "open", func(_ *txn.Txn, c *pool.Catalog) error {
		i := c.ByName(name)
		if i < 0 {
			return cause.Wrap(ipalloc.Error{Op: "open", Name: name, Err: cause.UnknownPool})
		}
		c.Pools[i].Closed = false
		return nil
	})
}

// Reservations carries out the call of that name.
func (e *Admin) Reservations(ctx context.Context) ([]alloc.Reservation, error) {
	c, err := e.ReadCatalog(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(c.Reserved), nil
}

// SetReservations carries out the call of that name.
func (e *Admin) SetReservations(ctx context.Context, rs []alloc.Reservation) (live []alloc.Allocation, err error) {
	rs, err = pool.CheckReservations("rs", rs)
	if err != nil {
		return nil, err
	}
	set, err := alloc.ReservedSet(rs)
	if err != nil {
		return nil, err
	}
	err = e.Change(ctx, "reserve", func(t *txn.Txn, c *pool.Catalog) error {
		was := c.Reserved
		c.Reserved = nil
		c.Reserve(rs, was, t.Now)
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

// Drain carries out the call of that name.
func (e *Admin) Drain(ctx context.Context, name string) (held []alloc.Allocation, err error) {
	err = e.Change(ctx, "drain", func(_ *txn.Txn, c *pool.Catalog) error {
		i := c.ByName(name)
		if i < 0 {
			return cause.Wrap(ipalloc.Error{Op: "drain", Name: name, Err: cause.UnknownPool})
		}
		c.Pools[i].Disabled = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	cat, err := e.ReadCatalog(ctx)
	if err != nil {
		return nil, err
	}
	i := cat.ByName(name)
	if i < 0 {
		return nil, cause.Wrap(ipalloc.Error{Op: "drain", Name: name, Err: cause.UnknownPool}) // removed meanwhile
	}
	for al, err := range e.heldIn(ctx, cat, i) {
		if err != nil {
			return held, err
		}
		held = append(held, al)
	}
	return held, nil
}
