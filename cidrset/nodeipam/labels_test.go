package nodeipam_test

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/selector"
)

// Every refusal of an entry names entry and field, can be told by its sentinel, and
// changes nothing.
func TestAddRefusals(t *testing.T) {
	mapped := netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 112)
	good := e46("x", "10.0.0.0/16", "fd00::/112", 8, "a")
	with := func(change func(*entry)) entry {
		e := good
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		e     entry
		err   error
		field string
	}{
		"no name":               {with(func(e *entry) { e.Name = "" }), ipalloc.ErrInvalid, "Name"},
		"no pool":               {entry{Name: "x", HostBits: 8}, ipalloc.ErrInvalid, "IPv4, IPv6"},
		"a family too few":      {e4("x", "10.0.0.0/16", 8), ipalloc.ErrInvalid, "IPv6"},
		"the other too few":     {e6("x", "fd00::/112", 8), ipalloc.ErrInvalid, "IPv4"},
		"host bits":             {with(func(e *entry) { e.IPv4 = pfx("10.0.0.1/16") }), ipalloc.ErrInvalid, "IPv4"},
		"host bits of IPv6":     {with(func(e *entry) { e.IPv6 = pfx("fd00::1/112") }), ipalloc.ErrInvalid, "IPv6"},
		"invalid prefix":        {with(func(e *entry) { e.IPv4 = netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33) }), ipalloc.ErrInvalid, "IPv4"},
		"IPv6 in IPv4":          {with(func(e *entry) { e.IPv4 = pfx("fd00::/112") }), ipalloc.ErrInvalid, "IPv4"},
		"IPv4 in IPv6":          {with(func(e *entry) { e.IPv6 = pfx("10.0.0.0/16") }), ipalloc.ErrInvalid, "IPv6"},
		"around 4-in-6":         {with(func(e *entry) { e.IPv6 = pfx("::fffe:0:0/95") }), ipalloc.ErrInvalid, "IPv6"},
		"4-in-6":                {with(func(e *entry) { e.IPv6 = mapped }), ipalloc.ErrInvalid, "IPv6"},
		"no size":               {with(func(e *entry) { e.HostBits = 0 }), ipalloc.ErrInvalid, "HostBits"},
		"negative host bits":    {with(func(e *entry) { e.HostBits = -1 }), ipalloc.ErrInvalid, "HostBits"},
		"too many host bits":    {with(func(e *entry) { e.HostBits = 17 }), ipalloc.ErrInvalid, "HostBits"},
		"absurd host bits":      {with(func(e *entry) { e.HostBits = math.MaxInt }), ipalloc.ErrInvalid, "HostBits"},
		"negative mask":         {with(func(e *entry) { e.MaskIPv4 = -1 }), ipalloc.ErrInvalid, "MaskIPv4"},
		"mask of 33":            {with(func(e *entry) { e.MaskIPv4 = 33 }), ipalloc.ErrInvalid, "MaskIPv4"},
		"mask of 129":           {with(func(e *entry) { e.MaskIPv6 = 129 }), ipalloc.ErrInvalid, "MaskIPv6"},
		"mask above the pool":   {with(func(e *entry) { e.HostBits, e.MaskIPv4 = 0, 15 }), ipalloc.ErrInvalid, "MaskIPv4"},
		"mask and bits differ":  {with(func(e *entry) { e.MaskIPv4 = 25 }), ipalloc.ErrInvalid, "MaskIPv4"},
		"masks differ":          {with(func(e *entry) { e.HostBits, e.MaskIPv4, e.MaskIPv6 = 0, 24, 121 }), ipalloc.ErrInvalid, "MaskIPv6"},
		"mask without a family": {with(func(e *entry) { e.IPv6, e.MaskIPv6 = netip.Prefix{}, 120 }), ipalloc.ErrInvalid, "MaskIPv6"},
		"unknown operator": {with(func(e *entry) { e.Selector = sel("b", "a"); e.Selector[1].Labels[0].Op = "Near" }),
			ipalloc.ErrInvalid, "Selector[1].Labels[0]"},
		"empty term": {with(func(e *entry) { e.Selector = selector.Selector{{}} }), ipalloc.ErrInvalid, "Selector[0]"},
		"unknown field": {with(func(e *entry) { e.Selector = sel("@=n1"); e.Selector[0].Fields[0].Key = "spec.x" }),
			ipalloc.ErrInvalid, "Selector[0].Fields[0]"},
		"changed":   {with(func(e *entry) { e.Name = "old" }), ipalloc.ErrExists, "Selector"},
		"larger":    {with(func(e *entry) { e.Name, e.Selector, e.IPv4 = "old", sel("a,c"), pfx("10.0.0.0/15") }), ipalloc.ErrExists, "IPv4"},
		"other way": {with(func(e *entry) { e.Name, e.Selector = "old", sel("b") }), ipalloc.ErrExists, "Selector"},
	} {
		a := allocator(t, dual, e46("old", "10.0.0.0/16", "fd00::/112", 8, "a,c"))
		e := fails(t, a, c.err, func() error { return a.AddEntry(c.e) })
		if e.Field != c.field || e.Name != c.e.Name || e.Error() == "" {
			t.Errorf("%s: %v names entry %q field %q, want %q", name, e, e.Name, e.Field, c.field)
		}
	}
}

