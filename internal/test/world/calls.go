package world

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Call is a call of an engine on a world.
type Call struct {
	// Method is the name of the method of [ipset.Engine].
	Method string
	// Do makes the call and returns its answer as text, errors included.
	Do func(ctx context.Context, e *ipset.Engine) (string, error)
	// May reports whether the call may change a thing of its space, named as in a [Picture] without the space.
	// A call without it changes nothing.
	May func(what string) bool
	// Again is the handle of a call whose repetition assigns again, empty for others. Partial reports that it then may assign
	// more, because it finds the blocks that the first attempt claimed.
	Again   string
	Partial bool
}

// answer joins results and the error of a call.
func answer(err error, results ...any) (string, error) {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%+v ", r)
	}
	return b.String(), err
}

// all joins what an iterator yields.
func all[V any](seq iter.Seq2[V, error]) (string, error) {
	var b strings.Builder
	for v, err := range seq {
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintf(&b, "%+v\n", v)
	}
	return b.String(), nil
}

// of returns a test for things whose name contains one of some words. Utilization, free queues and the blocks that an
// address is in follow from addresses, so blocks and counts may change with any of them.
func of(words ...string) func(string) bool {
	return func(what string) bool {
		for _, kind := range []string{"utilization ", "block "} {
			if strings.HasPrefix(what, kind) {
				return true
			}
		}
		for _, w := range words {
			if strings.Contains(what, w) {
				return true
			}
		}
		return false
	}
}

// handle returns a test for what a call about handles may change: their addresses, which may cool afterwards, and their memos.
func handle(names ...string) func(string) bool {
	others := of()
	return func(what string) bool {
		for _, n := range names {
			if n != "" && (strings.HasPrefix(what, "address ") && strings.HasSuffix(what, " "+n) || strings.HasPrefix(what, "memo ") && strings.HasSuffix(what, n)) {
				return true
			}
		}
		return others(what) || strings.HasPrefix(what, "cooling ")
	}
}

type (
	ctx    = context.Context
	engine = *ipset.Engine
)

// Calls are calls that change something. Each such method has at least one call.
func Calls() []Call {
	return append(append(assigning(), releasing()...), administering()...)
}

func assigning() []Call {
	auto := func(name string, a alloc.AssignArgs) Call {
		c := Call{Method: "AutoAssign", May: handle(name, a.Request), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.AutoAssign(ctx, a)
			return answer(err, got)
		}}
		if a.Existing || a.Request == "request-1" {
			c.May = nil // the answer is there already
		} else if a.Request == "" {
			c.Again, c.Partial = name, a.Partial
		}
		return c
	}
	ip := func(name string, a alloc.AssignIPArgs) Call {
		return Call{Method: "AssignIP", May: handle(name), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.AssignIP(ctx, a)
			return answer(err, got)
		}}
	}
	return []Call{
		{Method: "Assign", May: handle("new"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Assign(ctx, host("h1"), "new")
			return answer(err, got)
		}},
		{Method: "Assign", May: handle("plain"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Assign(ctx, host("h1"), "plain", "orphans", "random")
			return answer(err, got)
		}},
		auto("new", alloc.AssignArgs{Owner: host("h1"), Num4: 2, Num6: 1, Handle: "new"}),
		auto("new", alloc.AssignArgs{Owner: host("h7"), Num4: 1, Num6: 1, Handle: "new", Request: "new request"}),
		auto("requested", alloc.AssignArgs{Owner: host("h1"), Num4: 1, Num6: 1, Handle: "requested", Request: "request-1"}),
		auto("plain", alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "plain", Existing: true}),
		auto("away", alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "away", Sticky: true}),
		auto("new", alloc.AssignArgs{Owner: host("h8"), Num4: 1, Handle: "new", Pools: []string{"tiny"}}),
		auto("new", alloc.AssignArgs{Owner: host("h8"), Num4: 1, Handle: "new", Pools: []string{"orphans"}}),
		auto("new", alloc.AssignArgs{Owner: host("h6"), Num4: 6, Handle: "new", Pools: []string{"lowest"}, Partial: true}),
		auto("new", alloc.AssignArgs{Owner: host("h1"), Num4: 128, Handle: "new", Pools: []string{"resized"}, Partial: true, Blocks: alloc.BlockArgs{Max: 1 << 20}}), // and what blocks of another size have
		auto("new", alloc.AssignArgs{Owner: host("h1"), Num4: 1, Handle: "new", Choose: alloc.Prefer(at("10.0.3.91"))}),
		auto("new", alloc.AssignArgs{Owner: host("h8"), Num4: 3, Handle: "new", Choose: alloc.From(at("10.0.3.1"))}),
		auto("new", alloc.AssignArgs{Owner: host("h1"), Num4: 4, Choose: alloc.Contiguous(), Handle: "new"}),
		{Method: "AssignIPs", May: handle("new"), Again: "new", Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.AssignIPs(ctx, alloc.AssignArgs{Owner: host("h2"), Num6: 1, Handle: "new"}, at("10.0.3.93"), at("10.0.3.94"))
			return answer(err, got)
		}},
		ip("new", alloc.AssignIPArgs{Address: at("10.0.3.90"), Owner: host("h2"), Handle: "new"}),
		ip("new", alloc.AssignIPArgs{Address: at("10.0.3.92"), Owner: host("h2"), Handle: "new", WithinRules: true}),
		ip("four", alloc.AssignIPArgs{Address: at("10.9.0.10"), Owner: host("rfour"), Use: alloc.LoadBalancer, Handle: "four", Share: alloc.Share{Max: 4, Key: "web"}}),
		{Method: "Offer", May: handle("leased"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Offer(ctx, alloc.AssignArgs{Owner: host("h6"), Num4: 1, Pools: []string{"lowest"}, Handle: "leased", TTL: 96 * time.Hour, WithinRules: true})
			return answer(err, got)
		}},
		{Method: "Offer", May: handle("new"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Offer(ctx, alloc.AssignArgs{Owner: host("h6"), Num4: 1, Pools: []string{"lowest"}, Handle: "new", TTL: time.Hour})
			return answer(err, got)
		}},
		{Method: "EnsureBlock", May: of(), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.EnsureBlock(ctx, alloc.AssignArgs{Owner: host("h9"), Num4: 1})
			return answer(err, got)
		}},
	}
}

