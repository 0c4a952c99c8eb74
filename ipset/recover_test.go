package ipset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestLostCommitIsFenced: a commit of unknown outcome that has not been made when its handle is released cannot be made
// afterwards, whatever it would have written: the first block there is, a further block, or an address of an own block.
func TestLostCommitIsFenced(t *testing.T) {
	ask := map[string]func(e *Engine) error{
		"list by handle": func(e *Engine) error { _, err := e.IPsByHandle(bg, "pod"); return err },
		"release":        func(e *Engine) error { _, err := e.ReleaseByHandle(bg, "pod"); return err },
		"by host":        func(e *Engine) error { _, err := e.ReleaseByHost(bg, alloc.HostOwner("h")); return err },
		"look up":        func(e *Engine) error { _, err := e.Lookup(bg, ip("10.0.0.0")); return notFoundIsFine(err) },
		"another call":   func(e *Engine) error { _, err := e.AutoAssign(bg, want("g", 1, "other")); return err },
	}
	for name, before := range map[string]func(w *world){
		"nothing":   func(*world) {},
		"own block": func(w *world) { w.assign(want("h", 1, "first")) },
		"full":      func(w *world) { w.assign(want("h", 4, "first")) },
		"borrowed":  func(w *world) { w.assign(want("g", 61, "first")) },
	} {
		for how, ask := range ask {
			t.Run(name+"/"+how, func(t *testing.T) {
				w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 30))
				before(w)
				l := newLate(w.store, false)
				e := w.engine(l)
				l.armed = true
				if _, err := e.AutoAssign(bg, want("h", 1, "pod")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
					t.Fatal(err)
				}
				if err := ask(e); err != nil {
					t.Fatal(err)
				}
				if l.land() {
					t.Error("the lost commit was made after the engine had answered")
				}
				if als, _ := w.IPsByHandle(bg, "pod"); len(als) != 0 {
					t.Errorf("leaked: %v", als)
				}
			})
		}
	}
}

func notFoundIsFine(err error) error {
	if errors.Is(err, ipalloc.ErrNotHeld) {
		return nil
	}
	return err
}

// TestLostCommitThatWasMade: the engine that lost it sees what it wrote.
func TestLostCommitThatWasMade(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 30))
	l := newLate(w.store, false)
	e := w.engine(l)
	l.armed = true
	e.AutoAssign(bg, want("h", 1, "pod"))
	if !l.land() {
		t.Fatal("nothing stood in its way")
	}
	if released, err := e.ReleaseByHandle(bg, "pod"); err != nil || len(released) != 1 {
		t.Errorf("%v, %v", released, err)
	}
}

// TestLostChangeOfPools: a change of the catalog is fenced, too, the first one included.
func TestLostChangeOfPools(t *testing.T) {
	for _, n := range []int{0, 1} {
		w := newWorld(t, alloc.Config{})
		for i := range n {
			if err := w.AddPool(bg, poolOf(fmt.Sprint("p", i), fmt.Sprintf("10.0.%d.0/24", i), 26)); err != nil {
				t.Fatal(err)
			}
		}
		l := newLate(w.store, false)
		e := w.engine(l)
		l.armed = true
		if err := e.AddPool(bg, poolOf("late", "10.9.0.0/24", 26)); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		if err := e.AddPool(bg, poolOf("next", "10.8.0.0/24", 26)); err != nil {
			t.Fatal(err)
		}
		if l.land() {
			t.Errorf("%d pools: the lost change was made", n)
		}
	}
}

// TestCallerThatLeftIsFenced: the commit of a batch goes on when one of its callers gives up; what that caller asks next waits
// for it.
func TestCallerThatLeftIsFenced(t *testing.T) {
	for _, land := range []bool{true, false} {
		w, g, e := newGated(t)
		go e.AutoAssign(bg, want("h", 1, "first"))
		<-g.arrived
		ctx, cancel := context.WithCancel(bg)
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() { _, err := e.AutoAssign(ctx, want("h", 1, "pod")); left <- err }()
		go func() { _, err := e.AutoAssign(bg, want("h", 1, "stays")); stayed <- err }()
		waitFor(e, 2)
		g.open <- struct{}{}
		<-g.arrived // the batch
		cancel()
		if err := <-left; !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		released := make(chan int, 1)
		go func() {
			as, err := e.ReleaseByHandle(bg, "pod")
			if err != nil {
				t.Error(err)
			}
			released <- len(as)
		}()
		waitFor(e, 1) // it waits for its turn, and has not read the store before
		if !land {
			w.assign(want("h", 1, "conflict"))
		}
		for range 4 {
			g.open <- struct{}{}
		}
		if n := <-released; n != map[bool]int{true: 1, false: 0}[land] {
			t.Errorf("land %v: %d released", land, n)
		}
		if err := <-stayed; err != nil {
			t.Error(err)
		}
		if als, _ := w.IPsByHandle(bg, "pod"); len(als) != 0 {
			t.Errorf("land %v: leaked %v", land, als)
		}
		w.check()
	}
}

