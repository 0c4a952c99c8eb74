package ipset

import (
	"context"
	"iter"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Changes yields the changes of every commit after revision after, in commit order, until ctx ends or the caller breaks the loop. With
// after 0 it yields the present state first, in parts, and then the commits after that state: nothing is missed between the two.
// An error is the last value that it yields.
//
// Changes is a feed for caches and indexes, not an audit log. Stores remember a limited number of commits, and bbolt remembers none after
// a restart. A reader that falls further behind begins again with 0: the state is then complete, but the holders in between are lost. For
// a complete log, write a record of your own in the commit that assigns or releases; see the example AuditLog.
//
// Commits come from all engines on the store. Those that change no address, block, pool or setting of this engine's space are passed
// over. In a commit, changes of pools and settings come first, then claimed blocks, then addresses in address order, then blocks
// given up.
//
// A change is reported when a commit writes it. The end of a lease or of a cooldown is reported when a call
// next changes the block, at the latest by [Operator.Sweep].
//
// Changes takes the state before a commit from the records that it has seen. It begins with one list of all addresses and blocks
// and keeps their records in memory, so it costs O(n) at the start and some 170 bytes an address with a handle of 40 bytes. With
// after above 0, the first change of a record can be Unknown if the record also changed between that revision and the start. If
// you need the holders, store them with the revision.
//
// Errors: [ipalloc.ErrOutOfRange] if the store no longer has the commits after that revision, or if the loop body is so slow that
// the store forgets commits before they are delivered: begin again with 0. [ipalloc.ErrCorrupt] for a record that cannot be read,
// [ipalloc.ErrVersion] for one of another version. Otherwise the error of the store or of ctx.
//
// No lock is held while the loop body runs, and no goroutine outlives the loop.
func (e *Engine) Changes(ctx context.Context, after uint64) iter.Seq2[alloc.Commit, error] {
	return cause.Each("changes", e.query.Changes(ctx, after))
}

// Follow watches the catalog and the blocks of some owners, and updates the cache with the changes of other engines, until
// ctx ends. It returns the context's error or the store's. It only saves time: without it, a stale record causes a
// conflict, which costs the call two more round trips.
//
// It is one watch of the store: on the catalog, on the number of blocks of each owner named, and on each of these blocks. Its
// traffic does not depend on how many other owners there are. When an owner gets a block, the watch begins again with it. One
// call per engine is enough.
func (e *Engine) Follow(ctx context.Context, owners ...alloc.Owner) error {
	return cause.Op("follow", e.query.Follow(ctx, owners...))
}
