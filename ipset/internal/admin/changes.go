package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A program that mirrors the pools of another system has no order of single changes without a state between that is wrong.

// ChangePools carries out the call of that name.
func (e *Admin) ChangePools(ctx context.Context, a alloc.PoolChanges) error {
	set := make([]pool.Pool, len(a.Set))
	for i, p := range a.Set {
		var err error
		if set[i], err = checked(p); err != nil {
			return err
		}
	}
	reserve, err := pool.CheckReservations("Reserve", a.Reserve)
	if err != nil {
		return err
	}
	unreserve, err := pool.CheckReservations("Unreserve", a.Unreserve)
	if err != nil {
		return err
	}
	if a.IfEmpty && e.Limits.Deferred { // nobody else would see that the pools are disabled
		return cause.Wrap(ipalloc.Error{Op: "change", Err: cause.Invalid("IfEmpty", "not in store.Together: it takes commits of its own")})
	}
	remove := slices.Clone(a.Remove) // the plan may run after the caller has left
	seed := e.draw(set...)
	change := func(t *txn.Txn, c *pool.Catalog) error {
		c.Pools = slices.DeleteFunc(c.Pools, func(p pool.Pool) bool { return slices.Contains(remove, p.Name) })
		for _, p := range set {
			var err error
			if i := slices.IndexFunc(c.Pools, func(q pool.Pool) bool { return q.Name == p.Name }); i < 0 {
				err = add(c, p, seed)
			} else if c.Pools[i].Differs(p) != "" {
				err = update(c, i, p, seed)
			}
			if err != nil {
				return err
			}
		}
		was := c.Reserved
		c.Unreserve(unreserve, reserve)
		c.Reserve(reserve, was, t.Now)
		return nil
	}
	if a.IfEmpty && len(remove) > 0 {
		return e.changeEmpty(ctx, remove, change)
	}
	return e.Change(ctx, "change", change)
}

// changeEmpty makes a change of the catalog when no address of some pools is held. Pools and settings that others change meanwhile begin
// it anew, because they may have enabled a pool, and used it.
func (e *Admin) changeEmpty(ctx context.Context, names []string, change func(*txn.Txn, *pool.Catalog) error) error {
	var disabled []string
	for try := 1; ; try++ {
		settled, err := e.empty(ctx, names, &disabled)
		unknown := false
		if err == nil {
			err = e.Change(ctx, "change", func(t *txn.Txn, c *pool.Catalog) error {
				if now, err := t.Catalog(); err != nil || now.Rev != settled {
					return cmp.Or(err, errUnsettled)
				}
				return change(t, c)
			})
			unknown = errors.Is(err, ipalloc.ErrUnknownOutcome)
		}
		switch {
		case err == nil || unknown:
			return err
		case !errors.Is(err, errUnsettled):
			return e.reopen(ctx, disabled, cause.Op("change", err))
		case try == e.Tries:
			return e.reopen(ctx, disabled, cause.Op("change", store.Conflict("ipset", record.CatalogKey)))
		}
	}
}

// errUnsettled says that pools or settings were changed after pools were disabled: one of them may have been enabled, and used.
var errUnsettled = errors.New("pools were changed meanwhile")

// empty disables some pools and takes their blocks away, or refuses. It adds those that were enabled to a list, and returns the revision of
// the catalog by which they were disabled all the while. They are disabled first, because no commit can verify that none of very many
// blocks comes meanwhile.
func (e *Admin) empty(ctx context.Context, names []string, disabled *[]string) (settled uint64, err error) {
	if err := e.unheld(ctx, names); err != nil {
		return 0, err
	}
	var were []string
	enabled := func(p pool.Pool) bool { return !p.Disabled && slices.Contains(names, p.Name) }
	err = e.Change(ctx, "disable", func(_ *txn.Txn, c *pool.Catalog) error {
		were = nil
		for i := range c.Pools {
			if p := &c.Pools[i]; enabled(*p) {
				p.Disabled, were = true, append(were, p.Name)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	*disabled = append(*disabled, were...)
	root, err := e.Store.Get(ctx, nil, record.CatalogKey)
	if err != nil {
		return 0, err
	}
	c, err := e.ReadCatalog(ctx) // of another revision: the change will see that
	if err == nil && slices.ContainsFunc(c.Pools, enabled) {
		err = errUnsettled
	}
	if err == nil {
		err = e.unheld(ctx, names)
	}
	for i := 0; err == nil && i < len(names); i++ {
		if _, err = e.ReleasePool(ctx, names[i], false); errors.Is(err, cause.UnknownPool) {
			err = nil // it is gone
		}
	}
	return root[0].Rev, err
}

// reopen takes back that some pools were disabled, because of an error, and returns that; it says so if they stay disabled.
func (e *Admin) reopen(ctx context.Context, names []string, because error) error {
	if len(names) == 0 {
		return because
	}
	err := e.Change(ctx, "enable", func(_ *txn.Txn, c *pool.Catalog) error {
		for i := range c.Pools {
			if slices.Contains(names, c.Pools[i].Name) {
				c.Pools[i].Disabled = false
			}
		}
		return nil
	})
	if err == nil {
		return because
	}
	reason := fmt.Sprintf("%v; pools stay disabled: %v", because, err)
	return &ipalloc.Error{Package: "ipset", Op: "change", Reason: reason, Err: because}
}

// heldIn yields what is held of pool i.
func (e *Admin) heldIn(ctx context.Context, c *pool.Catalog, i int) iter.Seq2[alloc.Allocation, error] {
	return func(yield func(alloc.Allocation, error) bool) {
		for al, err := range e.Allocations(ctx, c.Pools[i].Prefix) {
			if (err != nil || !al.Cooling && c.Containing(al.Address) == i) && !yield(al, err) {
				return
			}
		}
	}
}

// unheld refuses pools of which an address is held.
func (e *Admin) unheld(ctx context.Context, names []string) error {
	c, err := e.ReadCatalog(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		i := c.ByName(name)
		if i < 0 {
			continue
		}
		for al, err := range e.heldIn(ctx, c, i) {
			if err != nil {
				return err
			}
			return cause.Wrap(ipalloc.Error{Op: "remove", Name: name, InTheWay: al.Block, Addr: al.Address, Holder: al.Holder(), Err: cause.PoolHeld})
		}
	}
	return nil
}
