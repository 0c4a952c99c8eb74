package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A space is removed under traffic: an engine elsewhere may add a pool at any moment. Every step verifies the catalog without
// pools, and the catalog itself goes last.

// RemoveAll removes the records of an engine's store: the empty blocks, then all others on the condition that the catalog is the one
// that has no pool, then the catalog. A pool that is added after an interruption begins above all sequence numbers, because the
// catalog has a higher generation before the first page goes that remembers them. Where another removal has taken the catalog away
// meanwhile, such as one of unknown outcome that is repeated, it goes on without.
func (e *Admin) RemoveAll(ctx context.Context) error {
	for try := 1; ; try++ {
		err := e.removeAll(ctx)
		key, is := store.ConflictKey(err)
		if !is {
			return err
		}
		root, bad := e.Store.Get(ctx, nil, record.CatalogKey)
		if bad != nil || key != record.CatalogKey || root[0].Rev != 0 || try == e.Tries {
			return cmp.Or(bad, inUse("another program wrote the record", key))
		}
	}
}

// removeAll is RemoveAll once. It returns the conflict with another program that writes.
func (e *Admin) removeAll(ctx context.Context) error {
	recs, err := e.Store.Get(ctx, nil, record.CatalogKey, record.PoolsKey)
	if err == nil {
		if others, bad := e.Published(ctx, recs[0].Rev); bad != nil || others != nil {
			err = cmp.Or(bad, cause.Invalid("store", "not in store.Together with a change of its pools, which others would not see"))
		}
	}
	if err == nil {
		err = e.mustBeUnused(ctx)
	}
	if err == nil {
		err = e.disownAll(ctx)
	}
	if err == nil && recs[0].Rev != 0 {
		if err = e.raise(ctx); err == nil {
			recs, err = e.Store.Get(ctx, nil, record.CatalogKey, record.PoolsKey)
		}
	}
	if err == nil {
		err = e.mustLack(ctx, store.Range{From: record.KindBlock, To: record.EndOf(record.KindBlock)})
	}
	var catalog []store.Op
	for _, r := range recs {
		if r.Rev != 0 {
			catalog = append(catalog, store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
		}
	}
	if err == nil {
		err = e.removeBesides(ctx, recs[0])
	}
	if err == nil {
		err = e.Run.Write(ctx, catalog)
	}
	if err == nil {
		err = e.mustLackOthers(ctx)
	}
	return err
}

// raise has the catalog, which has no pool, begin above all sequence numbers.
func (e *Admin) raise(ctx context.Context) error {
	return e.Change(ctx, "remove", func(_ *txn.Txn, c *pool.Catalog) error {
		switch {
		case len(c.Pools) > 0:
			return inUse("it has the pool", c.Pools[0].Name)
		case c.Generation == pool.MaxGeneration:
			return cause.Exhausted
		}
		c.Generation++
		return nil
	})
}

// removeBesides removes all records of this package but the catalog, blocks and addresses.
func (e *Admin) removeBesides(ctx context.Context, catalog store.Record) error {
	const most = 256
	ranges := []store.Range{
		{To: "A"}, {From: "[", To: record.KindAddress}, {From: record.CatalogKey + "\x00", To: record.PoolsKey}, {From: record.PoolsKey + "\x00", To: record.KindAged},
		{From: record.KindAged, To: record.KindSpace}, {From: record.EndOf(record.KindSpace)},
	}
	for _, r := range ranges {
		r.Limit = most / 2 // each may take another with it
		for tries := 0; ; {
			recs, _, err := e.Store.List(ctx, r)
			if err != nil {
				return err
			}
			if len(recs) == 0 {
				break
			}
			err = e.removeRecords(ctx, catalog, recs)
			if key, is := store.ConflictKey(err); is && key != record.CatalogKey && tries < e.Tries {
				tries++ // a sweep forgets what it remembers, too
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// removeRecords removes records, as many as fit a commit. A memo goes with its entry by age.
func (e *Admin) removeRecords(ctx context.Context, catalog store.Record, recs []store.Record) error {
	guard := store.Op{Kind: store.Guard, Key: record.CatalogKey, Expect: catalog.Rev}
	var ops []store.Op
	for _, r := range recs {
		next := append(ops, store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
		if m, err := record.DecodeMemo(r.Key, r.Value, true); r.Key[:1] == record.KindMemo && err == nil {
			next = append(next, store.Op{Kind: store.Delete, Key: record.AgedKey(m.At, r.Key), Expect: store.AnyRevision})
		}
		if len(ops) > 0 && txn.Fitting(e.Limits, len(next)+1, next, guard) < len(next) {
			break
		}
		ops = next
	}
	return e.Run.Write(ctx, append(ops, guard))
}

// disownAll gives back the empty blocks of all owners.
func (e *Admin) disownAll(ctx context.Context) error {
	for recs, err := range e.Pages(ctx, store.Range{From: record.KindOwner, To: record.EndOf(record.KindOwner)}) {
		for _, r := range recs {
			if o, ok := record.ParseOwnerKey(r.Key); ok && err == nil {
				_, err = e.DisownBlocks(ctx, o, netip.Prefix{}, true)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mustBeUnused returns the error of a space that has a pool, an address, or a record that is not of this package.
func (e *Admin) mustBeUnused(ctx context.Context) error {
	pools, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	if len(pools) > 0 {
		return inUse("it has the pool", pools[0].Name)
	}
	if err := e.mustLackOthers(ctx); err != nil {
		return err
	}
	return e.mustLack(ctx, store.Range{From: record.KindAddress, To: record.EndOf(record.KindAddress)})
}

// mustLackOthers returns the error of a space that has a record that is not of this package.
func (e *Admin) mustLackOthers(ctx context.Context) error {
	for _, r := range []store.Range{{From: "A", To: "["}, {From: record.KindSpace, To: record.EndOf(record.KindSpace)}} {
		if err := e.mustLack(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// mustLack returns the error of a space that has a record of a range.
func (e *Admin) mustLack(ctx context.Context, r store.Range) error {
	r.Limit = 1
	recs, _, err := e.Store.List(ctx, r)
	if err == nil && len(recs) > 0 {
		err = inUse("it has the record", recs[0].Key)
	}
	return err
}

// inUse returns the error of a space that something stops from being removed.
func inUse(reason, name string) error {
	return cause.Wrap(ipalloc.Error{Reason: fmt.Sprintf("%s %q", reason, name), Err: ipalloc.ErrInUse})
}
