package ipset

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/selector"
)

// key returns a selector of what has a label with a value.
func key(k, v string) selector.Selector {
	return selector.Selector{{Labels: []selector.Requirement{{Key: k, Op: selector.In, Values: []string{v}}}}}
}

// labelled is a world with a pool for owners of zone a and namespaces of team x, and one for all.
func labelled(t *testing.T) *world {
	red := poolOf("red", "10.0.0.0/24", 28)
	red.Nodes, red.Namespaces, red.Priority, red.Manual = key("zone", "a"), key("team", "x"), 1, true
	w := newWorld(t, alloc.Config{}, red, poolOf("all", "10.0.1.0/24", 28))
	w.core.Labels = func(o alloc.Owner) (map[string]string, bool) {
		switch o {
		case alloc.HostOwner("in"), alloc.VirtualOwner("in"):
			return map[string]string{"zone": "a"}, true
		}
		return nil, o.Name != "ghost"
	}
	return w
}

// A pool selects a virtual owner by its labels as it does a host, and an owner that does not exist gets nothing.
func TestLabelsOfEveryOwner(t *testing.T) {
	w := labelled(t)
	red, _ := w.Pools(bg)
	red[0].Manual = false
	if err := w.UpdatePool(bg, red[0]); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []alloc.OwnerKind{alloc.Host, alloc.Virtual} {
		for name, want := range map[string]string{"in": "10.0.0.0/24", "out": "10.0.1.0/24", "ghost": ""} {
			o := alloc.Owner{Kind: kind, Name: name}
			got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: o, Num4: 1, Namespace: map[string]string{"team": "x"}})
			blocks, err2 := w.EnsureBlock(bg, alloc.AssignArgs{Owner: o, Num4: 1})
			_, err3 := w.AssignIP(bg, alloc.AssignIPArgs{Owner: o, Address: ip("10.0.1.200")})
			if want == "" {
				if !errors.Is(err, ipalloc.ErrNotFound) || !errors.Is(err2, ipalloc.ErrNotFound) || !errors.Is(err3, ipalloc.ErrNotFound) {
					t.Errorf("%s: %v, %v, %v", o, err, err2, err3)
				}
				continue
			}
			if err != nil || err2 != nil || len(blocks) != 1 || !netip.MustParsePrefix(want).Contains(got.V4[0].Address) {
				t.Errorf("%s: %v, %v, %v, %v", o, got, err, blocks, err2)
			}
		}
	}
	for _, o := range []alloc.Owner{{Kind: alloc.Virtual, Name: "in"}, alloc.HostOwner("in")} {
		if _, err := w.ReleaseByHost(bg, o); err != nil {
			t.Fatal(err)
		}
	}
	// Without the label the pool no longer selects the virtual owner either: its empty block goes back.
	w.core.Labels = func(alloc.Owner) (map[string]string, bool) { return nil, true }
	s, err := w.Operator().Sweep(bg, alloc.SweepArgs{Unselected: true})
	if err != nil || len(s.Returned) != 2 {
		t.Errorf("returned %v, %v", s.Returned, err)
	}
}

// An empty block of no pool is one that no pool selects for its owner. One of a size that its pool no longer has is like any other.
func TestSweepReturnsBlocksOfFormerPools(t *testing.T) {
	for returned, change := range []func(*world) error{
		func(w *world) error { return w.UpdatePool(bg, poolOf("a", "10.0.0.0/24", 29)) },
		func(w *world) error { return w.RemovePool(bg, "a") },
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		if _, err := w.EnsureBlock(bg, want("h", 1, "")); err != nil {
			t.Fatal(err)
		}
		if err := change(w); err != nil {
			t.Fatal(err)
		}
		if s, err := w.Operator().Sweep(bg, alloc.SweepArgs{Unselected: true}); err != nil || len(s.Returned) != returned || len(w.blocksOf("h")) != 1-returned {
			t.Errorf("returned %v, want %d, %v", s.Returned, returned, err)
		}
	}
}

// AssignIP applies selectors only where it is asked to; that the pool is manual never stands in the way, and neither do
// selectors of an address that the handle holds already.
func TestAssignIPSelectors(t *testing.T) {
	w := labelled(t)
	x := map[string]string{"team": "x"}
	for name, tt := range map[string]struct {
		owner     string
		namespace map[string]string
		selectors bool
		ok        bool
	}{
		"not asked":         {"out", nil, false, true},
		"both match":        {"in", x, true, true},
		"owner does not":    {"out", x, true, false},
		"namespace is none": {"in", nil, true, false},
		"other namespace":   {"in", map[string]string{"team": "y"}, true, false},
	} {
		a := alloc.AssignIPArgs{Owner: alloc.HostOwner(tt.owner), Address: ip("10.0.0.7"), Handle: "h", Selectors: tt.selectors, Namespace: maps.Clone(tt.namespace)}
		before, _ := w.store.MarshalBinary()
		_, err := w.AssignIP(bg, a)
		if !tt.ok {
			e := (*ipalloc.Error)(nil)
			if !errors.Is(err, cause.NoPool) || !errors.As(err, &e) || e.Name != "red" {
				t.Errorf("%s: %v", name, err)
			}
			if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
				t.Errorf("%s changed the store", name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a.Owner, a.Selectors, a.Namespace = alloc.HostOwner("out"), true, nil
		if al, err := w.AssignIP(bg, a); err != nil || al.Address != a.Address {
			t.Errorf("%s, once more: %v, %v", name, al, err)
		}
		w.releaseHandle("h")
	}
	a := alloc.AssignIPArgs{Owner: alloc.HostOwner("in"), Address: ip("10.0.0.7"), Handle: "h", Selectors: true, Namespace: x, Request: "r"}
	if _, err := w.AssignIP(bg, a); err != nil {
		t.Fatal(err)
	}
	a.Namespace = map[string]string{"team": "z"}
	if _, err := w.AssignIP(bg, a); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("the same key with another namespace: %v", err)
	}
}

// Sweep asks for no labels of nobody, whose block it may meet where an owner has left it since the list.
func TestSweepAsksForNoLabelsOfNobody(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
	f := faults.NewFaulty(w.store)
	e := w.engine(f)
	e.core.Labels = func(o alloc.Owner) (map[string]string, bool) {
		if o.Kind == alloc.Nobody {
			t.Error("labels of nobody")
		}
		return nil, true
	}
	if _, err := e.EnsureBlock(bg, alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 1}); err != nil {
		t.Fatal(err)
	}
	w.clock.add(time.Hour)
	listed, left := false, false
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if listed && !left {
			left = true
			w.assign(want("a", 1, "x"))
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a")}); err != nil {
				t.Error(err)
			}
		}
		listed = listed || c.Kind == faults.List && strings.HasPrefix(c.Range.From, record.KindEmpty)
		return faults.Outcome{}
	})
	if _, err := e.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute, Unselected: true}); err != nil || !left {
		t.Error(left, err)
	}
}
