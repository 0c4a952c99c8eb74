// Package enginetest runs the engine of package ipset on a store, to show that the store fulfils the engine's
// needs:
//
//	func Test(t *testing.T) {
//		enginetest.Test(t, func(t *testing.T) store.Store { return open(t) })
//	}
//
// The tests fail every call of the store once, make a commit's outcome unknown at every
// commit, end the context at every call, run many hosts and many engines at once, and
// count round trips. Package storetest verifies the contract of the store itself.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// start is when the clocks of these tests begin.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// clock is a time that moves when told.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// newEngine returns an engine that retries often and quickly.
func newEngine(t *testing.T, s store.Store, c *clock) *ipset.Engine {
	t.Helper()
	e, err := ipset.New(s, ipset.Options{Now: c.now, Retry: ipset.Retry{Attempts: 1000, Base: 50 * time.Microsecond, Max: 2 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Test runs an engine on the store.
func Test(t *testing.T, open storetest.Open) {
	h := faults.History[*run]{Open: open, Begin: begin, Steps: history, Notices: true}
	h.Crash = func(t *testing.T, s store.Store, r *run) *run { return &run{newEngine(t, s, r.clock), r.held, r.clock} }
	h.Between = func(r *run) { r.clock.add(time.Minute) }
	h.Verify = func(t *testing.T, _ store.Store, r *run) { verify(t, r.e, r.held) }
	t.Run("FailsAtEveryCall", h.FailsAtEveryCall)
	t.Run("UnknownAtEveryCommit", h.UnknownAtEveryCommit)
	t.Run("ContextEndsAtEveryCall", h.ContextEndsAtEveryCall)
	for _, tt := range []struct {
		name string
		test func(*testing.T, storetest.Open)
	}{
		{"ManyHosts", testManyHosts}, {"ManyEngines", testManyEngines}, {"LateCommits", testLateCommits}, {"RoundTrips", testRoundTrips},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open) })
	}
}

// run is an engine, what its store holds, and its time.
type run struct {
	e     *ipset.Engine
	held  map[netip.Addr]string
	clock *clock
}

// begin returns a run on pools of tiny blocks.
func begin(t *testing.T, s store.Store) *run {
	t.Helper()
	c := &clock{t: start}
	r := &run{newEngine(t, s, c), make(map[netip.Addr]string), c}
	setUp(t, r.e)
	return r
}

type step = faults.Step[*run]

// assign gives a handle n4 + n6 addresses; the request key makes it repeatable.
func assign(host string, n4, n6 int, handle string) step {
	return step{Name: "assign " + handle, Do: func(ctx context.Context, r *run) error {
		got, err := r.e.AutoAssign(ctx, alloc.AssignArgs{
			Owner: alloc.HostOwner(host), Num4: n4, Num6: n6, Use: alloc.Workload, Handle: handle, Request: "request of " + handle,
		})
		if err != nil {
			return err
		}
		for _, al := range append(got.V4, got.V6...) {
			if other, taken := r.held[al.Address]; taken {
				return fmt.Errorf("%s given to %s and to %s", al.Address, other, handle)
			}
			r.held[al.Address] = handle
		}
		return nil
	}}
}

// ensure gives a handle an address, or returns the one that it holds, for the host. It is repeatable as it is.
func ensure(host, handle string) step {
	return step{Name: "ensure " + handle, Do: func(ctx context.Context, r *run) error {
		al, err := r.e.Assign(ctx, alloc.HostOwner(host), handle)
		if err != nil {
			return err
		}
		for a, h := range r.held {
			if (h == handle) != (a == al.Address) {
				return fmt.Errorf("%s given to %s, and %s to %s", al.Address, handle, a, h)
			}
		}
		r.held[al.Address] = handle
		return nil
	}}
}

// releaseOf releases what a handle holds for a host, which is nothing here.
func releaseOf(host, handle string) step {
	return step{Name: "release " + handle + " of " + host, Do: func(ctx context.Context, r *run) error {
		got, err := r.e.ReleaseByHandle(ctx, handle, alloc.HostOwner(host))
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("%v released for %s", got, host)
		}
		return err
	}}
}

