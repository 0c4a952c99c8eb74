package ipset

import (
	"context"
	"iter"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Changes yields the changes of every commit after revision after, in commit order, until
// ctx ends or the caller breaks the loop. If after is 0, it first yields the present
// state, in parts, and then the commits after that state; nothing is missed between the
// two. An error is the last value that it yields.
//
// Changes is a feed for caches and indexes, not an audit log. Stores remember a limited
// number of commits, and bbolt remembers none after a restart. A reader that falls
// further behind must begin again with 0. The state is then complete, but the holders in
// between are lost. For a complete log, write a record of your own in the commit that
// assigns or releases; see the example AuditLog.
//
// Changes covers all engines on the store. Changes skips commits that change no address,
// block, pool or setting of this engine's space. A commit lists changes of pools and
// settings first, then claimed blocks, then addresses in address order, then released
// blocks.
//
// A change is reported when a commit writes it. The expiry of a lease or cooldown is
// reported when a call next changes the block, at the latest by [Operator.Sweep].
//
// Changes compares each commit with the records that it has seen before. It begins with
// one list of all addresses and blocks and keeps their records in memory. It therefore
// costs O(n) at the start, and some 170 bytes for each address with a handle of 40 bytes.
// With after above 0, the first change of a record can be Unknown if the record also
// changed between that revision and the start. If you need the holders, store them with
// the revision.
//
// The error matches [ipalloc.ErrOutOfRange] if the store no longer has the commits after
// that revision. A slow loop body can cause this too, if the store drops commits before
// their delivery. Begin again with 0 then. It matches [ipalloc.ErrCorrupt] for an
// unreadable record, and [ipalloc.ErrVersion] for a record of another version. Any other
// error is from the store or from ctx.
//
// Changes holds no lock while the loop body runs, and no goroutine outlives the loop.
func (e *Engine) Changes(ctx context.Context, after uint64) iter.Seq2[alloc.Commit, error] {
	return cause.Each("changes", e.query.Changes(ctx, after))
}

// Follow watches the catalog and the blocks of the given owners until ctx ends, and
// updates the cache with the changes of other engines. It returns the context's error or
// the store's. Follow only saves time: without it, a stale record causes a conflict,
// which costs the call two more round trips.
//
// Follow is one watch of the store: on the catalog, on the number of blocks of each given
// owner, and on each of these blocks. Its traffic does not depend on the number of other
// owners. When an owner gets a block, the watch restarts with that block. One call per
// engine is enough.
func (e *Engine) Follow(ctx context.Context, owners ...alloc.Owner) error {
	return cause.Op("follow", e.query.Follow(ctx, owners...))
}
