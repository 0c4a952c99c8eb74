package ipset

import (
	"context"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// DryRun returns an engine whose calls answer what those of e would, and write nothing. What its calls change is kept in memory,
// so several calls in a row answer what the same calls of e would:
//
//	plan := engine.DryRun()
//	_, _, err := plan.RemoveHost(ctx, alloc.HostOwner("node-a"))            // what if node-a went away
//	address, err := plan.Assign(ctx, alloc.HostOwner("node-b"), "pod-1")    // and pod-1 asked again on node-b
//
// The answer, errors included, is that of the real call on the records that the dry one read: until it ends, a change by another
// engine is a conflict, and the call is repeated. Where it may differ:
//
//   - The dry call reads the clock, and the labels of hosts, when it is made.
//   - It draws seeds of its own for new pools in random order.
//   - It meets only the refusals that the store announces in its Limits, not a full disk or a missing permission.
//   - An owner of more than 64 blocks is served by the engine's memory of which one had room last. The dry engine begins with
//     the memory that e has now.
//   - What a dry call has changed must not change in the store before the last dry call: such a call fails with
//     [ipalloc.ErrMismatch]. Begin with another DryRun.
//
// A dry call costs the reads of the real one, without what the cache of e saves, and one read in place of each commit. It holds no
// lock of e. If a commit of e has an unknown outcome, the first dry call settles it, as every call of e would; nothing else is
// written. [Engine.InSpace] of the dry engine returns a dry engine, which shares what both change. [Engine.Follow] and
// [Engine.Changes] of the dry engine deliver the commits of the store, not those of the dry calls.
//
// Safe for concurrent use, also beside e. The dry engine needs no end; its memory is that of an engine and of what its calls wrote.
func (e *Engine) DryRun() *Engine {
	d, err := New(store.NewOverlay(e.spaces.db), e.spaces.options)
	if err != nil {
		panic(err) // the options made e
	}
	d.spaces.of = e.spaces
	d.standFor(e.spaces.root)
	if e.space == "" {
		return d
	}
	if d, err = d.InSpace(e.space); err != nil {
		panic(err) // the name made e
	}
	return d
}

// standFor makes an engine on an overlay the dry one of another engine.
func (e *Engine) standFor(real *Engine) {
	e.core.DB = &dryStore{e.core.DB, real}
	e.core.Start()
	e.core.Hints.CopyFrom(&real.core.Hints)
	e.core.Decoded.Store(real.core.Decoded.Load())
}

// dryStore is the store of a dry engine: an overlay, or a space of one. Before it reads, the engine that the dry one stands for
// settles its commits of unknown outcome.
type dryStore struct {
	store.Store
	of *Engine
}

// Get implements [store.Store].
func (s *dryStore) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if err := s.of.core.Run.Current(ctx); err != nil {
		return dst, err
	}
	return s.Store.Get(ctx, dst, keys...)
}

// List implements [store.Store].
func (s *dryStore) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	if err := s.of.core.Run.Current(ctx); err != nil {
		return nil, 0, err
	}
	return s.Store.List(ctx, r)
}
