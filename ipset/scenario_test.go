package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

func TestConfigContradictions(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	for _, tt := range []struct {
		cfg alloc.Config
		ok  bool
	}{
		{alloc.Config{}, true}, {alloc.Config{Strict: true}, true}, {alloc.Config{Strict: true, NoAutoBlocks: true}, true}, {alloc.Config{NoAutoBlocks: true}, false},
		{alloc.Config{MaxBlocksPerHost: 3}, true}, {alloc.Config{MaxBlocksPerHost: 3, Strict: true}, true}, {alloc.Config{}, true}, {alloc.Config{MaxBlocksPerHost: -1}, false},
	} {
		err := w.Operator().SetConfig(bg, tt.cfg)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
		if now, err := w.Engine.Operator().Config(bg); err != nil || (now == tt.cfg) != tt.ok {
			t.Errorf("%+v: is %+v, %v", tt.cfg, now, err)
		}
	}
}

func TestBadPools(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	bad := func(change func(*alloc.Pool)) alloc.Pool {
		p := poolOf("b", "10.1.0.0/24", 26)
		change(&p)
		return p
	}
	for name, tt := range map[string]struct {
		p    alloc.Pool
		want error
	}{
		"no name":       {bad(func(p *alloc.Pool) { p.Name = "" }), ipalloc.ErrInvalid},
		"same name":     {bad(func(p *alloc.Pool) { p.Name = "a" }), cause.PoolExists},
		"no prefix":     {bad(func(p *alloc.Pool) { p.Prefix = netip.Prefix{} }), ipalloc.ErrInvalid},
		"not masked":    {bad(func(p *alloc.Pool) { p.Prefix = netip.MustParsePrefix("10.1.0.1/24") }), ipalloc.ErrInvalid},
		"4 in 6":        {bad(func(p *alloc.Pool) { p.Prefix = netip.MustParsePrefix("::ffff:10.1.0.0/120") }), ipalloc.ErrInvalid},
		"same prefix":   {bad(func(p *alloc.Pool) { p.Prefix = netip.MustParsePrefix("10.0.0.0/24") }), cause.Overlap},
		"around a part": {bad(func(p *alloc.Pool) { p.Prefix, p.BlockBits = netip.MustParsePrefix("10.0.0.0/16"), 20 }), badField("Prefix")},
		"part of block": {bad(func(p *alloc.Pool) { p.Prefix, p.BlockBits = netip.MustParsePrefix("10.0.0.64/27"), 27 }), badField("Prefix")},
		"large blocks":  {bad(func(p *alloc.Pool) { p.BlockBits = 23 }), badField("BlockBits")},
		"too long":      {bad(func(p *alloc.Pool) { p.BlockBits = 33 }), badField("BlockBits")},
		"huge blocks":   {bad(func(p *alloc.Pool) { p.Prefix, p.BlockBits = netip.MustParsePrefix("2001:db8::/48"), 63 }), badField("BlockBits")},
		"unknown use":   {bad(func(p *alloc.Pool) { p.Uses = 64 }), badField("Uses")},
		"negative":      {bad(func(p *alloc.Pool) { p.Cooldown = -1 }), ipalloc.ErrInvalid},
		"range outside": {bad(func(p *alloc.Pool) { p.Ranges = ranges("10.2.0.0/24").Ranges() }), badField("Ranges")},
		"empty term":    {bad(func(p *alloc.Pool) { p.Nodes = selector.Selector{{}} }), ipalloc.ErrInvalid},
		"unknown op": {bad(func(p *alloc.Pool) {
			p.Namespaces = selector.Selector{{Labels: []selector.Requirement{{Key: "a", Op: "Like"}}}}
		}), ipalloc.ErrInvalid},
	} {
		before, _ := w.store.MarshalBinary()
		if err := w.AddPool(bg, tt.p); !is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
			t.Errorf("%s changed the store", name)
		}
	}
	if err := w.UpdatePool(bg, poolOf("zz", "10.0.0.0/24", 26)); !errors.Is(err, cause.UnknownPool) {
		t.Error(err)
	}
	if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/25", 26)); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
	if err := w.RemovePool(bg, "zz"); !errors.Is(err, cause.UnknownPool) {
		t.Error(err)
	}
	p := poolOf("d", "10.3.0.0/16", 0)
	w.AddPool(bg, p)
	w.AddPool(bg, poolOf("e", "2001:db8::/64", 0))
	w.AddPool(bg, poolOf("f", "10.4.0.0/28", 0))
	ps, _ := w.Pools(bg)
	if ps[1].BlockBits != 26 || ps[2].BlockBits != 122 || ps[3].BlockBits != 28 || ps[1].Uses != alloc.Workload|alloc.Tunnel {
		t.Errorf("defaults: %+v", ps)
	}
}

