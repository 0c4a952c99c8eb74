package txn

import (
	"context"
	"iter"

	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// settledStore is the store of an engine for what reads outside of a plan. A commit of unknown outcome is settled before anything is
// read, so no later answer of the engine can be overtaken by it. Plans read the store itself: the runner has settled by then, and
// would wait for itself.
type settledStore struct {
	store.Store
	run *occ.Runner[*Txn]
}

// Settled returns a store that reads after what carries out plans has settled.
func Settled(db store.Store, run *occ.Runner[*Txn]) store.Store { return &settledStore{db, run} }

// Get implements [store.Store].
func (s *settledStore) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if err := s.run.Current(ctx); err != nil {
		return dst, err
	}
	return s.Store.Get(ctx, dst, keys...)
}

// List implements [store.Store].
func (s *settledStore) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	if err := s.run.Current(ctx); err != nil {
		return nil, 0, err
	}
	return s.Store.List(ctx, r)
}

// Watch implements [store.Store].
func (s *settledStore) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	if err := s.run.Current(ctx); err != nil {
		return func(yield func(store.Event, error) bool) { yield(store.Event{}, err) }
	}
	return s.Store.Watch(ctx, after, prefixes...)
}
