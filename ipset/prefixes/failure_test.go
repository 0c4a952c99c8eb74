package prefixes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func drain[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
		if err != nil {
			break
		}
	}
	return err
}

// calls are all calls of an allocator on furnished, with the sentinel of the answer.
var calls = map[string]struct {
	do   func(context.Context, *Allocator) error
	want error
}{
	"AddPool": {func(ctx context.Context, a *Allocator) error {
		return a.AddPool(ctx, Pool{prefix("11.0.0.0/8"), Sizes{9, 20}})
	}, nil},
	"RemovePool": {func(ctx context.Context, a *Allocator) error { return a.RemovePool(ctx, prefix("10.0.0.0/8")) }, ipalloc.ErrInUse},
	"Pools":      {func(ctx context.Context, a *Allocator) error { _, err := a.Pools(ctx); return err }, nil},
	"Assign": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Assign(ctx, Request{Pool: prefix("10.0.0.0/20"), Owner: "new", Bits: 26})
		return err
	}, nil},
	"Allocate": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Allocate(ctx, Request{Pool: prefix("10.0.0.0/16"), Owner: "new", Bits: 28})
		return err
	}, nil},
	"Occupy": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Occupy(ctx, prefix("10.0.0.0/31"), Request{Pool: prefix("10.0.0.0/20"), Owner: "new"})
		return err
	}, ipalloc.ErrOccupied},
	"Release":        {func(ctx context.Context, a *Allocator) error { return a.Release(ctx, prefix("10.0.0.0/32"), "owner2") }, nil},
	"release a pool": {func(ctx context.Context, a *Allocator) error { return a.Release(ctx, prefix("10.0.0.0/20"), "owner1") }, ipalloc.ErrInUse},
	"ReleaseByOwner": {func(ctx context.Context, a *Allocator) error { _, err := a.ReleaseByOwner(ctx, "owner3"); return err }, nil},
	"Transfer": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Transfer(ctx, prefix("10.0.0.0/20"), "owner1", "other")
		return err
	}, nil},
	"SetAttributes": {func(ctx context.Context, a *Allocator) error {
		_, err := a.SetAttributes(ctx, prefix("10.0.0.0/20"), "owner1", "b")
		return err
	}, nil},
	"Renew": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Renew(ctx, prefix("10.0.0.0/32"), "owner2", RenewArgs{TTL: time.Hour})
		return err
	}, nil},
	"Sweep": {func(ctx context.Context, a *Allocator) error { _, err := a.Sweep(ctx); return err }, nil},
	"SetSizes": {func(ctx context.Context, a *Allocator) error {
		return a.SetSizes(ctx, prefix("10.0.0.0/8"), Sizes{9, 30})
	}, nil},
	"SetChildren": {func(ctx context.Context, a *Allocator) error {
		_, err := a.SetChildren(ctx, prefix("10.0.0.0/20"), "owner1", Sizes{24, 30})
		return err
	}, nil},
	"ReleaseTree": {func(ctx context.Context, a *Allocator) error {
		_, err := a.ReleaseTree(ctx, prefix("10.0.0.0/16"), "owner0")
		return err
	}, nil},
	"State": {func(ctx context.Context, a *Allocator) error { _, _, err := a.State(ctx, netip.Prefix{}); return err }, nil},
	"Fits": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Fits(ctx, prefix("10.0.0.0/20"), 28)
		return err
	}, nil},
	"Get": {func(ctx context.Context, a *Allocator) error { _, err := a.Get(ctx, prefix("10.0.0.0/20")); return err }, nil},
	"Path": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Path(ctx, prefix("10.0.0.0/32"))
		return err
	}, nil},
	"Owned": {func(ctx context.Context, a *Allocator) error { _, err := a.Owned(ctx, "owner1"); return err }, nil},
	"All":   {func(ctx context.Context, a *Allocator) error { return drain(a.All(ctx, netip.Prefix{})) }, nil},
	"Utilization": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Utilization(ctx, prefix("10.0.0.0/8"))
		return err
	}, nil},
	"Levels": {func(ctx context.Context, a *Allocator) error {
		_, err := a.Levels(ctx, prefix("10.0.0.0/8"))
		return err
	}, nil},
	"Check":  {func(ctx context.Context, a *Allocator) error { _, err := a.Check(ctx); return err }, nil},
	"Repair": {func(ctx context.Context, a *Allocator) error { _, err := a.Repair(ctx); return err }, nil},
	"Changes": {func(ctx context.Context, a *Allocator) error {
		for _, err := range a.Changes(ctx, 1) {
			return err
		}
		return nil
	}, nil},
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// TestEveryCallFails fails the k-th call of the store under every call, for every k: the answer is that error, whatever the call
// would have answered, and no record changes.
func TestEveryCallFails(t *testing.T) {
	for i, of := 0, reflect.TypeFor[*Allocator](); i < of.NumMethod(); i++ {
		if _, ok := calls[of.Method(i).Name]; !ok {
			t.Errorf("%s is missing", of.Method(i).Name)
		}
	}
	for name, call := range calls {
		for k, met := 1, true; met; k++ {
			s, _ := furnished(t)
			if name == "Repair" {
				damage(t, s)
			}
			before := fmt.Sprint(records(t, s))
			f := faults.NewFaulty(s)
			met = false
			f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if met = met || c.N == k; c.N == k {
					return faults.Fail(faults.ErrInjected)
				}
				return faults.Outcome{}
			})
			a, err := New(f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = call.do(t.Context(), a)
			f.Script(nil)
			switch {
			case !met && !errors.Is(err, call.want):
				t.Errorf("%s: %v, want %v", name, err, call.want)
			case met && !errors.Is(err, faults.ErrInjected):
				t.Errorf("%s: call %d of the store failed, and the answer is %v", name, k, err)
			case met && name != "Repair" && fmt.Sprint(records(t, s)) != before:
				t.Errorf("%s: call %d of the store failed, and records changed", name, k)
			}
			if _, err := a.Repair(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if rep, err := a.Check(t.Context()); err != nil || len(rep.Problems) > 0 {
				t.Errorf("%s: %+v, %v", name, rep, err)
			}
		}
	}
}

