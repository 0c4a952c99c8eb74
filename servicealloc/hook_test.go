package servicealloc

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// A journal of the changes rebuilds what is held, whatever was called concurrently, and
// each call returns after its change is in the journal.
func TestJournalRebuilds(t *testing.T) {
	var mu sync.Mutex
	var journal []Change
	r := newRangeT(t, "10.0.0.0/22", OnChange(func(c Change) {
		mu.Lock()
		journal = append(journal, c)
		mu.Unlock()
	}))
	written := func(a netip.Addr) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(journal, func(c Change) bool { return slices.Contains(c.Addrs, a) })
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var mine []netip.Addr
			for i := range 120 {
				switch {
				case i%3 == 2:
					r.Release(mine[0])
					mine = mine[1:]
				case i%10 == 0:
					dst := make([]netip.Addr, 3)
					if _, err := r.AllocateN(dst); err == nil {
						mine = append(mine, dst...)
					}
				default:
					if a, _, err := r.AllocateNext(); err == nil {
						mine = append(mine, a)
						if !written(a) {
							t.Errorf("%v was handed out before it was in the journal", a)
						}
					}
				}
			}
		}()
	}
	wg.Wait()
	replay := map[netip.Addr]bool{}
	for _, c := range journal {
		for _, a := range c.Addrs {
			if replay[a] == (c.Op == OpAllocate) {
				t.Fatalf("%v: %v twice in a row", c.Op, a)
			}
			replay[a] = c.Op == OpAllocate
		}
	}
	for a := range r.All() {
		if !replay[a] {
			t.Errorf("%v is missing", a)
		}
		delete(replay, a)
	}
	for a, held := range replay {
		if held {
			t.Errorf("%v is too much", a)
		}
	}
}

// A change is delivered once, a batch as one, a failure not at all, and the hook may
// read.
func TestHookOfARange(t *testing.T) {
	var got []Change
	want := func(what string, ops ...Op) { t.Helper(); wantOps(t, what, &got, ops...) }
	var r *Range
	r, _ = NewRange(pfx("10.0.0.0/24"), OnChange(func(c Change) {
		for _, a := range c.Addrs {
			if has(r, a) != (c.Op == OpAllocate) { // deadlocks if the lock is held
				t.Errorf("%+v", c)
			}
		}
		got = append(got, c)
	}))
	r.AllocateNext()
	r.Allocate(ip("10.0.0.1"))
	r.AllocateN(make([]netip.Addr, 5))
	r.Release(ip("10.0.0.1"))
	if len(got) == 4 && len(got[2].Addrs) != 5 {
		t.Errorf("%+v", got[2])
	}
	want("range", OpAllocate, OpAllocate, OpAllocate, OpRelease)
	r.Release(ip("10.0.0.1"))
	r.Allocate(ip("10.0.0.0"))
	r.AllocateN(make([]netip.Addr, 500))
	r.AllocateN(nil)
	r.DryRun(netip.Addr{})
	want("failures")
}

// wantOps compares what a hook has seen, and forgets it.
func wantOps(t *testing.T, what string, got *[]Change, ops ...Op) {
	t.Helper()
	var seen []Op
	for _, c := range *got {
		seen = append(seen, c.Op)
	}
	if !slices.Equal(seen, ops) {
		t.Fatalf("%s: %+v, want %v", what, *got, ops)
	}
	*got = nil
}

// The same of ports and owners.
func TestHookOfTheOthers(t *testing.T) {
	var got []Change
	see := OnChange(func(c Change) { got = append(got, c) })
	want := func(what string, ops ...Op) { t.Helper(); wantOps(t, what, &got, ops...) }
	p := newPortsT(t, 1, 100, see)
	p.AllocateNext()
	p.Allocate(4)
	p.Release(4)
	p.Release(4)
	if c := got[1]; !slices.Equal(c.Ports, []Port{{Number: 4}}) || c.Addrs != nil {
		t.Errorf("%+v", c)
	}
	want("ports", OpAllocate, OpAllocate, OpRelease)

	g := newRegistryT(t, "10.0.0.0/24 fd00::/64", see)
	a, _ := g.Allocate("o", Request{Addrs: anyBoth})
	g.Allocate("o", Request{Addrs: anyBoth})
	g.Allocate("o", Request{Addrs: anyBoth, Generation: a.Generation})
	b, _ := g.Allocate("o", Request{Addrs: anyBoth[:1], Ports: []Port{{}}, Generation: a.Generation})
	g.Release("o", 0)
	g.Release("o", 0)
	g.SetRange(rangeOf("main", "10.0.0.0/24 fd00::/64"))
	g.SetRange(draining(rangeOf("main", "10.0.0.0/24 fd00::/64")))
	g.RemoveRange("main")
	if c := got[2]; c.Owner != "o" || c.Generation != b.Generation || textOf(c.Grant) != textOf(b) {
		t.Errorf("%+v", c)
	}
	want("registry", OpSetRange, OpAllocate, OpReplace, OpRelease, OpSetRange, OpRemoveRange)
	g.SetRange(rangeOf("main", "10.0.0.0/24 fd00::/64"))
	g.Allocate("o", Request{Addrs: anyBoth, DryRun: true})
	g.Load([]Grant{{Owner: "l", Addrs: []netip.Addr{ip("10.0.0.7")}}})
	g.Load([]Grant{{Owner: "l", Addrs: []netip.Addr{ip("10.0.0.7")}}})
	g.Move(Grant{Owner: "l", Addrs: []netip.Addr{ip("10.0.0.7")}, Generation: got[1].Generation}, Grant{Owner: "m", Ports: []Port{{"", 30001}}})
	want("load and move", OpSetRange, OpAllocate, OpMove)
}

// A call that finds that the owner holds what it asks for returns only when the receiver
// has seen the change that gave it.
func TestAnswerWaitsForTheReceiver(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	first := true
	r, err := NewRegistry(testPorts, OnChange(func(Change) {
		if first {
			first = false
			close(entered)
			<-release
		}
	}))
	wantErr(t, err, nil)
	go r.Allocate("o", Request{Ports: []Port{{}}})
	<-entered
	done := make(chan struct{})
	go func() {
		r.Allocate("o", Request{Ports: []Port{{}}})
		close(done)
	}()
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case <-done:
		t.Error("answered before the receiver had the change")
	default:
	}
	close(release)
	<-done
}

// A hook that panics does not stop the next one.
func TestHookThatPanics(t *testing.T) {
	first := true
	r := newRangeT(t, "10.0.0.0/24", OnChange(func(Change) {
		if first {
			first = false
			panic("hook")
		}
	}))
	func() {
		defer func() { _ = recover() }()
		r.AllocateNext()
	}()
	done := make(chan struct{})
	go func() { r.AllocateNext(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the turn was not passed on")
	}
}
