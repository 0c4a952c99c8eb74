package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// copySource returns a store with blocks, handles and leases in it.
func copySource(t *testing.T) *store.Memory {
	t.Helper()
	s := store.NewMemory()
	e, err := ipset.New(s, ipset.Options{})
	if err == nil {
		err = e.AddPool(t.Context(), alloc.Pool{Name: "pool", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 29})
	}
	for i := range 40 {
		if err == nil {
			_, err = e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("host", i%5)), Num4: 2, Use: alloc.Workload,
				Claim: alloc.Claim{Handle: fmt.Sprint("pod", i)}, Request: fmt.Sprint("request", i)})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holds returns who has which address in a store, having checked that it is consistent.
func holds(t *testing.T, s store.Store) map[netip.Addr]string {
	t.Helper()
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := e.Operator().Check(t.Context(), nil)
	if err != nil || len(rep.Problems) > 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	out := make(map[netip.Addr]string)
	for al, err := range e.Allocations(t.Context(), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		out[al.Address] = al.Handle
	}
	return out
}

// tight is what a store accepts in one commit in these tests.
var tight = store.Limits{Ops: 7, Bytes: 500}

// A copy holds what the original does, within the limits of the store copied to; copied again it is left alone.
func TestCopy(t *testing.T) {
	src := copySource(t)
	want := holds(t, src)
	mem := store.NewMemory()
	dst := faults.NewLimited(mem, tight)
	rep, err := store.Copy(t.Context(), dst, src)
	if err != nil || rep.Written != rep.Records || rep.Records < 80 {
		t.Fatalf("%+v, %v", rep, err)
	}
	got := holds(t, dst)
	if len(got) != len(want) || len(want) != 80 {
		t.Fatalf("%d addresses, want %d", len(got), len(want))
	}
	for a, h := range want {
		if got[a] != h {
			t.Errorf("%v is held by %q, was by %q", a, got[a], h)
		}
	}
	if rep, err := store.Copy(t.Context(), dst, src); err != nil || rep.Written != 0 {
		t.Errorf("again: %+v, %v", rep, err)
	}
	e, err := ipset.New(mem, ipset.Options{}) // whose own commits are larger
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.ReleaseByHandle(t.Context(), "pod7"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Copy(t.Context(), dst, src); !errors.Is(err, ipalloc.ErrExists) {
		t.Errorf("onto a store in use: %v", err)
	}
}

// A copy that is interrupted anywhere, before or after a commit is made, is of no use to an engine, and goes on.
func TestCopyInterrupted(t *testing.T) {
	src := copySource(t)
	want := len(holds(t, src))
	for _, fault := range []faults.Outcome{faults.Fail(faults.ErrInjected), faults.Unknown(true), faults.Unknown(false)} {
		met := true
		for k := 1; met; k++ {
			dst := faults.NewLimited(store.NewMemory(), tight)
			dst.Script(faults.At(k, fault))
			_, err := store.Copy(t.Context(), dst, src)
			met = dst.Counts().Calls() >= k
			dst.Script(nil)
			if !met {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if !errors.Is(err, faults.ErrInjected) {
				t.Fatalf("fault %d: %v", k, err)
			}
			if recs, err := dst.Get(t.Context(), nil, "c"); err != nil || recs[0].Rev != 0 && !fault.Made && !refused(t, dst) {
				t.Fatalf("fault %d: the catalog is there, %v", k, err)
			}
			if _, err := store.Copy(t.Context(), dst, src); err != nil {
				t.Fatalf("after fault %d: %v", k, err)
			}
			if got := holds(t, dst); len(got) != want {
				t.Fatalf("after fault %d: %d addresses, want %d", k, len(got), want)
			}
		}
	}
}

// refused reports whether a store says that it is being copied into, and an engine on it assigns nothing.
func refused(t *testing.T, db store.Store) bool {
	t.Helper()
	e, err := ipset.New(db, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, assigned := e.Assign(t.Context(), alloc.HostOwner("h"), "somebody")
	added := e.AddPool(t.Context(), alloc.Pool{Name: "new", Prefix: netip.MustParsePrefix("10.77.0.0/24")})
	_, listed := e.Pools(t.Context())
	return errors.Is(store.Complete(t.Context(), db), ipalloc.ErrInUse) && assigned != nil && added != nil && listed != nil
}

// A store that changes while it is copied is not taken for whole, and one that holds something else is not written to.
func TestCopyRefuses(t *testing.T) {
	src := copySource(t)
	busy := faults.NewFaulty(src)
	busy.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.List && c.Nth == 2 {
			if _, err := src.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "q-somebody", Expect: store.AnyRevision}}); err != nil {
				t.Error(err)
			}
		}
		return faults.Outcome{}
	})
	dst := store.NewMemory()
	if _, err := store.Copy(t.Context(), dst, busy); !errors.Is(err, ipalloc.ErrMismatch) {
		t.Errorf("a busy source: %v", err)
	}
	if !refused(t, dst) {
		t.Error("the catalog was written")
	}
	other := store.NewMemory()
	if _, err := other.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "x"}}); err != nil {
		t.Fatal(err)
	}
	if rep, err := store.Copy(t.Context(), other, src); !errors.Is(err, ipalloc.ErrExists) || rep.Written != 0 {
		t.Errorf("onto something else: %+v, %v", rep, err)
	}
	mem := store.NewMemory()
	racing := faults.NewFaulty(mem)
	racing.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && c.Nth == 2 { // the first one is the mark
			if _, err := mem.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "q-somebody"}}); err != nil {
				t.Error(err)
			}
		}
		return faults.Outcome{}
	})
	if _, err := store.Copy(t.Context(), racing, src); !errors.Is(err, ipalloc.ErrExists) {
		t.Errorf("onto a store that somebody writes to: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Copy(ctx, store.NewMemory(), src); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if rep, err := store.Copy(t.Context(), store.NewMemory(), store.NewMemory()); err != nil || rep != (store.CopyReport{}) {
		t.Errorf("nothing: %+v, %v", rep, err)
	}
}
