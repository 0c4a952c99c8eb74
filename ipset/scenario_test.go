package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/assign"
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
		{pool.Choice{Family: 4, Use: alloc.Workload, Host: "n1"}, "any n1"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"east"}}, "east"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"east"}, Both: true}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"east"}, Both: true, Node: east}, "east"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"manual", "any"}}, "any manual"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"off"}}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"six"}}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"nowhere"}}, "unknown"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Ends: 64}, "none"},
		{pool.Choice{Family: 4, Use: alloc.Workload, Ends: 63}, "any"},
	} {
		var found assign.Search
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
			for _, f := range []*assign.Search{&found, {Cat: c, Choice: tt.q}} { // when all have been looked at, and when none has
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

func TestReasons(t *testing.T) {
	reason := func(w *world, a alloc.AssignArgs) alloc.Reason {
		t.Helper()
		got := w.assign(a)
		if len(got.Short) != 1 {
			t.Fatalf("%+v", got)
		}
		return got.Short[0].Reason
	}
	fill := func(cfg alloc.Config, p alloc.Pool) *world {
		w := newWorld(t, cfg, p)
		w.assign(want("x", 8, "x"))
		return w
	}
	if r := reason(fill(alloc.Config{}, poolOf("a", "10.0.0.0/29", 30)), want("h", 1, "p")); r != alloc.ReasonFull {
		t.Errorf("full pool: %v", r)
	}
	w := fill(alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/28", 28))
	if r := reason(w, want("h", 1, "p")); r != alloc.ReasonForeignLeft {
		t.Errorf("room in another's block: %v", r)
	}
	w = newWorld(t, alloc.Config{Strict: true, MaxBlocksPerHost: 1}, poolOf("a", "10.0.0.0/28", 30))
	if r := reason(w, want("h", 5, "p")); r != alloc.ReasonLimitReached {
		t.Errorf("limit: %v", r)
	}
	w = newWorld(t, alloc.Config{Strict: true, NoAutoBlocks: true}, poolOf("a", "10.0.0.0/28", 30))
	if r := reason(w, want("h", 1, "p")); r != alloc.ReasonLimitReached {
		t.Errorf("no automatic blocks: %v", r)
	}
	w = newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 29))
	w.Operator().SetReservations(bg, ranges("10.0.0.0/30"))
	if r := reason(w, want("h", 5, "p")); r != alloc.ReasonReservedLeft {
		t.Errorf("reserved: %v", r)
	}
	p := poolOf("a", "10.0.0.0/29", 29)
	p.Cooldown = time.Hour
	w = newWorld(t, alloc.Config{}, p)
	w.assign(want("h", 8, "p"))
	w.releaseHandle("p")
	if r := reason(w, want("h", 1, "q")); r != alloc.ReasonCoolingLeft {
		t.Errorf("cooling, own block: %v", r)
	}
	if r := reason(w, want("other", 1, "q")); r != alloc.ReasonCoolingLeft {
		t.Errorf("cooling, another's block: %v", r)
	}
	w.check()
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
		w.check()
	}
}

// TestTakeOverOfSeveral: one call takes over as many empty blocks as it needs, and not more than the owner may have.
func TestTakeOverOfSeveral(t *testing.T) {
	for most, want4 := range map[int]int{0: 8, 1: 4} {
		w := newWorld(t, alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/28", 30))
		w.assign(want("old", 16, "p"))
		w.releaseHandle("p")
		w.clock.add(time.Hour)
		a := want("new", 8, "q")
		a.MaxBlocks = most
		if got := w.assign(a); len(got.V4) != want4 || len(w.blocksOf("new")) != want4/4 {
			t.Errorf("at most %d blocks: %v of %v", most, got.V4, w.blocksOf("new"))
		}
		w.check()
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
	w.check()
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
	w.check()
}

func TestSequenceNumbersNeverRepeat(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
	type key struct {
		a   netip.Addr
		seq uint64
	}
	seen := map[key]bool{}
	sizes := []int{30, 28, 32, 29}
	for i := range 200 {
		h := fmt.Sprint("h", i%3)
		for _, al := range w.assign(want(h, 3, "p")).V4 {
			if k := (key{al.Address, al.Seq}); seen[k] {
				t.Fatalf("round %d: %v again", i, k)
			} else {
				seen[k] = true
			}
		}
		if i%2 == 0 {
			w.releaseHandle("p")
		}
		if i%5 == 0 {
			w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner(h)})
		}
		if i%11 == 0 {
			if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/28", sizes[i/11%4])); err != nil {
				t.Fatal(err)
			}
		}
		if i%31 == 0 {
			w.RemovePool(bg, "a")
			if err := w.AddPool(bg, poolOf("a", "10.0.0.0/28", sizes[i/11%4])); err != nil {
				t.Fatal(err)
			}
		}
		w.check()
	}
}