// TestChoose is the truth table of pool selection.
func TestChoose(t *testing.T) {
	zone := func(z string) selector.Selector {
		return selector.Selector{{Labels: []selector.Requirement{{Key: "zone", Op: selector.In, Values: []string{z}}}}}
	}
	c := &pool.Catalog{Version: pool.CatalogVersion}
	for _, p := range []alloc.Pool{
		{Name: "any", Prefix: netip.MustParsePrefix("10.0.0.0/24")},
		{Name: "east", Prefix: netip.MustParsePrefix("10.0.1.0/24"), Nodes: zone("east"), Priority: 5},
		{Name: "tenant", Prefix: netip.MustParsePrefix("10.0.2.0/24"), Namespaces: zone("x"), Priority: 9},
		{Name: "manual", Prefix: netip.MustParsePrefix("10.0.3.0/24"), Manual: true},
		{Name: "off", Prefix: netip.MustParsePrefix("10.0.4.0/24"), Disabled: true},
		{Name: "lb", Prefix: netip.MustParsePrefix("10.0.5.0/24"), Uses: alloc.LoadBalancer},
		{Name: "six", Prefix: netip.MustParsePrefix("2001:db8::/64")},
		{Name: "n1", Prefix: netip.MustParsePrefix("10.0.6.0/24"), Nodes: selector.Selector{{Fields: []selector.Requirement{{Key: "metadata.name", Op: selector.In, Values: []string{"n1"}}}}}},
	} {
		c.Pools = append(c.Pools, pool.Pool{Pool: p})
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	east, x := map[string]string{"zone": "east"}, map[string]string{"zone": "x"}
	for _, tt := range []struct {
		q    pool.Choice
		want string
	}{
		{pool.Choice{Family: 4, Use: alloc.Workload}, "any"},
		{pool.Choice{Family: 4, Use: alloc.Tunnel}, "any"},
		{pool.Choice{Family: 4, Use: alloc.LoadBalancer}, "lb"},
		{pool.Choice{Family: 6, Use: alloc.Workload}, "six"},
		{pool.Choice{Family: 6, Use: alloc.LoadBalancer}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Node: east}, "east any"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Node: east, Space: x}, "tenant east any"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Space: east}, "any"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Owner: alloc.HostOwner("n1")}, "any n1"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"east"}}, "east"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"east"}, Both: true}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"east"}, Both: true, Node: east}, "east"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"manual", "any"}}, "manual any"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"off"}}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"six"}}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"nowhere"}}, "unknown"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Ends: 64}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Ends: 63}, "any"},
	} {
		var found pool.Tiers
		err := found.Choose(c, tt.q)
		var names []string
		for k := 0; err == nil; k++ {
			i, ok := found.Pool(k)
			if !ok {
				break
			}
			names = append(names, c.Pools[i].Name)
		}
		for i := range c.Pools {
			for _, f := range []*pool.Tiers{&found, {Cat: c, Choice: tt.q}} { // when all have been looked at, and when none has
				if err == nil && f.Serves(i) != slices.Contains(names, c.Pools[i].Name) {
					t.Errorf("%+v: serves %s: %v", tt.q, c.Pools[i].Name, f.Serves(i))
				}
			}
		}
		s := strings.Join(names, " ")
		switch {
		case errors.Is(err, cause.NoPool):
			s = "none"
		case errors.Is(err, cause.UnknownPool):
			s = "unknown"
		}
		if s != tt.want {
			t.Errorf("%+v: %s, want %s", tt.q, s, tt.want)
		}
	}
}

