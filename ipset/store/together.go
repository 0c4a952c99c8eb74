package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc"
)

// A plan may reach over several allocators: a prefix of a tree, and the pool of addresses that it becomes. Each commits by itself, so
// their commits are gathered in memory and made one.

// togetherAttempts is how often f is called before Together gives up against others that change what it has read.
const togetherAttempts = 16

// Together calls f with a store for calls of ipset, prefixes and hostlocal, and writes all that they commit to it in one commit of db,
// or nothing if f returns an error. Make the engines in f, on that store. A prefix that becomes a pool of addresses:
//
//	err := store.Together(ctx, db, func(tx store.Store) error {
//		plan, engine := ... // of prefixes and of ipset, on tx
//		node, err := plan.Assign(ctx, prefixes.Request{Pool: cluster, Owner: "node-1", Bits: 24})
//		if err != nil {
//			return err
//		}
//		return engine.AddPool(ctx, ipset.Pool{Name: "node-1", Prefix: node.Prefix})
//	})
//
// The commit verifies every record that f read by its key or named in a commit, even if f left it unchanged. If another writer has
// changed one of them, Together calls f again on the present state, at most 16 times in all, so f must change nothing but tx. Records
// that f only listed are not verified, so calls that rest on a list with a mark of their own are refused with [ipalloc.ErrInvalid]:
// ChangePools with IfEmpty, and Remove of hostlocal.
//
// Errors: the error of f; [ipalloc.ErrInvalid] for no store; [ipalloc.ErrConflict] after the last attempt; [ipalloc.ErrLimit] for more
// records than one commit takes; and other errors of db's Commit. After [ipalloc.ErrUnknownOutcome] the commit may have been made: call
// Together again with idempotent calls, such as Assign of both packages and AddPool. Cost: the reads of f, one read for each of its
// commits, and one commit. Memory: the records written, and the keys of those read.
func Together(ctx context.Context, db Store, f func(tx Store) error) error {
	if db == nil {
		return isNil("join", "db")
	}
	for n := 1; ; n++ {
		j := &joint{overlay: &overlay{below: db, pins: make(map[string]uint64)}, seen: make(map[string]uint64)}
		err := f(j)
		if err == nil {
			err = j.write(ctx)
			if err == nil || !errors.Is(err, ipalloc.ErrConflict) || n == togetherAttempts {
				return err
			}
			continue
		}
		if stale, check := j.stale(ctx); check != nil || !stale || n == togetherAttempts {
			return err
		}
	}
}

// Deferred reports whether commits to db take effect only when a [Together] ends. A procedure that first publishes a mark, so that
// others leave alone what it lists next, cannot run there.
func Deferred(db Store) bool {
	switch s := db.(type) {
	case *joint:
		return true
	case *overlay:
		return Deferred(s.below)
	case *space:
		return Deferred(s.db)
	}
	return false
}

// joint is an overlay that notes what its commits and reads rely on.
type joint struct {
	*overlay
	noting sync.Mutex
	seen   map[string]uint64 // records below by the revision that was relied on first
}

// note notes a record that the overlay has not written.
func (j *joint) note(key string, rev uint64) {
	j.mu.Lock()
	_, own := j.pins[key]
	j.mu.Unlock()
	j.noting.Lock()
	defer j.noting.Unlock()
	if _, noted := j.seen[key]; !own && !noted {
		j.seen[key] = rev
	}
}

// Get implements [Store].
func (j *joint) Get(ctx context.Context, dst []Record, keys ...string) ([]Record, error) {
	all, err := j.overlay.Get(ctx, dst, keys...)
	if err != nil {
		return dst, err
	}
	for _, r := range all[len(dst):] {
		j.note(r.Key, r.Rev)
	}
	return all, nil
}

// Commit implements [Store].
func (j *joint) Commit(ctx context.Context, ops []Op) (uint64, error) {
	for _, op := range ops {
		if op.Expect != AnyRevision {
			j.note(op.Key, op.Expect)
		}
	}
	return j.overlay.Commit(ctx, ops)
}

// write writes what the overlay has, on the revisions below, and guards the rest of what was relied on.
func (j *joint) write(ctx context.Context) error {
	var ops []Op
	for key, rev := range j.pins {
		r, _ := j.table.record(key)
		switch {
		case r.Rev != 0:
			ops = append(ops, Op{Kind: Put, Key: key, Value: r.Value, Expect: rev})
		case rev != 0:
			ops = append(ops, Op{Kind: Delete, Key: key, Expect: rev})
		}
	}
	if len(ops) == 0 {
		return nil
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

// stale reports whether a record that was relied on has changed below.
func (j *joint) stale(ctx context.Context) (bool, error) {
	relied := maps.Clone(j.seen)
	maps.Copy(relied, j.pins)
	keys := slices.Sorted(maps.Keys(relied))
	recs, err := j.below.Get(ctx, nil, keys...)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(recs, func(r Record) bool { return r.Rev != relied[r.Key] }), nil
}
