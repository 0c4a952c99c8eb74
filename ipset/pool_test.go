package ipset

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
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
		if err := e.AddPool(ctx, alloc.Pool{Name: name, Prefix: p}); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"add":   e.AddPool(ctx, alloc.Pool{Name: "\xff", Prefix: netip.MustParsePrefix("10.1.0.0/24")}),
		"merge": e.Operator().MergePools(ctx, "\xff", "a", "b"),
	} {
		if got := new(ipalloc.Error); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &got) || got.Field != "Name" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if pools, err := e.Pools(ctx); err != nil || len(pools) != 3 {
		t.Errorf("%d pools, %v", len(pools), err)
	}
}

// AddPool of a pool that is there writes nothing; the error for another one under its name says which field differs.
func TestAddPoolAgain(t *testing.T) {
	p := alloc.Pool{
		Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), Uses: alloc.Workload, Index: []string{"user"}, Priority: 3, Cooldown: time.Minute,
		Ranges: ranges("10.0.0.64/26").Ranges(), Nodes: selector.Selector{{Labels: []selector.Requirement{{Key: "a", Op: selector.Exists}}}},
	}
	w := newWorld(t, alloc.Config{}, p)
	before, _ := w.store.MarshalBinary()
	p.Draining = []int{28}
	if err := w.AddPool(bg, p); err != nil {
		t.Error(err)
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("an equal pool is written")
	}
	for field, change := range map[string]func(p *alloc.Pool){
		"Prefix": func(p *alloc.Pool) { p.Prefix = netip.MustParsePrefix("10.0.0.0/23") }, "BlockBits": func(p *alloc.Pool) { p.BlockBits = 28 },
		"Nodes": func(p *alloc.Pool) { p.Nodes = nil }, "Namespaces": func(p *alloc.Pool) { p.Namespaces = p.Nodes },
		"Uses": func(p *alloc.Pool) { p.Uses = alloc.Tunnel }, "Disabled": func(p *alloc.Pool) { p.Disabled = true }, "Manual": func(p *alloc.Pool) { p.Manual = true },
		"Order": func(p *alloc.Pool) { p.Order = alloc.Lowest }, "Index": func(p *alloc.Pool) { p.Index = nil }, "Priority": func(p *alloc.Pool) { p.Priority = 0 },
		"Ranges": func(p *alloc.Pool) { p.Ranges = nil }, "MaxBlocksPerHost": func(p *alloc.Pool) { p.MaxBlocksPerHost = 1 },
		"Subnet": func(p *alloc.Pool) { p.Subnet = true }, "Cooldown": func(p *alloc.Pool) { p.Cooldown = 0 },
		"Seed": func(p *alloc.Pool) { p.Seed = 7 }, "Note": func(p *alloc.Pool) { p.Note = "another" },
	} {
		q := p
		change(&q)
		var e *ipalloc.Error
		if err := w.AddPool(bg, q); !errors.Is(err, ipalloc.ErrExists) || !errors.As(err, &e) || e.Field != field {
			t.Errorf("another %s: %v", field, err)
		}
	}
	if n := reflect.TypeFor[alloc.Pool]().NumField(); n != 19 {
		t.Errorf("Pool has %d fields, 16 of which, without Name, Draining and Closed, are compared here", n)
	}
}

