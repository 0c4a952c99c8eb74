package ipset

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// RemoveSpace removes all records of this package from a space that has no pool left and no address that is held or cooling: its
// empty blocks, and what it remembers of request keys and sequence numbers. A space of that name that is made later is a new one,
// whose sequence numbers begin again. A space that does not exist is no error.
//
// It returns [ipalloc.ErrInUse] if the space has a pool, an address or a record of another program, and says which; no more than
// empty blocks is gone then. Records of others are never removed: with one that comes while the space is removed, RemoveSpace
// returns ErrInUse, and nothing but that record is left. No assignment is lost, because everything goes on the condition that the
// catalog is as it was without pools; the catalog goes last. If RemoveSpace is interrupted, or a pool is added meanwhile, what is
// left is a space in order: use it, or call RemoveSpace again. It takes a commit for up to 256 records.
func (e *Engine) RemoveSpace(ctx context.Context, name string) error {
	in, err := e.InSpace(name)
	if err != nil {
		return err
	}
	if err := in.removeAll(ctx); err != nil {
		return wrap(ipalloc.Error{Op: "remove space", Name: name, Err: err})
	}
	s := e.spaces
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.engines, name)
	return nil
}

// removeAll removes the records of an engine's store: the empty blocks, then all others on the condition that the catalog is the one
// that has no pool, then the catalog. A pool that is added after an interruption begins above all sequence numbers, because the
// catalog remembers its generation.
func (e *Engine) removeAll(ctx context.Context) error {
	recs, err := e.store.Get(ctx, nil, catalogKey, poolsKey)
	if err == nil {
		err = e.mustBeUnused(ctx)
	}
	if err == nil {
		err = e.disownAll(ctx)
	}
	if err == nil {
		err = e.mustLack(ctx, store.Range{From: kindBlock, To: endOf(kindBlock)})
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
	if err == nil && len(catalog) > 0 {
		err = inUseIf(e.run.Write(ctx, catalog))
	}
	if err == nil {
		err = e.mustLackOthers(ctx)
	}
	return err
}

// removeBesides removes all records of this package but the catalog, blocks and addresses.
func (e *Engine) removeBesides(ctx context.Context, catalog store.Record) error {
	const most = 256
	ranges := []store.Range{
		{To: "A"}, {From: "[", To: kindAddress}, {From: catalogKey + "\x00", To: poolsKey}, {From: poolsKey + "\x00", To: kindAged},
		{From: kindAged, To: kindSpace}, {From: endOf(kindSpace)},
	}
	for _, r := range ranges {
		r.Limit = most / 2 // each may take another with it
		for tries := 0; ; {
			recs, _, err := e.store.List(ctx, r)
			if err != nil {
				return err
			}
			if len(recs) == 0 {
				break
			}
			err = e.removeRecords(ctx, catalog, recs)
			if key, is := store.ConflictKey(err); is && key != catalogKey && tries < e.tries {
				tries++ // a sweep forgets what it remembers, too
				continue
			}
			if err != nil {
				return inUseIf(err)
			}
		}
	}
	return nil
}

// removeRecords removes records, as many as fit a commit. A memo goes with its entry by age.
func (e *Engine) removeRecords(ctx context.Context, catalog store.Record, recs []store.Record) error {
	guard := store.Op{Kind: store.Guard, Key: catalogKey, Expect: catalog.Rev}
	var ops []store.Op
	for _, r := range recs {
		next := append(ops, store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
		if m, err := decodeMemo(r.Key, r.Value, true); r.Key[:1] == kindMemo && err == nil {
			next = append(next, store.Op{Kind: store.Delete, Key: agedKey(m.at, r.Key), Expect: store.AnyRevision})
		}
		if len(ops) > 0 && fitting(e.limits, len(next)+1, next, guard) < len(next) {
			break
		}
		ops = next
	}
	return e.run.Write(ctx, append(ops, guard))
}

// disownAll gives back the empty blocks of all owners.
func (e *Engine) disownAll(ctx context.Context) error {
	var bad error
	err := e.eachPage(ctx, store.Range{From: kindOwner, To: endOf(kindOwner), Limit: readMost}, func(recs []store.Record) bool {
		for _, r := range recs {
			if o, ok := parseOwnerKey(r.Key); ok && bad == nil {
				_, bad = e.DisownBlocks(ctx, o, true)
			}
		}
		return bad == nil
	})
	return errors.Join(err, bad)
}

// inUseIf returns a conflict as the error of a space that something else uses.
func inUseIf(err error) error {
	if key, ok := store.ConflictKey(err); ok {
		return inUse("another program wrote the record", key)
	}
	return err
}

// mustBeUnused returns the error of a space that has a pool, an address, or a record that is not of this package.
func (e *Engine) mustBeUnused(ctx context.Context) error {
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
	return e.mustLack(ctx, store.Range{From: kindAddress, To: endOf(kindAddress)})
}

// mustLackOthers returns the error of a space that has a record that is not of this package.
func (e *Engine) mustLackOthers(ctx context.Context) error {
	for _, r := range []store.Range{{From: "A", To: "["}, {From: kindSpace, To: endOf(kindSpace)}} {
		if err := e.mustLack(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// mustLack returns the error of a space that has a record of a range.
func (e *Engine) mustLack(ctx context.Context, r store.Range) error {
	r.Limit = 1
	recs, _, err := e.store.List(ctx, r)
	if err == nil && len(recs) > 0 {
		err = inUse("it has the record", recs[0].Key)
	}
	return err
}

// inUse returns the error of a space that something stops from being removed.
func inUse(reason, name string) error {
	return wrap(ipalloc.Error{Reason: fmt.Sprintf("%s %q", reason, name), Err: ipalloc.ErrInUse})
}
