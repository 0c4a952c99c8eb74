package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// twoFamilies is a world with a pool of each family.
func twoFamilies(t *testing.T) *world {
	four, six := poolOf("four", "10.0.0.0/28", 28), poolOf("six", "fd00::/124", 124)
	four.Index = []string{"tenant"}
	return newWorld(t, alloc.Config{}, four, six)
}

// gotAll returns the addresses of a call that must succeed.
func gotAll(t *testing.T, got alloc.Assigned, err error) (as []netip.Addr) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, al := range append(got.V4, got.V6...) {
		as = append(as, al.Address)
	}
	return as
}

// A call for what a handle holds returns as many addresses of each family as it asks for: the first holding first, and new ones where the
// handle holds too few.
func TestExistingCounts(t *testing.T) {
	for name, call := range map[string]func(*Engine, alloc.AssignArgs) (alloc.Assigned, error){
		"Existing": func(e *Engine, a alloc.AssignArgs) (alloc.Assigned, error) {
			a.Existing = true
			return e.AutoAssign(bg, a)
		},
		"Offer": func(e *Engine, a alloc.AssignArgs) (alloc.Assigned, error) { return e.Offer(bg, a) },
	} {
		w := twoFamilies(t)
		one := alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: "c", TTL: time.Minute}
		got, err := call(w.Engine, one)
		first := gotAll(t, got, err)
		named, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.9"), Owner: alloc.HostOwner("h"), Handle: "c", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		got, err = call(w.Engine, one)
		if again := gotAll(t, got, err); !slices.Equal(again, first) {
			t.Errorf("%s: one of two held: %v, want %v", name, again, first)
		}
		if al, err := w.Lookup(bg, named.Address); err != nil || !al.Until.Equal(named.Until) {
			t.Errorf("%s: the other: %+v, %v", name, al, err)
		}
		w.check()
		both := one
		both.Num4, both.Num6 = 3, 1
		got, err = call(w.Engine, both)
		all := gotAll(t, got, err)
		if len(got.V4) != 3 || len(got.V6) != 1 || all[0] != first[0] || all[1] != named.Address {
			t.Errorf("%s: 3 and 1, of which 2 are held: %v", name, all)
		}
		w.check()
		got, err = call(w.Engine, both)
		slices.SortFunc(all[1:3], netip.Addr.Compare)
		if again := gotAll(t, got, err); !slices.Equal(again, all) {
			t.Errorf("%s: all held, the first holding first: %v, want %v", name, again, all)
		}
		six := one
		six.Num4, six.Num6 = 0, 1
		got, err = call(w.Engine, six)
		if is := gotAll(t, got, err); len(is) != 1 || !is[0].Is6() {
			t.Errorf("%s: the one of the other family: %v", name, is)
		}
		row := one
		row.Num4, row.Choose = 5, alloc.Contiguous()
		if name == "Existing" {
			if _, err := call(w.Engine, row); !errors.Is(err, ipalloc.ErrMismatch) {
				t.Errorf("5 in a row, of which 3 are held: %v", err)
			}
		}
		if held, err := w.IPsByHandle(bg, "c"); err != nil || len(held) != 4 {
			t.Errorf("%s: holds %v, %v", name, held, err)
		}
	}
}

