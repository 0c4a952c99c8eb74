package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// must ends an example on an error that cannot happen in it.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// newEngine returns an engine on a new memory store with one pool.
func newEngine(prefix string, blockBits int) *ipset.Engine {
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	must(err)
	must(e.AddPool(context.Background(), alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix(prefix), BlockBits: blockBits}))
	return e
}

func Example() {
	ctx := context.Background()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = e.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 29})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := e.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.Handle, "has", a.Address, "of block", a.Block)
	again, err := e.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")
	fmt.Println(again == a, err)
	released, err := e.ReleaseByHandle(ctx, "pod-1")
	fmt.Println("released", len(released), err)
	// Output:
	// pod-1 has 10.0.0.152 of block 10.0.0.152/29
	// true <nil>
	// released 1 <nil>
}

// Fewer addresses than asked is an error, or with Partial a result that says why.
func ExampleEngine_AutoAssign_full() {
	ctx := context.Background()
	e := newEngine("10.0.0.0/30", 31)
	a := alloc.AssignArgs{Owner: alloc.HostOwner("node-a"), Num4: 5, Partial: true, Handle: "pod-1"}
	got, err := e.AutoAssign(ctx, a)
	fmt.Println(len(got.V4), "of 5,", err)
	for _, s := range got.Short {
		fmt.Printf("%s: %s\n", s.Pool, s.Reason)
	}
	a.Partial = false
	_, err = e.AutoAssign(ctx, a)
	fmt.Println(errors.Is(err, ipalloc.ErrFull), err)
	// Output:
	// 4 of 5, <nil>
	// pods: full
	// true ipset: auto assign handle "pod-1" for "host:node-a" in "pods": not enough addresses: full
}

// A request key makes a call repeatable: after a timeout, the caller does not know whether it has addresses.
func ExampleEngine_AutoAssign_request() {
	ctx := context.Background()
	e := newEngine("10.0.0.0/24", 26)
	a := alloc.AssignArgs{
		Owner: alloc.HostOwner("node-a"), Num4: 1, Handle: "pod-1", Request: "uid-of-pod-1",
	}
	first, err := e.AutoAssign(ctx, a)
	must(err)
	again, err := e.AutoAssign(ctx, a)
	must(err)
	fmt.Println(first.V4[0] == again.V4[0])
	// Output: true
}

// An address is released on condition: a late release does not take it from who has it now.
func ExampleEngine_ReleaseIPs() {
	ctx := context.Background()
	e := newEngine("10.0.0.0/24", 26)
	addr := netip.MustParseAddr("10.0.0.7")
	old, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: addr, Owner: alloc.HostOwner("node-a"), Handle: "old"})
	must(err)
	late := alloc.Release{Address: addr, Guard: alloc.Guard{Seq: old.Seq}}
	for range 2 {
		res, err := e.ReleaseIPs(ctx, late)
		must(err)
		fmt.Println(res[0].Outcome)
	}
	_, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: addr, Owner: alloc.HostOwner("node-a"), Handle: "new"})
	must(err)
	res, err := e.ReleaseIPs(ctx, late)
	must(err)
	fmt.Println(res[0].Outcome)
	// Output:
	// released
	// was free
	// owner changed
}

// Check says what is wrong with the records, and Repair what was lost of them.
func ExampleOperator_Check() {
	ctx := context.Background()
	db := store.NewMemory()
	e, err := ipset.New(db, ipset.Options{})
	must(err)
	must(e.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24")}))
	_, err = e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("node-a"), Num4: 1, Handle: "pod-1"})
	must(err)
	// Somebody deletes the record that lists the blocks of the host.
	_, err = db.Commit(ctx, []store.Op{{Kind: store.Delete, Key: "o1node-a\x00", Expect: store.AnyRevision}})
	must(err)
	rep, err := e.Operator().Check(ctx, nil)
	must(err)
	for _, p := range rep.Problems {
		fmt.Println(p)
	}
	for _, s := range rep.Repair {
		fmt.Println("would", s.Text)
	}
	n, err := e.Operator().Repair(ctx, rep.Repair)
	fmt.Println(n, "repaired,", err)
	// Output:
	// wrong owner "o1node-a\x00": missing
	// would rewrite the blocks of host:node-a
	// 1 repaired, <nil>
}

