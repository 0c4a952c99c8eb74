package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	plan "github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// instructionRows are the rows of TestGuardInstructions.
var instructionRows = []counted{
	{"pair/size=2^16/full=50", 375, 0, func() side { return restored(16, 2).run }},
	{"pair/size=2^16/full=99", 384, 0, func() side { return restored(16, 100).run }},
	{"pair/size=2^16/full=99.99", 760, 0, func() side { return restored(16, 10000).run }},
	{"pair/size=2^20/full=50", 391, 0, func() side { return restored(20, 2).run }},
	{"pair/size=2^20/full=99", 408, 0, func() side { return restored(20, 100).run }},
	{"pair/size=2^20/full=99.99", 1114, 0, func() side { return restored(20, 10000).run }},
	{"pair/size=2^24/full=50", 392, 0, func() side { return restored(24, 2).run }},
	{"pair/size=2^24/full=99", 413, 0, func() side { return restored(24, 100).run }},
	{"pair/size=2^24/full=99.99", 1225, 0, func() side { return restored(24, 10000).run }},
	{"bitset/size=2^20/full=50", 281.4, 0, func() side { return flatChurned(20, 2).run }},
	{"stats/size=2^20", 2056, 0, func() side { return statsOf(restored(20, 100)) }},
	{"far/size=2^24", 1002, 0, func() side { return steps(newFar(pool4, 24).step) }},
	{"far/size=2^64", 1107, 0, func() side { return steps(newFar(pool6, 64).step) }},
	{"range/children=2^6", 1317, 0, func() side { return rangeOf(6) }},
	{"range/children=2^12", 6860, 1 << 10, func() side { return rangeOf(12) }},
	{"range/children=2^20", 1432, 0, func() side { return rangeOf(20) }},
	{"batch/work=pair", 288.5, 0, batches},
	{"batch/work=fill", 75.5, 0, batchFill},
	{"mixed/live=1000", 2793, 0, func() side { return steps(newMixed(1000).step) }},
	{"restore/size=2^20", 1647500, 8, func() side {
		data := stateOf(20, 2)
		return steps(func() { must(cidrset.Restore(pool4, pool4.Bits()+20, data)) })
	}},
	{"bitmap/pair/size=2^32", 1872, 0, func() side { return flips(1<<32-1, false) }},
	{"bitmap/pair/size=2^64", 1719, 0, func() side { return flips(^uint64(0), false) }},
	{"bitmap/pair/size=2^20/summaries", 363, 0, func() side { return flips(1<<20-1, true) }},
	{"bitmap/nextclear/size=2^20", 256, 0, func() side { return query(20, 100, (*bitmap.Bitmap).NextClear) }},
	{"bitmap/rank/size=2^20", 733, 0, func() side { return query(20, 2, rank) }},
	{"bitmap/select/size=2^20", 1675, 0, func() side { return query(20, 2, selected) }},
	{"bitmap/selectclear/size=2^20", 2526, 0, func() side { return query(20, 2, selectedClear) }},
	{"registry/allocate/owners=10", 19670, 1 << 13, func() side { return registryPair(10) }},
	{"registry/allocate/owners=1000", 20440, 1 << 13, func() side { return registryPair(1000) }},
	{"registry/allocate/owners=100000", 20350, 1 << 13, func() side { return registryPair(100000) }},
	{"registry/begin/owners=10", 18580, 1 << 13, func() side { return registryBegin(10) }},
	{"registry/begin/owners=100000", 18500, 1 << 13, func() side { return registryBegin(100000) }},
	{"registry/move/owners=10", 7250, 1 << 13, func() side { return registryMove(10) }},
	{"registry/move/owners=100000", 7400, 1 << 13, func() side { return registryMove(100000) }},
	{"nodeipam/nodes=10", 6350, 1 << 13, func() side { return nodesPair(10) }},
	{"nodeipam/nodes=1000", 6340, 1 << 13, func() side { return nodesPair(1000) }},
	{"nodeipam/nodes=100000", 8750, 1 << 13, func() side { return nodesPair(100000) }},
	{"ipset/assign/release=handle", 37000, 1 << 11, inMemory(ipsetPair)},
	{"ipset/autoassign/release=address", 27780, 1 << 11, inMemory(ipsetAutoPair)},
	{"ipset/autoassign/request=key", 54270, 1 << 9, inMemory(ipsetRequestPair)},
	{"prefixes/assign/release=owner", 34950, 1 << 11, inMemory(prefixesPair)},
}

