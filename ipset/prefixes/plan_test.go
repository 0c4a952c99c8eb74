package prefixes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func sound(t *testing.T, a *Allocator) {
	t.Helper()
	if rep, err := a.Check(t.Context()); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%v, %v", rep, err)
	}
}

// TestPlanChanges: a root pool and a holding hand out other lengths from the next call on, and what is held stays held.
func TestPlanChanges(t *testing.T) {
	ctx := t.Context()
	s := store.NewMemory()
	a := allocator(t, s)
	root := prefix("10.0.0.0/8")
	if err := a.AddPool(ctx, Pool{root, Sizes{12, 16}}); err != nil {
		t.Fatal(err)
	}
	region, err := a.Allocate(ctx, Request{Pool: root, Owner: "region", Bits: 16})
	if err != nil {
		t.Fatal(err)
	}
	gives := func(pool netip.Prefix, bits int, want error) {
		t.Helper()
		if _, err := a.Allocate(ctx, Request{Pool: pool, Owner: "x", Bits: bits}); !errors.Is(err, want) {
			t.Errorf("/%d of %v: %v", bits, pool, err)
		}
	}
	gives(region.Prefix, 24, ipalloc.ErrNotFound)
	if err := a.SetSizes(ctx, root, Sizes{8, 16}); err != nil { // a root pool may hand out itself
		t.Fatal(err)
	}
	if err := a.SetSizes(ctx, root, Sizes{20, 22}); err != nil {
		t.Fatal(err)
	}
	before, _ := s.MarshalBinary()
	if err := a.SetSizes(ctx, root, Sizes{20, 22}); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.MarshalBinary(); string(after) != string(before) {
		t.Error("a pool that has these sizes is written")
	}
	gives(root, 16, ipalloc.ErrOutOfRange)
	gives(root, 20, nil)
	set := func(children Sizes, want error) {
		t.Helper()
		h, err := a.SetChildren(ctx, region.Prefix, "region", children)
		if !errors.Is(err, want) || err == nil && h.Children != children {
			t.Errorf("%v: %v, %v", children, h, err)
		}
	}
	set(Sizes{}, nil)
	set(Sizes{24, 28}, nil)
	gives(region.Prefix, 24, nil)
	set(Sizes{26, 30}, nil)
	gives(region.Prefix, 24, ipalloc.ErrOutOfRange)
	gives(region.Prefix, 30, nil)
	set(Sizes{}, ipalloc.ErrInUse)
	set(Sizes{16, 20}, ipalloc.ErrInvalid)
	sound(t, a)
	if _, err := a.ReleaseByOwner(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	set(Sizes{}, nil)
	for _, err := range []error{a.SetSizes(ctx, root, Sizes{7, 9}), a.SetSizes(ctx, root, Sizes{})} {
		refused(t, "SetSizes", err, "sizes", ipalloc.ErrInvalid)
	}
	refused(t, "SetSizes", a.SetSizes(ctx, region.Prefix, Sizes{20, 24}), "", ipalloc.ErrNotFound)
	_, err = a.SetChildren(ctx, region.Prefix, "x", Sizes{20, 24})
	refused(t, "SetChildren", err, "", ipalloc.ErrNotHeld)
	sound(t, a)
}

// TestWholePools: a root pool hands out itself, down to a single address, and one of all IPv6 addresses single ones; nothing is left
// when all is released.
func TestWholePools(t *testing.T) {
	for _, tt := range []struct {
		pool  string
		sizes Sizes
	}{{"10.0.0.1/32", Sizes{32, 32}}, {"10.0.0.0/31", Sizes{31, 32}}, {"0.0.0.0/0", Sizes{0, 32}}, {"::/0", Sizes{0, 128}}, {"fd00::1/128", Sizes{128, 128}}} {
		ctx, s := t.Context(), store.NewMemory()
		a, pool := allocator(t, s), prefix(tt.pool)
		if err := a.AddPool(ctx, Pool{pool, tt.sizes}); err != nil {
			t.Fatal(err)
		}
		whole, err := a.Assign(ctx, Request{Pool: pool, Owner: "o", Bits: pool.Bits()})
		if err != nil || whole.Prefix != pool || whole.Pool != pool {
			t.Fatal(whole, err)
		}
		sound(t, a)
		if u, err := a.Utilization(ctx, pool); err != nil || u.Held[pool.Bits()] != 1 || u.Ratio() != 1 || u.LargestFree() != -1 {
			t.Errorf("%v: %+v, %v", pool, u, err)
		}
		var e *ipalloc.Error
		if err := a.RemovePool(ctx, pool); !errors.Is(err, ipalloc.ErrInUse) || !errors.As(err, &e) || e.Holder != "o" {
			t.Errorf("%v: %v", pool, err)
		}
		if _, err := a.Allocate(ctx, Request{Pool: pool, Owner: "o", Bits: tt.sizes.Longest}); !errors.Is(err, ipalloc.ErrFull) {
			t.Errorf("%v: %v", pool, err)
		}
		if path, err := a.Path(ctx, pool); err != nil || len(path) != 1 {
			t.Errorf("%v: %v, %v", pool, path, err)
		}
		_, err = a.SetChildren(ctx, pool, "o", tt.sizes)
		refused(t, "SetChildren of "+tt.pool, err, "Children", ipalloc.ErrInvalid)
		if err := a.Release(ctx, pool, "o"); err != nil {
			t.Fatal(err)
		}
		one, err := a.Allocate(ctx, Request{Pool: pool, Owner: "o", Bits: tt.sizes.Longest})
		if err != nil {
			t.Fatal(err)
		}
		sound(t, a)
		if err := a.Release(ctx, one.Prefix, "o"); err != nil {
			t.Fatal(err)
		}
		if err := a.RemovePool(ctx, pool); err != nil || len(records(t, s)) != 0 {
			t.Errorf("%v: %v, %v", pool, err, records(t, s))
		}
	}
}

// TestReleaseTree: a tree of several owners is released by one call, which goes on where it was cut off at any store call, and the
// prefixes beside it stay.
func TestReleaseTree(t *testing.T) {
	ctx := t.Context()
	for k, met := 1, true; met; k++ {
		_, seed := furnished(t)
		f := faults.NewLimited(seed.store, store.Limits{Ops: 48})
		a := allocator(t, f)
		all, _, err := a.State(ctx, netip.Prefix{})
		if err != nil {
			t.Fatal(err)
		}
		region := prefix("10.0.0.0/16")
		inside := slices.DeleteFunc(slices.Clone(all), func(h Holding) bool { return !region.Overlaps(h.Prefix) })
		met = false
		n := 0
		f.Script(func(context.Context, faults.Call) faults.Outcome {
			if n++; n == k {
				met = true
				return faults.Fail(faults.ErrInjected)
			}
			return faults.Outcome{}
		})
		released, err := a.ReleaseTree(ctx, region, "owner0")
		f.Script(nil)
		if met != (err != nil) {
			t.Fatalf("call %d: %v", k, err)
		}
		if met {
			more, err := a.ReleaseTree(ctx, region, "owner0")
			if released = append(released, more...); err != nil {
				t.Fatalf("call %d: %v", k, err)
			}
		}
		if len(released) != len(inside) || released[len(released)-1].Prefix != region {
			t.Fatalf("call %d: released %v of %v", k, released, inside)
		}
		left, _, err := a.State(ctx, netip.Prefix{})
		if err != nil || len(left) != len(all)-len(inside) {
			t.Fatalf("call %d: %v is left, %v", k, left, err)
		}
		sound(t, a)
		_, err = a.ReleaseTree(ctx, region, "owner0")
		refused(t, "ReleaseTree", err, "", ipalloc.ErrNotHeld)
	}
}

// TestChangesFromTheState: after 0 the present state comes, the last of it with its revision, and then the commits.
func TestChangesFromTheState(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, a := furnished(t)
	held, rev, err := a.State(ctx, netip.Prefix{})
	if err != nil || len(held) == 0 || rev == 0 {
		t.Fatal(held, rev, err)
	}
	got := map[netip.Prefix]Holding{}
	n := 0
	for c, err := range a.Changes(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if got[c.Prefix] = c.Holding; c.Holding == (Holding{}) {
			delete(got, c.Prefix)
		}
		if n++; n < len(held) != (c.Rev == 0) {
			t.Errorf("change %d: revision %d", n, c.Rev)
		}
		if n == len(held) {
			if c.Rev != rev {
				t.Errorf("revision %d, want %d", c.Rev, rev)
			}
			if err := a.Release(ctx, prefix("10.0.0.128/25"), "owner3"); err != nil {
				t.Fatal(err)
			}
		}
		if n > len(held) {
			break
		}
	}
	want := map[netip.Prefix]Holding{}
	for h, err := range a.All(ctx, netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		want[h.Prefix] = h
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
