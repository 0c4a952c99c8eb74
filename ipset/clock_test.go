package ipset

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A clock that no record can keep is refused by every call that depends on the time. The store stays as it was, and with a right
// clock all goes on.
func TestClockOutOfRange(t *testing.T) {
	p := poolOf("a", "10.0.0.0/26", 26)
	p.Cooldown = time.Minute
	w := newWorld(t, alloc.Config{}, p)
	a := w.assign(want("h", 2, "p")).V4[0].Address
	before, _ := w.store.MarshalBinary()
	leased := want("h", 1, "q")
	leased.TTL, leased.Request = time.Minute, "r"
	calls := map[string]func() error{
		"AutoAssign": func() error { _, err := w.AutoAssign(bg, leased); return err },
		"AssignIP": func() error {
			_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.9"), Owner: alloc.HostOwner("h")})
			return err
		},
		"ReleaseByHandle": func() error { _, err := w.ReleaseByHandle(bg, "p"); return err },
		"ReleaseIPs":      func() error { _, err := w.ReleaseIPs(bg, alloc.Release{Address: a}); return err },
		"Decline":         func() error { _, err := w.Decline(bg, alloc.DeclineArgs{Address: a, For: time.Hour}); return err },
		"RemoveHost":      func() error { _, _, err := w.RemoveHost(bg, alloc.HostOwner("h")); return err },
		"RenameHost": func() error {
			_, _, err := w.Operator().RenameHost(bg, alloc.RenameArgs{From: alloc.HostOwner("h"), To: alloc.HostOwner("g")})
			return err
		},
		"Transfer":    func() error { _, err := w.Transfer(bg, alloc.TransferArgs{From: "p", To: "x"}); return err },
		"Lookup":      func() error { _, err := w.Lookup(bg, a); return err },
		"IPsByHandle": func() error { _, err := w.IPsByHandle(bg, "p"); return err },
		"IPsByHost":   func() error { _, err := w.IPsByHost(bg, alloc.HostOwner("h")); return err },
		"BlockOf":     func() error { _, err := w.Operator().BlockOf(bg, a); return err },
		"Utilization": func() error { _, err := w.Utilization(bg); return err },
		"Sweep":       func() error { _, err := w.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Hour}); return err },
		"Check":       func() error { _, err := w.Operator().Check(bg, nil); return err },
		"DryRun":      func() error { _, err := w.DryRun().ReleaseByHandle(bg, "p"); return err },
		"Collect": func() error {
			_, err := w.Operator().NewCollector(0).Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Gone })
			return err
		},
		"Allocations": func() error {
			for _, err := range w.Allocations(bg, p.Prefix) {
				return err
			}
			return nil
		},
		"Blocks": func() error {
			for _, err := range w.Operator().Blocks(bg, p.Prefix) {
				return err
			}
			return nil
		},
	}
	right := w.clock.now()
	for _, now := range []time.Time{{}, time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Date(2262, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)} {
		w.clock.t = now
		for name, call := range calls {
			if err := call(); !errors.Is(err, ipalloc.ErrInvalid) {
				t.Errorf("%s at %v: %v", name, now, err)
			}
		}
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("a refused call wrote something")
	}
	for _, now := range []time.Time{time.Unix(0, 1), right, time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)} {
		w.clock.t = now
		w.assign(leased)
		w.releaseHandle("q")
		w.check()
	}
}

// TestLargestDurations: the largest time to live and the largest cooldown are without end; they do not wrap into the past.
func TestLargestDurations(t *testing.T) {
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 200 * 365 * 24 * time.Hour} {
		p := poolOf("a", "10.0.0.0/30", 30)
		p.Cooldown = d
		w := newWorld(t, alloc.Config{}, p)
		a := want("h", 2, "p")
		a.TTL = d
		first := w.assign(a)
		w.clock.add(100 * 365 * 24 * time.Hour)
		if als, err := w.IPsByHandle(bg, "p"); err != nil || len(als) != 2 || !als[0].Until.After(w.clock.now()) {
			t.Fatalf("%v: %v, %v", d, als, err)
		}
		if n, err := w.Renew(bg, "p", alloc.RenewArgs{TTL: d}); len(n) != 2 || err != nil {
			t.Fatal(n, err)
		}
		w.assign(want("h", 1, "q")) // touches the block
		w.check()
		w.releaseHandle("p")
		w.clock.add(time.Hour)
		if got := w.assign(want("h", 4, "r")); len(got.V4) != 1 {
			t.Errorf("%v: %v, of which %v cool", d, got.V4, first.V4)
		}
	}
}

// TestSkew: an engine whose clock is ahead by no more than Skew ends nothing that another still holds; what has ended by every
// clock ends.
func TestSkew(t *testing.T) {
	p := poolOf("a", "10.0.0.0/30", 30)
	p.Cooldown = 10 * time.Minute
	w := newWorld(t, alloc.Config{}, p)
	ahead, err := New(w.store, Options{Now: func() time.Time { return w.clock.now().Add(time.Hour) }, Skew: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	a := want("h", 4, "lease")
	a.TTL = 20 * time.Minute
	w.assign(a)
	got := func() int {
		res, err := ahead.AutoAssign(bg, want("h", 1, "thief"))
		if err != nil {
			t.Fatal(err)
		}
		return len(res.V4)
	}
	w.clock.add(19 * time.Minute)
	if n := got(); n != 0 {
		t.Fatalf("%d while the lease runs", n)
	}
	if s, err := ahead.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Advanced != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if als, err := ahead.IPsByHandle(bg, "lease"); err != nil || len(als) != 4 {
		t.Fatal(als, err)
	}
	if n, err := w.Renew(bg, "lease", alloc.RenewArgs{TTL: 20 * time.Minute}); len(n) != 4 || err != nil {
		t.Fatal(n, err)
	}
	w.clock.add(21 * time.Minute)
	if n := got(); n != 0 {
		t.Fatalf("%d while they cool", n)
	}
	w.clock.add(10 * time.Minute)
	if n := got(); n != 1 {
		t.Fatalf("%d after the cooldown", n)
	}
	w.check()
	if _, err := New(w.store, Options{Skew: -1}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}
