package txn

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Decoding a catalog of thousands of pools costs milliseconds, and its root changes rarely. So each engine keeps the last one it
// decoded and compares revisions, and a commit verifies the root alone.

// ReadCatalog reads the catalog as it is now.
func (e *Engine) ReadCatalog(ctx context.Context) (*pool.Catalog, error) {
	if e.Decoded.Load() != nil {
		recs, err := e.Store.Get(ctx, nil, record.CatalogKey)
		if err != nil {
			return nil, err
		}
		if d := e.Decoded.Load(); d.Rev == recs[0].Rev && d.Rev != 0 {
			return d.Catalog, nil
		}
	}
	recs, err := e.Store.Get(ctx, nil, record.CatalogKey, record.PoolsKey)
	if err != nil {
		return nil, err
	}
	return e.decodePools(recs[0], recs[1])
}

// errRootless is the answer of a plan that would write on the condition that there is no catalog: a space that is removed has none again, so
// no fence could keep such a commit of unknown outcome from being made late.
var errRootless = errors.New("the catalog is made first")

// Rooted returns an error by which the catalog is made, and the plan made again, if there is none. It comes before what the plan changes.
func (t *Txn) Rooted() error {
	cat, err := t.Catalog()
	if err == nil && cat.Rev == 0 && !t.E.Limits.Deferred {
		err = errRootless
	}
	return err
}

// rootPlan makes the catalog, empty, in a commit of its own.
type rootPlan struct{}

// Plan implements [occ.Plan].
func (rootPlan) Plan(t *Txn) error {
	cat, err := t.Catalog()
	switch {
	case err != nil || cat.Rev != 0:
		return err
	case t.Pending():
		return occ.ErrFirst
	}
	t.SetCatalog(cat.Catalog, "")
	return nil
}

// DecodedCatalog is a catalog with its revision. It does not change any more.
type DecodedCatalog struct {
	Rev uint64
	*pool.Catalog
}

// DecodeCatalog returns the catalog of a root that has been read. The pools are read and decoded once for every revision. It returns
// [ipalloc.ErrConflict] if the root has changed since.
func (e *Engine) DecodeCatalog(ctx context.Context, root store.Record) (*pool.Catalog, error) {
	if d := e.Decoded.Load(); d != nil && d.Rev == root.Rev && root.Rev != 0 {
		return d.Catalog, nil
	}
	if root.Rev == 0 {
		return e.decodePools(root, store.Record{})
	}
	recs, err := e.DB.Get(ctx, nil, record.CatalogKey, record.PoolsKey) // plans call it, too
	if err != nil {
		return nil, err
	}
	if recs[0].Rev != root.Rev {
		return nil, store.Conflict("ipset", record.CatalogKey)
	}
	return e.decodePools(recs[0], recs[1])
}

// decodePools decodes a catalog and keeps it.
func (e *Engine) decodePools(root, pools store.Record) (*pool.Catalog, error) {
	c, err := pool.DecodeRooted(root, pools)
	if err != nil {
		return c, err
	}
	if c.Import = e.Import; root.Rev == 0 {
		return c, nil
	}
	e.Decoded.Store(&DecodedCatalog{root.Rev, c})
	return c, nil
}

// Published returns the catalog that others go by, if it is not that of this engine's store: the changes of a [store.Together] take
// effect for them when it ends. Until then they may claim what only the published catalog lets them. It is nil if there is no other.
func (e *Engine) Published(ctx context.Context, mine uint64) (*pool.Catalog, error) {
	switch {
	case !e.Limits.Deferred:
		return nil, nil
	case e.Others == nil:
		return nil, cause.Invalid("store", "the store of store.Together is inside of another: wrap the one that Together writes to")
	}
	recs, err := e.Others.Get(ctx, nil, record.CatalogKey, record.PoolsKey)
	if err != nil || recs[0].Rev == mine {
		return nil, err
	}
	return pool.DecodeRooted(recs[0], recs[1])
}