func releasing() []Call {
	return []Call{
		{Method: "ReleaseByHandle", May: handle("plain"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.ReleaseByHandle(ctx, "plain")
			return answer(err, got)
		}},
		{Method: "Withdraw", May: handle("requested", "request-1"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Withdraw(ctx, "request-1")
			return answer(err, got)
		}},
		{Method: "Withdraw", May: handle("none", "request-0"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Withdraw(ctx, "request-0") // no call had it
			return answer(err, got)
		}},
		{Method: "ReleaseByHandle", May: handle("two"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.ReleaseByHandle(ctx, "two")
			return answer(err, got)
		}},
		{Method: "Release", May: orOwn(handle("leased")), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Release(ctx, alloc.ReleaseArgs{Handle: "leased", Also: []store.Op{{Kind: store.Put, Key: "Machine/1", Value: "leased is gone", Expect: store.AnyRevision}}})
			return answer(err, got)
		}},
		{Method: "ReleaseIPs", May: handle("two", "three", "named"), Do: func(ctx ctx, e engine) (string, error) {
			guard := func(handle string) alloc.Guard { return alloc.Guard{Handle: handle} }
			got, err := e.ReleaseIPs(ctx, alloc.Release{Address: at("10.9.0.10"), Guard: guard("three")}, alloc.Release{Address: at("10.9.0.11"), Guard: guard("two")},
				alloc.Release{Address: at("10.0.3.77"), Guard: guard("named")}, alloc.Release{Address: at("10.9.0.12"), Guard: guard("two")})
			return answer(err, got)
		}},
		{Method: "ReleaseByHost", May: handle("two", "neighbours", "named", "lender"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.ReleaseByHost(ctx, host("h2"))
			return answer(err, got)
		}},
		{Method: "RemoveHost", May: handle("two", "neighbours", "named", "lender"), Do: func(ctx ctx, e engine) (string, error) {
			got, blocks, err := e.RemoveHost(ctx, host("h2"))
			return answer(err, got, blocks)
		}},
		{Method: "Renew", May: handle("leased"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Renew(ctx, "leased", alloc.RenewArgs{TTL: 48 * time.Hour})
			return answer(err, got)
		}},
		{Method: "Renew", May: handle("leased"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Renew(ctx, "leased", alloc.RenewArgs{})
			return answer(err, got)
		}},
		{Method: "Renew", May: handle("leased"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Renew(ctx, "leased", alloc.RenewArgs{TTL: 48 * time.Hour, WithinRules: true, Owner: host("h6")})
			return answer(err, got)
		}},
		{Method: "RenewIP", May: handle("three"), Do: func(ctx ctx, e engine) (string, error) {
			within := alloc.RenewArgs{TTL: 72 * time.Hour, WithinRules: true, Owner: host("h6"), Use: alloc.LoadBalancer}
			got, err := e.RenewIP(ctx, at("10.9.0.10"), alloc.Guard{Handle: "three"}, within)
			return answer(err, got)
		}},
		{Method: "RenewIP", May: handle("three"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.RenewIP(ctx, at("10.9.0.10"), alloc.Guard{Handle: "three"}, alloc.RenewArgs{TTL: 48 * time.Hour})
			return answer(err, got)
		}},
		{Method: "Decline", May: handle("leased"), Do: func(ctx ctx, e engine) (string, error) {
			held, err := e.IPsByHandle(ctx, "leased")
			if err != nil || len(held) == 0 {
				return answer(err)
			}
			got, err := e.Decline(ctx, alloc.DeclineArgs{Address: held[0].Address, Guard: alloc.Guard{Handle: "leased"}, For: time.Hour, Reason: "in use"})
			return answer(err, got)
		}},
		{Method: "Update", May: handle("two"), Do: func(ctx ctx, e engine) (string, error) {
			to, active := host("h7"), attributesOf("moved")
			return answer(e.Update(ctx, alloc.UpdateArgs{Address: at("10.9.0.11"), Guard: alloc.Guard{Handle: "two"}, Host: &to, Active: &active}))
		}},
		{Method: "Transfer", May: handle("plain", "new"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Transfer(ctx, alloc.TransferArgs{From: "plain", To: "new"})
			return answer(err, got)
		}},
		{Method: "Transfer", May: orOwn(handle("one", "new")), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Transfer(ctx, alloc.TransferArgs{From: "one", To: "new", Address: at("10.9.0.10"),
				Also: []store.Op{{Kind: store.Put, Key: "Machine/1", Value: "of new", Expect: store.AnyRevision}}})
			return answer(err, got)
		}},
		{Method: "Transfer", May: handle("away", "new"), Do: func(ctx ctx, e engine) (string, error) {
			for r, err := range e.Operator().Remembered(ctx) {
				if err != nil {
					return "", err
				}
				if r.Kind == alloc.RememberedCooling && r.Name == "away" {
					got, err := e.Transfer(ctx, alloc.TransferArgs{From: "away", To: "new", Address: r.Addresses[0]})
					return answer(err, got)
				}
			}
			return "", nil
		}},
		{Method: "RenameHost", May: handle("two", "neighbours", "named", "lender"), Do: func(ctx ctx, e engine) (string, error) {
			moved, blocks, err := e.Operator().RenameHost(ctx, alloc.RenameArgs{From: host("h2"), To: host("h20")})
			return answer(err, moved, blocks)
		}},
		{Method: "RenameHost", May: handle("renamed", "h10"), Do: func(ctx ctx, e engine) (string, error) {
			moved, blocks, err := e.Operator().RenameHost(ctx, alloc.RenameArgs{From: host("h10"), To: host("h11")}) // goes on
			return answer(err, moved, blocks)
		}},
		{Method: "RenameHost", May: handle("two", "neighbours", "named", "lender"), Do: func(ctx ctx, e engine) (string, error) {
			moved, blocks, err := e.Operator().RenameHost(ctx, alloc.RenameArgs{From: host("h2"), To: host("h1"), Merge: true})
			return answer(err, moved, blocks)
		}},
		{Method: "DisownBlocks", May: of(), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.DisownBlocks(ctx, alloc.DisownArgs{Prefix: prefix("10.0.2.0/25"), Owner: host("h5"), OnlyEmpty: true})
			return answer(err, got)
		}},
		{Method: "DisownBlocks", May: of(), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.DisownBlocks(ctx, alloc.DisownArgs{Owner: host("h1")})
			return answer(err, got)
		}},
		{Method: "DisownBlocks", May: of(), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.DisownBlocks(ctx, alloc.DisownArgs{Pool: "inner"})
			return answer(err, got)
		}},
		{Method: "ClaimAffinity", May: of(), Do: func(ctx ctx, e engine) (string, error) {
			got, failed, err := e.ClaimAffinity(ctx, prefix("10.0.2.0/24"), host("h5"))
			return answer(err, got, failed)
		}},
		{Method: "Sweep", May: handle("ended", "away", "cools", "requested"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Operator().Sweep(ctx, alloc.SweepArgs{IdleAfter: 5 * time.Minute, Unselected: true})
			return answer(err, got)
		}},
		{Method: "NewCollector", May: handle("left", "two"), Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.Operator().NewCollector(0).Collect(ctx, func(a alloc.Allocation) alloc.Liveness {
				if a.Handle == "left" || a.Handle == "two" {
					return alloc.Gone
				}
				return alloc.Alive
			})
			return answer(err, got)
		}},
	}
}