func release(handle string) step {
	return step{Name: "release " + handle, Do: func(ctx context.Context, r *run) error {
		if _, err := r.e.ReleaseByHandle(ctx, handle); err != nil {
			return err
		}
		for a, h := range r.held {
			if h == handle {
				delete(r.held, a)
			}
		}
		return nil
	}}
}

// history is a little of everything on pools of tiny blocks.
func history() []step {
	reserve := func(s string) step {
		return step{Name: "reserve " + s, Do: func(ctx context.Context, r *run) error {
			_, err := r.e.Operator().SetReservations(ctx, alloc.Reservations(netipx.RangeOfPrefix(netip.MustParsePrefix(s))))
			return err
		}}
	}
	named := func(host, a, handle string) step {
		return step{Name: "assign " + a, Do: func(ctx context.Context, r *run) error {
			_, err := r.e.AssignIP(ctx, alloc.AssignIPArgs{Address: netip.MustParseAddr(a), Owner: alloc.HostOwner(host), Handle: handle, Request: "named " + a})
			if errors.Is(err, ipalloc.ErrOccupied) {
				return nil
			}
			if err == nil {
				r.held[netip.MustParseAddr(a)] = handle
			}
			return err
		}}
	}
	disown := func(host string) step {
		return step{Name: "remove " + host, Do: func(ctx context.Context, r *run) error {
			_, err := r.e.DisownBlocks(ctx, alloc.DisownArgs{Owner: alloc.HostOwner(host)})
			return err
		}}
	}
	return []step{
		assign("a", 3, 2, "p1"), ensure("b", "q"), assign("b", 5, 0, "p2"), assign("a", 4, 1, "p3"), release("p1"), named("c", "10.0.0.9", "p4"),
		ensure("c", "q"), releaseOf("b", "q"), ensure("c", "q"), assign("c", 6, 0, "p5"), release("p3"), reserve("10.0.0.0/30"), assign("a", 2, 2, "p6"), disown("b"), assign("b", 1, 0, "p7"),
		release("p2"), release("q"), assign("d", 9, 0, "p8"), ensure("d", "r"), release("p5"), release("p4"), disown("a"), assign("c", 4, 4, "p9"), release("p8"),
	}
}

// setUp adds the pools of the histories.
func setUp(t *testing.T, e *ipset.Engine) {
	t.Helper()
	for name, p := range map[string]string{"four": "10.0.0.0/27", "six": "2001:db8::/124"} {
		prefix := netip.MustParsePrefix(p)
		if err := e.AddPool(context.Background(), alloc.Pool{Name: name, Prefix: prefix, BlockBits: prefix.Addr().BitLen() - 2}); err != nil {
			t.Fatal(err)
		}
	}
}

// verify checks that the store is consistent and holds exactly what was given.
func verify(t *testing.T, e *ipset.Engine, held map[netip.Addr]string) {
	t.Helper()
	rep, err := e.Operator().Check(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rep.Problems {
		t.Error(p)
	}
	have := make(map[netip.Addr]string)
	for al, err := range e.Allocations(context.Background(), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		have[al.Address] = al.Handle
	}
	for a, h := range held {
		if have[a] != h {
			t.Errorf("%s was given to %q, the store says %q", a, h, have[a])
		}
	}
	for a, h := range have {
		if held[a] != h {
			t.Errorf("%s is held by %q, which was not told", a, h)
		}
	}
}

// testLateCommits loses the answer of every commit of an assignment once, and makes that commit only when its caller has released
// the handle, as the documentation advises, and when others have gone on. Nothing is held for the handle in the end.
func testLateCommits(t *testing.T, open storetest.Open) {
	ctx := context.Background()
	lost := 0
	for k, met := 1, true; met; k++ {
		f := faults.NewFaulty(open(t))
		e := newEngine(t, f, &clock{t: start})
		setUp(t, e)
		land := make(chan struct{})
		f.Script(faults.AtCommit(k, faults.Late(land)))
		met = false
		held := make(map[netip.Addr]string)
		for i := range 6 {
			handle := fmt.Sprint("h", i)
			owner := alloc.HostOwner(fmt.Sprint("host", i%2))
			var got alloc.Assigned
			var err error
			if i%3 > 0 {
				got, err = e.AutoAssign(ctx, alloc.AssignArgs{Owner: owner, Num4: 2, Use: alloc.Workload, Handle: handle})
			} else if al, failed := e.Assign(ctx, owner, handle); failed != nil {
				err = failed
			} else {
				got.V4 = append(got.V4, al)
			}
			for _, al := range got.V4 { // also beside an error: verify misses them in the store then
				held[al.Address] = handle
			}
			if err == nil {
				continue
			}
			met = true
			lost++
			if !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatalf("commit %d: %v, %v", k, got, err)
			}
			if _, err := e.ReleaseByHandle(ctx, handle); err != nil {
				t.Fatalf("commit %d: release: %v", k, err)
			}
			if i%2 == 0 { // at once, or after others
				close(land)
				f.Settle()
			}
		}
		if met && f.Counts().Commits > 0 {
			select {
			case <-land:
			default:
				close(land)
			}
			f.Settle()
		}
		f.Script(nil)
		verify(t, newEngine(t, f, &clock{t: start}), held)
	}
	if lost < 6 {
		t.Errorf("%d commits were lost", lost)
	}
}