func TestResizedPoolDoesNotGiveTwice(t *testing.T) {
	for _, sizes := range [][2]int{{26, 28}, {28, 26}, {28, 32}, {32, 28}, {25, 27}} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/25", sizes[0]))
		held := map[netip.Addr]bool{}
		for i, al := range w.assign(want("old", 40, "p")).V4 {
			if held[al.Address] = true; i%3 > 0 {
				w.ReleaseIPs(bg, alloc.Release{Address: al.Address})
				delete(held, al.Address)
			}
		}
		if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/25", sizes[1])); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			for _, al := range w.assign(want(fmt.Sprint("h", i%5), 10, "q")).V4 {
				if held[al.Address] {
					t.Fatalf("%v: %s given twice", sizes, al.Address)
				}
				held[al.Address] = true
			}
		}
		w.check()
		// The pool has given all it has, but for what is beside blocks in use. Empty ones make room.
		if us, err := w.Utilization(bg); err != nil || uint64(len(held))+us[0].Draining.Lo != 128 || us[0].Available.Lo != 0 || sizes[0] < sizes[1] && len(held) != 128 {
			t.Errorf("%v: %d addresses given of 128, %+v, %v", sizes, len(held), us, err)
		}
		w.releaseHandle("p")
		w.releaseHandle("q")
		w.clock.add(2 * time.Minute)
		if got := w.assign(want("all", 128, "all")); len(got.V4) != 128 {
			t.Errorf("%v: %d of 128 when all were free: %v", sizes, len(got.V4), got.Short)
		}
		for b, err := range w.Operator().Blocks(bg, netip.Prefix{}) {
			if err != nil || b.Prefix().Bits() != sizes[1] {
				t.Errorf("%v: left: %v, %v", sizes, b.Prefix(), err)
			}
		}
	}
}

func TestReservedEndsDoNotSpoilSmallPools(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/30", 30), poolOf("b", "10.0.1.0/31", 31), poolOf("c", "10.0.2.0/32", 32), poolOf("d", "10.0.3.0/24", 29))
	a := want("h", 2, "p")
	a.Blocks.Head, a.Blocks.Tail = 3, 1
	got := w.assign(a)
	for _, al := range got.V4 {
		if !netip.MustParsePrefix("10.0.3.0/24").Contains(al.Address) {
			t.Errorf("%s is in a pool whose blocks are all reserved", al.Address)
		}
	}
	a.Pools = []string{"a", "b", "c"}
	if _, err := w.AutoAssign(bg, a); !errors.Is(err, cause.NoPool) {
		t.Errorf("only small pools: %v", err)
	}
}

func TestHugeBlocksDoNotMakeUselessBlocks(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "2001:db8::/48", 64), poolOf("b", "2001:db9::/32", 122))
	a := alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num6: 3, Use: alloc.Workload, Handle: "p", Pools: []string{"a"}}
	for range 5 {
		if got := w.assign(a); len(got.V6) != 3 || got.V6[0].Prefix().Bits() != 64 {
			t.Fatalf("%+v", got)
		}
	}
	if n := len(w.blocksOf("h")); n != 1 {
		t.Errorf("%d blocks", n)
	}
	a.Pools = []string{"b"}
	if got := w.assign(a); len(got.V6) != 3 {
		t.Errorf("2^90 blocks: %+v", got)
	}
	us, err := w.Utilization(bg)
	if err != nil || us[0].Capacity != (alloc.Count{Hi: 1 << 16}) || us[0].Used != (alloc.Count{Lo: 15}) {
		t.Errorf("%+v, %v", us, err)
	}
}

