package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// both is a client of Calico's and an engine of ours with one pool, for one scenario.
type both struct {
	t       *testing.T
	backend *backend
	calico  *calico
	engine  *ipset.Engine
	now     time.Time
}

func newBoth(t *testing.T, c alloc.Config, pools ...string) *both {
	b := &both{t: t, backend: newBackend(), now: time.Unix(1e9, 0)}
	b.engine = must(ipset.New(store.NewMemory(), ipset.Options{Now: func() time.Time { return b.now }}))
	var list []v3.IPPool
	for i, s := range pools {
		prefix, bits, _ := strings.Cut(s, " ")
		name, n := string(rune('a'+i)), 0
		for _, d := range bits {
			n = n*10 + int(d-'0')
		}
		list = append(list, calicoPool(name, prefix, n))
		check(b.engine.AddPool(bg, alloc.Pool{Name: name, Prefix: netip.MustParsePrefix(prefix), BlockBits: n}))
	}
	b.calico = must(newCalico(b.backend, list, "x", "y"))
	check(b.calico.SetIPAMConfig(bg, ipam.IPAMConfig{StrictAffinity: c.Strict, AutoAllocateBlocks: true}))
	check(b.engine.Operator().SetConfig(bg, c))
	return b
}

// theirs asks Calico for addresses of a family.
func (b *both) theirs(host string, n4, n6 int) ([]netip.Prefix, error) {
	v4, v6, err := b.calico.AutoAssign(bg, ipam.AutoAssignArgs{Num4: n4, Num6: n6, Hostname: host, IntendedUse: v3.IPPoolAllowedUseWorkload})
	return append(given(v4), given(v6)...), err
}

// ours asks our engine for addresses of a family.
func (b *both) ours(host string, n4, n6 int) ([]netip.Prefix, error) {
	got, err := b.engine.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: n4, Num6: n6, Use: alloc.Workload, Partial: true})
	var list []netip.Prefix
	for _, al := range append(got.V4, got.V6...) {
		list = append(list, al.Prefix())
	}
	return list, err
}

// claim gives a host a block, with both.
func (b *both) claim(host string, blocks ...string) {
	for _, s := range blocks {
		p := netip.MustParsePrefix(s)
		if _, failed, err := b.calico.ClaimAffinity(bg, netOf(p), host); err != nil || len(failed) > 0 {
			b.t.Fatal(failed, err)
		}
		if _, failed, err := b.engine.ClaimAffinity(bg, p, alloc.HostOwner(host)); err != nil || len(failed) > 0 {
			b.t.Fatal(failed, err)
		}
	}
}

// windowsEnds are the addresses that a Windows host keeps.
var windowsEnds = &ipam.HostReservedAttr{StartOfBlock: 3, EndOfBlock: 1, Handle: ipam.WindowsReservedHandle, Note: "reserved"}