// damage removes an entry of the index and a page at each depth.
func damage(t *testing.T, s *store.Memory) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range records(t, s) {
		kind := r.Key[:2]
		if id, ok := parsePageKey(r.Key); ok {
			kind += fmt.Sprint(id.depth())
		}
		if slices.Contains([]string{kindOwner, kindPage + "0", kindPage + "1"}, kind) && !seen[kind] {
			seen[kind] = true
			if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestEveryCallSettles: a commit of unknown outcome that has not been made when the allocator's next call answers is never made, a
// step of Repair included.
func TestEveryCallSettles(t *testing.T) {
	lost := map[string]func(context.Context, *Allocator) error{
		"assignment": func(ctx context.Context, a *Allocator) error {
			_, err := a.Allocate(ctx, Request{Pool: prefix("10.0.0.0/8"), Owner: "lost", Bits: 24})
			return err
		},
		"repair": calls["Repair"].do,
	}
	for what, lose := range lost {
		for name, call := range calls {
			s, _ := furnished(t)
			if what == "repair" {
				damage(t, s)
			}
			f, late := faults.NewFaulty(s), make(chan struct{})
			a, err := New(f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			f.Script(faults.AtCommit(1, faults.Late(late)))
			if err := lose(t.Context(), a); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			_ = call.do(t.Context(), a)
			before := fmt.Sprint(records(t, s))
			close(late)
			f.Settle()
			if after := fmt.Sprint(records(t, s)); after != before {
				t.Errorf("%s after a lost %s: it was made after the answer", name, what)
			}
		}
	}
}

// TestCallsThatCannotSettle fails the k-th call of the store under every call that follows a commit of unknown outcome, for every k:
// the answer is that error, and the lost commit may still be made.
func TestCallsThatCannotSettle(t *testing.T) {
	for name, call := range calls {
		for k, met := 1, true; met; k++ {
			s, _ := furnished(t)
			f := faults.NewFaulty(s)
			a := allocator(t, f)
			f.Script(faults.AtCommit(1, faults.Unknown(false)))
			if _, err := a.Allocate(t.Context(), Request{Pool: prefix("10.0.0.0/8"), Owner: "lost", Bits: 24}); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			met = false
			f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if met = met || c.N == k; c.N == k {
					return faults.Fail(ipalloc.ErrClosed)
				}
				return faults.Outcome{}
			})
			err := call.do(t.Context(), a)
			if met && !errors.Is(err, ipalloc.ErrClosed) {
				t.Errorf("%s after a lost commit: call %d of the store failed, and the answer is %v", name, k, err)
			}
		}
	}
}

// TestListOfEverythingFails: Assign does not take a list that failed for one without a holding, whatever the length of the pool.
func TestListOfEverythingFails(t *testing.T) {
	for _, pool := range []Pool{{prefix("0.0.0.0/0"), Sizes{8, 24}}, {prefix("128.0.0.0/1"), Sizes{8, 24}}} {
		f := faults.NewFaulty(store.NewMemory())
		a := allocator(t, f)
		if err := a.AddPool(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		r := Request{Pool: pool.Prefix, Owner: "o", Bits: 24}
		if _, err := a.Assign(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == faults.List {
				return faults.Fail(faults.ErrInjected)
			}
			return faults.Outcome{}
		})
		if h, err := a.Assign(t.Context(), r); !errors.Is(err, faults.ErrInjected) {
			t.Errorf("%v: %v, %v", pool.Prefix, h, err)
		}
	}
}

// TestAddPoolGivesUp: others add the first pool and remove it, each time before a read of the call.
func TestAddPoolGivesUp(t *testing.T) {
	s := store.NewMemory()
	rival, pool, reads := allocator(t, s), Pool{prefix("10.0.0.0/8"), Sizes{16, 24}}, 0
	f := faults.NewFaulty(s)
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if reads++; reads > 1000 {
			return faults.Fail(faults.ErrInjected)
		}
		if c.Kind != faults.Commit {
			if err := rival.AddPool(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			if err := rival.RemovePool(t.Context(), pool.Prefix); err != nil {
				t.Fatal(err)
			}
		}
		return faults.Outcome{}
	})
	a, err := New(f, Options{Attempts: 5})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.AddPool(t.Context(), pool); !errors.Is(err, ipalloc.ErrConflict) {
		t.Errorf("%v after %d calls of the store", err, reads)
	}
}
