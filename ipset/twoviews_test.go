package ipset

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// together has calls wait for the commit after the one that first makes, in order, and returns their errors. meanwhile runs before they do.
func (w *world) together(e *Engine, s *faults.Faulty, first, meanwhile func(), calls ...func() error) []error {
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	var once sync.Once
	s.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit {
			once.Do(func() {
				meanwhile()
				for i, call := range calls {
					wg.Add(1)
					go func() { defer wg.Done(); errs[i] = call() }()
					waitFor(e, i+1)
				}
			})
		}
		return faults.Outcome{}
	})
	first()
	wg.Wait()
	return errs
}

// A commit whose plans have two views of one record is a conflict: all of them are made again, and no caller gets an error that another one's
// call or a cache that is behind has caused.
func TestTwoViewsOfOneRecordAreAConflict(t *testing.T) {
	p, q := poolOf("p", "10.0.0.0/29", 29), poolOf("q", "10.1.0.0/24", 26)
	p.Manual = true
	t.Run("a block that another engine has replaced", func(t *testing.T) {
		w := newWorld(t, alloc.Config{}, p, q)
		s := faults.NewFaulty(w.store)
		e := w.engine(s)
		if _, err := e.Assign(bg, alloc.HostOwner("h0"), "first", "p"); err != nil {
			t.Fatal(err)
		}
		errs := w.together(e, s, func() {
			if _, err := e.Assign(bg, alloc.HostOwner("h1"), "x"); err != nil {
				t.Error(err)
			}
		}, func() {
			small := p
			small.BlockBits = 32
			w.releaseHandle("first")
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h0")}); err != nil {
				t.Error(err)
			}
			if err := w.UpdatePool(bg, small); err != nil {
				t.Error(err)
			}
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("h2"), Handle: "second"}); err != nil {
				t.Error(err)
			}
		}, func() error {
			a := want("h0", 1, "third")
			a.Pools = []string{"p"}
			_, err := e.AutoAssign(bg, a)
			return err
		}, func() error {
			_, err := e.ReleaseByHandle(bg, "second")
			return err
		})
		if errs[0] != nil || errs[1] != nil {
			t.Errorf("%v", errs)
		}
	})
	t.Run("a change of the pools between two calls", func(t *testing.T) {
		p := poolOf("p", "10.0.0.0/30", 30)
		p.Cooldown = time.Hour
		q.Manual = true
		w := newWorld(t, alloc.Config{}, p, q)
		s := faults.NewFaulty(w.store)
		e := w.engine(s)
		for i, h := range []string{"a", "b", "c", "d"} {
			a := want("h0", 1, h)
			if i == 0 {
				a.TTL = time.Minute
			}
			if _, err := e.AutoAssign(bg, a); err != nil {
				t.Fatal(err)
			}
		}
		w.clock.add(2 * time.Minute) // the lease of a has ended; its address cools
		errs := w.together(e, s, func() {
			if _, err := e.Assign(bg, alloc.HostOwner("h1"), "y", "q"); err != nil {
				t.Error(err)
			}
		}, func() {}, func() error {
			a := want("h0", 1, "e")
			a.Partial = false
			_, err := e.AutoAssign(bg, a)
			if err == nil {
				t.Error("a cooling address was assigned")
			}
			return nil
		}, func() error {
			p.Priority = 1
			return e.UpdatePool(bg, p)
		}, func() error {
			_, err := e.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.1")})
			return err
		})
		if errs[1] != nil || errs[2] != nil {
			t.Errorf("%v", errs)
		}
	})
}

// One page record that is lost costs nothing but the place: no address is assigned again, also where blocks have another size than the pool's.
func TestALostPageAssignsNothingTwice(t *testing.T) {
	for _, size := range []int{29, 28, 30, 31} {
		p := poolOf("p", "10.0.0.0/28", 29)
		w := newWorld(t, alloc.Config{}, p)
		w.leaves()
		held := w.assign(want("a", 1, "a")).V4
		held = append(held, w.assign(want("b", 1, "b")).V4...)
		p.BlockBits = size
		if err := w.UpdatePool(bg, p); err != nil {
			t.Fatal(err)
		}
		for _, r := range w.list(store.Range{From: "s", To: "t"}) {
			if r.Key[2] == 29 && r.Key[3] != 0xff {
				w.remove(r.Key)
			}
		}
		e := w.engine(w.store)
		for _, host := range []string{"c", "d", "e"} {
			got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: 16, Partial: true, Handle: host})
			for _, al := range got.V4 {
				if slices.ContainsFunc(held, func(h alloc.Allocation) bool { return h.Address == al.Address }) {
					t.Errorf("/%d: %v was given twice", size, al.Address)
				}
			}
			t.Logf("/%d: %d to %s, %v", size, len(got.V4), host, err)
			held = append(held, got.V4...)
		}
	}
}