// scenarios show the divergences that a replay does not: each function returns whether Calico and whether we do what the
// table says.
var scenarios = map[string]func(*testing.T) (theirs, ours bool){
	textOrder: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.0.0.0/24 28")
		b.claim("x", "10.0.0.16/28", "10.0.0.128/28")
		c, _ := b.theirs("x", 1, 0)
		o, _ := b.ours("x", 1, 0)
		return is(c, "10.0.0.128/28"), is(o, "10.0.0.16/28")
	},
	askedOrder: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.1.0.0/28 28", "10.2.0.0/28 28")
		pool := must(b.engine.Pools(bg))[0]
		pool.Priority = 1
		check(b.engine.UpdatePool(bg, pool))
		v4, _, err := b.calico.AutoAssign(bg, ipam.AutoAssignArgs{Num4: 1, Hostname: "x", IntendedUse: v3.IPPoolAllowedUseWorkload,
			IPv4Pools: []cnet.IPNet{cnet.MustParseNetwork("10.2.0.0/28"), cnet.MustParseNetwork("10.1.0.0/28")}})
		got, oerr := b.engine.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Use: alloc.Workload, Pools: []string{"b", "a"}})
		return err == nil && is(given(v4), "10.2.0.0/28"), oerr == nil && got.V4[0].Address == netip.MustParseAddr("10.1.0.0")
	},
	oneFamily: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.1.0.0/28 28", "fd00::/120 124")
		v4, v6, err := b.calico.AutoAssign(bg, ipam.AutoAssignArgs{Num4: 1, Num6: 1, Hostname: "x", IntendedUse: v3.IPPoolAllowedUseWorkload,
			IPv6Pools: []cnet.IPNet{cnet.MustParseNetwork("fd00::/120")}})
		_, oerr := b.engine.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Num6: 1, Use: alloc.Workload, Pools: []string{"b"}})
		return err == nil && len(v4.IPs) == 1 && len(v6.IPs) == 1, errors.Is(oerr, ipalloc.ErrNotFound)
	},
	smallBlocks: func(t *testing.T) (bool, bool) {
		theirs, ours := true, true
		for _, pool := range []string{"10.1.0.0/28 30", "10.1.0.0/28 32"} {
			b := newBoth(t, alloc.Config{Strict: true}, pool, "10.2.0.0/24 28")
			var err error
			panicked := panics(func() {
				_, _, err = b.calico.AutoAssign(bg, ipam.AutoAssignArgs{Num4: 1, Hostname: "x", IntendedUse: v3.IPPoolAllowedUseWorkload, HostReservedAttrIPv4s: windowsEnds})
			})
			theirs = theirs && (panicked || err != nil && b.records("/block/10.1.0.") > 0)
			got, oerr := b.engine.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Use: alloc.Workload, Blocks: alloc.BlockArgs{Head: 3, Tail: 1}})
			ours = ours && oerr == nil && len(got.V4) == 1 && got.V4[0].Block.Bits() == 28
		}
		return theirs, ours
	},
	looseEnds: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.1.0.0/26 28")
		_, _, err := b.calico.AutoAssign(bg, ipam.AutoAssignArgs{Num4: 1, Hostname: "x", IntendedUse: v3.IPPoolAllowedUseWorkload,
			HostReservedAttrIPv4s: windowsEnds})
		_, oerr := b.engine.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Use: alloc.Workload, Blocks: alloc.BlockArgs{Head: 3, Tail: 1}})
		return err == nil, errors.Is(oerr, ipalloc.ErrInvalid)
	},
	looseLimit: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.1.0.0/26 28")
		err := b.calico.SetIPAMConfig(bg, ipam.IPAMConfig{AutoAllocateBlocks: true, MaxBlocksPerHost: 3})
		return err != nil, b.engine.Operator().SetConfig(bg, alloc.Config{MaxBlocksPerHost: 3}) == nil
	},
	noLimit: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.1.0.0/24 29")
		theirs, err := b.theirs("x", 200, 0)
		ours, oerr := b.ours("x", 200, 0)
		return err != nil && len(theirs) == 160, oerr == nil && len(ours) == 200
	},
	nothingAsked: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.1.0.0/26 28")
		_, err := b.theirs("x", 0, 0)
		_, oerr := b.ours("x", 0, 0)
		return err == nil, errors.Is(oerr, ipalloc.ErrInvalid)
	},
	singleBlocks: func(t *testing.T) (bool, bool) {
		var theirs, ours []netip.Prefix
		for range 4 {
			b := newBoth(t, alloc.Config{}, "10.0.0.0/12 32")
			c, _ := b.theirs("x", 1, 0)
			o, _ := b.ours("x", 1, 0)
			theirs, ours = append(theirs, c...), append(ours, o...)
		}
		return !same(theirs), same(ours)
	},
	overlaps: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.0.0.0/26 26")
		c, _ := b.theirs("x", 16, 0)
		o, _ := b.ours("x", 16, 0)
		b.calico.pools[0].Spec.BlockSize = 28
		pool := must(b.engine.Pools(bg))[0]
		pool.BlockBits = 28
		check(b.engine.UpdatePool(bg, pool))
		for range 4 {
			more, _ := b.theirs("y", 16, 0)
			c = append(c, more...)
			more, _ = b.ours("y", 16, 0)
			o = append(o, more...)
		}
		return twice(c), !twice(o)
	},
	idleBlock: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{Strict: true}, "10.0.0.0/28 28")
		b.claim("y", "10.0.0.0/28")
		b.now = b.now.Add(time.Minute)
		c, cerr := b.theirs("x", 1, 0)
		o, _ := b.ours("x", 1, 0)
		return len(c) == 0 && cerr == nil, len(o) == 1
	},
	hugeBlocks: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "fd00::/48 64")
		_, err := b.theirs("x", 0, 1)
		_, again := b.theirs("x", 0, 1)
		o, _ := b.ours("x", 0, 1)
		return err != nil && again != nil && b.records("/assignment/") == 2, len(o) == 1
	},
	endedBorrow: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.0.0.0/27 28")
		for _, ask := range []func(string, int, int) ([]netip.Prefix, error){b.theirs, b.ours} {
			if got, err := ask("y", 31, 0); len(got) != 31 || err != nil {
				t.Fatal(got, err)
			}
		}
		ctx := &ending{Context: bg, left: 7} // the calls before the search
		v4, _, err := b.calico.AutoAssign(ctx, ipam.AutoAssignArgs{Num4: 1, Hostname: "x", IntendedUse: v3.IPPoolAllowedUseWorkload})
		if ctx.Err() == nil {
			t.Fatal("the context has not ended")
		}
		done, cancel := context.WithCancel(bg)
		cancel()
		_, oerr := b.engine.AutoAssign(done, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Use: alloc.Workload})
		return err == nil && len(given(v4)) == 0, errors.Is(oerr, context.Canceled)
	},
	endedRelease: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{}, "10.0.0.0/27 28")
		done, cancel := context.WithCancel(bg)
		cancel()
		panicked := panics(func() { _, _ = b.calico.ReleaseIPs(done, ipam.ReleaseOptions{Address: "10.0.0.1"}) })
		_, err := b.engine.ReleaseIPs(done, alloc.Release{Address: netip.MustParseAddr("10.0.0.1")})
		return panicked, errors.Is(err, context.Canceled)
	},
	crowdedHost: func(t *testing.T) (bool, bool) {
		facts := crowd(frame.Options{Procs: 2}, 4, t.Output())
		return facts[0].Values[theirs] > 0, facts[0].Values[ours] == 0 && facts[2].Values[ours] == 0
	},
	ensuresReserved: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{Strict: true}, "10.1.0.0/27 28")
		b.claim("x", "10.1.0.0/28")
		b.calico.reserved = []string{"10.1.0.0/28"}
		var sb netipx.IPSetBuilder
		sb.AddPrefix(netip.MustParsePrefix("10.1.0.0/28"))
		must(b.engine.Operator().SetReservations(bg, alloc.Reservations(must(sb.IPSet()).Ranges()...)))
		v4, _, err := b.calico.EnsureBlock(bg, ipam.BlockArgs{Hostname: "x", HostReservedAttrIPv4s: windowsEnds})
		o, oerr := b.engine.EnsureBlock(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Use: alloc.Workload, Blocks: alloc.BlockArgs{Head: 3, Tail: 1}})
		return err == nil && v4.String() == "10.1.0.16/28", oerr == nil && len(o) == 1 && o[0].String() == "10.1.0.0/28"
	},
	ensuresOther: func(t *testing.T) (bool, bool) {
		b := newBoth(t, alloc.Config{Strict: true}, "fd00:1::/120 124", "fd00:2::/120 124")
		_, v6, err := b.calico.EnsureBlock(bg, ipam.BlockArgs{Hostname: "x", HostReservedAttrIPv6s: windowsEnds, IPv6Pools: []cnet.IPNet{cnet.MustParseNetwork("fd00:2::/120")}})
		o, oerr := b.engine.EnsureBlock(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num6: 1, Use: alloc.Workload, Pools: []string{"b"}, Blocks: alloc.BlockArgs{Head: 3, Tail: 1}})
		named := netip.MustParsePrefix("fd00:2::/120")
		return err == nil && !named.Contains(prefixOf(*v6).Addr()), oerr == nil && named.Contains(o[0].Addr())
	},
	configuresAny: func(t *testing.T) (bool, bool) {
		b := newBackend()
		c := &calico{backend: b}
		must(ipam.NewIPAMClient(b, c, (*calicoReservations)(c)).GetIPAMConfig(bg))
		db := store.NewMemory()
		must(must(ipset.New(db, ipset.Options{})).Operator().Config(bg))
		recs, _, err := db.List(bg, store.Range{})
		return b.tree.Len() == 1, err == nil && len(recs) == 0
	},
	writeLost:  crashes,
	handleLost: losesHandle,
}