// A snapshot carries everything, revisions included.
func ExampleRestoreMemory() {
	ctx := context.Background()
	db := store.NewMemory()
	e, err := ipset.New(db, ipset.Options{})
	must(err)
	must(e.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24")}))
	a := alloc.AssignArgs{Owner: alloc.HostOwner("node-a"), Num4: 1, Handle: "pod-1"}
	_, err = e.AutoAssign(ctx, a)
	must(err)
	data, err := db.MarshalBinary()
	must(err)

	db, err = store.RestoreMemory(data)
	must(err)
	e, err = ipset.New(db, ipset.Options{})
	must(err)
	held, err := e.IPsByHandle(ctx, "pod-1")
	must(err)
	fmt.Println(len(held), "address of", held[0].Handle)
	// Output: 1 address of pod-1
}

// Counts of addresses print and divide, also above 2^64.
func ExampleCount() {
	all, used := alloc.Count{Hi: 1}, alloc.Count{Lo: 1 << 62}
	fmt.Println(all, "addresses,", all.Sub(used), "free,", all.Div(64), "in each of 64 parts")
	fmt.Printf("%.0f %% used\n", 100*used.Ratio(all))
	// Output:
	// 18446744073709551616 addresses, 13835058055282163712 free, 288230376151711744 in each of 64 parts
	// 25 % used
}

// A caller can ask what a pool would, before it assigns anything.
func ExampleSelector_Matches() {
	web := selector.Selector{{Labels: []selector.Requirement{{Key: "tier", Op: selector.In, Values: []string{"web", "edge"}}}}}
	fmt.Println(web.Matches("node-a", map[string]string{"tier": "edge"}))
	fmt.Println(web.Matches("node-b", nil))
	// Output:
	// true <nil>
	// false <nil>
}

// Tenants whose networks overlap have a space each. An engine of a space knows nothing of the others.
func ExampleEngine_InSpace() {
	ctx := context.Background()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	must(err)
	for _, tenant := range []string{"red", "blue"} {
		in, err := e.InSpace(tenant)
		must(err)
		must(in.AddPool(ctx, alloc.Pool{Name: "net", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28}))
		a, err := in.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")
		must(err)
		fmt.Println(in.Space(), a.Handle, a.Address)
	}
	red, err := e.InSpace("red")
	must(err)
	_, err = red.ReleaseByHandle(ctx, "pod-1")
	must(err)
	must(red.RemovePool(ctx, "net"))
	must(e.Operator().RemoveSpace(ctx, "red"))
	for name, err := range e.Operator().Spaces(ctx) {
		fmt.Println("left:", name, err)
	}
	// Output:
	// red pod-1 10.0.0.48
	// blue pod-1 10.0.0.48
	// left: blue <nil>
}

// Records of your own lie beside those of the engine, under keys that begin with an upper-case letter.
func ExampleOperator_Check_yourRecords() {
	ctx, db := context.Background(), store.NewMemory()
	e, err := ipset.New(db, ipset.Options{})
	must(err)
	must(e.AddPool(ctx, alloc.Pool{Name: "vpn", Prefix: netip.MustParsePrefix("100.64.0.0/24"), BlockBits: 28}))
	a, err := e.Assign(ctx, alloc.HostOwner("laptop"), "laptop")
	must(err)
	_, err = db.Commit(ctx, []store.Op{{Kind: store.Put, Key: "Machine/laptop", Value: a.Address.String()}})
	must(err)
	mine, _, err := db.List(ctx, store.Range{From: "Machine/", To: "Machine0"}) // '0' follows '/'
	must(err)
	rep, err := e.Operator().Check(ctx, nil)
	fmt.Println(mine[0].Key, mine[0].Value == a.Address.String(), len(rep.Problems), err)
	// Output: Machine/laptop true 0 <nil>
}

// A DHCP server: DISCOVER is Offer, REQUEST is RenewIP, DECLINE is Decline.
func ExampleEngine_Offer() {
	ctx, now := context.Background(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	engine, err := ipset.New(store.NewMemory(), ipset.Options{Now: func() time.Time { return now }})
	must(err)
	err = engine.AddPool(ctx, alloc.Pool{
		Name: "lan", Prefix: netip.MustParsePrefix("192.168.1.0/24"), BlockBits: 24,
		Ranges: []netipx.IPRange{netipx.MustParseIPRange("192.168.1.100-192.168.1.199")}, // others can be named with AssignIP
	})
	must(err)
	client := alloc.Guard{Handle: "aa:bb:cc"}
	dhcp := alloc.HostOwner("dhcp")
	got, err := engine.Offer(ctx, alloc.AssignArgs{Owner: dhcp, Num4: 1, Handle: client.Handle, TTL: 30 * time.Second, WithinRules: true})
	must(err)
	offered := got.V4[0]
	fmt.Println(offered.Address, offered.Until.Format(time.TimeOnly))
	renew := alloc.RenewArgs{TTL: time.Hour, WithinRules: true, Owner: dhcp} // a disabled pool, or another range, ends the lease
	leased, err := engine.RenewIP(ctx, offered.Address, client, renew)
	fmt.Println(leased.Until.Format(time.TimeOnly), err)
	_, err = engine.RenewIP(ctx, offered.Address, alloc.Guard{Handle: "dd:ee:ff"}, renew)
	fmt.Println(err)
	_, err = engine.Decline(ctx, alloc.DeclineArgs{Address: offered.Address, Guard: client, For: 10 * time.Minute, Reason: "DHCPDECLINE"})
	fmt.Println(err)
	_, err = engine.Lookup(ctx, offered.Address)
	fmt.Println(err)
	// Output:
	// 192.168.1.100 00:00:30
	// 01:00:00 <nil>
	// ipset: renew IP 192.168.1.100 handle "dd:ee:ff": mismatch, held by "aa:bb:cc" until 2026-01-01T01:00:00Z
	// <nil>
	// ipset: lookup 192.168.1.100: cooling: declined by "aa:bb:cc": DHCPDECLINE until 2026-01-01T00:10:00Z
}

// The row of a machine and its address are one commit, both or neither, when it comes and when it goes.
func ExampleEngine_Release() {
	ctx, db := context.Background(), store.NewMemory()
	engine, err := ipset.New(db, ipset.Options{})
	must(err)
	must(engine.AddPool(ctx, alloc.Pool{Name: "vpn", Prefix: netip.MustParsePrefix("100.64.0.0/24"), BlockBits: 28}))
	machine := alloc.AssignArgs{
		Owner: alloc.HostOwner("vpn"), Num4: 1, Handle: "laptop",
		Also: []store.Op{{Kind: store.Put, Key: "Machine/laptop", Value: "key of the laptop"}}, // Expect 0: it must be new
	}
	got, err := engine.AutoAssign(ctx, machine)
	must(err)
	fmt.Println(len(got.V4))
	_, err = engine.AutoAssign(ctx, machine)
	key, _ := store.ConflictKey(err)
	fmt.Println(errors.Is(err, ipalloc.ErrConflict), key)
	released, err := engine.Release(ctx, alloc.ReleaseArgs{
		Handle: "laptop",
		Also:   []store.Op{{Kind: store.Delete, Key: "Machine/laptop", Expect: store.AnyRevision}},
	})
	fmt.Println(len(released), err)
	// Output:
	// 1
	// true Machine/laptop
	// 1 <nil>
}

// The hosts with the most addresses, the borrowers, and those that may have no further block.
func ExampleEngine_Hosts() {
	ctx, engine := context.Background(), newEngine("10.0.0.0/28", 29)
	must(engine.Operator().SetConfig(ctx, alloc.Config{MaxBlocksPerHost: 1}))
	for i, n := range []int{4, 7, 5} {
		_, err := engine.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("node-", i)), Num4: n})
		must(err)
	}
	reports, err := engine.Hosts(ctx)
	must(err)
	for _, r := range reports {
		fmt.Println(r.Owner.Name, r.Used, "used,", r.Borrowed, "borrowed,", r.Lent, "lent, at its limit:", r.AtLimit())
	}
	// Output:
	// node-0 8 used, 0 borrowed, 4 lent, at its limit: true
	// node-1 8 used, 0 borrowed, 1 lent, at its limit: true
	// node-2 0 used, 5 borrowed, 0 lent, at its limit: false
}

// A static IPv4 address and an automatic IPv6 one, both or neither.
func ExampleEngine_AssignIPs() {
	ctx, engine := context.Background(), newEngine("10.0.0.0/24", 28)
	must(engine.AddPool(ctx, alloc.Pool{Name: "six", Prefix: netip.MustParsePrefix("fd00::/120"), BlockBits: 120}))
	args, static := alloc.AssignArgs{Owner: alloc.HostOwner("node-a"), Num6: 1, Handle: "vm-1"}, netip.MustParseAddr("10.0.0.9")
	got, err := engine.AssignIPs(ctx, args, static)
	must(err)
	fmt.Println(got.V4[0].Address, got.V6[0].Address)
	args.Handle = "vm-2"
	_, err = engine.AssignIPs(ctx, args, static)
	fmt.Println(err)
	// Output:
	// 10.0.0.9 fd00::
	// ipset: assign IPs 10.0.0.9 handle "vm-2" for "host:node-a": occupied, held by "vm-1"
}