// TestGenerationIsUsedSparingly: a change of pools that brings in no address and no block size leaves the generation as it
// is, and so does one where no block of another size ever was. One that changes nothing writes nothing.
func TestGenerationIsUsedSparingly(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	generation := func() uint64 {
		cat, err := w.core.ReadCatalog(bg)
		if err != nil {
			t.Fatal(err)
		}
		return cat.Generation
	}
	p := poolOf("a", "10.0.0.0/24", 26)
	for _, tt := range []struct {
		what   string
		do     func() error
		raises bool
		writes bool
	}{
		{"the same pool", func() error { return w.UpdatePool(bg, p) }, false, false},
		{"another priority", func() error { p.Priority = 3; return w.UpdatePool(bg, p) }, false, true},
		{"drain", func() error { _, err := w.Operator().Drain(bg, "a"); return err }, false, true},
		{"drain again", func() error { _, err := w.Operator().Drain(bg, "a"); return err }, false, false},
		{"split", func() error { return w.Operator().SplitPool(bg, "a", 1) }, false, true},
		{"merge", func() error { return w.Operator().MergePools(bg, "a", "a-0", "a-1") }, false, true},
		{"another block size", func() error { p.BlockBits = 27; return w.UpdatePool(bg, p) }, true, true},
		{"the same configuration", func() error { return w.Operator().SetConfig(bg, alloc.Config{}) }, false, false},
		{"remove", func() error { return w.RemovePool(bg, "a") }, false, true},
		{"add", func() error { return w.AddPool(bg, p) }, false, true},
		{"add another where all blocks are of its size", func() error {
			w.assign(want("h", 1, "p"))
			return w.AddPool(bg, poolOf("b", "10.1.0.0/24", 27))
		}, false, true},
		{"add another where a block has another size", func() error { return w.AddPool(bg, poolOf("c", "10.2.0.0/24", 28)) }, true, true},
		{"add another where such a block was", func() error {
			w.releaseHandle("p")
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), OnlyEmpty: true}); err != nil {
				return err
			}
			return w.AddPool(bg, poolOf("d", "10.3.0.0/24", 28))
		}, true, true},
		{"add one of the other family", func() error { return w.AddPool(bg, poolOf("six", "2001:db8::/112", 122)) }, false, true},
		{"no reservations", func() error { _, err := w.Operator().SetReservations(bg, nil); return err }, false, false},
	} {
		before, rev := generation(), w.rev()
		if err := tt.do(); err != nil {
			t.Fatal(tt.what, err)
		}
		if raised := generation() != before; raised != tt.raises {
			t.Errorf("%s: raised the generation: %v", tt.what, raised)
		}
		if wrote := w.rev() != rev; wrote != tt.writes {
			t.Errorf("%s: wrote: %v", tt.what, wrote)
		}
	}
}

// TestSplitPoolBounds: bits out of range are refused, and the ranges of a pool are cut to its parts.
func TestSplitPoolBounds(t *testing.T) {
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Ranges = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.32-10.0.0.80"), netipx.MustParseIPRange("10.0.0.120-10.0.0.130")}
	w := newWorld(t, alloc.Config{}, p)
	for _, bits := range []int{-1, 0, 9, math.MinInt, math.MaxInt} {
		if err := w.Operator().SplitPool(bg, "a", bits); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
	if err := w.Operator().SplitPool(bg, "a", 2); err != nil {
		t.Fatal(err)
	}
	ps, err := w.Pools(bg)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"[10.0.0.32-10.0.0.63] false", "[10.0.0.64-10.0.0.80 10.0.0.120-10.0.0.127] false", "[10.0.0.128-10.0.0.130] false", "[10.0.0.32-10.0.0.80 10.0.0.120-10.0.0.130] false"}
	for i, p := range ps {
		if got := fmt.Sprint(p.Ranges, p.Disabled); got != want[i] {
			t.Errorf("%s: %s, want %s", p.Name, got, want[i])
		}
	}
}