// TestDivergences shows what random traces do not: with both that it is as the table says.
func TestDivergences(t *testing.T) {
	listed := map[string]bool{}
	for _, d := range divergences {
		if listed[d.Case] {
			t.Errorf("listed twice: %s", d.Case)
		}
		listed[d.Case] = true
		f := scenarios[d.Case]
		if d.Replayed != (f == nil) {
			t.Errorf("%s: a test of its own: %v, replayed: %v", d.Case, f != nil, d.Replayed)
		}
		if f == nil {
			continue
		}
		if theirs, ours := f(t); !theirs || !ours {
			t.Errorf("%s: as the table says: Calico %v, ours %v", d.Case, theirs, ours)
		}
	}
	for name := range scenarios {
		if !listed[name] {
			t.Errorf("not listed: %s", name)
		}
	}
}

// crashes kills an assignment to a new host before each of its writes. Calico's leave traces of what was not done; ours
// leave nothing.
func crashes(t *testing.T) (theirs, ours bool) {
	kill := errors.New("killed")
	traces := 0
	for k := 1; ; k++ {
		b := newBoth(t, alloc.Config{}, "10.0.0.0/26 28")
		n, records := 0, b.backend.tree.Len()
		b.backend.before = func() error {
			if n++; n >= k { // it is dead from here on
				return kill
			}
			return nil
		}
		handle := "handle"
		_, _, err := b.calico.AutoAssign(bg, ipam.AutoAssignArgs{Num4: 1, Hostname: "x", HandleID: &handle, IntendedUse: v3.IPPoolAllowedUseWorkload})
		b.backend.before = nil
		if n < k { // it was done before
			break
		}
		ips, _ := b.calico.IPsByHandle(bg, handle)
		check(b.calico.ReleaseHostAffinities(bg, "x", false)) // the host does not come back
		if len(ips) == 0 && b.backend.tree.Len() > records {
			traces++
		}
		_ = err // a dead caller hears nothing
	}
	db := store.NewMemory()
	e := must(ipset.New(&dead{Store: db}, ipset.Options{}))
	check(e.AddPool(bg, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/26"), BlockBits: 28}))
	before := must(db.MarshalBinary())
	e = must(ipset.New(&dead{Store: db, now: true}, ipset.Options{}))
	_, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Use: alloc.Workload, Handle: "handle"})
	return traces > 0, err != nil && string(must(db.MarshalBinary())) == string(before)
}

