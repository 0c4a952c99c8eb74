package servicealloc

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
)

// follower returns a registry and one that applies its changes.
func follower(t testing.TB, prefixes string, ports PortRange, opts ...Option) (r, f *Registry) {
	t.Helper()
	f = must(NewRegistry(ports, opts...))
	r = must(NewRegistry(ports, append(slices.Clone(opts), OnChange(func(c Change) {
		if err := f.Apply(c); err != nil {
			t.Errorf("apply %+v: %v", c, err)
		}
	}))...))
	wantErr(t, r.SetRange(rangeOf("main", prefixes)), nil)
	return r, f
}

func wantFollows(t testing.TB, r, f *Registry) {
	t.Helper()
	check(t, r, f)
	if stateOf(t, r) != stateOf(t, f) {
		t.Fatalf("the follower has %q, want %q", heldBy(f), heldBy(r))
	}
}

// What Move takes for an owner is that owner's, also if others were loaded with it, and
// also if the owner itself was one of them; a follower agrees.
func TestMoveOfWhatOthersClaim(t *testing.T) {
	for _, loaded := range []string{"a: 10.0.0.20; c: 10.0.0.20", "a: 10.0.0.20; c: 10.0.0.20; b: 10.0.0.20", "a: 10.0.0.20 10.0.0.21; b: 10.0.0.20 10.0.0.30; c: 10.0.0.20"} {
		r, f := follower(t, "10.0.0.0/24", testPorts, LowestFirst())
		r.Load(grants(loaded))
		from, _ := r.Get("a")
		to, _ := r.Get("b")
		from.Addrs = []netip.Addr{ip("10.0.0.20")}
		_, got, err := r.Move(from, Grant{Owner: "b", Generation: to.Generation, Addrs: from.Addrs})
		wantErr(t, err, nil)
		if owner, generation, _ := r.OwnerOf(ip("10.0.0.20")); owner != "b" || generation != got {
			t.Errorf("%s: it is of %q, generation %d, want %d", loaded, owner, generation, got)
		}
		wantFollows(t, r, f)
		must(r.Release("b", 0))
		if owner, _, _ := r.OwnerOf(ip("10.0.0.20")); owner != "c" {
			t.Errorf("%s: released, it is of %q", loaded, owner)
		}
		wantFollows(t, r, f)
	}
}

// Who holds what several owners were loaded with does not change when one of them
// changes: neither here nor in a follower, however often.
func TestFollowerKeepsTheHolder(t *testing.T) {
	r, f := follower(t, "10.0.0.0/24 fd00::/120", testPorts, LowestFirst())
	r.Load(grants("a: 10.0.0.20; c: 10.0.0.20; d: 10.0.0.20"))
	for i := range 4 {
		g, _ := r.Get("a")
		must(r.Allocate("a", Request{Addrs: g.Addrs[:1], Ports: make([]Port, i), Generation: g.Generation}))
		r.Load(grants(fmt.Sprint("a: fd00::1", i)))
		wantFollows(t, r, f)
		if owner, _, _ := f.OwnerOf(ip("10.0.0.20")); owner != "a" {
			t.Fatalf("it is of %q", owner)
		}
		g, _ = r.Get("a")
		tx, _, err := r.Begin("a", Request{Addrs: []netip.Addr{ip("10.0.0.20"), ip("fd00::50")}})
		wantErr(t, err, nil)
		wantFollows(t, r, f)
		wantErr(t, tx.Rollback(), nil)
		wantFollows(t, r, f)
	}
	for _, want := range []string{"a", "c", "d"} {
		if owner, _, _ := f.OwnerOf(ip("10.0.0.20")); owner != want {
			t.Errorf("it is of %q, want %q", owner, want)
		}
		must(r.Release(want, 0))
		wantFollows(t, r, f)
	}
}

