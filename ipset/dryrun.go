package ipset

import (
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// DryRun returns an engine whose calls return the same results as the calls of e, and
// write nothing. It keeps their changes in memory, so a series of calls returns the same
// results as that series on e:
//
//	plan := engine.DryRun()
//	_, _, err := plan.RemoveHost(ctx, alloc.HostOwner("node-a"))            // what if node-a went away
//	address, err := plan.Assign(ctx, alloc.HostOwner("node-b"), "pod-1")    // and pod-1 asked again on node-b
//
// The result, errors included, is the result of the real call on the records that the dry
// call read. If another engine changes these records during the dry call, the dry call
// conflicts and retries. The result can differ in these cases:
//
//   - The dry call reads the clock and the labels of hosts when it is made.
//   - It draws its own seeds for new pools in random order.
//   - It sees only the limits that the store announces in its Limits, not a full disk or
//     a missing permission.
//   - For an owner of more than 64 blocks an engine remembers which block had room last.
//     The dry engine starts with a copy of e's memory.
//   - A record that a dry call has changed must not change in the store before the last
//     dry call, because later dry calls then fail with [ipalloc.ErrMismatch]. Make a new
//     DryRun in that case.
//
// A dry call costs the reads of the real call without the cache of e, and one read for
// each commit. It holds no lock of e. If a commit of e has an unknown outcome, the first
// dry call settles it, as every call of e would; it writes nothing else. [Engine.InSpace]
// of the dry engine returns another dry engine, and the two share their changes.
// [Engine.Follow] and [Engine.Changes] of the dry engine deliver the commits of the
// store, not the dry calls.
//
// Safe for concurrent use, also while e is used. You need not close a dry engine; it
// takes the memory of an engine and of the changes of its calls.
func (e *Engine) DryRun() *Engine {
	return e.onto(store.NewOverlay(e.spaces.db), true, e.core.Import)
}

// onto returns an engine on db, which has the records of e's store. With dry, it writes nothing
// below db. With imports, it is an importer.
func (e *Engine) onto(db store.Store, dry, imports bool) *Engine {
	d, err := New(db, e.spaces.options)
	if err != nil {
		panic(err) // the options made e
	}
	dry = dry || e.core.Dry
	d.spaces.of, d.spaces.dry, d.spaces.imports = e.spaces, dry, imports
	d.core.Dry, d.core.Import = dry, imports
	d.standFor(e.spaces.root)
	if e.space == "" {
		return d
	}
	if d, err = d.InSpace(e.space); err != nil {
		panic(err) // the name made e
	}
	return d
}

// standFor makes e, an engine on an overlay or on a space of one, the dry engine of real.
// Before e reads, real settles its commits of unknown outcome.
func (e *Engine) standFor(real *Engine) {
	e.core.DB = txn.Settled(e.core.DB, real.core.Run)
	e.core.Start()
	e.core.Hints.CopyFrom(&real.core.Hints)
	if e.core.Import == real.core.Import {
		e.core.Decoded.Store(real.core.Decoded.Load())
	}
}
