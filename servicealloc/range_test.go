package servicealloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
)

// Addresses that no range may take, whatever it is.
func TestRangeRefusesForms(t *testing.T) {
	for _, p := range []string{"10.0.0.0/8", "::/64", "fe80::/64", "fd00::/64"} {
		r := newRangeT(t, p)
		for _, a := range []netip.Addr{{}, ip("::ffff:10.0.0.1"), ip("fe80::1%eth0"), ip("fd00::1%1")} {
			wantErr(t, r.Allocate(a), ipalloc.ErrOutOfRange)
			if has(r, a) || r.Release(a) || bandOf(r, a) != Closed {
				t.Errorf("%s has %v", p, a)
			}
		}
	}
	wantErr(t, newRangeT(t, "10.0.0.0/8").Allocate(ip("fd00::1")), ipalloc.ErrOutOfRange)
	wantErr(t, newRangeT(t, "::/64").Allocate(ip("10.0.0.1")), ipalloc.ErrOutOfRange)
}

// Every state of a range of 14 addresses, every pick, every address.
func TestEveryStateOfA28(t *testing.T) {
	p := pfx("10.0.0.0/28")
	for _, o := range []model.ServiceOptions{{StaticSize: -1}, {StaticSize: 5}, {StaticSize: 14}, {StaticSize: 5, NeverSpill: true},
		{StaticSize: 3, Static: []netip.Prefix{pfx("10.0.0.10/32")}}} {
		opts := []Option{StaticBand(o.StaticSize, o.Static...)}
		if o.NeverSpill {
			opts = append(opts, NeverSpill())
		}
		r := newRangeT(t, p.String(), opts...)
		twin := model.NewServiceRange(p, o)
		var members []netip.Addr
		for i, a := range twin.Members {
			if twin.Band[i] != model.ServiceClosed {
				members = append(members, a)
			}
		}
		for state := range 1 << len(members) {
			for i, a := range members { // Gray code would do with one; this shows release too
				if want := state>>i&1 == 1; want != has(r, a) {
					if want {
						wantErr(t, r.Allocate(a), nil)
					} else if !r.Release(a) {
						t.Fatalf("%b: %v is not released", state, a)
					}
				}
				twin.Held[a] = state>>i&1 == 1
			}
			tryPicks(t, r, twin, state)
			if state%64 == 0 {
				check(t, r)
			}
		}
	}
}

// tryPicks compares the next pick from every start, each undone again.
func tryPicks(t *testing.T, r *Range, twin *model.ServiceSet[netip.Addr], state int) {
	t.Helper()
	for k := range uint64(14) {
		u := k<<60 | 1<<59
		r.pick.next = u
		band := twin.Choose()
		a, spilled, err := r.AllocateNext()
		if band == model.ServiceClosed {
			if !errors.Is(err, ipalloc.ErrFull) {
				t.Fatalf("%b: %v, %v; want full", state, a, err)
			}
			return
		}
		want := twin.Pick(band, u)
		if err != nil || a != want || spilled != (band == model.ServiceStatic) {
			t.Fatalf("%b from %d: %v, %v, %v; want %v", state, k, a, spilled, err, want)
		}
		r.Release(a)
	}
}

// An IPv6 /64: to its last address, past 2^63, and small while it is empty.
func TestRange64(t *testing.T) {
	r := newRangeT(t, "fd00::/64")
	last := ip("fd00::ffff:ffff:ffff:ffff")
	for _, s := range []string{"fd00::1", "fd00::100", "fd00::101", "fd00::7fff:ffff:ffff:ffff", "fd00::8000:0:0:0", "fd00::ffff:ffff:ffff:fffe"} {
		wantErr(t, r.Allocate(ip(s)), nil)
	}
	wantErr(t, r.Allocate(ip("fd00::")), ipalloc.ErrOutOfRange)
	wantErr(t, r.Allocate(ip("fd00:0:0:1::")), ipalloc.ErrOutOfRange)
	r.pick.next = ^uint64(0) // the last start of the band
	if a, spilled, err := r.AllocateNext(); a != last || spilled || err != nil {
		t.Fatal(a, spilled, err)
	}
	r.pick.next = ^uint64(0) // taken by now: the walk comes round to the band's first free one
	if a, spilled, err := r.AllocateNext(); a != ip("fd00::102") || spilled || err != nil {
		t.Fatal(a, spilled, err)
	}
	check(t, r)
	if got := slices.Collect(r.All()); len(got) != 8 || got[7] != last || !slices.IsSortedFunc(got, netip.Addr.Compare) {
		t.Fatal(got)
	}
	if s := r.Stats(); s.Dynamic.Used != 6 || s.Static.Used != 2 || s.Dynamic.Free != 1<<64-1-256-6 {
		t.Fatalf("%+v", s)
	}
	for a := range r.All() {
		if !r.Release(a) {
			t.Fatal(a)
		}
	}
	check(t, r)
}

