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
// each call returns after its change is in the journal. X5
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
// read. X5
func TestHookOfARange(t *testing.T) {
	var got []Change
	want := func(what string, ops ...Op) { t.Helper(); wantOps(t, what, &got, ops...) }
	var r *Range
	r, _ = New(pfx("10.0.0.0/24"), OnChange(func(c Change) {
		for _, a := range c.Addrs {
			if r.Has(a) != (c.Op == OpAllocate) { // a lock would be held for ever
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
	r.DryRunNext()
	want("failures")

	i := newRangeT(t, "10.0.0.0/24", OnChange(func(c Change) { got = append(got, c) }))
	i.AllocateNext()
	i.Import(RangeAllocation{"10.0.0.0/24", []byte{5}})
	if c := got[1]; !slices.Equal(c.Addrs, []netip.Addr{ip("10.0.0.1"), ip("10.0.0.3")}) {
		t.Errorf("%+v", c)
	}
	want("import", OpAllocate, OpReplace)
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

// The same of ports, several ranges and owners. X5
func TestHookOfTheOthers(t *testing.T) {
	var got []Change
	see := OnChange(func(c Change) { got = append(got, c) })
	want := func(what string, ops ...Op) { t.Helper(); wantOps(t, what, &got, ops...) }
	p := newPortsT(t, 1, 100, see)
	p.AllocateNext(TCP)
	p.AllocateN(UDP, make([]uint16, 3))
	p.Allocate(Port{SCTP, 4})
	p.Release(Port{SCTP, 4})
	p.Release(Port{SCTP, 4})
	p.Import(SCTP, RangeAllocation{"1-100", []byte{3}})
	if last := got[len(got)-1]; !slices.Equal(last.Ports, []Port{{SCTP, 1}, {SCTP, 2}}) {
		t.Errorf("%+v", last)
	}
	want("ports", OpAllocate, OpAllocate, OpAllocate, OpRelease, OpReplace)

	rs := newRangesT(t, see)
	rs.Add("a", pfx("10.0.0.0/24"))
	rs.Add("a", pfx("10.0.0.0/24"))
	rs.AllocateNext(IPv4)
	rs.AllocateN(IPv4, make([]netip.Addr, 2))
	rs.Allocate(ip("10.0.0.1"))
	rs.Release(ip("10.0.0.1"))
	rs.Drain("a")
	rs.Drain("a")
	rs.Remove("a")
	for a := range rs.All() {
		rs.Release(a)
	}
	rs.Remove("a")
	want("ranges", OpAddRange, OpAllocate, OpAllocate, OpAllocate, OpRelease, OpDrainRange, OpRelease, OpRelease, OpRelease, OpRemoveRange)

	g := newRegistryT(t, "10.0.0.0/24", "fd00::/64", see)
	a, _ := g.Allocate("o", Request{Addrs: anyBoth})
	g.Allocate("o", Request{Addrs: anyBoth})
	g.Replace("o", a.Generation, Request{Addrs: anyBoth})
	b, _ := g.Replace("o", a.Generation, Request{Addrs: anyBoth[:1], Ports: []Port{{TCP, 0}}})
	g.Release("o")
	g.Release("o")
	g.RemoveRange("main")
	if c := got[2]; c.Owner != "o" || c.Generation != b.Generation || !slices.Equal(c.Addrs, b.Addrs) || !slices.Equal(c.Ports, b.Ports) {
		t.Errorf("%+v", c)
	}
	want("registry", OpAddRange, OpAllocate, OpReplace, OpRelease, OpRemoveRange)
}

// A change waits for those before it, however late they are delivered. X5
func TestHookKeepsTheOrder(t *testing.T) {
	var got []uint64
	h := newHook(func(c Change) { got = append(got, c.Generation) })
	first, second := h.ticket(), h.ticket()
	done := make(chan struct{})
	go func() {
		h.deliver(second, Change{Generation: 2})
		close(done)
	}()
	for range 1000 {
		runtime.Gosched() // it would have been delivered by now
	}
	h.deliver(first, Change{Generation: 1})
	<-done
	if !slices.Equal(got, []uint64{1, 2}) {
		t.Error(got)
	}
}

// A hook that panics does not stop the next one. X4
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