// testManyHosts has hosts assign and release at once through one engine.
func testManyHosts(t *testing.T, open storetest.Open) { many(t, open, 1) }

// testManyEngines has them go through several engines on one store.
func testManyEngines(t *testing.T, open storetest.Open) { many(t, open, 4) }

func many(t *testing.T, open storetest.Open, engines int) {
	s := open(t)
	c := &clock{t: start}
	var es []*ipset.Engine
	for range engines {
		es = append(es, newEngine(t, s, c))
	}
	prefix := netip.MustParsePrefix("10.0.0.0/22")
	if err := es[0].AddPool(context.Background(), alloc.Pool{Name: "p", Prefix: prefix, BlockBits: 29}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	held := make(map[netip.Addr]string)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			e, host := es[w%engines], fmt.Sprint("host", w%6)
			for i := range 12 {
				handle := fmt.Sprintf("w%d-%d", w, i)
				mine := &run{e: e, held: make(map[netip.Addr]string)}
				give := assign(host, 1+i%3, 0, handle)
				if i%3 == 0 {
					give = ensure(host, handle)
				}
				if err := give.Do(context.Background(), mine); err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					if err := release(handle).Do(context.Background(), mine); err != nil {
						t.Error(err)
						return
					}
				}
				mu.Lock()
				for a, h := range mine.held {
					if other, taken := held[a]; taken {
						t.Errorf("%s given to %s and to %s", a, other, h)
					}
					held[a] = h
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	verify(t, es[0], held)
}

// testRoundTrips counts the calls of the store: one per assignment and release in steady state, a list more by handle, and two and no
// list for a host's first block.
func testRoundTrips(t *testing.T, open storetest.Open) {
	f := faults.NewFaulty(open(t))
	r := begin(t, f)
	expect := func(what string, s step, most, lists int) {
		t.Helper()
		f.Script(nil)
		if err := s.Do(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		if n := f.Counts(); n.Calls() > most || n.Commits != 1 || n.Lists > lists {
			t.Errorf("%s: %d commits, %d gets, %d lists, at most %d calls", what, n.Commits, n.Gets, n.Lists, most)
		}
	}
	plain := func(handle string) step {
		return step{Name: handle, Do: func(ctx context.Context, r *run) error {
			got, err := r.e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 1, Use: alloc.Workload, Handle: handle})
			if err == nil {
				r.held[got.V4[0].Address] = handle
			}
			return err
		}}
	}
	expect("first block", plain("p1"), 2, 0)
	expect("next address", plain("p2"), 1, 0)
	expect("next address, with a request key", assign("a", 1, 0, "p3"), 1, 0)
	expect("next address, by handle", ensure("a", "p4"), 2, 1)
	expect("move to another host", ensure("b", "p4"), 2, 1)
	expect("release by handle", release("p4"), 2, 1)
	for a := range r.held {
		expect("release", step{Name: "release", Do: func(ctx context.Context, r *run) error {
			_, err := r.e.ReleaseIPs(ctx, alloc.Release{Address: a})
			delete(r.held, a)
			return err
		}}, 1, 0)
	}
	verify(t, r.e, r.held)
}