// A handle that holds an address of one family gets one of the other, or an error where no pool has one; it keeps what it holds.
func TestExistingWithoutAPoolOfTheFamily(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("four", "10.0.0.0/28", 28))
	a := want("h", 1, "old node")
	a.Existing = true
	first := w.assign(a).V4[0]
	a.Num6 = 1
	before := w.rev()
	if got, err := w.AutoAssign(bg, a); !errors.Is(err, ipalloc.ErrNotFound) || len(got.V4) != 0 || w.rev() != before {
		t.Errorf("no IPv6 pool: %+v, %v", got, err)
	}
	if al, err := w.Engine.Assign(bg, alloc.HostOwner("h"), "old node"); err != nil || al != first {
		t.Errorf("Assign: %+v, %v", al, err)
	}
	if err := w.AddPool(bg, poolOf("six", "fd00::/124", 124)); err != nil {
		t.Fatal(err)
	}
	if got := w.assign(a); len(got.V4) != 1 || got.V4[0] != first || len(got.V6) != 1 {
		t.Errorf("with an IPv6 pool: %+v", got)
	}
	w.releaseHandle("old node")
	w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num6: 1, Handle: "six alone"})
	if al, err := w.Engine.Assign(bg, alloc.HostOwner("h"), "six alone"); err != nil || !al.Address.Is6() {
		t.Errorf("Assign returns what the handle holds: %+v, %v", al, err)
	}
}

// The attributes of a call replace those of the addresses that it finds held, with their index; a call without attributes keeps them.
func TestExistingTakesAttributes(t *testing.T) {
	red, _ := alloc.NewAttributes(map[string]string{"tenant": "red"})
	blue, _ := alloc.NewAttributes(map[string]string{"tenant": "blue"})
	for name, call := range map[string]func(w *world, a alloc.AssignArgs) (alloc.Assigned, error){
		"Existing": func(w *world, a alloc.AssignArgs) (alloc.Assigned, error) {
			a.Existing = true
			return w.AutoAssign(bg, a)
		},
		"Offer": func(w *world, a alloc.AssignArgs) (alloc.Assigned, error) { return w.Offer(bg, a) },
		"AssignIP": func(w *world, a alloc.AssignArgs) (alloc.Assigned, error) {
			al, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.0"), Owner: a.Owner, Handle: a.Handle, Attributes: a.Attributes, TTL: a.TTL})
			return alloc.Assigned{V4: []alloc.Allocation{al}}, err
		},
		"AssignIPs": func(w *world, a alloc.AssignArgs) (alloc.Assigned, error) {
			a.Num4 = 0
			return w.AssignIPs(bg, a, ip("10.0.0.0"))
		},
	} {
		w := twoFamilies(t)
		a := alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: "c", TTL: time.Minute, Attributes: red}
		w.assign(alloc.AssignArgs{Owner: a.Owner, Num6: 1, Handle: "c", Attributes: red})
		for _, step := range []struct {
			host        string
			give, after alloc.Attributes
		}{{"h", red, red}, {"h", alloc.Attributes{}, red}, {"h", blue, blue}, {"g", red, red}} {
			a.Owner, a.Attributes = alloc.HostOwner(step.host), step.give
			got, err := call(w, a)
			if err != nil || len(got.V4) != 1 || got.V4[0].Attributes != step.after || got.V4[0].Host != a.Owner {
				t.Errorf("%s, %v: %+v, %v", name, step.give, got, err)
				continue
			}
			if al, err := w.Lookup(bg, got.V4[0].Address); err != nil || al.Attributes != step.after {
				t.Errorf("%s, %v: looked up %+v, %v", name, step.give, al, err)
			}
			tenant := step.after.Map()["tenant"]
			if als, err := w.IPsByAttribute(bg, "tenant", tenant); err != nil || len(als) != 1 {
				t.Errorf("%s, %v: of %s: %v, %v", name, step.give, tenant, als, err)
			}
			w.check()
		}
		if als, err := w.IPsByHandle(bg, "c"); err != nil || len(als) != 2 || als[1].Attributes != red {
			t.Errorf("%s: the one of the other family: %+v, %v", name, als, err)
		}
	}
}

// A call that names addresses does not ask for what the handle holds instead.
func TestExistingGoesWithoutNamedAddresses(t *testing.T) {
	w := twoFamilies(t)
	a := want("h", 1, "c")
	a.Existing = true
	w.assign(a)
	if got, err := w.AssignIPs(bg, a, ip("10.0.0.7")); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("%+v, %v", got, err)
	}
}