// The size of a node may be said in three ways, and one address is a size.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		bits, mask4, mask6 int
		want               string
	}{
		{8, 0, 0, "x [10.0.0.0/24 fd00::/120]"},
		{0, 24, 0, "x [10.0.0.0/24 fd00::/120]"},
		{0, 0, 120, "x [10.0.0.0/24 fd00::/120]"},
		{8, 24, 120, "x [10.0.0.0/24 fd00::/120]"},
		{0, 32, 128, "x [10.0.0.0/32 fd00::/128]"},
		{0, 32, 0, "x [10.0.0.0/32 fd00::/128]"},
		{16, 0, 0, "x [10.0.0.0/16 fd00::/112]"},
	} {
		e := entry{Name: "x", IPv4: pfx("10.0.0.0/16"), IPv6: pfx("fd00::/112"), HostBits: c.bits, MaskIPv4: c.mask4, MaskIPv6: c.mask6}
		gets(t, allocator(t, dual, e), node{Name: "n1"}, c.want)
	}
	a := allocator(t, v4, entry{Name: "all", IPv4: pfx("0.0.0.0/0"), HostBits: 32}) // all there is
	gets(t, a, node{Name: "n1"}, "all [0.0.0.0/0]")
	fails(t, a, ipalloc.ErrFull, func() error { _, err := a.Allocate(node{Name: "n2"}); return err })
	b := allocator(t, nil, entry{Name: "half", IPv6: pfx("8000::/1"), MaskIPv6: 128})
	gets(t, b, node{Name: "n1"}, "half [8000::/128]")
}

// Adding what is there already, in other words, is no change.
func TestAddAgain(t *testing.T) {
	first := e46("x", "10.0.0.0/16", "fd00::/112", 8, "a=1|2,b", "c")
	a := allocator(t, dual, first)
	before := bytesOf(t, a)
	again := e46("x", "10.0.0.0/16", "fd00::/112", 0, "c", "b,a=2|1|2")
	again.MaskIPv4 = 24
	if err := a.AddEntry(again); err != nil || bytesOf(t, a) != before {
		t.Error(err)
	}
	// What the caller does to its copy afterwards does not matter.
	first.Selector[0].Labels[0].Values[0] = "changed"
	first.Selector[1].Labels[0].Key = "changed"
	for e := range a.Entries() {
		e.Selector[0].Labels[0].Values[0] = "changed"
	}
	if bytesOf(t, a) != before {
		t.Error("the entry was changed from outside")
	}
}

func TestNewRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		config nodeipam.Config
		opts   []nodeipam.Option
		err    error
	}{
		"no such family": {nodeipam.Config{ByLabels: true, Families: []nodeipam.Family{"IPv5"}}, nil, ipalloc.ErrInvalid},
		"family twice":   {nodeipam.Config{ByLabels: true, Families: []nodeipam.Family{nodeipam.IPv4, nodeipam.IPv4}}, nil, ipalloc.ErrInvalid},
		"reservation":    {nodeipam.Config{ByLabels: true, Reserved: prefixes("10.0.0.1/24")}, nil, ipalloc.ErrInvalid},
		"nil option":     {nodeipam.Config{ByLabels: true}, []nodeipam.Option{nil}, ipalloc.ErrInvalid},
		"nil function":   {nodeipam.Config{ByLabels: true}, []nodeipam.Option{nodeipam.OnChange(nil)}, ipalloc.ErrInvalid},
		"two functions": {nodeipam.Config{ByLabels: true}, []nodeipam.Option{
			nodeipam.OnChange(func(nodeipam.Change) {}), nodeipam.OnChange(func(nodeipam.Change) {})}, ipalloc.ErrInvalid},
	} {
		if a, err := nodeipam.New(c.config, c.opts...); a != nil || asError(t, err, c.err).Op != "new" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The remaining documented errors, each with the state unchanged.
func TestOtherErrors(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/24", 8, "a"))
	gets(t, a, node{Name: "n1", Labels: labels("a=1")}, "x [10.0.0.0/24]")
	fails(t, a, ipalloc.ErrInvalid, func() error { _, err := a.Allocate(node{}); return err })
	fails(t, a, ipalloc.ErrNotFound, func() error { _, err := a.Allocate(node{Name: "n2"}); return err })
	fails(t, a, ipalloc.ErrFull, func() error { _, err := a.Allocate(node{Name: "n2", Labels: labels("a=1")}); return err })
	fails(t, a, ipalloc.ErrNotFound, func() error { _, err := a.DeleteEntry("y"); return err })
	for _, p := range []netip.Prefix{{}, pfx("10.0.0.1/24"), netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 120)} {
		fails(t, a, ipalloc.ErrInvalid, func() error { return a.Reserve(p) })
		fails(t, a, ipalloc.ErrInvalid, func() error { return a.Unreserve(p) })
	}
	fails(t, a, ipalloc.ErrVersion, func() error { return a.Apply(nodeipam.Change{}) })
	if as, ok := a.Release("n2"); ok || as.Prefixes != nil {
		t.Error("n2 held something")
	}
}

