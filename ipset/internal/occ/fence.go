package occ

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A commit whose outcome is unknown may be made later: a goroutine still waits for its disk, a packet is still on its way. It
// must not overtake the later answers of the runner. A commit is made only if all its expectations hold, so one false
// expectation is enough: the runner writes the same value again to one record on the expected revision. If that meets a
// conflict, the commit has been made or cannot be made any more.
//
// For example, an assignment writes block B if it has revision 4, and relies on catalog c at revision 2 and owner o at revision 3. Its
// answer is lost. B ranks highest, so the fence is B at revision 4. Before the next plan, settle reads B:
//
//	B has revision   settle                                the lost commit
//	4                writes B unchanged, expecting 4: 6    can no longer be made: it meets a conflict
//	4                the same, and meets a conflict        was made meanwhile, or another was: settle reads again
//	4                the same, and that answer is lost     still unknown: the call fails, and the next one settles
//	5                nothing                               was made, or another commit prevents it
//
// The next plan reads the records again and finds out which of the two happened.

// fence is one expectation of a lost commit.
type fence struct {
	key   string
	rev   uint64
	value string // written if the record does not exist
}

// lose notes that the commit has an unknown outcome. A commit that writes nothing needs no fence.
func (r *Runner[T]) lose() {
	var f fence
	best, writes := 0, false
	for _, op := range r.txn.ops.ops {
		writes = writes || op.Kind != store.Guard
		if op.Expect == store.AnyRevision {
			continue
		}
		if rank, value := r.rank(op); rank > best {
			best, f = rank, fence{op.Key, op.Expect, value}
		}
	}
	if best > 0 && writes {
		r.lost = &f
		r.doubtful.Store(true)
	}
}

// settle fences the commit of unknown outcome before anything else is planned, so there is one at most. It costs nothing if there is none,
// else a read and perhaps a commit.
func (r *Runner[T]) settle(ctx context.Context) error {
	for tries := 1; r.lost != nil; tries++ {
		f := *r.lost
		recs, err := r.txn.store.Get(ctx, nil, f.key)
		if err != nil {
			return err
		}
		r.txn.Forget(f.key)
		if rec := recs[0]; rec.Rev == f.rev {
			if rec.Rev != 0 {
				f.value = rec.Value
			}
			_, err := r.txn.store.Commit(ctx, []store.Op{{Kind: store.Put, Key: f.key, Value: f.value, Expect: f.rev}})
			if errors.Is(err, ipalloc.ErrConflict) && tries < r.attempts {
				continue
			}
			if err != nil {
				return fmt.Errorf("fence an earlier commit of unknown outcome: %w", err)
			}
		}
		r.lost = nil
	}
	r.doubtful.Store(false)
	return nil
}

// Current returns when no commit of unknown outcome of this runner can be made any more, so the next read shows the outcome. It
// costs nothing while there is none.
func (r *Runner[T]) Current(ctx context.Context) error {
	if !r.doubtful.Load() {
		return nil
	}
	return r.Do(ctx, pass[T]{})
}

// pass does nothing but wait for its turn.
type pass[T any] struct{}

// Plan implements [Plan].
func (pass[T]) Plan(T) error { return nil }
