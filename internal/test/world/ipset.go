package world

import (
	"errors"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// pools are the pools of a space, one for each thing that a pool can be.
func pools() []alloc.Pool {
	rack := selector.Selector{{
		Labels: []selector.Requirement{{Key: "rack", Op: selector.In, Values: []string{"1"}}},
		Fields: []selector.Requirement{{Key: "metadata.name", Op: selector.NotIn, Values: []string{"none"}}},
	}}
	team := selector.Selector{{Labels: []selector.Requirement{{Key: "team", Op: selector.Exists}}}}
	return []alloc.Pool{
		{Name: "plain", Note: "of all", Prefix: prefix("10.0.0.0/22"), Cooldown: time.Hour},
		{Name: "inner", Prefix: prefix("10.0.1.0/26"), BlockBits: 28, Manual: true},
		{Name: "innermost", Prefix: prefix("10.0.1.16/28"), BlockBits: 30, Manual: true, Uses: alloc.Workload | alloc.LoadBalancer},
		{Name: "disabled", Prefix: prefix("10.1.0.0/26"), BlockBits: 28, Manual: true},
		{Name: "selected", Prefix: prefix("10.2.0.0/26"), BlockBits: 28, Nodes: rack, Namespaces: team, Priority: 3},
		{Name: "ranged", Prefix: prefix("10.3.0.0/26"), BlockBits: 28, Subnet: true, MaxBlocksPerHost: 2, Manual: true,
			Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.3.0.2-10.3.0.9"), netipx.MustParseIPRange("10.3.0.20-10.3.0.60")}},
		{Name: "lowest", Prefix: prefix("10.4.0.0/26"), BlockBits: 27, Order: alloc.Lowest, Index: []string{"tenant"}, Cooldown: time.Minute, Manual: true},
		{Name: "random", Prefix: prefix("10.5.0.0/26"), BlockBits: 28, Order: alloc.Random, Seed: 7, Manual: true},
		{Name: "tiny", Prefix: prefix("10.6.0.0/28"), BlockBits: 28, Manual: true},
		{Name: "orphans", Prefix: prefix("10.7.0.0/28"), BlockBits: 28, Manual: true},
		{Name: "resized", Prefix: prefix("10.8.0.0/25"), BlockBits: 29, Manual: true},
		{Name: "shared", Prefix: prefix("10.9.0.0/26"), BlockBits: 27, Uses: alloc.LoadBalancer, Index: []string{"tenant"}},
		{Name: "six", Prefix: prefix("fd00::/64")},
		{Name: "wide", Prefix: prefix("fd01::/63"), BlockBits: 64, Manual: true},
		{Name: "closed", Prefix: prefix("10.10.0.0/28"), BlockBits: 28, Closed: true},
	}
}

// addresses fills the space of an engine: pools, blocks, addresses in every state, memos, records of the caller.
func (f *filler) addresses() {
	for _, p := range pools() {
		f.must(f.e.AddPool(f.Context(), use(f, p)))
	}
	f.must(f.e.Operator().SetConfig(f.Context(), use(f, alloc.Config{Strict: true})))
	f.assign(alloc.AssignArgs{Owner: host("windows"), Num4: 1, Handle: "ends", Blocks: alloc.BlockArgs{Head: 3, Tail: 1}})
	f.assignIP(alloc.AssignIPArgs{Address: at("10.0.3.4"), Owner: host("windows"), Handle: "ends", Pools: []string{"plain"}, Blocks: alloc.BlockArgs{Head: 3, Tail: 1}, Also: []store.Op{{Kind: store.Put, Key: "Machine/3", Value: "here", Expect: store.AnyRevision}}})
	f.must(f.e.Operator().SetConfig(f.Context(), alloc.Config{}))
	f.own()
	f.others()
	f.states()
	f.holders()
	f.memos()
	f.moves()
	f.settings()
}

func (f *filler) assign(a alloc.AssignArgs) alloc.Assigned {
	f.Helper()
	got, err := f.e.AutoAssign(f.Context(), use(f, a))
	f.must(err)
	return got
}

func (f *filler) assignIP(a alloc.AssignIPArgs) alloc.Allocation {
	f.Helper()
	al, err := f.e.AssignIP(f.Context(), use(f, a))
	f.must(err)
	return al
}

// own makes addresses in blocks that their hosts own, of each pool.
func (f *filler) own() {
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 3, Num6: 2, Handle: "plain", Attributes: attributes(f, "acme")})
	f.assign(alloc.AssignArgs{Owner: alloc.VirtualOwner("v1"), Num4: 1, Num6: 1, Handle: "virtual", Use: alloc.Tunnel})
	f.assign(alloc.AssignArgs{Owner: host("r1"), Num4: 2, Handle: "selected", Namespace: map[string]string{"team": "a"}, Blocks: alloc.BlockArgs{Max: 4}})
	for _, pool := range []string{"inner", "innermost", "disabled", "ranged", "random", "resized", "wide"} {
		a := alloc.AssignArgs{Owner: host("h1"), Num4: 2, Handle: "in " + pool, Pools: []string{pool}}
		if pool == "wide" {
			a.Num4, a.Num6 = 0, 3
		}
		f.assign(a)
	}
	f.assign(alloc.AssignArgs{Owner: host("h2"), Num4: 4, Choose: alloc.Aligned(), Handle: "neighbours"})
	_, err := f.e.AssignIPs(f.Context(), use(f, alloc.AssignArgs{Owner: host("h2"), Num4: 1, Handle: "named", Share: alloc.Share{Max: 2, Key: "named"}}), at("10.0.3.77"))
	f.must(err)
	f.assign(alloc.AssignArgs{Owner: host("h2"), Num4: 40, Handle: "few", Pools: []string{"tiny"}, Partial: true, Selectors: true})
	_, err = f.e.ReleaseByHandle(f.Context(), "few")
	f.must(err)
	f.assignIP(alloc.AssignIPArgs{Address: at("10.0.3.200"), Owner: host("h3"), // without a handle, and from elsewhere
		Since: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)})
}