// Split and merged again, a pool is what it was; in between, the same addresses can be assigned and named.
func TestSplitAndMergeAreInverse(t *testing.T) {
	r := func(text ...string) (rs []netipx.IPRange) {
		for _, s := range text {
			rs = append(rs, netipx.MustParseIPRange(s))
		}
		return rs
	}
	for i, p := range []alloc.Pool{
		{}, {Disabled: true}, {Manual: true, Priority: 3, Cooldown: time.Minute}, {Order: alloc.Lowest, Index: []string{"user"}},
		{Ranges: r("10.0.0.16-10.0.0.31")}, {Ranges: r("10.0.0.250-10.0.0.255")}, {Ranges: r("10.0.0.3-10.0.0.3", "10.0.0.100-10.0.0.200")}, {Subnet: true},
	} {
		p.Name, p.Prefix, p.BlockBits = "p", netip.MustParsePrefix("10.0.0.0/24"), 28
		w := newWorld(t, alloc.Config{}, p)
		w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.77"), Owner: alloc.HostOwner("h"), Handle: "x"})
		look := func() (given, named, counts string) {
			var us []alloc.Count
			for from := ip("10.0.0.0"); p.Prefix.Contains(from); from = from.Next() {
				dry := w.DryRun()
				pools, _ := w.Pools(bg)
				var names []string
				for _, p := range pools {
					names = append(names, p.Name)
				}
				got, err := dry.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Choose: alloc.From(from), Pools: names})
				if err == nil {
					given += fmt.Sprint(got.V4[0].Address, " ")
				}
				_, err = w.DryRun().AssignIP(bg, alloc.AssignIPArgs{Address: from, Owner: alloc.HostOwner("h"), Handle: "y"})
				named += fmt.Sprint(err == nil, " ")
			}
			use, err := w.Utilization(bg)
			if err != nil {
				t.Fatal(err)
			}
			us = make([]alloc.Count, 4)
			for _, u := range use {
				us[0], us[1], us[2], us[3] = us[0].Add(u.Capacity), us[1].Add(u.Used), us[2].Add(u.Reserved), us[3].Add(u.Available)
			}
			return given, named, fmt.Sprint(us)
		}
		before, _ := w.Pools(bg)
		given, named, counts := look()
		for bits, parts := range [][]string{1: {"p-0", "p-1"}, 2: {"p-2", "p-3", "p-0", "p-1"}} {
			if bits == 0 {
				continue
			}
			if err := w.Operator().SplitPool(bg, "p", bits); err != nil {
				t.Fatal(i, err)
			}
			if g, n, c := look(); g != given || n != named || c != counts {
				t.Errorf("pool %d split into %d: gave\n%s\nwas %s\nnamed %v, counts %s, were %s", i, 1<<bits, g, given, n == named, c, counts)
			}
			if bits == 2 { // in two steps
				if err := w.Operator().MergePools(bg, "p-2", "p-2", "p-3"); err != nil {
					t.Fatal(i, err)
				}
				parts = []string{"p-2", "p-0", "p-1"}
			}
			if err := w.Operator().MergePools(bg, "p", parts...); err != nil {
				t.Fatal(i, err)
			}
			if g, n, c := look(); g != given || n != named || c != counts {
				t.Errorf("pool %d merged: gave\n%s\nwas %s\nnamed %v, counts %s, were %s", i, g, given, n == named, c, counts)
			}
			if after, _ := w.Pools(bg); !p.Subnet && !reflect.DeepEqual(after, before) {
				t.Errorf("pool %d merged: %+v, was %+v", i, after, before)
			}
		}
	}
}

// A pool that grows keeps its block size, so all of it can be assigned while addresses of the old part are held.
func TestPoolThatGrowsGivesAll(t *testing.T) {
	for _, tt := range []struct{ from, to string }{{"10.0.0.0/28", "10.0.0.0/27"}, {"10.0.0.0/27", "10.0.0.0/26"}, {"10.0.0.0/28", "10.0.0.0/24"}, {"10.0.0.16/28", "10.0.0.0/24"}} {
		w := newWorld(t, alloc.Config{}, poolOf("p", tt.from, 0))
		w.assign(want("h", 1, "first"))
		grown := poolOf("p", tt.to, 0)
		if err := w.UpdatePool(bg, grown); err != nil {
			t.Fatal(err)
		}
		n := 1<<(32-grown.Prefix.Bits()) - 1
		if got := w.assign(want("h", n, "rest")); len(got.V4) != n {
			t.Errorf("%s to %s: %d of %d addresses, %v", tt.from, tt.to, len(got.V4), n, got.Short)
		}
	}
}

// A size that no block can have is refused, because every later call in the pool would fail on it.
func TestDrainingSizesAreChecked(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	for _, bits := range []int{-1, 33, 200} {
		p := poolOf("b", "10.0.1.0/24", 26)
		p.Draining = []int{bits}
		var at *ipalloc.Error
		if err := w.AddPool(bg, p); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &at) || at.Field != "Draining" {
			t.Errorf("%d: %v", bits, err)
		}
	}
}