// stateOf returns a snapshot of a set of 2^order children of which 1/free is free.
func stateOf(order int, free uint64) []byte {
	return kept(fmt.Sprintf("set-%d-%d", order, free), func() []byte {
		s, _ := loaded(order, free, 0)
		return must(s.MarshalBinary())
	})
}

// restored is churned with a set that is restored, which takes fewer instructions than to load it.
func restored(order int, free uint64) *churn[*cidrset.Set] {
	s := must(cidrset.Restore(pool4, pool4.Bits()+order, stateOf(order, free)))
	_, codec := newSet(order)
	win := make([]netip.Prefix, window)
	for i := range win {
		win[i] = codec.Prefix(scatter(uint64(1)<<order/free+uint64(i), order))
	}
	return &churn[*cidrset.Set]{s: s, win: win, bits: windowBits}
}

func statsOf(c *churn[*cidrset.Set]) side {
	c.s.Stats() // makes the summaries that the later calls keep up
	return steps(func() {
		c.step()
		if c.s.Stats().LargestFree < 0 {
			panic("nothing is free")
		}
	})
}

// flips is a pair of a bitmap without a lock: Clear, and SetNextClear elsewhere.
func flips(last uint64, summaries bool) side {
	m := bitmap.New(last)
	at := make([]uint64, window)
	x := random(1)
	for i := range at {
		at[i], _ = m.SetNextClear(x.below(63) & (last >> 1))
	}
	if summaries {
		m.BestFit(3)
	}
	return steps(func() {
		p := &at[x.below(windowBits)]
		m.Clear(*p)
		*p, _ = m.SetNextClear(x.below(63) & (last >> 1))
	})
}

func selectedClear(m *bitmap.Bitmap, x uint64) (uint64, bool) { return m.SelectClear(x / 4) }

// owned returns a registry with so many owners, each with an address and a port of its own.
func owned(owners int) *servicealloc.Registry {
	ports := servicealloc.PortRange{First: 1, Last: 65535}
	data := kept(fmt.Sprint("registry-", owners), func() []byte {
		r := must(servicealloc.NewRegistry(ports))
		if err := r.SetRange(servicealloc.RangeInfo{Name: "v4", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12")}}); err != nil {
			panic(err)
		}
		for i := range owners {
			must(r.Allocate(fmt.Sprint("ns/", i), serviceRequest(i < 50000)))
		}
		return must(r.MarshalBinary())
	})
	return must(servicealloc.NewRegistry(ports, servicealloc.Restore(data)))
}

func serviceRequest(port bool) servicealloc.Request {
	req := servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified()}}
	if port {
		req.Ports = []servicealloc.Port{{}}
	}
	return req
}

func registryPair(owners int) side {
	r, next := owned(owners), newcomers()
	return steps(func() {
		owner := next()
		g := must(r.Allocate(owner, serviceRequest(true)))
		must(r.Release(owner, g.Generation))
	})
}

// newcomers returns names of owners in turn. The cost of one name depends on where the seed of a map puts it.
func newcomers() func() string {
	var names [64]string
	for i := range names {
		names[i] = fmt.Sprint("ns/x", i)
	}
	i := 0
	return func() string { i++; return names[i%len(names)] }
}

// registryBegin replaces the port of an owner by a transaction.
func registryBegin(owners int) side {
	r := owned(owners)
	return steps(func() {
		tx, _, err := r.Begin("ns/3", serviceRequest(true))
		if err != nil {
			panic(err)
		}
		if err := tx.Commit(); err != nil {
			panic(err)
		}
	})
}

// registryMove moves an address from owner to owner.
func registryMove(owners int) side {
	r, next := owned(owners), newcomers()
	from, to := next(), next()
	at := must(r.Allocate(from, serviceRequest(false))).Addrs
	return steps(func() {
		g, _ := r.Get(from)
		if _, _, err := r.Move(servicealloc.Grant{Owner: from, Generation: g.Generation, Addrs: at}, servicealloc.Grant{Owner: to, Addrs: at}); err != nil {
			panic(err)
		}
		from, to = to, next()
	})
}

