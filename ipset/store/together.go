package store

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
)

// A plan may reach over several allocators: a prefix of a tree, and the pool of addresses that it becomes. Each commits by itself, so
// their commits are gathered in memory and made one.

// togetherAttempts is how often f is called before Together gives up against others that change the records that
// it reads.
const togetherAttempts = 16

// Together calls f with a store for calls of ipset and its packages limits, kept, prefixes, numbers and hostlocal, and for Commit calls of
// your own. It writes all their commits to that store in one commit of db, or nothing if f returns an error. Create the engines in f, on that store. A prefix
// that becomes a pool of addresses:
//
//	err := store.Together(ctx, db, func(tx store.Store) error {
//		plan, engine := ... // of prefixes and of ipset, on tx
//		node, err := plan.Assign(ctx, prefixes.Request{Pool: cluster, Owner: "node-1", Bits: 24})
//		if err != nil {
//			return err
//		}
//		return engine.AddPool(ctx, alloc.Pool{Name: "node-1", Prefix: node.Prefix, Manual: true})
//	})
//
// The commit verifies every record that f read by its key or expected at a revision, even if f left it unchanged. If another writer has
// changed such a record, Together calls f again on the present state, at most 16 times in all. So f must change nothing but tx. The
// commit does not verify lists: another writer may have changed the records that List returned to f. IPsByHandle, IPsByAttribute,
// Utilization, Owned and All are lists. So f does not assign because a list was empty: it calls Assign, or AutoAssign with Existing, which
// verify that the handle holds nothing, or it reads a record of its own by its key.
//
// ChangePools with IfEmpty, and Remove of hostlocal, fail with [ipalloc.ErrInvalid], because they take several commits
// that other writers must see. If f changes pools, other writers use the former pools until Together ends. Two more calls then fail
// with that error: RemoveSpace, and an assignment that would claim a block where the former pools have blocks more than 64 times
// smaller. A store that wraps tx hides the former pools, so changes of pools fail on it: wrap db.
//
// If db limits commits, the expiry of leases and cooldowns in blocks that f uses may be written to db first, in commits of its own,
// because it may not fit into the one commit. It stays even if f fails. Together then calls f again. A store that wraps tx hides db, so
// the expiry then counts against the one commit.
//
// Once f has returned, calls on tx fail with [ipalloc.ErrClosed].
//
// Errors: the error of f; [ipalloc.ErrInvalid] for no store; [ipalloc.ErrConflict] after the last attempt; [ipalloc.ErrLimit] for more
// records than one commit takes; and other errors of db's Commit. After [ipalloc.ErrUnknownOutcome] the commit may have been made, or may
// still be made: call Together again with idempotent calls, such as Assign of both packages and AddPool. To give up, also call it again
// first and then release the results: a release that finds nothing does not keep the commit from being made later.
//
// Cost: the reads of f, one read for each of its commits, and one commit, or a read if f writes nothing. Memory: the records written,
// and the keys of those read.
func Together(ctx context.Context, db Store, f func(tx Store) error) error {
	if absent.Is(db) {
		return isNil("together", "db")
	}
	if f == nil {
		return isNil("together", "f")
	}
	for n := 1; ; n++ {
		j := &joint{overlay: &overlay{below: db, pins: make(map[string]uint64)}, seen: make(map[string]uint64)}
		j.saw = j.note
		err := j.run(f)
		if err == nil {
			err = j.write(ctx)
			if err == nil || !errors.Is(err, ipalloc.ErrConflict) || n == togetherAttempts {
				return err
			}
		} else if _, stale, check := j.stale(ctx); check != nil || !stale || n == togetherAttempts {
			return err
		}
		if err := yield(ctx, n); err != nil {
			return err
		}
	}
}