// An address that an owner was loaded with after another one is not its own: a request
// is not answered with it.
func TestRequestOfAnAddressOfAnother(t *testing.T) {
	r, f := follower(t, "10.0.0.0/24", testPorts, LowestFirst())
	r.Load(grants("a: 10.0.0.20 30020; c: 10.0.0.20; d: 30020"))
	for _, req := range []Request{{Addrs: anyBoth[:1]}, {Addrs: []netip.Addr{ip("10.0.0.20")}}} {
		for _, dry := range []bool{true, false} {
			req.DryRun = dry
			_, err := r.Allocate("c", req)
			wantErr(t, err, ipalloc.ErrOccupied)
			if e := err.(*ipalloc.Error); e.Holder != "a" || e.Addr != ip("10.0.0.20") {
				t.Error(err)
			}
		}
	}
	wantErr(t, errOf(r.Allocate("d", Request{Ports: []Port{{}}})), ipalloc.ErrOccupied)
	c, _ := r.Get("c")
	if g := must(r.Allocate("c", Request{Addrs: anyBoth[:1], Generation: c.Generation})); textOf(g) != "10.0.0.17" {
		t.Error(g)
	}
	tx, g, err := r.Begin("d", Request{Ports: []Port{{}}})
	if wantErr(t, err, nil); textOf(g) != "30016" {
		t.Error(g)
	}
	wantErr(t, tx.Commit(), nil)
	wantHeld(t, r, "a: 10.0.0.20 30020", "c: 10.0.0.17", "d: 30016")
	wantFollows(t, r, f)
}

// A generation that no registry reaches is a problem of the record, and a snapshot that
// has one is damaged: counting on from it would come round to grants that look like none.
func TestGenerationsHaveABound(t *testing.T) {
	for _, generation := range []uint64{1<<61 + 1, 1<<62 + 1, 1 << 63, ^uint64(0)} {
		r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
		problems := r.Load([]Grant{{Owner: "a", Generation: generation, Addrs: []netip.Addr{ip("10.0.0.20")}}})
		if len(problems) != 1 {
			t.Fatal(problems)
		}
		wantErr(t, problems[0], ipalloc.ErrInvalid)
		for _, owner := range []string{"b", "c"} {
			if g := must(r.Allocate(owner, Request{Addrs: anyBoth[:1]})); g.Generation == 0 {
				t.Error(g)
			}
		}
		wantHeld(t, r, "a: 10.0.0.20", "b: 10.0.0.17", "c: 10.0.0.18")
		r.last = generation
		if _, err := NewRegistry(testPorts, LowestFirst(), Restore([]byte(stateOf(t, r)))); generation > maxGeneration {
			wantErr(t, err, ipalloc.ErrCorrupt)
		}
		f := newRegistryT(t, "10.0.0.0/24")
		if err := f.Apply(Change{Op: OpAllocate, Grant: Grant{Owner: "a", Generation: generation, Addrs: anyBoth[:0]}}); err == nil {
			t.Errorf("a change of generation %d is applied", generation)
		}
	}
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	if problems := r.Load([]Grant{{Owner: "a", Generation: 1 << 61, Addrs: []netip.Addr{ip("10.0.0.20")}}}); len(problems) > 0 {
		t.Fatal(problems)
	}
	if g := must(r.Allocate("b", Request{Addrs: anyBoth[:1]})); g.Generation != 1<<61+1 {
		t.Error(g)
	}
	check(t, must(NewRegistry(testPorts, LowestFirst(), Restore([]byte(stateOf(t, r))))))

	// A snapshot of the last generation is read, and nothing counts past it: what changes
	// the registry then leaves one that is read again.
	r.last = maxGeneration
	r = must(NewRegistry(testPorts, LowestFirst(), Restore([]byte(stateOf(t, r)))))
	for _, dry := range []bool{false, true} {
		_, err := r.Allocate("c", Request{Addrs: anyBoth[:1], DryRun: dry})
		wantErr(t, err, ipalloc.ErrLimit)
	}
	_, _, err := r.Begin("c", Request{Addrs: anyBoth[:1]})
	wantErr(t, err, ipalloc.ErrLimit)
	tx, _, err := r.Begin("b", Request{})
	wantErr(t, err, nil)
	if problems := r.Load([]Grant{{Owner: "b", Addrs: []netip.Addr{ip("10.0.0.30")}}, {Owner: "c", Addrs: []netip.Addr{ip("10.0.0.31")}}}); len(problems) > 0 {
		t.Error(problems)
	}
	wantErr(t, tx.Commit(), nil)
	c, _ := r.Get("c")
	_, _, err = r.Move(c, Grant{Owner: "d", Addrs: c.Addrs})
	wantErr(t, err, nil)
	wantHeld(t, r, "a: 10.0.0.20", "b: 10.0.0.30", "d: 10.0.0.31")
	check(t, must(NewRegistry(testPorts, LowestFirst(), Restore([]byte(stateOf(t, r))))))
	_, err = r.Release("d", maxGeneration)
	wantErr(t, err, nil)
}