func TestRange64IsSmall(t *testing.T) {
	const n = 1000
	keep := make([]*Range, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keep {
		keep[i] = newRangeT(t, "fd00::/64")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)) / n; each >= 1024 {
		t.Errorf("an empty /64 takes %d bytes", each)
	}
	runtime.KeepAlive(keep)
}

// A dry run answers what the call will, until a range is full.
func TestDryRunIsFaithful(t *testing.T) {
	for _, p := range []string{"10.0.0.0/24", "fd00::/120", "fd00::/64"} {
		r := newRangeT(t, p)
		for range 300 {
			before := stateOf(t, r)
			a, spilled, err := r.DryRun(netip.Addr{})
			if stateOf(t, r) != before {
				t.Fatal("a dry run changed something")
			}
			b, spilled2, err2 := r.AllocateNext()
			if a != b || spilled != spilled2 || err != err2 {
				t.Fatalf("dry run %v %v %v, call %v %v %v", a, spilled, err, b, spilled2, err2)
			}
			if err == nil {
				_, _, err := r.DryRun(a)
				wantErr(t, err, ipalloc.ErrOccupied)
			}
		}
	}
}

// The same calls give the same answers; another source gives others.
func TestDeterministic(t *testing.T) {
	run := func(opts ...Option) (out []netip.Addr) {
		r := newRangeT(t, "10.0.0.0/16", opts...)
		for range 100 {
			a, _, _ := r.AllocateNext()
			out = append(out, a)
		}
		return out
	}
	if !slices.Equal(run(), run()) || !slices.Equal(run(Random(rand.NewPCG(5, 6))), run(Random(rand.NewPCG(5, 6)))) {
		t.Error("two runs differ")
	}
	if slices.Equal(run(), run(Random(rand.NewPCG(5, 6)))) {
		t.Error("another source gives the same addresses")
	}
}

// The unspecified address, by which a request leaves the choice open, is never handed out.
func TestUnspecifiedIsNotUsable(t *testing.T) {
	r := must(NewRegistry(PortRange{}, PointToPoint(), LowestFirst()))
	wantErr(t, r.SetRange(rangeOf("x", "0.0.0.0/31 ::/127")), nil)
	if g := must(r.Allocate("a", Request{Addrs: anyBoth})); textOf(g) != "0.0.0.1 ::1" {
		t.Error(g)
	}
	wantErr(t, errOf(r.Allocate("b", Request{Addrs: anyBoth[:1]})), ipalloc.ErrFull)
	wantErr(t, r.SetRange(rangeOf("one", "0.0.0.0/32")), nil)
	check(t, r)
	for _, p := range []string{"0.0.0.0/31", "::/127"} {
		if one := newRangeT(t, p, PointToPoint()); one.Free() != 1 {
			t.Errorf("%s: %d", p, one.Free())
		}
	}
}

// What is printed of an allocator is read under its lock.
func TestString(t *testing.T) {
	r, p, g := newRangeT(t, "10.0.0.0/24"), newPortsT(t, 1, 10), newRegistryT(t, "10.0.0.0/24")
	r.AllocateNext()
	must(g.Allocate("a", Request{Addrs: anyBoth[:1]}))
	for want, v := range map[string]any{"10.0.0.0/24: 0 static and 1 dynamic used, 253 free": r, "1-10: 0 static and 0 dynamic used, 10 free": p, "1 owners, 1 ranges": g} {
		if got := fmt.Sprintf("%+v", v); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
