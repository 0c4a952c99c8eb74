package ipset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// remembering is the calls that write memos, each for a new handle that holds nothing afterwards.
var remembering = map[string]func(e *Engine, name string) error{
	"Request": func(e *Engine, name string) error {
		_, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: name, Request: name})
		return err
	},
	"AssignIP": func(e *Engine, name string) error {
		_, err := e.AssignIP(bg, alloc.AssignIPArgs{Owner: alloc.HostOwner("h"), Address: ip("10.0.0.9"), Handle: name, Request: name})
		return err
	},
	"AssignIPs": func(e *Engine, name string) error {
		_, err := e.AssignIPs(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Handle: name, Request: name}, ip("10.0.0.9"))
		return err
	},
	"Withdraw": func(e *Engine, name string) error {
		_, err := e.Withdraw(bg, name)
		return err
	},
	"Sticky": func(e *Engine, name string) error {
		_, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: name, Sticky: true})
		return err
	},
	"Offer": func(e *Engine, name string) error {
		_, err := e.Offer(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: name, TTL: time.Minute})
		return err
	},
}

// memos returns the memos of both kinds, by name.
func (w *world) memos() map[string]time.Time {
	all := make(map[string]time.Time)
	for m, err := range w.Operator().Remembered(bg) {
		if err != nil {
			w.t.Fatal(err)
		}
		all[m.Name] = m.At
	}
	return all
}

// TestMemosEndWithoutASweep: calls that write memos delete the old ones, so the calls of one age leave all that is there, and none goes
// before its time. Two engines, of which the clock of one is ahead, take turns.
func TestMemosEndWithoutASweep(t *testing.T) {
	const calls, young, skew = 400, 100, 20 * time.Minute
	for name, call := range remembering {
		for _, ops := range []int{0, 24} {
			t.Run(fmt.Sprint(name, ops), func(t *testing.T) {
				w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28))
				step := 24 * time.Hour / young
				if name == "Sticky" || name == "Offer" {
					step *= 30
				}
				var es []*Engine
				for i := range 2 {
					e, err := New(limited(w.store, ops), Options{Skew: skew, Now: func() time.Time { return w.clock.now().Add(time.Duration(i) * skew) }})
					if err != nil {
						t.Fatal(err)
					}
					es = append(es, e)
				}
				most := 0
				for i := range calls {
					if err := call(es[i%2], fmt.Sprintf("m%04d", i)); err != nil {
						t.Fatal(err)
					}
					if _, err := es[i%2].ReleaseByHandle(bg, fmt.Sprintf("m%04d", i)); err != nil {
						t.Fatal(err)
					}
					memos := w.memos()
					most = max(most, len(memos))
					for j := max(0, i-young+1); j <= i; j++ {
						if _, ok := memos[fmt.Sprintf("m%04d", j)]; !ok {
							t.Fatalf("after %d calls, that of call %d has gone", i, j)
						}
					}
					w.clock.add(step)
				}
				if most > young+70 { // each engine looks after 32 calls of its own
					t.Errorf("%d memos, %d are young", most, young)
				}
				if n := w.records(record.KindAged); n != len(w.memos()) {
					t.Errorf("%d entries by age for %d memos", n, len(w.memos()))
				}
				w.check()
			})
		}
	}
}

// TestStickyHandlesInUseStay: a call deletes the last addresses of no handle that holds one, however old they are.
func TestStickyHandlesInUseStay(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 1, "holds")
	a.Sticky = true
	w.assign(a)
	for i := range 200 {
		w.clock.add(24 * time.Hour)
		a := want("h", 1, fmt.Sprint("p", i))
		a.Sticky = true
		w.assign(a)
		w.releaseHandle(a.Handle)
	}
	if _, ok := w.memos()["holds"]; !ok || w.records(record.KindSticky) > 100 {
		t.Errorf("of %d memos, that of a handle in use: %v", w.records(record.KindSticky), ok)
	}
	w.check()
}

