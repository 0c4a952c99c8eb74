package ipset

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// A name that is no UTF-8 is refused: JSON, in which the catalog is kept, would write two of them alike, and no engine could
// read the catalog any more.
func TestPoolNameUTF8(t *testing.T) {
	e, err := New(store.NewMemory(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for i, name := range []string{"a", "b", "π"} {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		if err := e.AddPool(ctx, Pool{Name: name, Prefix: p}); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"add":   e.AddPool(ctx, Pool{Name: "\xff", Prefix: netip.MustParsePrefix("10.1.0.0/24")}),
		"merge": e.Operator().MergePools(ctx, "\xff", "a", "b"),
	} {
		if got := new(ipalloc.Error); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &got) || got.Field != "pool" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if pools, err := e.Pools(ctx); err != nil || len(pools) != 3 {
		t.Errorf("%d pools, %v", len(pools), err)
	}
}

// AddPool of a pool that is there writes nothing; the error for another one under its name says which field differs.
func TestAddPoolAgain(t *testing.T) {
	p := Pool{
		Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), Uses: Workload, Index: []string{"user"}, Priority: 3, Cooldown: time.Minute,
		Ranges: ranges("10.0.0.64/26").Ranges(), Nodes: selector.Selector{{Labels: []selector.Requirement{{Key: "a", Op: selector.Exists}}}},
	}
	w := newWorld(t, Config{}, p)
	before, _ := w.store.MarshalBinary()
	p.Draining = []int{28}
	if err := w.AddPool(bg, p); err != nil {
		t.Error(err)
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("an equal pool is written")
	}
	for field, change := range map[string]func(p *Pool){
		"Prefix": func(p *Pool) { p.Prefix = netip.MustParsePrefix("10.0.0.0/23") }, "BlockBits": func(p *Pool) { p.BlockBits = 28 },
		"Nodes": func(p *Pool) { p.Nodes = nil }, "Namespaces": func(p *Pool) { p.Namespaces = p.Nodes },
		"Uses": func(p *Pool) { p.Uses = Tunnel }, "Disabled": func(p *Pool) { p.Disabled = true }, "Manual": func(p *Pool) { p.Manual = true },
		"Order": func(p *Pool) { p.Order = Lowest }, "Index": func(p *Pool) { p.Index = nil }, "Priority": func(p *Pool) { p.Priority = 0 },
		"Ranges": func(p *Pool) { p.Ranges = nil }, "MaxBlocksPerHost": func(p *Pool) { p.MaxBlocksPerHost = 1 },
		"Subnet": func(p *Pool) { p.Subnet = true }, "Cooldown": func(p *Pool) { p.Cooldown = 0 },
	} {
		q := p
		change(&q)
		var e *ipalloc.Error
		if err := w.AddPool(bg, q); !errors.Is(err, ipalloc.ErrExists) || !errors.As(err, &e) || e.Field != field {
			t.Errorf("another %s: %v", field, err)
		}
	}
	if n := reflect.TypeFor[Pool]().NumField(); n != 16 {
		t.Errorf("Pool has %d fields, 14 of which, without Name and Draining, are compared here", n)
	}
}
