package prefixes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Callers that leave at any moment share no memory with the commit that they have left
// (the race detector sees it), and an owner that is released afterwards holds nothing.
func TestCallersLeave(t *testing.T) {
	f := faults.NewFaulty(store.NewMemory())
	a, err := New(f, Options{Attempts: 1000})
	if err != nil {
		t.Fatal(err)
	}
	pool := netip.MustParsePrefix("10.0.0.0/16")
	if err := a.AddPool(t.Context(), Pool{pool, Sizes{20, 28}}); err != nil {
		t.Fatal(err)
	}
	f.Script(func(context.Context, faults.Call) faults.Outcome {
		runtime.Gosched()
		return faults.Outcome{}
	})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			owner := fmt.Sprint("owner", w)
			for range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				go func(n int) {
					for range n {
						runtime.Gosched()
					}
					cancel()
				}(rng.IntN(40))
				r := Request{Pool: pool, Owner: owner, Bits: 24 + rng.IntN(5)}
				switch rng.IntN(8) {
				case 0, 1:
					_, _ = a.Allocate(ctx, r)
				case 2:
					_, _ = a.Assign(ctx, r)
				case 3:
					_, _ = a.Occupy(ctx, netip.PrefixFrom(pool.Addr(), 28), r)
				case 4:
					_, _ = a.ReleaseByOwner(ctx, owner)
				case 5:
					_, _ = a.Fits(ctx, pool, 24)
				case 6:
					_, _ = a.Owned(ctx, owner)
					_, _ = a.Pools(ctx)
					_, _ = a.Get(ctx, netip.PrefixFrom(pool.Addr(), 28))
				case 7:
					_, _ = a.Transfer(ctx, netip.PrefixFrom(pool.Addr(), 28), owner, "owner0")
					_, _ = a.Utilization(ctx, pool)
				}
				cancel()
			}
		}()
	}
	wg.Wait()
	f.Script(nil)
	for w := range 8 {
		if _, err := a.ReleaseByOwner(t.Context(), fmt.Sprint("owner", w)); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := a.Check(t.Context())
	if err != nil || len(rep.Problems) > 0 || rep.Holdings > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// The last RemovePool leaves no record.
func TestLastPoolLeavesNothing(t *testing.T) {
	s := store.NewMemory()
	a := allocator(t, s)
	for range 2 {
		for _, pool := range []netip.Prefix{prefix("10.0.0.0/8"), prefix("fd00::/40")} {
			if err := a.AddPool(t.Context(), Pool{pool, Sizes{pool.Bits() + 4, pool.Bits() + 20}}); err != nil {
				t.Fatal(err)
			}
			h, err := a.Allocate(t.Context(), Request{Pool: pool, Owner: "o", Bits: pool.Bits() + 13})
			if err == nil {
				err = a.Release(t.Context(), h.Prefix, "o")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for left, pool := range []netip.Prefix{prefix("fd00::/40"), prefix("10.0.0.0/8")} {
			if err := a.RemovePool(t.Context(), pool); err != nil || len(records(t, s)) != 1-left {
				t.Fatalf("%v, %d records are left", err, len(records(t, s)))
			}
		}
	}
}

// A commit of AddPool with unknown outcome adds nothing once the allocator's next call has answered, although the record of the
// root pools is deleted meanwhile.
func TestLateAddPool(t *testing.T) {
	for lost := 1; lost <= 2; lost++ {
		f, late := faults.NewFaulty(store.NewMemory()), make(chan struct{})
		a, other := allocator(t, f), allocator(t, f)
		f.Script(faults.AtCommit(lost, faults.Late(late)))
		if err := a.AddPool(t.Context(), Pool{prefix("10.0.0.0/8"), Sizes{9, 20}}); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		f.Script(nil)
		if pools, err := a.Pools(t.Context()); err != nil || len(pools) > 0 {
			t.Fatal(pools, err)
		}
		if err := other.AddPool(t.Context(), Pool{prefix("11.0.0.0/8"), Sizes{9, 20}}); err != nil {
			t.Fatal(err)
		}
		if err := other.RemovePool(t.Context(), prefix("11.0.0.0/8")); err != nil {
			t.Fatal(err)
		}
		close(late)
		f.Settle()
		for _, x := range []*Allocator{a, other} {
			if pools, err := x.Pools(t.Context()); err != nil || len(pools) > 0 {
				t.Errorf("commit %d: %v, %v", lost, pools, err)
			}
		}
	}
}

// No flipped bit of any record makes a call panic.
func TestFlippedBits(t *testing.T) {
	ctx := t.Context()
	s, _ := furnished(t)
	for _, rec := range records(t, s) {
		for i := range len(rec.Value) {
			s, _ := furnished(t)
			b := []byte(rec.Value)
			b[i] ^= 1 << (i % 8)
			if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: rec.Key, Value: string(b), Expect: store.AnyRevision}}); err != nil {
				t.Fatal(err)
			}
			a, err := New(s, Options{Attempts: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, pool := range []string{"10.0.0.0/8", "10.0.0.0/16", "fd00::/40"} {
				p := netip.MustParsePrefix(pool)
				_, _ = a.Allocate(ctx, Request{Pool: p, Owner: "new", Bits: p.Bits() + 12})
				_, _ = a.Levels(ctx, p)
				_ = a.RemovePool(ctx, p)
			}
			for w := range 4 {
				_, _ = a.Owned(ctx, fmt.Sprint("owner", w))
				_, _ = a.ReleaseByOwner(ctx, fmt.Sprint("owner", w))
			}
			_, _ = a.Path(ctx, netip.MustParsePrefix("10.0.0.0/32"))
			_, _ = a.Repair(ctx)
			if _, err := a.Check(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}
