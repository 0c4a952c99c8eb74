package occ

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// lost returns a runner that has lost a commit of one more to the counter a, which has 1; the commit can still be made.
func lost(t *testing.T) (*runner, *faults.Faulty, chan struct{}) {
	t.Helper()
	db, until := faults.NewFaulty(store.NewMemory()), make(chan struct{})
	r := newRunner(db)
	if err := r.Do(bg, incr("a")); err != nil {
		t.Fatal(err)
	}
	db.Script(faults.AtCommit(1, faults.Late(until)))
	if err := r.Do(bg, incr("a")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	return r, db, until
}

// While a lost commit cannot be fenced no call is answered, because the commit may still change what the answer rests on.
func TestNothingIsPlannedUnfenced(t *testing.T) {
	for _, kind := range []faults.Kind{faults.Get, faults.Commit} {
		r, db, until := lost(t)
		planned := false
		db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == kind && c.Nth == 1 {
				return faults.Fail(faults.ErrInjected)
			}
			return faults.Outcome{}
		})
		err := r.Do(bg, Func[*txn](func(*txn) error { planned = true; return nil }))
		if !errors.Is(err, faults.ErrInjected) || planned {
			t.Errorf("%v fails: %v, planned %v", kind, err, planned)
		}
		close(until)
		db.Settle()
		if err := r.Do(bg, incr("a")); err != nil {
			t.Errorf("%v has failed: %v", kind, err)
		}
	}
}

// A lost commit that writes nothing is not fenced, because nothing of it can be made later.
func TestLostVerificationNeedsNoFence(t *testing.T) {
	db := faults.NewFaulty(store.NewMemory())
	r := newRunner(db, keep(8))
	if err := r.Do(bg, incr("a")); err != nil {
		t.Fatal(err)
	}
	db.Script(faults.AtCommit(1, faults.Unknown(true)))
	db.Reset()
	if err := r.Do(bg, deed{"move", "b", "a"}); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Fatalf("%v, %+v", err, db.Counts())
	}
	db.Script(nil)
	db.Reset()
	if err := r.Current(bg); err != nil || db.Counts().Written != 0 {
		t.Errorf("%v, %+v", err, db.Counts())
	}
}

// A fence that meets a conflict is tried again, and is no error of the next call.
func TestFenceMeetsAConflict(t *testing.T) {
	r, db, until := lost(t)
	db.Script(faults.AtCommit(1, faults.Conflict("a")))
	if err := r.Do(bg, incr("a")); err != nil {
		t.Error(err)
	}
	close(until)
	db.Settle()
	if is := stored(t, db); is["a"] != 2 {
		t.Errorf("the lost commit was made after the fence: %v", is)
	}
}

// A plan that ends its goroutine, as t.FailNow does, leaves the runner to the calls that wait.
func TestGoexitWhileOthersWait(t *testing.T) {
	mem := store.NewMemory()
	db, g := faults.NewFaulty(mem), newGate()
	r := newRunner(db)
	db.Script(g.script)
	first := do(bg, r, incr("a"))
	<-g.arrived
	planning, gone := make(chan struct{}), make(chan any, 1)
	go func() {
		defer func() { gone <- recover() }()
		r.Do(bg, Func[*txn](func(*txn) error {
			close(planning)
			waitFor(r, 1)
			runtime.Goexit()
			return nil
		}))
	}()
	waitFor(r, 1)
	g.open <- struct{}{}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	<-planning
	other := do(bg, r, incr("b"))
	if v := <-gone; v == nil {
		t.Error("the caller of the plan was not told")
	}
	g.open <- struct{}{}
	if err := <-other; err != nil {
		t.Error(err)
	}
	if is := stored(t, mem); is["a"] != 1 || is["b"] != 1 {
		t.Error(is)
	}
}

// A record that is damaged behind the cache fails the call that needs it, not those that share its commit.
func TestDamageFailsAlone(t *testing.T) {
	mem := store.NewMemory()
	db, g := faults.NewFaulty(mem), newGate()
	r, _ := newLists(db)
	for _, name := range []string{"x", "y", "z"} {
		if err := r.Do(bg, push(name, "a", nil)); err != nil {
			t.Fatal(err)
		}
	}
	db.Script(g.script)
	answers := make(map[string]chan error)
	start := func(name string) {
		c := make(chan error, 1)
		answers[name] = c
		go func() { c <- r.Do(bg, push(name, name+"b", nil)) }()
	}
	start("z")
	<-g.arrived
	start("x")
	start("y")
	for n := 0; n < 2; n, _ = r.Waiting() {
		runtime.Gosched()
	}
	if _, err := mem.Commit(bg, []store.Op{{Kind: store.Put, Key: "ly", Value: "damaged", Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		g.open <- struct{}{}
	}
	for name, damaged := range map[string]bool{"x": false, "y": true, "z": false} {
		if err := <-answers[name]; damaged != errors.Is(err, ipalloc.ErrCorrupt) || !damaged && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
