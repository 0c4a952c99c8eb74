package occ

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestHotCallFailsAlone: a call whose record changes before each of its commits gives up; the others of its batch do not.
func TestHotCallFailsAlone(t *testing.T) {
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	g := newGate()
	db.Script(g.script)
	r := newRunner(db, func(c *Config) { c.Attempts = 6 })
	first := do(bg, r, incr("first"))
	<-g.arrived
	var calls []chan error
	for i, key := range []string{"a", "hot", "b", "c"} {
		calls = append(calls, do(bg, r, incr(key)))
		waitFor(r, i+1)
	}
	rival, hot := newRunner(mem), 0
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && slices.ContainsFunc(c.Ops, func(op store.Op) bool { return op.Key == "hot" }) {
			hot++
			if err := rival.Do(bg, incr("hot")); err != nil {
				t.Error(err)
			}
		}
		return faults.Outcome{}
	})
	g.open <- struct{}{}
	if err := <-first; err != nil {
		t.Error(err)
	}
	for i, c := range calls {
		if err := <-c; errors.Is(err, ErrGaveUp) != (i == 1) || errors.Is(err, ipalloc.ErrConflict) != (i == 1) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if is := stored(t, mem); !maps.Equal(is, counters{"first": 1, "a": 1, "b": 1, "c": 1, "hot": hot}) || hot != 6 {
		t.Error(is, hot)
	}
}

// TestPanics: a panic of a plan, the store or the wait reaches every caller of the commit and leaves the runner usable; a commit
// that was under way is fenced.
func TestPanics(t *testing.T) {
	boom := Func[*txn](func(t *txn) error {
		t.Put("boom", "1")
		panic("boom")
	})
	caught := func(f func() error) chan any {
		c := make(chan any, 1)
		go func() {
			defer func() { c <- recover() }()
			c <- f()
		}()
		return c
	}
	for _, batch := range []bool{false, true} {
		for _, where := range []string{"plan", "get", "commit", "wait"} {
			mem := store.NewMemory()
			db := faults.NewFaulty(mem)
			var armed atomic.Bool
			r := newRunner(db, keep(8), func(c *Config) {
				c.Wait = func(context.Context, int) error { panic("boom") }
			})
			g := newGate()
			db.Script(g.script)
			g.open <- struct{}{}
			if err := r.Do(bg, incr("a")); err != nil {
				t.Fatal(err)
			}
			<-g.arrived
			calls := 1
			var first chan error
			if batch {
				calls = 3
				first = do(bg, r, incr("first"))
				<-g.arrived
			}
			var lost []store.Op
			db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				switch {
				case !armed.Load():
				case where == "get" && c.Kind == faults.Get, where == "commit" && c.Kind == faults.Commit:
					lost = slices.Clone(c.Ops)
					panic("boom")
				case where == "wait" && c.Kind == faults.Commit:
					return faults.Conflict("a")
				}
				return faults.Outcome{}
			})
			p := Plan[*txn](incr("a"))
			switch where {
			case "plan":
				p = boom
			case "get":
				p = incr("unread")
			}
			armed.Store(true)
			var got []chan any
			for i := range calls {
				got = append(got, caught(func() error { return r.Do(bg, p) }))
				if batch {
					waitFor(r, i+1)
				}
			}
			if batch {
				g.open <- struct{}{}
				if err := <-first; err != nil {
					t.Error(err)
				}
			}
			for _, c := range got {
				if v := <-c; v == nil {
					t.Errorf("%s, batch %v: no panic", where, batch)
				} else if _, ok := v.(*leaderPanic); ok != batch {
					t.Errorf("%s, batch %v: %v", where, batch, v)
				}
			}
			armed.Store(false)
			if err := r.Current(bg); err != nil {
				t.Errorf("%s, batch %v: afterwards %v", where, batch, err)
			}
			if where == "commit" {
				if _, err := mem.Commit(bg, lost); !errors.Is(err, ipalloc.ErrConflict) {
					t.Errorf("batch %v: the lost commit was made", batch)
				}
			}
			if err := r.Do(bg, deed{"delete", "boom", ""}); err != errNone {
				t.Errorf("%s, batch %v: the change of a plan that panicked is cached: %v", where, batch, err)
			}
			if err := r.Do(bg, incr("a")); err != nil {
				t.Errorf("%s, batch %v: afterwards %v", where, batch, err)
			}
			if is := stored(t, mem); is["a"] != 2 || is["boom"] != 0 {
				t.Errorf("%s, batch %v: %v", where, batch, is)
			}
		}
	}
}