func attributesOf(tenant string) alloc.Attributes {
	a, _ := alloc.NewAttributes(map[string]string{"tenant": tenant})
	return a
}

func orOwn(may func(string) bool) func(string) bool {
	return func(what string) bool { return may(what) || strings.HasPrefix(what, "own Machine/1") }
}

func administering() []Call {
	spare := alloc.Pool{Name: "spare", Prefix: prefix("10.32.0.0/24"), BlockBits: 28}
	reserved := func() []alloc.Reservation {
		return []alloc.Reservation{{Range: netipx.RangeOfPrefix(prefix("10.0.3.192/26")), Note: "another", By: "operator"}}
	}
	admin := func(method string, may func(string) bool, do func(ctx ctx, e engine) error) Call {
		return Call{Method: method, May: may, Do: func(ctx ctx, e engine) (string, error) { return answer(do(ctx, e)) }}
	}
	return []Call{
		admin("AddPool", of("pool spare"), func(ctx ctx, e engine) error { return e.AddPool(ctx, spare) }),
		admin("UpdatePool", of("pool plain"), func(ctx ctx, e engine) error {
			return e.UpdatePool(ctx, alloc.Pool{Name: "plain", Prefix: prefix("10.0.0.0/22"), BlockBits: 27, Cooldown: time.Minute, Index: []string{"tenant"}})
		}),
		admin("RemovePool", of("pool orphans"), func(ctx ctx, e engine) error { return e.RemovePool(ctx, "orphans") }),
		admin("ChangePools", of("pool spare", "pool orphans", "pool lowest", "reservations"), func(ctx ctx, e engine) error {
			lowest := pools()[6]
			lowest.Disabled = true
			return e.Operator().ChangePools(ctx, alloc.PoolChanges{Set: []alloc.Pool{spare, lowest, pools()[1]}, Remove: []string{"orphans", "none"},
				Unreserve: alloc.Reservations(netipx.MustParseIPRange("10.0.0.1-10.0.0.2")),
				Reserve:   []alloc.Reservation{{Range: netipx.MustParseIPRange("10.0.3.250-10.0.3.255"), Note: "a note"}}})
		}),
		admin("ChangePools", of("pool random"), func(ctx ctx, e engine) error {
			return e.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{"random"}})
		}),
		admin("ChangePools", nil, func(ctx ctx, e engine) error {
			return e.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{"random"}, IfEmpty: true}) // it has addresses
		}),
		admin("SplitPool", of("pool random"), func(ctx ctx, e engine) error { return e.Operator().SplitPool(ctx, "random", 1) }),
		admin("MergePools", of("pool inner"), func(ctx ctx, e engine) error { return e.Operator().MergePools(ctx, "inner", "inner", "innermost") }),
		admin("SetConfig", of("config"), func(ctx ctx, e engine) error { return e.Operator().SetConfig(ctx, alloc.Config{MaxBlocksPerHost: 7}) }),
		{Method: "SetReservations", May: of("reservations"), Do: func(ctx ctx, e engine) (string, error) {
			live, err := e.Operator().SetReservations(ctx, reserved())
			return answer(err, live)
		}},
		admin("OpenPool", of("pool closed"), func(ctx ctx, e engine) error { return e.Operator().OpenPool(ctx, "closed") }),
		{Method: "Drain", May: of("pool lowest"), Do: func(ctx ctx, e engine) (string, error) {
			held, err := e.Operator().Drain(ctx, "lowest")
			return answer(err, held)
		}},
		{Method: "Reindex", Do: func(ctx ctx, e engine) (string, error) {
			n, err := e.Operator().Reindex(ctx, "lowest")
			return answer(err, n)
		}},
		{Method: "Repair", Do: func(ctx ctx, e engine) (string, error) {
			r, err := e.Operator().Check(ctx, nil)
			if err != nil {
				return answer(err)
			}
			done, err := e.Operator().Repair(ctx, r.Repair)
			return answer(err, done)
		}},
		{Method: "ImportBlock", Do: func(ctx ctx, e engine) (string, error) {
			b, err := e.Operator().BlockOf(ctx, at("10.7.0.1"))
			if err != nil || b == nil {
				return answer(err)
			}
			return answer(e.Operator().ImportBlock(ctx, b)) // it is there already
		}},
		admin("RemoveSpace", nil, func(ctx ctx, e engine) error { return e.Operator().RemoveSpace(ctx, "blue") }), // it is in use
	}
}