// TestMemosStay: calls delete none with an age that is negative, and none in a Together, whose commit is its caller's.
func TestMemosStay(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, w *world, call func(e *Engine, i int)){
		"negative": func(t *testing.T, w *world, call func(e *Engine, i int)) {
			e, err := New(w.store, Options{Now: w.clock.now, RequestsAfter: -1})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				call(e, i)
			}
		},
		"together": func(t *testing.T, w *world, call func(e *Engine, i int)) {
			call(w.Engine, 0)
			w.clock.add(48 * time.Hour)
			if err := store.Together(bg, w.store, func(tx store.Store) error {
				e := w.engine(tx)
				for i := range 99 {
					call(e, 1+i)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		use(t, w, func(e *Engine, i int) {
			if err := remembering["Request"](e, fmt.Sprint("m", i)); err != nil {
				t.Fatal(err)
			}
			if name == "negative" {
				w.clock.add(time.Hour)
			}
		})
		if n := w.records(record.KindRequest); n != 100 {
			t.Errorf("%s: %d memos of 100", name, n)
		}
		w.check()
	}
}

// TestPassingFails: whatever becomes of the deletion, the call has its answer, no young memo has gone, and later calls delete the old ones.
func TestPassingFails(t *testing.T) {
	for _, fault := range []faults.Outcome{faults.Fail(errDown), faults.Unknown(true), faults.Unknown(false)} {
		for k := 1; ; k++ {
			w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
			call := func(e *Engine, i int) {
				if err := remembering["Request"](e, fmt.Sprint("m", i)); err != nil {
					t.Fatalf("fault %d, call %d: %v", k, i, err)
				}
			}
			s := faults.NewFaulty(w.store)
			e := w.engine(s)
			for i := range 31 {
				call(e, i)
			}
			w.clock.add(48 * time.Hour)
			n, met := 0, false
			s.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if n++; n != 1+k || fault.Unknown && c.Kind != faults.Commit { // the first is the commit of the call
					return faults.Outcome{}
				}
				met = true
				return fault
			})
			call(e, 31)
			s.Script(nil)
			if w.records(record.KindRequest) == 0 {
				t.Fatalf("fault %d: the memo of the call has gone", k)
			}
			for i := range 32 {
				call(e, 32+i)
			}
			if got := w.records(record.KindRequest); got != 33 {
				t.Errorf("fault %d: %d memos, want 33", k, got)
			}
			w.check()
			if !met && n < 1+k {
				break
			}
		}
	}
}

// TestPassingIsBounded: after a long time without calls, one call deletes few memos, in few calls of the store.
func TestPassingIsBounded(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 22))
	call := func(i int) {
		a := want("h", 1, fmt.Sprint("p", i))
		a.Request = a.Handle
		w.assign(a)
	}
	for i := range 639 {
		call(i)
	}
	w.clock.add(48 * time.Hour)
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	for range 32 {
		e.release.Pass(bg, nil, true, false)
	}
	if c, n := s.Counts(), w.records(record.KindRequest); n != 639-64 || c.Calls() != 3 {
		t.Errorf("%d memos of 639, %d calls of the store", n, c.Calls())
	}
	w.check()
}

// TestPassingCosts: calls without memos make no call of the store for them, and calls with memos one list in 32 while none is old.
func TestPassingCosts(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 22))
	s := faults.NewFaulty(w.store)
	w.Engine = w.engine(s)
	w.assign(want("h", 1, "first"))
	for keys, lists := range map[bool]int{false: 0, true: 5} {
		s.Script(nil)
		for i := range 160 {
			a := want("h", 1, fmt.Sprint("p", keys, i))
			if keys {
				a.Request = a.Handle
			}
			w.assign(a)
		}
		if c := s.Counts(); c.Lists != lists || c.Gets != 0 || c.Commits != 160 {
			t.Errorf("request keys %v: %d lists, %d gets, %d commits, want %d, 0 and 160", keys, c.Lists, c.Gets, c.Commits, lists)
		}
	}
}
