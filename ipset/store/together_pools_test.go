package store_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// wanted is in the block that host x claims first in a pool of blocks of /22, and in that of /26 that it is given when it asks.
var wanted = netip.MustParseAddr("10.1.188.0")

func pool(name string, bits int) alloc.Pool {
	return alloc.Pool{Name: name, Prefix: netip.MustParsePrefix("10.1.0.0/16"), BlockBits: bits}
}

func claim(ctx context.Context, e *ipset.Engine, name string, wish netip.Addr) error {
	_, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner(name), Num4: 1, Handle: name, Choose: alloc.Prefer(wish)})
	return err
}

// beside calls f in Together on a pool with blocks of /30, once for each call of the store, before which another claims a block by the pools
// that it sees. That block stays and none overlaps it, also when the new pools are used.
func beside(t *testing.T, f func(ctx context.Context, p plan) error) (errs []error) {
	t.Helper()
	ctx := t.Context()
	for k, met := 1, true; met; k++ {
		memory := store.NewMemory()
		p := planOn(t, memory)
		if err := p.AddPool(ctx, pool("a", 30)); err != nil {
			t.Fatal(err)
		}
		var late error
		db := faults.NewFaulty(memory)
		db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.N == k {
				late = claim(ctx, p.Engine, "late", wanted)
			}
			return faults.Outcome{}
		})
		err := store.Together(ctx, db, func(tx store.Store) error { return f(ctx, planOn(t, tx)) })
		if met = db.Counts().Calls() >= k; !met {
			break
		}
		errs = append(errs, err)
		held, heldErr := p.Lookup(ctx, wanted)
		if late != nil || heldErr != nil || held.Handle != "late" {
			t.Errorf("call %d: late got %v, then %+v, %v", k, late, held, heldErr)
		}
		if err := claim(ctx, p.Engine, "after", wanted); err != nil {
			t.Error(err)
		}
		for a, err := range p.Allocations(ctx, netip.Prefix{}) {
			if err != nil || a.Handle == "after" && (a.Address == wanted || a.Block.Overlaps(held.Block) && a.Block != held.Block) {
				t.Errorf("call %d: %+v beside %+v, %v", k, a, held, err)
			}
		}
		if rep, err := p.Operator().Check(ctx, nil); err != nil || len(rep.Problems) > 0 {
			t.Errorf("call %d: %v, %v", k, rep, err)
		}
	}
	return errs
}

// Others go by the pools as they were until a Together ends. A block that they claim meanwhile is not overlapped by those of the new pools,
// in whatever steps these came.
func TestTogetherChangesPoolsBesideClaims(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, p plan) error{
		"removed and added": func(ctx context.Context, p plan) error {
			if err := p.RemovePool(ctx, "a"); err != nil {
				return err
			}
			return p.AddPool(ctx, pool("b", 26))
		},
		"resized twice": func(ctx context.Context, p plan) error {
			if err := p.UpdatePool(ctx, pool("a", 26)); err != nil {
				return err
			}
			return p.UpdatePool(ctx, pool("a", 22))
		},
		"resized and used": func(ctx context.Context, p plan) error {
			if err := p.UpdatePool(ctx, pool("a", 24)); err != nil {
				return err
			}
			return claim(ctx, p.Engine, "x", netip.Addr{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range beside(t, f) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, err := range beside(t, func(ctx context.Context, p plan) error {
		if err := p.UpdatePool(ctx, pool("a", 22)); err != nil {
			return err
		}
		return claim(ctx, p.Engine, "x", netip.Addr{})
	}) {
		if e := new(ipalloc.Error); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != "store" {
			t.Errorf("more small blocks than a page has: %v", err)
		}
	}
}

// A space whose last pool goes in the same Together is not removed: others still assign from the pool.
func TestTogetherKeepsSpaceOfPublishedPools(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	red, err := planOn(t, db).InSpace("red")
	if err != nil {
		t.Fatal(err)
	}
	if err := red.AddPool(ctx, pool("a", 30)); err != nil {
		t.Fatal(err)
	}
	remove := func(pool string) error {
		return store.Together(ctx, db, func(tx store.Store) error {
			p := planOn(t, tx)
			red, err := p.InSpace("red")
			if err == nil && pool != "" {
				err = red.RemovePool(ctx, pool)
			}
			if err != nil {
				return err
			}
			return p.Operator().RemoveSpace(ctx, "red")
		})
	}
	if err := remove("a"); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("with its pool: %v", err)
	}
	if err := claim(ctx, red, "late", wanted); err != nil {
		t.Error(err)
	}
	if _, err := red.ReleaseByHandle(ctx, "late"); err != nil {
		t.Error(err)
	}
	if err := red.RemovePool(ctx, "a"); err != nil {
		t.Error(err)
	}
	if err := remove(""); err != nil {
		t.Errorf("without pools: %v", err)
	}
	if recs, _, err := db.List(ctx, store.Range{}); err != nil || len(recs) > 0 {
		t.Errorf("%v, %v", recs, err)
	}
}