func TestTakeOver(t *testing.T) { // an empty block of another host, after a minute
	for _, strict := range []bool{false, true} {
		w := newWorld(t, alloc.Config{Strict: strict}, poolOf("a", "10.0.0.0/28", 28))
		w.assign(want("old", 1, "p"))
		w.clock.add(time.Hour)
		w.releaseHandle("p")
		w.clock.add(59 * time.Second)
		got := w.assign(want("new", 1, "q"))
		if owner := w.blocksOf("new"); len(owner) != 0 || len(got.V4) == 1 == strict {
			t.Fatalf("strict %v, after 59 s: %v, %+v", strict, owner, got)
		}
		w.releaseHandle("q")
		w.clock.add(60 * time.Second)
		before, _ := w.Operator().BlockOf(bg, ip("10.0.0.0"))
		if got := w.assign(want("new", 1, "q")); len(got.V4) != 1 || got.V4[0].Seq <= before.Seq() {
			t.Fatalf("strict %v, after a minute: %+v", strict, got)
		}
		if len(w.blocksOf("new")) != 1 || len(w.blocksOf("old")) != 0 {
			t.Fatalf("strict %v: owned by %v, %v", strict, w.blocksOf("new"), w.blocksOf("old"))
		}
	}
}

// TestTakeOverFails: a store that fails at a call of a take-over, whichever, is no shortage.
func TestTakeOverFails(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t, alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/28", 30))
		w.assign(want("old", 16, "p"))
		w.releaseHandle("p")
		w.clock.add(time.Hour)
		f := scripted(w.store, faults.At(k, faults.Fail(errDown)))
		got, err := w.engine(f).AutoAssign(bg, want("new", 8, "q"))
		if w.check(); f.Counts().Calls() < k {
			if err != nil || len(got.V4) != 8 {
				t.Errorf("%v, %v", got, err)
			}
			return
		}
		if !errors.Is(err, errDown) {
			t.Errorf("call %d fails: %v, %v", k, got, err)
		}
	}
}

func TestTakeOverIsLostToTheOwner(t *testing.T) { // the owner assigns while another takes the block over
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/28", 28))
	w.assign(want("old", 1, "p"))
	w.releaseHandle("p")
	w.clock.add(time.Hour)
	r := newRacing(w.store)
	e := w.engine(r)
	r.before = func([]store.Op) { w.assign(want("old", 1, "r")) }
	got, err := e.AutoAssign(bg, want("new", 1, "q"))
	if err != nil || len(got.V4) != 0 || got.Short[0].Reason != alloc.ReasonForeignLeft {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBlockIsNotDeletedWhileAnotherAssigns(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28))
	al := w.assign(want("h", 1, "p")).V4[0]
	w.releaseHandle("p")
	r := newRacing(w.store)
	e := w.engine(r)
	r.before = func([]store.Op) { w.assign(want("h", 1, "q")) }
	if rel, err := e.DisownBlocks(bg, alloc.DisownArgs{Prefix: al.Block, Owner: alloc.HostOwner("h"), OnlyEmpty: true}); !errors.Is(err, cause.NotEmpty) || len(rel) != 0 {
		t.Errorf("%v, %v", rel, err)
	}
	if als, _ := w.IPsByHandle(bg, "q"); len(als) != 1 {
		t.Errorf("the address is lost: %v", als)
	}
	w.check()
	// The other way round: the block goes while the host's next address is on its way.
	w.releaseHandle("q")
	r.before = func([]store.Op) {
		if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), OnlyEmpty: true}); err != nil {
			t.Error(err)
		}
	}
	again, err := e.AutoAssign(bg, want("h", 1, "s"))
	if err != nil || len(again.V4) != 1 || again.V4[0].Seq <= al.Seq {
		t.Errorf("%+v, %v", again, err)
	}
}