// others makes blocks that are borrowed from, without owner, empty, and of another size than their pool's.
func (f *filler) others() {
	f.assign(alloc.AssignArgs{Owner: host("h2"), Num4: 1, Handle: "lender", Pools: []string{"tiny"}})
	f.assign(alloc.AssignArgs{Owner: host("h3"), Num4: 1, Handle: "borrower", Pools: []string{"tiny"}})
	f.assign(alloc.AssignArgs{Owner: host("h4"), Num4: 2, Handle: "left", Pools: []string{"orphans"}})
	_, err := f.e.DisownBlocks(f.Context(), alloc.DisownArgs{Owner: host("h4")})
	f.must(err)
	_, failed, err := f.e.ClaimAffinity(f.Context(), prefix("10.0.2.0/25"), host("h5"))
	if f.must(err); len(failed) > 0 {
		f.Fatal(failed)
	}
	p := pools()[10]
	p.BlockBits = 28
	f.must(f.e.UpdatePool(f.Context(), p))
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "new size", Pools: []string{p.Name}, Blocks: alloc.BlockArgs{Max: 1 << 20}})
}

// states makes addresses that are leased, offered, declined, cooling, and some whose time is over.
func (f *filler) states() {
	lease := func(handle string, ttl time.Duration) alloc.AssignArgs {
		return alloc.AssignArgs{Owner: host("h6"), Num4: 1, Handle: handle, TTL: ttl, Pools: []string{"lowest"}}
	}
	f.assign(lease("leased", 24*time.Hour))
	f.assign(lease("ended", time.Minute))
	_, err := f.e.Offer(f.Context(), use(f, lease("offered", time.Hour)))
	f.must(err)
	_, err = f.e.Renew(f.Context(), "leased", use(f, alloc.RenewArgs{TTL: 24 * time.Hour, WithinRules: true, Owner: host("h6"), Use: alloc.Workload, Namespace: map[string]string{"team": "a"}}))
	f.must(err)
	declined := f.assign(lease("declines", 24*time.Hour)).V4[0]
	_, err = f.e.Decline(f.Context(), use(f, alloc.DeclineArgs{Address: declined.Address, Guard: alloc.Guard{Handle: "declines"}, For: 24 * time.Hour, Reason: "answers already"}))
	f.must(err)
	f.assign(lease("cools", 0))
	_, err = f.e.ReleaseByHandle(f.Context(), "cools")
	f.must(err)
	f.assign(alloc.AssignArgs{Owner: host("h6"), Num4: 2, Handle: "cooling"})
	_, err = f.e.Release(f.Context(), use(f, alloc.ReleaseArgs{Handle: "cooling", Also: []store.Op{{Kind: store.Put, Key: "Machine/2", Value: "gone", Expect: store.AnyRevision}}}))
	f.must(err)
}

