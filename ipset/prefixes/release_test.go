package prefixes

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestReleaseCutIntoCommits: each commit of a release has room for all that its steps write, in pages that they share, and a store
// that takes fewer records than the longest step may need still gets one step a commit.
func TestReleaseCutIntoCommits(t *testing.T) {
	const n = 120
	for _, ops := range []int{8, maxDepth + 2, 64, 128, 200} {
		f := faults.NewLimited(store.NewMemory(), store.Limits{Ops: ops})
		a := allocator(t, f)
		pool := prefix("10.0.0.0/24")
		if err := a.AddPool(t.Context(), Pool{pool, Sizes{25, 32}}); err != nil {
			t.Fatal(err)
		}
		for range n {
			if _, err := a.Allocate(t.Context(), Request{Pool: pool, Owner: "o", Bits: 32}); err != nil {
				t.Fatal(ops, err)
			}
		}
		f.Script(faults.From(10*n, faults.Fail(faults.ErrInjected))) // a step that is never taken would repeat without end
		if released, err := a.ReleaseByOwner(t.Context(), "o"); err != nil || len(released) != n {
			t.Errorf("a commit of %d: %d released, %v", ops, len(released), err)
		}
	}
}

// TestReleaseUpToOneInUse: what an owner's release meets before a prefix that is in use is released and returned with the error.
func TestReleaseUpToOneInUse(t *testing.T) {
	ctx := t.Context()
	a := allocator(t, store.NewMemory())
	root, used, free := prefix("10.0.0.0/8"), prefix("10.0.0.0/16"), prefix("10.1.0.0/16")
	if err := a.AddPool(ctx, Pool{root, Sizes{9, 24}}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []netip.Prefix{used, free} {
		if _, err := a.Occupy(ctx, at, Request{Pool: root, Owner: "o", Children: Sizes{20, 28}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Allocate(ctx, Request{Pool: used, Owner: "other", Bits: 24}); err != nil {
		t.Fatal(err)
	}
	released, err := a.ReleaseByOwner(ctx, "o")
	var e *ipalloc.Error
	if !errors.Is(err, ipalloc.ErrInUse) || !errors.As(err, &e) || e.Holder != "other" {
		t.Error(err)
	}
	if len(released) != 1 || released[0].Prefix != free {
		t.Errorf("released %v, want %v", released, free)
	}
	if held, err := a.Owned(ctx, "o"); err != nil || len(held) != 1 || held[0].Prefix != used {
		t.Errorf("%v, %v", held, err)
	}
	sound(t, a)
}

// TestReleaseBesideAllocate: a release that waits behind an allocation of the same owner, or from the same tree, for one commit
// releases what was held before.
func TestReleaseBesideAllocate(t *testing.T) {
	for name, release := range map[string]func(context.Context, *Allocator) ([]Holding, error){
		"by owner": func(ctx context.Context, a *Allocator) ([]Holding, error) { return a.ReleaseByOwner(ctx, "o") },
		"tree": func(ctx context.Context, a *Allocator) ([]Holding, error) {
			return a.ReleaseTree(ctx, prefix("10.0.0.0/16"), "o")
		},
	} {
		ctx := t.Context()
		f := faults.NewFaulty(store.NewMemory())
		a := allocator(t, f)
		root, region := prefix("10.0.0.0/8"), prefix("10.0.0.0/16")
		if err := a.AddPool(ctx, Pool{root, Sizes{9, 24}}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Occupy(ctx, region, Request{Pool: root, Owner: "o", Children: Sizes{20, 28}}); err != nil {
			t.Fatal(err)
		}
		underway, goOn := make(chan struct{}), make(chan struct{})
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.N == 1 {
				close(underway)
				<-goOn
			}
			return faults.Outcome{}
		})
		errs := make(chan error, 2)
		go func() {
			_, err := a.Allocate(ctx, Request{Pool: root, Owner: "leader", Bits: 20})
			errs <- err
		}()
		<-underway
		go func() {
			_, err := a.Allocate(ctx, Request{Pool: region, Owner: "o", Bits: 24})
			errs <- err
		}()
		waiting := func(n int) {
			for got := 0; got < n; got, _ = a.run.Waiting() {
				runtime.Gosched()
			}
		}
		waiting(1)
		var released []Holding
		done := make(chan error)
		go func() {
			var err error
			released, err = release(ctx, a)
			done <- err
		}()
		waiting(2)
		close(goOn)
		for _, c := range []chan error{errs, errs, done} {
			if err := <-c; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !slices.ContainsFunc(released, func(h Holding) bool { return h.Prefix == region }) {
			t.Errorf("%s: released %v, which lacks %v", name, released, region)
		}
		sound(t, a)
	}
}

// TestReleasedPrefixesLeaveNoRecord: after every way in which holdings end, the store has the records that it had before them.
func TestReleasedPrefixesLeaveNoRecord(t *testing.T) {
	ctx := t.Context()
	for end, undo := range map[string]func(w *leased, tree, leaf Holding) error{
		"Release": func(w *leased, tree, leaf Holding) error {
			return errors.Join(w.Release(ctx, leaf.Prefix, "leaf"), w.Release(ctx, tree.Prefix, "tree"), w.ReleaseLeases())
		},
		"ReleaseByOwner": func(w *leased, _, _ Holding) (err error) {
			for _, owner := range []string{"leaf", "tree"} {
				_, also := w.ReleaseByOwner(ctx, owner)
				err = errors.Join(err, also)
			}
			return errors.Join(err, w.ReleaseLeases())
		},
		"ReleaseTree": func(w *leased, tree, _ Holding) error {
			_, err := w.ReleaseTree(ctx, tree.Prefix, "tree")
			return errors.Join(err, w.ReleaseLeases())
		},
		"after a transfer": func(w *leased, tree, leaf Holding) error {
			_, err := w.Transfer(ctx, leaf.Prefix, "leaf", "another")
			return errors.Join(err, w.Release(ctx, leaf.Prefix, "another"), w.Release(ctx, tree.Prefix, "tree"), w.ReleaseLeases())
		},
		"leases end": func(w *leased, tree, leaf Holding) error {
			_, err := w.Renew(ctx, leaf.Prefix, "leaf", RenewArgs{TTL: time.Minute})
			w.now = w.now.Add(time.Hour)
			_, swept := w.Sweep(ctx)
			return errors.Join(err, swept, w.Release(ctx, tree.Prefix, "tree"))
		},
	} {
		w := newLeased(t)
		w.give("first", 28, time.Minute) // the record of the pools shows from the first lease on that there are leases
		if err := w.ReleaseLeases(); err != nil {
			t.Fatal(err)
		}
		before := keyed(t, w.store)
		w.give("client", 28, time.Minute)
		tree, err := w.Assign(ctx, Request{Pool: leasePool, Owner: "tree", Bits: 26, Children: Sizes{27, 32}, Attributes: "a"})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := w.Assign(ctx, Request{Pool: tree.Prefix, Owner: "leaf", Bits: 30})
		if err == nil {
			err = undo(w, tree, leaf)
		}
		if after := keyed(t, w.store); err != nil || !maps.Equal(after, before) {
			t.Errorf("%s: %v, %q, before %q", end, err, after, before)
		}
	}
}

// ReleaseLeases lets the lease end.
func (w *leased) ReleaseLeases() error {
	w.now = w.now.Add(time.Hour)
	_, err := w.Sweep(w.t.Context())
	return err
}

// keyed returns all records of a store.
func keyed(t *testing.T, db store.Store) map[string]string {
	recs, _, err := db.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, r := range recs {
		all[r.Key] = r.Value
	}
	return all
}