// losesHandle lets no handle be written. Calico's assignment goes on all the same.
func losesHandle(t *testing.T) (theirs, ours bool) {
	b := newBoth(t, alloc.Config{}, "10.0.0.0/26 28")
	must(b.theirs("x", 1, 0)) // the block is there
	n := 0
	b.backend.before = func() error {
		if n++; n <= 100 { // as often as it tries
			return errors.New("not allowed")
		}
		return nil
	}
	handle := "handle"
	v4, _, err := b.calico.AutoAssign(bg, ipam.AutoAssignArgs{Num4: 1, Hostname: "x", HandleID: &handle, IntendedUse: v3.IPPoolAllowedUseWorkload})
	b.backend.before = nil
	rerr := b.calico.ReleaseByHandle(bg, handle)
	db := store.NewMemory()
	e := must(ipset.New(&dead{Store: db}, ipset.Options{}))
	check(e.AddPool(bg, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/26"), BlockBits: 28}))
	e = must(ipset.New(&dead{Store: db, now: true}, ipset.Options{}))
	_, oerr := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num4: 1, Use: alloc.Workload, Handle: handle})
	als := must(e.IPsByHandle(bg, handle))
	return err == nil && len(given(v4)) == 1 && rerr != nil, oerr != nil && len(als) == 0
}

// dead is a store that takes no more commits from some moment on.
type dead struct {
	store.Store
	now bool
}

func (d *dead) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if d.now {
		return 0, errors.New("not allowed")
	}
	return d.Store.Commit(ctx, ops)
}

// ending is a context that ends when it has been asked so many times whether it has.
type ending struct {
	context.Context
	left  int64
	asked atomic.Int64
}

func (e *ending) Err() error {
	if e.asked.Add(1) > e.left {
		return context.Canceled
	}
	return nil
}

// records returns how many records with part in their path Calico has.
func (b *both) records(part string) (n int) {
	b.backend.tree.Ascend(func(r *record) bool {
		if strings.Contains(r.path, part) {
			n++
		}
		return true
	})
	return n
}

// is reports whether the list is one address of a block.
func is(list []netip.Prefix, block string) bool {
	return len(list) == 1 && list[0].Masked() == netip.MustParsePrefix(block)
}

// same reports whether all of a list are the same.
func same(list []netip.Prefix) bool {
	for _, p := range list {
		if p != list[0] {
			return false
		}
	}
	return len(list) > 0
}

// twice reports whether an address is in the list twice.
func twice(list []netip.Prefix) bool {
	seen := map[netip.Addr]bool{}
	for _, p := range list {
		if seen[p.Addr()] {
			return true
		}
		seen[p.Addr()] = true
	}
	return false
}

// panics reports whether f does.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
