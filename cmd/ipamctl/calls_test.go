package main

import (
	"context"
	"net/netip"
	"reflect"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
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
			must[alloc.Assigned](t)(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num6: 16, Handle: "h"}))
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

// The JSON of a pool has everything that there is to say of one.
func TestPoolViewIsWhole(t *testing.T) {
	prefix, one := netip.MustParsePrefix("10.1.0.0/24"), alloc.Count{Hi: 1, Lo: 1}
	key := func(k string) selector.Selector {
		return selector.Selector{{Labels: []selector.Requirement{{Key: k, Op: selector.Exists}}}}
	}
	p := poolUse{alloc.Pool{Name: "p", Prefix: prefix, BlockBits: 28, Nodes: key("a"), Namespaces: key("b"), Uses: alloc.Tunnel, Order: 1,
		Priority: 1, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(prefix)}, MaxBlocksPerHost: 1, Subnet: true, Cooldown: 1, Draining: []int{30}},
		alloc.Utilization{Blocks: make([]alloc.Utilization, 1), Capacity: one, Used: one, Cooling: one, Reserved: one, Draining: one, Available: one}, prefix}
	var zero func(v reflect.Value, path string)
	zero = func(v reflect.Value, path string) {
		if v.IsZero() {
			t.Errorf("%s is left out", path)
		}
		for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
			zero(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	}
	zero(reflect.ValueOf(p.view()), "pool")
}
