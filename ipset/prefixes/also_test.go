package prefixes

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// rowOf returns the caller's record in a store, "" if there is none.
func rowOf(t *testing.T, s store.Store) string {
	t.Helper()
	recs, err := s.Get(t.Context(), nil, "Row")
	if err != nil {
		t.Fatal(err)
	}
	return recs[0].Value
}

// TestAlso: records of the caller are written with every change of a holding and only then, and a revision that is not there stops
// both.
func TestAlso(t *testing.T) {
	ctx, s := t.Context(), store.NewMemory()
	a, pool := allocator(t, s), prefix("10.0.0.0/8")
	if err := a.AddPool(ctx, Pool{pool, Sizes{9, 24}}); err != nil {
		t.Fatal(err)
	}
	at, r := prefix("10.0.0.0/16"), Request{Pool: pool, Owner: "o", Bits: 16}
	for i, step := range []func(also ...store.Op) error{
		func(also ...store.Op) error { return second(a.Allocate(ctx, r, also...)) },
		func(also ...store.Op) error { return second(a.SetAttributes(ctx, at, "o", "x", also...)) },
		func(also ...store.Op) error { return second(a.SetChildren(ctx, at, "o", Sizes{20, 24}, also...)) },
		func(also ...store.Op) error { return second(a.Transfer(ctx, at, "o", "p", also...)) },
		func(also ...store.Op) error { return a.Release(ctx, at, "p", also...) },
		func(also ...store.Op) error { return second(a.Assign(ctx, r, also...)) },
		func(also ...store.Op) error { return a.Release(ctx, at, "o", also...) },
		func(also ...store.Op) error { return second(a.Occupy(ctx, at, r, also...)) },
	} {
		before := fmt.Sprint(records(t, s))
		err := step(store.Op{Kind: store.Guard, Key: "Other", Expect: 7})
		if key, ok := store.ConflictKey(err); !errors.Is(err, ipalloc.ErrConflict) || !ok || key != "Other" {
			t.Fatalf("step %d: %v", i, err)
		}
		if after := fmt.Sprint(records(t, s)); after != before {
			t.Fatalf("step %d: changed by a call that failed", i)
		}
		value := fmt.Sprint("row ", i)
		if err := step(store.Op{Kind: store.Put, Key: "Row", Value: value, Expect: store.AnyRevision}); err != nil || rowOf(t, s) != value {
			t.Fatalf("step %d: %v, %q", i, err, rowOf(t, s))
		}
	}
	put := store.Op{Kind: store.Put, Key: "Row", Value: "again", Expect: store.AnyRevision}
	for _, err := range []error{second(a.Assign(ctx, r, put)), second(a.Occupy(ctx, at, r, put))} {
		if err != nil || rowOf(t, s) == "again" {
			t.Errorf("written for a holding that was there: %v", err)
		}
	}
	for _, key := range []string{"", "x", "Xh", "Lpods", "row"} {
		err := second(a.Allocate(ctx, r, store.Op{Kind: store.Put, Key: key, Expect: store.AnyRevision}))
		refused(t, fmt.Sprintf("key %q", key), err, "also", ipalloc.ErrInvalid)
	}
}

// TestAlsoThatDoesNotFit: a change and the records of the caller are made together, or neither is, whatever a commit takes.
func TestAlsoThatDoesNotFit(t *testing.T) {
	ctx, pool := t.Context(), prefix("10.0.0.0/8")
	refused := 0
	for n := 1; n <= 16; n++ {
		s := store.NewMemory()
		if err := allocator(t, s).AddPool(ctx, Pool{pool, Sizes{9, 24}}); err != nil {
			t.Fatal(err)
		}
		var also []store.Op
		for i := range n {
			also = append(also, store.Op{Kind: store.Put, Key: fmt.Sprint("Row", i), Value: "x"})
		}
		before := len(records(t, s))
		a := allocator(t, faults.NewLimited(s, store.Limits{Ops: 16}))
		h, err := a.Allocate(ctx, Request{Pool: pool, Owner: "o", Bits: 16}, also...)
		rows, _, _ := s.List(ctx, store.Range{From: "Row", To: "Rox"})
		holds, lookErr := a.Owned(ctx, "o")
		if lookErr != nil {
			t.Fatal(lookErr)
		}
		switch made := err == nil; {
		case made && (len(rows) != n || len(holds) != 1), !made && (!errors.Is(err, ipalloc.ErrLimit) || len(records(t, s)) != before):
			t.Errorf("%d records: %v, %v; %d are there, and %v", n, h, err, len(rows), holds)
		case !made:
			refused++
		}
	}
	if refused == 0 || refused == 16 {
		t.Errorf("%d refused", refused)
	}
}

// TestNew: a caller whose owner is a constant learns whether the prefix was there.
func TestNew(t *testing.T) {
	s := store.NewMemory()
	pool := prefix("10.0.0.0/8")
	for i := range 2 {
		a := allocator(t, s)
		if err := a.AddPool(t.Context(), Pool{pool, Sizes{8, 24}}); err != nil {
			t.Fatal(err)
		}
		_, assigned := a.Assign(t.Context(), Request{Pool: pool, Owner: "o", Bits: 16, New: true})
		_, occupied := a.Occupy(t.Context(), prefix("10.9.0.0/24"), Request{Pool: pool, Owner: "o", New: true})
		for _, err := range []error{assigned, occupied} {
			var e *ipalloc.Error
			if there := errors.Is(err, ipalloc.ErrExists); there != (i > 0) || there && (!errors.As(err, &e) || e.Holder != "o" || !e.InTheWay.IsValid()) {
				t.Errorf("process %d: %v", i, err)
			}
		}
	}
}