// Queries are calls that only read. Each such method has at least one call.
func Queries() []Call {
	query := func(method string, do func(ctx ctx, e engine) (string, error)) Call {
		return Call{Method: method, Do: do}
	}
	qs := []Call{
		query("Explain", func(ctx ctx, e engine) (string, error) {
			x, err := e.Explain(ctx, alloc.AssignArgs{Owner: host("h1"), Num4: 1, Num6: 1})
			return answer(err, x)
		}),
		query("Allocations", func(ctx ctx, e engine) (string, error) { return all(e.Allocations(ctx, netip.Prefix{})) }),
		query("Blocks", func(ctx ctx, e engine) (string, error) {
			var b strings.Builder
			for i, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
				if err != nil {
					return "", err
				}
				fmt.Fprintln(&b, i.Prefix(), i.Owner(), i.Used(), i.Cooling(), i.Seq())
			}
			return b.String(), nil
		}),
		query("Borrowings", func(ctx ctx, e engine) (string, error) { return all(e.Operator().Borrowings(ctx)) }),
		query("Remembered", func(ctx ctx, e engine) (string, error) { return all(e.Operator().Remembered(ctx)) }),
		query("Spaces", func(ctx ctx, e engine) (string, error) { return all(e.Operator().Spaces(ctx)) }),
		query("Space", func(_ ctx, e engine) (string, error) { return e.Space(), nil }),
		query("Hosts", func(ctx ctx, e engine) (string, error) { h, err := e.Hosts(ctx); return answer(err, h) }),
		query("Pools", func(ctx ctx, e engine) (string, error) { p, err := e.Pools(ctx); return answer(err, p) }),
		query("Config", func(ctx ctx, e engine) (string, error) { c, err := e.Operator().Config(ctx); return answer(err, c) }),
		query("Reservations", func(ctx ctx, e engine) (string, error) {
			r, err := e.Operator().Reservations(ctx)
			return answer(err, r)
		}),
		query("Utilization", func(ctx ctx, e engine) (string, error) { u, err := e.Utilization(ctx); return answer(err, u) }),
		query("Check", func(ctx ctx, e engine) (string, error) {
			r, err := e.Operator().Check(ctx, nil)
			if err != nil {
				return "", err
			}
			return answer(nil, *r)
		}),
		query("IPsByAttribute", func(ctx ctx, e engine) (string, error) {
			a, err := e.IPsByAttribute(ctx, "tenant", "two")
			return answer(err, a)
		}),
		query("IPsByShare", func(ctx ctx, e engine) (string, error) { a, err := e.IPsByShare(ctx, "web"); return answer(err, a) }),
		query("IPsByShare", func(ctx ctx, e engine) (string, error) { a, err := e.IPsByShare(ctx, "we"); return answer(err, a) }),
	}
	for _, a := range []string{"10.0.0.1", "10.9.0.10", "10.9.0.11", "10.4.0.0", "10.4.0.1", "10.4.0.2", "10.4.0.3", "10.4.0.4", "10.1.0.1", "fd01::1", "192.0.2.1"} {
		qs = append(qs, query("Lookup", func(ctx ctx, e engine) (string, error) { al, err := e.Lookup(ctx, at(a)); return answer(err, al) }),
			query("BlockOf", func(ctx ctx, e engine) (string, error) {
				b, err := e.Operator().BlockOf(ctx, at(a))
				if err != nil || b == nil {
					return "no block", err
				}
				return answer(nil, b.Prefix(), b.Owner(), b.Used(), b.Cooling(), b.Seq())
			}))
	}
	for _, h := range []string{"plain", "two", "leased", "ended", "left", "away", "nobody"} {
		qs = append(qs, query("IPsByHandle", func(ctx ctx, e engine) (string, error) { al, err := e.IPsByHandle(ctx, h); return answer(err, al) }))
	}
	for _, h := range []string{"h1", "h2", "h3", "h4", "h5", "rtwo", "nobody"} {
		qs = append(qs, query("IPsByHost", func(ctx ctx, e engine) (string, error) { al, err := e.IPsByHost(ctx, host(h)); return answer(err, al) }),
			query("BlocksOf", func(ctx ctx, e engine) (string, error) { b, err := e.BlocksOf(ctx, host(h)); return answer(err, b) }))
	}
	return qs
}