// TestGivingUpCallersLeakNothing is a storm of callers that give up at random moments, on a store that loses commits and makes
// some of them late, and that do what the documentation says: release by handle on the same engine.
func TestGivingUpCallersLeakNothing(t *testing.T) {
	for seed := range seeds.Each(t, 3, 12) {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 28))
		s := newLosing(w.store, rand.New(rand.NewPCG(seed, 7)))
		e := w.engine(s)
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r := rand.New(rand.NewPCG(seed, uint64(c)))
				for i := range 25 {
					handle := fmt.Sprintf("%d-%d", c, i)
					ctx, cancel := context.WithCancel(bg)
					stop, patience := make(chan struct{}), r.IntN(400)
					go func() {
						defer close(stop)
						for range patience {
							runtime.Gosched()
						}
						cancel()
					}()
					_, err := e.AutoAssign(ctx, want(fmt.Sprint("h", r.IntN(3)), 1+r.IntN(3), handle))
					<-stop
					for err != nil || r.IntN(2) == 0 {
						if _, err = e.ReleaseByHandle(bg, handle); err == nil {
							if als, err := e.IPsByHandle(bg, handle); err == nil && len(als) != 0 {
								t.Errorf("seed %d: %s holds %v after its release", seed, handle, als)
							}
							s.settled(handle)
							break
						}
					}
				}
			}()
		}
		wg.Wait()
		s.quiet()
		for al, err := range w.Allocations(bg, poolOf("", "10.0.0.0/23", 28).Prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if s.done[al.Handle] {
				t.Errorf("seed %d: leaked %v", seed, al)
			}
		}
	}
}

// losing is a store that loses a part of the outcomes: the commit was made, is not made, or is made some commits later.
type losing struct {
	*faults.Faulty
	store store.Store
	mu    sync.Mutex
	r     *rand.Rand
	later [][]store.Op
	done  map[string]bool // handles whose release was acknowledged
}

func newLosing(db store.Store, r *rand.Rand) *losing {
	s := &losing{store: db, r: r, done: make(map[string]bool)}
	s.Faulty = onCommit(db, func(_ context.Context, ops []store.Op) faults.Outcome {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.later) > 0 && s.r.IntN(3) == 0 {
			s.store.Commit(bg, s.later[0])
			s.later = s.later[1:]
		}
		switch s.r.IntN(12) {
		case 0:
			return faults.Unknown(true)
		case 1:
			return faults.Unknown(false)
		case 2:
			s.later = append(s.later, append([]store.Op(nil), ops...))
			return faults.Unknown(false)
		}
		runtime.Gosched()
		return faults.Outcome{}
	})
	return s
}

func (s *losing) settled(handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[handle] = true
}

// quiet makes what is still on its way.
func (s *losing) quiet() {
	for _, ops := range s.later {
		s.store.Commit(bg, ops)
	}
}

// TestHotCallFailsAlone: a call whose commits never succeed fails alone; the others of its batch are served, and before it has
// used up its attempts.
func TestHotCallFailsAlone(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	n, others := 0, 0 // conflicts, and those before the last commit of another call
	g := newGate(onCommit(w.store, func(_ context.Context, ops []store.Op) faults.Outcome {
		if slices.ContainsFunc(ops, func(op store.Op) bool { return strings.HasPrefix(op.Key, record.KindHandle+"hot") }) {
			n++
			return faults.Conflict(record.CatalogKey)
		}
		others = n
		return faults.Outcome{}
	}))
	e := w.engine(g)
	go e.AutoAssign(bg, want("h", 1, "first"))
	<-g.arrived
	errs := make([]chan error, 8)
	for i := range errs {
		errs[i] = make(chan error, 1)
		handle := fmt.Sprint("p", i)
		if i == 2 {
			handle = "hot"
		}
		go func() {
			_, err := e.AutoAssign(bg, want("h", 1, handle))
			errs[i] <- err
		}()
		waitFor(e, i+1)
	}
	go func() {
		for range g.arrived { // keeps the commits going
		}
	}()
	close(g.open)
	for i, c := range errs {
		if err := <-c; i == 2 && !errors.Is(err, occ.ErrGaveUp) || i != 2 && err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if others > 8 {
		t.Errorf("another call was served after %d conflicts of this one", others)
	}
}

// TestCallerThatLeftIsNotServed: a call of a large batch whose caller leaves before its part of the batch is planned leaves no
// trace.
func TestCallerThatLeftIsNotServed(t *testing.T) {
	w, g, _ := newGated(t)
	e := w.engine(faults.NewLimited(g, store.Limits{Ops: 9})) // few calls in a commit
	go e.AutoAssign(bg, want("h", 1, "first"))
	<-g.arrived
	ctx, cancel := context.WithCancel(bg)
	errs := make(chan error, 12)
	for i := range 12 {
		c := bg
		if i >= 6 {
			c = ctx
		}
		go func() { _, err := e.AutoAssign(c, want("h", 1, fmt.Sprint("p", i))); errs <- err }()
		waitFor(e, i+1)
	}
	g.open <- struct{}{}
	<-g.arrived // the first part of the batch
	cancel()
	for range 6 {
		if err := <-errs; !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("left: %v", err)
		}
	}
	go func() {
		for range g.arrived { // keeps the commits going
		}
	}()
	close(g.open)
	for range 6 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i := range 12 {
		als, _ := w.IPsByHandle(bg, fmt.Sprint("p", i))
		if got, want := len(als), map[bool]int{true: 1, false: 0}[i < 6]; got != want {
			t.Errorf("p%d holds %d", i, got)
		}
	}
	w.check()
}