// The prefixes of a node are in the order of the configuration.
func TestOrderOfFamilies(t *testing.T) {
	for want, families := range map[string][]nodeipam.Family{
		"x [10.0.0.0/24 fd00::/120]":  dual,
		"x [fd00::/120 10.0.0.0/24]":  {nodeipam.IPv6, nodeipam.IPv4},
		"x [fd00::/120 10.0.0.0/24] ": {nodeipam.IPv6}, // what is not needed comes last
	} {
		a := allocator(t, families, e46("x", "10.0.0.0/16", "fd00::/112", 8))
		gets(t, a, node{Name: "n1"}, want[:len("x [10.0.0.0/24 fd00::/120]")])
	}
}

// Children are handed out in turn, not lowest first, unless that is asked for.
func TestPolicies(t *testing.T) {
	for _, lowest := range []bool{false, true} {
		var opts []nodeipam.Option
		want := []string{"x [10.0.2.0/24]", "x [10.0.3.0/24]", "x [10.0.0.0/24]"}
		if lowest {
			opts = append(opts, nodeipam.LowestFirst())
			want = []string{"x [10.0.0.0/24]", "x [10.0.2.0/24]", "x [10.0.3.0/24]"}
		}
		a, err := nodeipam.New(nodeipam.Config{ByLabels: true}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.AddEntry(e4("x", "10.0.0.0/22", 8)); err != nil {
			t.Fatal(err)
		}
		gets(t, a, node{Name: "n0"}, "x [10.0.0.0/24]")
		gets(t, a, node{Name: "n1"}, "x [10.0.1.0/24]")
		a.Release("n0")
		for i, w := range want {
			gets(t, a, node{Name: fmt.Sprint("m", i)}, w)
		}
	}
}

// Reservations may overlap, nest and repeat; each is taken back by itself, and nodes
// inside keep what they have.
func TestReservations(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/22", 8, "a"))
	n := func(i int) node { return node{Name: fmt.Sprint("n", i), Labels: labels("a=1")} }
	gets(t, a, n(1), "x [10.0.0.0/24]")
	for _, p := range prefixes("10.0.0.0/23", "10.0.1.0/24", "10.0.0.16/28") {
		for range 2 { // the second time nothing happens
			if err := a.Reserve(p); err != nil {
				t.Error(err)
			}
		}
		holders := a.Holders(p)
		inside := p.Overlaps(pfx("10.0.0.0/24"))
		if inside != (len(holders) == 1) || inside && (holders[0].Name != "n1" || holders[0].Prefixes[0] != pfx("10.0.0.0/24")) {
			t.Errorf("reserve %v: %v", p, holders)
		}
	}
	if got := fmt.Sprint(a.Reserved()); got != "[10.0.0.0/23 10.0.0.16/28 10.0.1.0/24]" {
		t.Errorf("reserved %s", got)
	}
	a.Release("n1")
	gets(t, a, n(2), "x [10.0.2.0/24]")
	gets(t, a, n(3), "x [10.0.3.0/24]")
	full := func() error { _, err := a.Allocate(n(4)); return err }
	fails(t, a, ipalloc.ErrFull, full)
	if a.Unreserve(pfx("10.0.0.0/23")) != nil || a.Unreserve(pfx("10.0.0.0/23")) == nil || a.Unreserve(pfx("10.0.0.0/24")) == nil {
		t.Error("unreserve")
	}
	fails(t, a, ipalloc.ErrFull, full) // the two inside are still there
	if a.Unreserve(pfx("10.0.1.0/24")) != nil {
		t.Error("unreserve")
	}
	gets(t, a, n(4), "x [10.0.1.0/24]")
}

// A node that was refused as full is served after a release, a move or a new entry made
// room; one that no entry matches only after an entry was added.
func TestServedAfterTheChange(t *testing.T) {
	release := func(a *nodeipam.Allocator) error { a.Release("n1"); return nil }
	add := func(a *nodeipam.Allocator) error { return a.AddEntry(e4("y", "10.1.0.0/24", 8)) }
	move := func(a *nodeipam.Allocator) error {
		a.Observe(node{Name: "n1", Entry: "x", Prefixes: prefixes("10.7.0.0/24")})
		return nil
	}
	for name, c := range map[string]struct {
		labels string
		err    error
		change func(*nodeipam.Allocator) error
		want   bool
	}{
		"full, release":     {"a=1", ipalloc.ErrFull, release, true},
		"full, add":         {"a=1", ipalloc.ErrFull, add, true},
		"full, move":        {"a=1", ipalloc.ErrFull, move, true},
		"no match, release": {"", ipalloc.ErrNotFound, release, false},
		"no match, add":     {"", ipalloc.ErrNotFound, add, true},
	} {
		a := allocator(t, v4, e4("x", "10.0.0.0/24", 8, "a"))
		gets(t, a, node{Name: "n1", Labels: labels("a=1")}, "x [10.0.0.0/24]")
		n2 := node{Name: "n2", Labels: labels(c.labels)}
		fails(t, a, c.err, func() error { _, err := a.Allocate(n2); return err })
		if err := c.change(a); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Allocate(n2); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Goroutines that drain overlapping pools get distinct prefixes, all there are, and
// the changes are delivered in order, each before its call returns.
func TestConcurrentDrain(t *testing.T) {
	var told []nodeipam.Change // written by one call of the function at a time
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true}, nodeipam.OnChange(func(c nodeipam.Change) { told = append(told, c) }))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []entry{e4("x", "10.0.0.0/21", 4, "a"), e4("y", "10.0.0.0/20", 6, "b")} {
		if err := a.AddEntry(e); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	got := make([]int, 8)
	for g := range got {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				n := node{Name: fmt.Sprint(g, "-", i), Labels: labels([]string{"a=1", "b=1"}[g%2])}
				if _, err := a.Allocate(n); err != nil {
					return
				}
				got[g]++
				if i%5 == 0 {
					a.Explain(n)
					a.Release(n.Name)
					got[g]--
				}
			}
		}()
	}
	wg.Wait()
	check(t, a)
	stats := poolStats(a, "x")
	if stats[0].Free != 0 {
		t.Errorf("%d children of x are still free", stats[0].Free)
	}
	var held []netip.Prefix
	for n := range a.All() {
		held = append(held, n.Prefixes...)
	}
	slices.SortFunc(held, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	for i := 1; i < len(held); i++ {
		if held[i-1].Overlaps(held[i]) {
			t.Fatalf("%v and %v overlap", held[i-1], held[i])
		}
	}
	b := allocator(t, nil)
	for _, c := range told {
		if err := b.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	if bytesOf(t, a) != bytesOf(t, b) {
		t.Error("the changes, in order, give another state")
	}
}

// The function that hears of changes may read the allocator, and knows what went.
func TestOnChange(t *testing.T) {
	var a *nodeipam.Allocator
	var got []string
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true}, nodeipam.OnChange(func(c nodeipam.Change) {
		_, held := a.Lookup("n1")
		got = append(got, fmt.Sprint(c.Op, " ", c.Entry, c.Prefix, len(c.Nodes), c.Gone, held))
	}))
	if err != nil {
		t.Fatal(err)
	}
	a.Load([]node{{Name: "n1", Prefixes: prefixes("10.0.0.0/24")}, {Name: "n2", Prefixes: prefixes("10.0.1.0/24")}})
	for range 2 { // the second time nothing changes and nothing is delivered
		a.Load([]node{{Name: "n1", Prefixes: prefixes("10.0.0.0/24")}})
		if err := a.AddEntry(e4("x", "10.0.0.0/22", 8)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Allocate(node{Name: "n3"}); err != nil {
			t.Fatal(err)
		}
		if err := a.Reserve(pfx("10.0.3.0/24")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.DeleteEntry("x"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"n1", "n2", "n2", "n3"} {
		a.Release(n)
	}
	a.Unreserve(pfx("10.0.3.0/24"))
	want := []string{
		"occupy invalid Prefix 2 [] true", "add entry xinvalid Prefix 2 [] true", "allocate invalid Prefix 1 [] true",
		"reserve 10.0.3.0/24 0 [] true", "delete entry xinvalid Prefix 0 [] true",
		"release invalid Prefix 1 [] false", "release invalid Prefix 1 [] false", "release invalid Prefix 1 [x] false",
		"unreserve 10.0.3.0/24 0 [] false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("told\n%q\nwant\n%q", got, want)
	}
}

// Allocate and Release allocate what they return and nothing else.
func TestAllocationsByLabels(t *testing.T) {
	a, nodes := overlapping(t, 100)
	for _, n := range nodes {
		if _, err := a.Allocate(n); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(200, func() {
		a.Release(nodes[7].Name)
		if _, err := a.Allocate(nodes[7]); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations for a release and an allocation, want 2", n)
	}
}