// nodesPair is Allocate and Release of a node beside so many, in two families.
func nodesPair(nodes int) side {
	data := kept(fmt.Sprint("nodes-", nodes), func() []byte {
		a := must(nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{
			{Bits: 28, Pools: []netip.Prefix{pool4}}, {Bits: 64, Pools: []netip.Prefix{netip.MustParsePrefix("fd00::/40")}}}}))
		for i := range nodes {
			must(a.Allocate(nodeipam.Node{Name: fmt.Sprint("node", i)}))
		}
		return must(a.MarshalBinary())
	})
	a := must(nodeipam.Restore(data))
	return steps(func() {
		must(a.Allocate(nodeipam.Node{Name: "x"}))
		a.Release("x")
	})
}

// engine returns an engine on a store with one block, half of whose addresses are held.
func engine(in store.Store, options ipset.Options) (*ipset.Engine, alloc.Owner) {
	ctx := context.Background()
	e := must(ipset.New(in, options))
	if err := e.AddPool(ctx, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 24}); err != nil {
		panic(err)
	}
	o := alloc.HostOwner("h")
	for i := range 128 {
		must(e.Assign(ctx, o, fmt.Sprint("held", i)))
	}
	return e, o
}

// inMemory opens a side on a store in memory.
func inMemory(open func(store.Store) side) func() side {
	return func() side { return open(store.NewMemory()) }
}

// ipsetPair is the pair of calls that the documents teach first.
func ipsetPair(in store.Store) side {
	e, o := engine(in, ipset.Options{})
	ctx := context.Background()
	return steps(func() {
		must(e.Assign(ctx, o, "x"))
		must(e.ReleaseByHandle(ctx, "x"))
	})
}

func ipsetAutoPair(in store.Store) side {
	e, o := engine(in, ipset.Options{})
	ctx := context.Background()
	return steps(func() {
		a := must(e.AutoAssign(ctx, alloc.AssignArgs{Owner: o, Handle: "x", Num4: 1})).V4[0]
		must(e.ReleaseIPs(ctx, alloc.Release{Address: a.Address, Guard: alloc.Guard{Seq: a.Seq}}))
	})
}

// ipsetRequestPair is ipsetAutoPair with a new request key each time, as the documents teach it to a caller behind a network. A key
// lasts for 64 pairs, so as many answers expire as are written.
func ipsetRequestPair(in store.Store) side {
	now := time.Unix(1<<30, 0)
	e, o := engine(in, ipset.Options{Now: func() time.Time { return now }, RequestsAfter: 64 * time.Second})
	ctx := context.Background()
	return steps(func() {
		now = now.Add(time.Second)
		a := must(e.AutoAssign(ctx, alloc.AssignArgs{Owner: o, Handle: "x", Num4: 1, Request: strconv.FormatInt(now.Unix(), 10)})).V4[0]
		must(e.ReleaseIPs(ctx, alloc.Release{Address: a.Address, Guard: alloc.Guard{Seq: a.Seq}}))
	})
}

// prefixesPair is Assign and Release of a prefix beside 100 others of several lengths.
func prefixesPair(in store.Store) side {
	ctx := context.Background()
	a := must(plan.New(in, plan.Options{}))
	if err := a.AddPool(ctx, plan.Pool{Prefix: pool4, Sizes: plan.Sizes{Shortest: 12, Longest: 24}}); err != nil {
		panic(err)
	}
	for i := range 100 {
		must(a.Assign(ctx, plan.Request{Pool: pool4, Owner: fmt.Sprint("o", i), Bits: 18 + i%6}))
	}
	return steps(func() {
		h := must(a.Assign(ctx, plan.Request{Pool: pool4, Owner: "x", Bits: 20}))
		if err := a.Release(ctx, h.Prefix, "x"); err != nil {
			panic(err)
		}
	})
}

// BenchmarkRow times the rows of the packages that have no benchmarks of their own here.
func BenchmarkRow(b *testing.B) {
	for _, row := range instructionRows {
		if slices.ContainsFunc([]string{"registry/", "nodeipam/", "ipset/", "prefixes/"}, func(p string) bool { return strings.HasPrefix(row.name, p) }) {
			b.Run(row.name, func(b *testing.B) {
				do := row.open()
				b.ReportAllocs()
				b.ResetTimer()
				do(b.N)
			})
		}
	}
}
