package main

import (
	"context"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// listed counts the calls that read a store.
type listed struct {
	store.Store
	gets, lists int
}

func (l *listed) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	l.gets++
	return l.Store.Get(ctx, dst, keys...)
}

func (l *listed) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	l.lists++
	return l.Store.List(ctx, r)
}

// A check of a store on the network asks it once for everything, however much that is: many small ranges are what an etcd is slow at.
func TestCheckAsksOnce(t *testing.T) {
	db := store.NewMemory()
	cluster(t)(newEngine(t, db))
	l := &listed{Store: db}
	here, err := bringHere(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{quiet: true}
	r, err := a.examine(t.Context(), newEngine(t, here), nil)
	if err != nil || len(r.Problems) > 0 || r.Blocks != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	if l.lists != 1 || l.gets != 0 {
		t.Errorf("%d lists and %d gets, want one list", l.lists, l.gets)
	}
}

// A list of pools reads no address: its calls do not grow with what is held.
func TestPoolListAsksLittle(t *testing.T) {
	calls := func(held int) int {
		db := store.NewMemory()
		e := newEngine(t, db)
		cluster(t)(e)
		for range held / 16 {
			must[alloc.Assigned](t)(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num6: 16, Claim: alloc.Claim{Handle: "h"}}))
		}
		l := &listed{Store: db}
		if _, err := pools(t.Context(), newEngine(t, l)); err != nil {
			t.Fatal(err)
		}
		return l.lists + l.gets
	}
	if few, many := calls(0), calls(1600); few != many || many > 20 {
		t.Errorf("%d calls with few addresses, %d with many", few, many)
	}
}
