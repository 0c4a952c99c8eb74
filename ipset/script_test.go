package ipset

import (
	"context"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// scripted returns a store with a script.
func scripted(s store.Store, script faults.Script) *faults.Faulty {
	f := faults.NewFaulty(s)
	f.Script(script)
	return f
}

// onCommit returns a store whose commits have the outcome that do returns.
func onCommit(s store.Store, do func(ctx context.Context, ops []store.Op) faults.Outcome) *faults.Faulty {
	return scripted(s, func(ctx context.Context, c faults.Call) faults.Outcome {
		if c.Kind != faults.Commit {
			return faults.Outcome{}
		}
		return do(ctx, c.Ops)
	})
}

// limited returns a store that takes so many ops in a commit.
func limited(s store.Store, ops int) *faults.Faulty {
	return faults.NewLimited(s, store.Limits{Ops: ops})
}

// touched returns how many records a store has returned, written and compared.
func touched(f *faults.Faulty) int {
	c := f.Counts()
	return c.Read + c.Written + c.Guards
}

// gated is a store whose commits wait for the test, or for their context.
type gated struct {
	*faults.Faulty
	arrived chan int // the number of operations of a commit that waits
	open    chan struct{}
}

func newGate(s store.Store) *gated {
	g := &gated{arrived: make(chan int, 1000), open: make(chan struct{}, 1000)}
	g.Faulty = onCommit(s, func(ctx context.Context, ops []store.Op) faults.Outcome {
		g.arrived <- len(ops)
		select {
		case <-g.open:
			return faults.Outcome{}
		case <-ctx.Done():
			return faults.Fail(ctx.Err())
		}
	})
	return g
}

// newGated returns a world, and an engine on a gate before its store.
func newGated(t *testing.T) (*world, *gated, *Engine) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	g := newGate(w.store)
	return w, g, w.engine(g)
}

// racing calls back before a commit, once.
type racing struct {
	*faults.Faulty
	mu     sync.Mutex
	before func(ops []store.Op)
}

func newRacing(s store.Store) *racing {
	r := &racing{}
	r.Faulty = onCommit(s, func(_ context.Context, ops []store.Op) faults.Outcome {
		r.mu.Lock()
		f := r.before
		r.before = nil
		r.mu.Unlock()
		if f != nil {
			f(ops)
		}
		return faults.Outcome{}
	})
	return r
}

// late is a store whose next commit fails with ipalloc.ErrUnknownOutcome and is made only when the test says so.
type late struct {
	*faults.Faulty
	store store.Store
	mu    sync.Mutex
	armed bool
	held  []store.Op
}

func newLate(s store.Store, armed bool) *late {
	l := &late{store: s, armed: armed}
	l.Faulty = onCommit(s, func(_ context.Context, ops []store.Op) faults.Outcome {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.armed {
			return faults.Outcome{}
		}
		l.armed, l.held = false, append([]store.Op(nil), ops...)
		return faults.Unknown(false)
	})
	return l
}

// land makes the commit that was held back and reports whether it still could be made.
func (l *late) land() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.store.Commit(bg, l.held)
	l.held = nil
	return err == nil
}