// holders makes addresses with several holders, and one with attributes of two owners.
func (f *filler) holders() {
	join := func(address, handle, tenant, of string, s alloc.Share, ttl time.Duration) {
		f.assignIP(alloc.AssignIPArgs{Address: at(address), Owner: host(of), Use: alloc.LoadBalancer,
			Handle: handle, Attributes: attributes(f, tenant), Share: s, TTL: ttl})
	}
	for _, holder := range []string{"one", "two", "three"} {
		join("10.9.0.10", holder, holder, "r"+holder, alloc.Share{Max: 4, Key: "web"}, time.Duration(len(holder)-3)*24*time.Hour) // the third one's is a lease
	}
	join("10.9.0.11", "one", "acme", "h1", alloc.Share{Max: 2}, 24*time.Hour)
	join("10.9.0.11", "two", "initech", "h2", alloc.Share{Max: 2}, 0)
	join("10.9.0.12", "one", "acme", "h1", alloc.Share{Max: 2, Key: "alone"}, 0)
	for _, handle := range []string{"two", "plain"} {
		a := alloc.UpdateArgs{Guard: alloc.Guard{Handle: handle}, Address: at("10.9.0.10")}
		if handle == "plain" {
			held, err := f.e.IPsByHandle(f.Context(), handle)
			f.must(err)
			a.Address = held[0].Address
		}
		active, alternate, of := attributes(f, "active"), attributes(f, "standby"), host("r"+handle)
		a.Active, a.Alternate, a.Host = &active, &alternate, &of
		f.must(f.e.Update(f.Context(), use(f, a)))
	}
}

// memos makes the memos of request keys and of sticky handles, and records of the caller.
func (f *filler) memos() {
	_, err := f.e.Assign(f.Context(), host("h2"), "assigned")
	f.must(err)
	moved, err := f.e.Assign(f.Context(), host("h1"), "assigned")
	f.must(err)
	use(f, moved)
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Num6: 1, Handle: "requested", Request: "request-1",
		Also: []store.Op{{Kind: store.Put, Key: "Machine/1", Value: "here", Expect: store.AnyRevision}}})
	f.assignIP(alloc.AssignIPArgs{Address: at("10.0.3.201"), Owner: host("h3"), Handle: "requested ip", Request: "request-2", Sticky: true,
		Use: alloc.Workload, Selectors: true, Namespace: map[string]string{"team": "a"}, Blocks: alloc.BlockArgs{Max: 64}})
	f.assignIP(alloc.AssignIPArgs{Address: at("10.0.3.203"), Owner: host("h3"), Handle: "exactly", WithinRules: true})
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "sticky", Sticky: true, Choose: alloc.Prefer(at("10.0.3.60"))})
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "away", Sticky: true, Existing: false})
	_, err = f.e.ReleaseByHandle(f.Context(), "away")
	f.must(err)
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "plain", Existing: true})
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "next", Choose: alloc.From(at("10.0.3.70"))})
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "next", Existing: true, WithinRules: true})
}

// moves makes a request that was withdrawn, an address that has another handle than before, and a host that is renamed in part.
func (f *filler) moves() {
	f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "withdrawn", Request: "request-3"})
	_, err := f.e.Withdraw(f.Context(), "request-3")
	f.must(err)
	port := f.assign(alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "port a", Pools: []string{"random"}}).V4[0].Address
	_, err = f.e.Transfer(f.Context(), use(f, alloc.TransferArgs{From: "port a", To: "port b", Address: port,
		Also: []store.Op{{Kind: store.Put, Key: "Machine/4", Value: "port b", Expect: store.AnyRevision}}}))
	f.must(err)
	f.assign(alloc.AssignArgs{Owner: host("h10"), Num4: 12, Handle: "renamed"})
	db := faults.NewLimited(f.w.DB, store.Limits{Ops: 14})
	db.Script(faults.AtCommit(2, faults.Fail(faults.ErrInjected)))
	moved, _, err := f.w.Engine(f, db, f.space, 0).Operator().RenameHost(f.Context(), use(f, alloc.RenameArgs{From: host("h10"), To: host("h11")}))
	if len(moved) == 0 || len(moved) == 12 || !errors.Is(err, faults.ErrInjected) {
		f.Fatal(moved, err)
	}
	_, _, err = f.e.Operator().RenameHost(f.Context(), use(f, alloc.RenameArgs{From: host("none"), To: host("h11"), Merge: true}))
	f.must(err)
}

// settings makes the reservations and the configuration, and disables a pool in which addresses are held.
func (f *filler) settings() {
	_, err := f.e.Operator().SetReservations(f.Context(), []alloc.Reservation{
		{Range: netipx.RangeOfPrefix(prefix("10.0.3.128/27")), Note: "for the router", By: "operator"},
		{Range: netipx.RangeOfPrefix(prefix("10.0.0.0/30"))}, // some are held
		{Range: netipx.RangeOfPrefix(prefix("10.0.0.0/29")), By: "import"},
		{Range: netipx.MustParseIPRange("fd00::ff00-fd00::ffff"), Note: "until May"},
	})
	f.must(err)
	p := pools()[3]
	p.Disabled = true
	f.must(f.e.UpdatePool(f.Context(), use(f, p)))
	cfg := alloc.Config{MaxBlocksPerHost: 1000}
	if f.space == "red" {
		cfg = alloc.Config{Strict: true, NoAutoBlocks: true, MaxBlocksPerHost: 1000}
	}
	f.must(f.e.Operator().SetConfig(f.Context(), use(f, cfg)))
}