// TestPanicLeavesTheEngineUsable: a panic of the clock or the store reaches the caller that leads, and the callers of a batch,
// and the next call is served. The same if the goroutine is ended.
func TestPanicLeavesTheEngineUsable(t *testing.T) {
	for _, how := range []string{"panic", "exit"} {
		for _, where := range []string{"clock", "store"} {
			for _, batch := range []bool{false, true} {
				t.Run(fmt.Sprint(how, where, batch), func(t *testing.T) {
					w, g, _ := newGated(t)
					var mu sync.Mutex
					armed := ""
					strike := func(at string) {
						mu.Lock()
						hit := armed == at
						if hit {
							armed = ""
						}
						mu.Unlock()
						if hit && how == "panic" {
							panic("a fault of the " + at)
						} else if hit {
							runtime.Goexit()
						}
					}
					e, err := New(onCommit(g, func(context.Context, []store.Op) faults.Outcome { strike("store"); return faults.Outcome{} }), Options{Now: func() time.Time { strike("clock"); return w.clock.now() }, Retry: Retry{Sleep: noSleep}})
					if err != nil {
						t.Fatal(err)
					}
					out := make(chan any, 2)
					call := func(h string) {
						returned := false
						defer func() {
							if v := recover(); v != nil || !returned {
								out <- fmt.Sprint("ended: ", v)
							}
						}()
						_, err := e.AutoAssign(bg, want("h", 1, h))
						returned = true
						out <- err
					}
					calls := 1
					if batch {
						calls = 2
						go call("first")
						<-g.arrived
						go call("second")
						waitFor(e, 1)
						mu.Lock()
						armed = where
						mu.Unlock()
						g.open <- struct{}{}
					} else {
						armed = where
						go call("second")
					}
					faults := 0
					for range calls {
						if got := <-out; got != nil {
							faults++
						}
					}
					if faults != 1 {
						t.Errorf("%d of %d calls ended by one fault", faults, calls)
					}
					close(g.open)
					if _, err := e.AutoAssign(bg, want("h", 1, "next")); err != nil {
						t.Error(err)
					}
					w.check()
				})
			}
		}
	}
}

// TestPanicOfAChangeOfPools: an engine whose change of pools ended in a panic of the store assigns by the pools that are in the store.
func TestPanicOfAChangeOfPools(t *testing.T) {
	for name, change := range map[string]func(e *Engine) error{
		"added":   func(e *Engine) error { return e.AddPool(bg, poolOf("b", "10.1.0.0/24", 28)) },
		"removed": func(e *Engine) error { return e.RemovePool(bg, "a") },
		"size":    func(e *Engine) error { return e.UpdatePool(bg, poolOf("a", "10.0.0.0/26", 30)) },
		"anew": func(e *Engine) error { // its commit has another record to fence
			return e.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"a"}, Set: []alloc.Pool{poolOf("b", "10.0.0.0/26", 30)}})
		},
		"merged": func(e *Engine) error { return e.Operator().MergePools(bg, "b", "a") },
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28), poolOf("c", "10.0.0.64/26", 28))
		other := want("g", 1, "p")
		other.Pools = []string{"c"}
		w.assign(other)
		armed := true
		e := w.engine(onCommit(w.store, func(context.Context, []store.Op) faults.Outcome {
			if armed {
				armed = false
				panic("a fault of the store")
			}
			return faults.Outcome{}
		}))
		func() {
			defer func() { recover() }()
			t.Errorf("%s: %v", name, change(e))
		}()
		a := want("h", 20, "q")
		a.Pools = []string{"b"}
		if _, err := e.AutoAssign(bg, a); !errors.Is(err, ipalloc.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		a.Pools = []string{"a"}
		if got, err := e.AutoAssign(bg, a); err != nil || len(got.V4) != 20 || got.V4[0].Block.Bits() != 28 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
