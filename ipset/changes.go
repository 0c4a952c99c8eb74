package ipset

import (
	"context"
	"iter"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Changes yields what every commit after revision after changed, in commit order, until ctx ends or the caller breaks the loop. With
// after 0 it yields the present state first, in parts, and then the commits after that state: nothing is missed between the two.
// An error is the last thing it yields.
//
// Commits come from all engines on the store. Those that change no address, block, pool or setting of this engine's space are passed
// over. In a commit, changes of pools and settings come first, then claimed blocks, then addresses in address order, then blocks
// given up.
//
// A change is reported when a commit writes it. A lease that has ended, and an address that has cooled, are reported when some call
// next changes the block, at the latest by [Operator.Sweep].
//
// Changes takes the state before a commit from the records that it has seen. It begins with one list of all addresses and blocks
// and keeps their records in memory, so it costs O(n) at the start and some 170 bytes an address with a handle of 40 bytes. With
// after above 0, the first change of a record can be Unknown if the record also changed between that revision and the start. If
// you need the holders, store them with the revision.
//
// Errors: [ipalloc.ErrOutOfRange] if the store no longer has the commits after that revision, or if the loop body is so slow that
// the store forgets commits before they are delivered: begin again with 0; the state that it yields includes everything missed.
// [ipalloc.ErrCorrupt] for a record that cannot be read, [ipalloc.ErrVersion] for one of a another version. Else the error of the
// store or of ctx.
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