// yield waits before the attempt after n others: not before the second, then at most 2 ms, which doubles up to 128 ms, drawn at random.
// Those who want the same records would else meet again.
func yield(ctx context.Context, n int) error {
	if n == 1 {
		return nil
	}
	d := time.Millisecond << min(n-2, 6)
	timer := time.NewTimer(d + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, "together")
	}
}

// Published returns the store that other writers see, if db is the store of a [Together] or a space or overlay on it; for a space it
// returns the same space of that store. For any other db it returns nil, also if a wrapper of another package stands between. Commits on
// db take effect only when Together ends (see Limits.Deferred). Some procedures first publish a mark that keeps others from changing the
// records that the procedure lists next. Such a procedure cannot run on db.
func Published(db Store) Store {
	switch s := db.(type) {
	case *joint:
		if others := Published(s.below); others != nil {
			return others
		}
		return s.below
	case *overlay:
		return Published(s.below)
	case *space:
		if others := Published(s.db); others != nil {
			in := *s
			in.db = others
			return &in
		}
	}
	return nil
}

// joint is an overlay that notes the records that its commits and reads rely on.
type joint struct {
	*overlay
	noting sync.Mutex
	done   bool              // f has returned
	seen   map[string]uint64 // records below by the revision that was relied on first
}

// note notes a record that the overlay has not written.
func (j *joint) note(key string, rev uint64) {
	j.noting.Lock()
	defer j.noting.Unlock()
	if _, noted := j.seen[key]; !noted && !j.done {
		j.seen[key] = rev
	}
}

// Limits returns the limits of the store below, and says that commits take effect later.
func (j *joint) Limits() Limits {
	l := j.below.Limits()
	l.Deferred = true
	return l
}

// run calls f. After f has returned the store cannot be used any more, because nothing would write its
// commits.
func (j *joint) run(f func(tx Store) error) error {
	defer func() {
		j.mu.Lock()
		j.closed = true
		j.mu.Unlock()
		j.noting.Lock()
		j.done = true
		j.noting.Unlock()
	}()
	return f(j)
}

// write writes the overlay's records, on the revisions below, and guards the other records that were relied
// on.
func (j *joint) write(ctx context.Context) error {
	var ops []Op
	writes := false
	for key, pin := range j.pins {
		r, _ := j.table.record(key)
		_, relied := j.seen[key]
		op := Op{Kind: Guard, Key: key, Expect: pin} // it came and went
		if !relied {
			op.Expect = AnyRevision
		}
		switch {
		case r.Rev != 0:
			op.Kind, op.Value = Put, r.Value
		case pin != 0 || !relied:
			op.Kind = Delete
		}
		writes = writes || op.Kind != Guard
		ops = append(ops, op)
	}
	if !writes {
		if key, stale, err := j.stale(ctx); err != nil || !stale {
			return err
		} else {
			return Conflict("store", key)
		}
	}
	for key, rev := range j.seen {
		pin, own := j.pins[key]
		switch {
		case own && pin != rev: // it changed between a read and a write of f
			return Conflict("store", key)
		case !own:
			ops = append(ops, Op{Kind: Guard, Key: key, Expect: rev})
		}
	}
	slices.SortFunc(ops, func(a, b Op) int { return strings.Compare(a.Key, b.Key) })
	_, err := j.below.Commit(ctx, ops)
	return err
}

// stale reports whether a record that was relied on has changed below, and which.
func (j *joint) stale(ctx context.Context) (key string, stale bool, err error) {
	relied := maps.Clone(j.seen)
	for key, pin := range j.pins {
		if rev, noted := relied[key]; noted && rev != pin {
			return key, true, nil
		}
		relied[key] = pin
	}
	if len(relied) == 0 {
		return "", false, nil
	}
	recs, err := j.below.Get(ctx, nil, slices.Sorted(maps.Keys(relied))...)
	if err != nil {
		return "", false, err
	}
	for _, r := range recs {
		if r.Rev != relied[r.Key] {
			return r.Key, true, nil
		}
	}
	return "", false, nil
}
