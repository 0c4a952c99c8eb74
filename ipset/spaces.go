package ipset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// spaces are the engines of the named spaces of one store, made on first use.
type spaces struct {
	db      store.Store
	options Options
	root    *Engine // of the space without a name
	of      *spaces // for dry engines, those that they stand for
	mu      sync.Mutex
	engines map[string]*Engine
}

// InSpace returns the engine of a named space, such as a tenant, a VRF or a virtual network. Pools of different spaces may
// overlap. Everything that an engine has or does is of its own space: pools, configuration and reservations, hosts, handles,
// request keys, queries, Follow, Check and Repair. e itself is the engine of the space without a name, or of its own.
//
// The engine has the options of e, and a cache of its own; Options.Now, Labels and Retry.Sleep are called by all of them at once.
// The same name returns the same engine. InSpace reads and writes nothing: a space exists while it has a record, and
// [Engine.Spaces] lists those that do. Spaces have no order among them, so InSpace of a space's engine returns another one beside
// it.
//
// A name is 1 to 255 bytes of UTF-8 without NUL, else InSpace returns [ipalloc.ErrInvalid]. A commit in a space allocates once
// more, and its keys are longer by the name and two bytes; see [store.Space].
func (e *Engine) InSpace(name string) (*Engine, error) {
	s := e.spaces
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.engines[name]; in != nil {
		return in, nil
	}
	db, err := store.Space(s.db, name)
	if err != nil {
		return nil, err
	}
	in, err := New(db, s.options)
	if err != nil {
		return nil, err
	}
	in.space, in.spaces = name, s
	if s.of != nil {
		real, err := s.of.root.InSpace(name)
		if err != nil {
			return nil, err
		}
		in.standFor(real)
	}
	if s.engines == nil {
		s.engines = make(map[string]*Engine)
	}
	s.engines[name] = in
	return in, nil
}

// Space returns the name of the engine's space, "" for the space without a name.
func (e *Engine) Space() string { return e.space }

// Spaces yields the names of the spaces that exist, in byte order; the space without a name is not among them. It reads one
// record of each, in a round trip of its own. An error is the last thing that it yields: the store's, or [ipalloc.ErrCorrupt]
// after all names if a key names no space.
func (e *Engine) Spaces(ctx context.Context) iter.Seq2[string, error] {
	return store.Spaces(ctx, e.spaces.db)
}

// RemoveSpace removes all records of a space that has no pool left and no address that is held or cooling: its empty blocks, and
// what it remembers of request keys and sequence numbers. A space of that name that is made later is a new one, whose sequence
// numbers begin again. A space that does not exist is no error.
//
// It returns [ipalloc.ErrInUse] if the space has a pool, an address or a record of another program, and says which; no more than
// empty blocks is gone then. No assignment is lost, because each rests on the catalog, which goes before the rest. If RemoveSpace
// is interrupted, or a pool is added meanwhile, call it again: some memory of request keys may be left, without its index. Do
// not repair the space meanwhile. It takes a commit for up to 256 records.
func (e *Engine) RemoveSpace(ctx context.Context, name string) error {
	in, err := e.InSpace(name)
	if err != nil {
		return err
	}
	if err = in.run.Current(ctx); err == nil {
		err = in.removeAll(ctx)
	}
	if err != nil {
		return wrap(ipalloc.Error{Op: "remove space", Name: name, Err: err})
	}
	s := e.spaces
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.engines, name)
	return nil
}

// removeAll removes the records of an engine's store: the empty blocks, then the catalog, then the rest on the condition that
// there still is no catalog, because an engine that makes one begins a new space.
func (e *Engine) removeAll(ctx context.Context) error {
	recs, err := e.store.Get(ctx, nil, catalogKey)
	if err == nil {
		err = e.mustBeUnused(ctx)
	}
	if err == nil {
		err = e.disownAll(ctx)
	}
	if err == nil {
		err = e.mustLack(ctx, store.Range{From: kindBlock, To: kindBlock + "\xff"})
	}
	if err != nil {
		return err
	}
	if rev := recs[0].Rev; rev != 0 {
		if _, err := e.store.Commit(ctx, []store.Op{{Kind: store.Delete, Key: catalogKey, Expect: rev}, {Kind: store.Delete, Key: poolsKey, Expect: store.AnyRevision}}); err != nil {
			return inUseIf(err)
		}
	}
	most := 256
	if l := e.limits.Ops; l > 0 {
		most = min(most, l-1) // the guard is one of the expectations
	}
	for {
		recs, _, err := e.store.List(ctx, store.Range{Limit: most})
		if err != nil || len(recs) == 0 {
			return err
		}
		ops := []store.Op{{Kind: store.Guard, Key: catalogKey}}
		for _, r := range recs {
			if r.Key != catalogKey {
				ops = append(ops, store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
			}
		}
		if _, err := e.store.Commit(ctx, ops); err != nil {
			return inUseIf(err)
		}
	}
}

// disownAll gives back the empty blocks of all owners.
func (e *Engine) disownAll(ctx context.Context) error {
	var bad error
	err := e.eachPage(ctx, store.Range{From: kindOwner, To: kindOwner + "\xff", Limit: readMost}, func(recs []store.Record) bool {
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
	for _, r := range []store.Range{{From: "A", To: "["}, {From: kindAddress, To: kindAddress + "\xff"}, {From: kindSpace, To: kindSpace + "\xff"}} {
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

// lockedSource is a random source that several engines share.
type lockedSource struct {
	mu  sync.Mutex
	src rand.Source
}

// Uint64 implements [rand.Source].
func (l *lockedSource) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}
