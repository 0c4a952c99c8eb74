package history

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/bench/torture/storm"
	"github.com/ipalloc/ipalloc/internal/test/protocol"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// recorder keeps the commits of engines on a store, each with its revision and the time that it took.
type recorder struct {
	store.Store
	clock   func() int64
	mu      sync.Mutex
	commits []commit
}

type commit struct {
	rev        uint64
	begin, end int64
	ops        []store.Op
}

func (r *recorder) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	c := commit{begin: r.clock(), ops: slices.Clone(ops)}
	rev, err := r.Store.Commit(ctx, ops)
	c.rev, c.end = rev, r.clock()
	if err == nil && slices.ContainsFunc(ops, func(op store.Op) bool { return op.Kind != store.Guard }) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.commits = append(r.commits, c)
	}
	return rev, err
}

// replay has the checker of the model's transitions read the commits in the order of their revisions, each with the calls of its time.
func (r *recorder) replay(steps []Step) error {
	slices.SortFunc(r.commits, func(a, b commit) int { return cmp.Compare(a.rev, b.rev) })
	x := storm.NewWitness()
	for _, c := range r.commits {
		var calls []protocol.Call
		for _, s := range steps {
			switch {
			case s.Return < c.begin || s.Call > c.end:
			case s.Kind == Release || s.Kind == Nothing:
				calls = append(calls, protocol.Call{Op: protocol.ReleaseByHandle, Handle: s.Handle, Host: s.Host})
			default:
				calls = append(calls, storm.Assigns(s.Handle, s.Host, "r"+s.Handle)...)
			}
		}
		if err := x.Replay(c.ops, calls); err != nil {
			return err
		}
	}
	return nil
}

// TestReplayRefuses verifies that a commit which drops what it expects, or has no call, is noticed.
func TestReplayRefuses(t *testing.T) {
	steps, r := recorded(t, store.NewMemory(), "memory", 0)
	if err := r.replay(steps); err != nil {
		t.Fatal(err)
	}
	if r.replay(steps[:len(steps)/2]) == nil {
		t.Error("commits without calls are accepted")
	}
	for i := range r.commits {
		for j := range r.commits[i].ops {
			r.commits[i].ops[j].Expect = store.AnyRevision
		}
	}
	if r.replay(steps) == nil {
		t.Error("commits without expectations are accepted")
	}
}