func TestWholeReservedBlocksAreNeverClaimed(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/27", 29))
	live := w.assign(want("x", 1, "x")).V4[0]
	held, err := w.Operator().SetReservations(bg, ranges("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/29", live.Block.String()))
	if err != nil || len(held) != 1 || held[0].Address != live.Address {
		t.Fatalf("live addresses inside: %v, %v", held, err)
	}
	got := w.assign(want("h", 40, "p"))
	for _, al := range got.V4 {
		if set, _ := w.Operator().Reservations(bg); set.Contains(al.Address) {
			t.Errorf("%s is reserved", al.Address)
		}
	}
	for _, b := range w.blocksOf("h") {
		if set, _ := w.Operator().Reservations(bg); set.ContainsPrefix(b) {
			t.Errorf("block %s is reserved", b)
		}
	}
	// An owned block that is reserved is passed over; a named address is not.
	if got := w.assign(want("x", 1, "y")); len(got.V4) != 0 {
		t.Errorf("from its reserved block: %v", got.V4)
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.0"), Owner: alloc.HostOwner("h"), Claim: alloc.Claim{Handle: "named"}}); err != nil {
		t.Errorf("by name: %v", err)
	}
	w.check()
}

func TestRangesOfAPool(t *testing.T) {
	p := poolOf("a", "10.0.0.0/26", 28)
	p.Ranges = append(ranges("10.0.0.16/30").Ranges(), ranges("10.0.0.40/31").Ranges()...)
	w := newWorld(t, alloc.Config{}, p)
	got := w.assign(want("h", 10, "p"))
	var as []string
	for _, al := range got.V4 {
		as = append(as, al.Address.String())
	}
	slices.Sort(as)
	if s := strings.Join(as, " "); s != "10.0.0.16 10.0.0.17 10.0.0.18 10.0.0.19 10.0.0.40 10.0.0.41" {
		t.Errorf("assigned %s", s)
	}
	us, err := w.Utilization(bg)
	if u := us[0]; err != nil || u.Used.Lo != 6 || u.Reserved.Lo != 58 || u.Available.Lo != 0 || u.Capacity.Lo != 64 {
		t.Errorf("%+v, %v", u, err)
	}
	w.check()
}

func TestUtilizationAddsUp(t *testing.T) {
	p := poolOf("a", "10.0.0.0/26", 28)
	p.Cooldown = time.Hour
	w := newWorld(t, alloc.Config{Strict: true}, p)
	w.Operator().SetReservations(bg, ranges("10.0.0.2/31", "10.0.0.62/31"))
	a := want("h", 20, "p")
	a.Head, a.Tail = 3, 1
	got := w.assign(a).V4
	w.ReleaseIPs(bg, alloc.Release{Address: got[0].Address}, alloc.Release{Address: got[5].Address})
	us, err := w.Utilization(bg)
	if err != nil {
		t.Fatal(err)
	}
	u := us[0]
	if u.Used.Lo != 18 || u.Cooling.Lo != 2 || u.Capacity.Lo != 64 || u.Used.Lo+u.Cooling.Lo+u.Reserved.Lo+u.Available.Lo != 64 || len(u.Blocks) != 2 {
		t.Errorf("%+v", u)
	}
	w.clock.add(2 * time.Hour)
	rest := w.assign(want("h", 64, "q"))
	rest2 := w.assign(want("g", 64, "q"))
	if n := uint64(len(rest.V4) + len(rest2.V4)); n < u.Available.Lo {
		t.Errorf("%d could be had, available were %d and 2 cooling", n, u.Available.Lo)
	}
	w.check()
}

// TestTakeOverOfWhatHasCooled: nobody has swept the block, or touched it, since its last address cooled.
func TestTakeOverOfWhatHasCooled(t *testing.T) {
	p := poolOf("a", "10.0.0.0/28", 28)
	p.Cooldown = 30 * time.Second
	w := newWorld(t, alloc.Config{Strict: true}, p)
	w.assign(want("old", 2, "p"))
	w.releaseHandle("p")
	for _, tt := range []struct {
		after time.Duration
		n     int
	}{{29 * time.Second, 0}, {60 * time.Second, 0}, {time.Second, 1}} { // 30 s to cool and a minute to be empty
		w.clock.add(tt.after)
		if got := w.assign(want("new", 1, "q")); len(got.V4) != tt.n {
			t.Errorf("%v later: %v, want %d", tt.after, got, tt.n)
		}
		w.check()
	}
}