// A change that no registry makes is refused by Apply and changes nothing.
func TestApplyRefuses(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	must(r.Allocate("a", Request{Addrs: anyBoth[:1]}))
	tx, _, err := r.Begin("open", Request{Addrs: anyBoth[:1]})
	wantErr(t, err, nil)
	before := stateOf(t, r)
	one := []netip.Addr{ip("10.0.0.40")}
	for _, tt := range []struct {
		c    Change
		want error
	}{
		{Change{}, ipalloc.ErrInvalid},
		{Change{Op: "lent", Grant: Grant{Owner: "a", Generation: 9, Addrs: one}}, ipalloc.ErrInvalid},
		{Change{Op: OpAllocate, Grant: Grant{Owner: "a", Addrs: one}}, ipalloc.ErrInvalid},
		{Change{Op: OpReplace, Grant: Grant{Owner: "a", Generation: 9, Addrs: []netip.Addr{{}}}}, ipalloc.ErrInvalid},
		{Change{Op: OpAllocate, Grant: Grant{Owner: "a", Generation: 9, Ports: []Port{{"x", 1}}}}, ipalloc.ErrInvalid},
		{Change{Op: OpMove, From: Grant{Owner: "a", Generation: 9, Addrs: []netip.Addr{ip("fe80::1%z")}}}, ipalloc.ErrInvalid},
		{Change{Op: OpAllocate, Grant: Grant{Owner: "open", Generation: 9, Addrs: one}}, ipalloc.ErrInUse},
		{Change{Op: OpMove, From: Grant{Owner: "open", Generation: 9, Addrs: one}}, ipalloc.ErrInUse},
		{Change{Op: OpSetRange, Range: RangeInfo{Name: "x"}}, ipalloc.ErrInvalid},
	} {
		if wantErr(t, r.Apply(tt.c), tt.want); stateOf(t, r) != before {
			t.Fatalf("%+v changed something", tt.c)
		}
	}
	wantErr(t, tx.Rollback(), nil)
}

// The changes of a registry may be applied to a snapshot that has them already.
func TestApplyOverASnapshot(t *testing.T) {
	var log []Change
	r := newRegistryT(t, "", LowestFirst(), OnChange(func(c Change) { log = append(log, c) }))
	wantErr(t, r.SetRange(rangeOf("main", "10.2.0.0/24")), nil) // which has nothing of what is held in the end
	wantErr(t, r.SetRange(rangeOf("main", "10.0.0.0/24")), nil)
	wantErr(t, r.SetRange(rangeOf("gone", "10.1.0.0/24")), nil)
	a := must(r.Allocate("a", Request{Addrs: anyBoth[:1], Ports: make([]Port, 3)}))
	r.Load(grants("b: 10.0.0.40; c: 10.0.0.41"))
	_, _, err := r.Move(Grant{Owner: "a", Generation: a.Generation, Addrs: a.Addrs, Ports: a.Ports[1:2]}, Grant{Owner: "d", Addrs: a.Addrs, Ports: a.Ports[1:2]})
	wantErr(t, err, nil)
	must(r.Release("b", 0))
	r.Load(grants("c: 10.0.0.42; c: 10.1.0.1"))
	must(r.Release("c", 0))
	wantErr(t, r.RemoveRange("gone"), nil)
	for from := range log {
		f := must(NewRegistry(testPorts, LowestFirst(), Restore([]byte(stateOf(t, r)))))
		for _, c := range log[from:] {
			wantErr(t, f.Apply(c), nil)
		}
		wantFollows(t, r, f)
	}
}

// A receiver of changes may ask what a call would do.
func TestDryRunFromTheReceiver(t *testing.T) {
	var r *Registry
	var answers []Grant
	now := time.Unix(0, 0)
	r = newRegistryT(t, "", LowestFirst(), Clock(func() time.Time { return now }), OnChange(func(Change) {
		g, _ := r.Allocate("other", Request{Addrs: anyBoth[:1], DryRun: true})
		answers = append(answers, g)
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.SetRange(rangeOf("main", "10.0.0.0/24"))
		_, _, _ = r.Begin("svc", Request{Addrs: anyBoth[:1], Deadline: now.Add(time.Second)})
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("deadlock")
	}
	now = now.Add(time.Second)
	must(r.Allocate("other", Request{Addrs: anyBoth[:1], DryRun: true})) // which ends the transaction
	if len(answers) != 3 || textOf(answers[1]) != "10.0.0.18" || textOf(answers[2]) != "10.0.0.17" {
		t.Error(answers)
	}
}
