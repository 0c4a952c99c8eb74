package main

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// few is a small cluster in which a zone fails each day and a third of the nodes are replaced.
func few(seed uint64) config {
	return config{
		Days: 9, Nodes: 100, Pods: 1250, Engines: 4, Tick: time.Hour, Turnover: 0.5, Leak: 0.01, Seed: seed,
		UpgradeIn: 3, ZoneEvery: 1,
	}
}

// TestDaysCostTheSame: a call on the last days costs the round trips and the bytes that it cost on the first, and the state is as
// spread as it was. simulate compares with the oracle. What a collection costs follows how many leaks there are: that is left to
// long runs.
func TestDaysCostTheSame(t *testing.T) {
	for seed := range seeds.Each(t, 1, 3) {
		rows, err := simulate(t.Context(), few(seed), func(row) {})
		if err != nil {
			t.Fatal(err)
		}
		first, last, days := ends(rows)
		if days != 4 {
			t.Fatalf("%d days are compared", days)
		}
		const ratio = 1.4 // of so few calls
		trips, bytes, states := costs(first, last)
		for _, c := range slices.Concat(trips, bytes, states) {
			if c.what == kindNames[collect] || strings.HasPrefix(c.what, "memory") {
				continue
			}
			t.Logf("%s: %s, then %s", c.what, c.format(c.first), c.format(c.last))
			if c.last > ratio*c.first+0.02 {
				t.Errorf("%s: %s on the first days, %s on the last", c.what, c.format(c.first), c.format(c.last))
			}
		}
		all := total(rows)
		for k, u := range all.Uses {
			if u.Calls == 0 {
				t.Errorf("%s is never called", kindNames[k])
			}
		}
		if all.Leaked == 0 || all.Borrowed == 0 {
			t.Errorf("%d addresses leaked, %d borrowed: this is no test of them", all.Leaked, all.Borrowed)
		}
	}
}

// The oracle finds each kind of error.
func TestOracle(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	held := func(as ...netip.Addr) func(yield func(alloc.Allocation, error) bool) {
		return func(yield func(alloc.Allocation, error) bool) {
			for _, a := range as {
				if !yield(alloc.Allocation{Address: a, Handle: "pod-7", Host: alloc.HostOwner("node-3")}, nil) {
					return
				}
			}
		}
	}
	known := func(uint32) bool { return true }
	fresh := func() *oracle {
		o := newOracle()
		if o.assigned(a, holding{pod: 7, host: 3}, now) != nil || o.assigned(b, holding{pod: 7, host: 3, ends: minutes(later)}, now) != nil {
			t.Fatal("a free address is refused")
		}
		return o
	}
	lease := alloc.Allocation{Address: b, Handle: "pod-7"}
	for name, f := range map[string]func(o *oracle) error{
		"twice":                 func(o *oracle) error { return o.assigned(a, holding{pod: 8, host: 3}, later) },
		"twice within a lease":  func(o *oracle) error { return o.assigned(b, holding{pod: 8, host: 3}, now) },
		"another one's release": func(o *oracle) error { return o.released(a, 8, 3, now) },
		"on another host":       func(o *oracle) error { return o.released(a, 7, 4, now) },
		"released twice":        func(o *oracle) error { return errors.Join(must(o.released(a, 7, 3, now)), o.released(a, 7, 3, now)) },
		"another one's renewal": func(o *oracle) error { return o.renewed(b, 8, later) },
		"still cooling": func(o *oracle) error {
			return errors.Join(must(o.released(a, 7, 3, now)), o.assigned(a, holding{pod: 8, host: 3}, now.Add(cooldown-1)))
		},
		"lapsed early":    func(o *oracle) error { return o.lapsed(lease, now) },
		"lost":            func(o *oracle) error { return o.compare(held(a), now, known) },
		"not held":        func(o *oracle) error { return o.compare(held(a, b, netip.MustParseAddr("10.0.0.2")), now, known) },
		"a host that was": func(o *oracle) error { return o.compare(held(a, b), now, func(uint32) bool { return false }) },
		"ended and held":  func(o *oracle) error { return o.compare(held(a, b), later, known) },
		"another holder": func(o *oracle) error {
			o.held[a.As16()] = holding{pod: 8, host: 3}
			return o.compare(held(a, b), now, known)
		},
	} {
		if f(fresh()) == nil {
			t.Errorf("%s: not found", name)
		}
	}
	for name, f := range map[string]func(o *oracle) error{
		"all":           func(o *oracle) error { return o.compare(held(a, b), now, known) },
		"after the end": func(o *oracle) error { return o.assigned(b, holding{pod: 8, host: 3}, later) },
		"lapsed":        func(o *oracle) error { return errors.Join(o.lapsed(lease, later), o.compare(held(a), later, known)) },
		"renewed": func(o *oracle) error {
			return errors.Join(o.renewed(b, 7, later.Add(time.Hour)), o.compare(held(a, b), later, known))
		},
		"cooled": func(o *oracle) error {
			err := o.released(a, 7, 3, now)
			o.cool(now.Add(cooldown))
			return errors.Join(err, o.assigned(a, holding{pod: 8, host: 3}, now.Add(cooldown)))
		},
	} {
		if err := f(fresh()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// must panics with an error of what has to succeed.
func must(err error) error {
	if err != nil {
		panic(err)
	}
	return nil
}

// A run prints a row for each kind of call, also of a single day.
func TestRun(t *testing.T) {
	c := few(1)
	c.Days, c.Nodes, c.Pods = 1, 20, 100
	var out strings.Builder
	if err := run(t.Context(), c, &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range kindNames {
		if !strings.Contains(out.String(), "| "+name+" ") {
			t.Errorf("no row of %s in\n%s", name, &out)
		}
	}
}
