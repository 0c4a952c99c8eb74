package ipset

import (
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

type addRow func(call, what, op string, is error, field string, err error)

// Every exported call that can fail refuses in one form, with the sentinel and the field that it promises.
func TestRefusals(t *testing.T) {
	var rows []refusal.Row
	add := func(call, what, op string, is error, field string, err error) {
		rows = append(rows, refusal.Row{Call: call, What: what, Err: err, Is: is, Op: op, Field: field})
	}
	refuseValues(add)
	refuseArguments(newWorld(t, alloc.Config{}, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28}).Engine, add)
	refuseDamage(t, add)
	refusal.Check(t, "ipset", rows)
}

func refuseValues(add addRow) {
	_, err := New(nil, Options{})
	add("New", "no store", "new", ipalloc.ErrInvalid, "store", err)
	_, err = New(store.NewMemory(), Options{Skew: -time.Second})
	add("New", "a negative time", "new", ipalloc.ErrInvalid, "Skew", err)
}

func refuseArguments(e *Engine, add addRow) {
	invalid := ipalloc.ErrInvalid
	host, zero := alloc.HostOwner("h"), alloc.Owner{}
	o := e.Operator()
	second := func(_ any, err error) error { return err }
	third := func(_, _ any, err error) error { return err }

	add("Engine.AddPool", "no prefix", "add", invalid, "Prefix", e.AddPool(bg, alloc.Pool{Name: "x"}))
	add("Engine.UpdatePool", "unknown", "update", ipalloc.ErrNotFound, "", e.UpdatePool(bg, alloc.Pool{Name: "x", Prefix: netip.MustParsePrefix("10.1.0.0/24")}))
	add("Engine.RemovePool", "unknown", "remove", ipalloc.ErrNotFound, "", e.RemovePool(bg, "x"))
	add("Engine.Assign", "no handle", "assign", invalid, "handle", second(e.Assign(bg, alloc.HostOwner("h"), "")))
	add("Engine.Assign", "no host", "assign", invalid, "Owner", second(e.Assign(bg, zero, "x")))
	add("Engine.AssignIP", "no address", "assign", invalid, "Address", second(e.AssignIP(bg, alloc.AssignIPArgs{Owner: host})))
	add("Engine.AutoAssign", "no host", "assign", invalid, "Owner", second(e.AutoAssign(bg, alloc.AssignArgs{Num4: 1})))
	add("Engine.AutoAssign", "fewer than none", "assign", invalid, "Num4", second(e.AutoAssign(bg, alloc.AssignArgs{Owner: host, Num4: -1})))
	add("Engine.Offer", "no time", "offer", invalid, "TTL", second(e.Offer(bg, alloc.AssignArgs{Owner: host, Num4: 1})))
	add("Engine.Explain", "no host", "explain", invalid, "Owner", second(e.Explain(bg, alloc.AssignArgs{Num4: 1})))
	add("Engine.EnsureBlock", "no host", "ensure block", invalid, "Owner", second(e.EnsureBlock(bg, alloc.AssignArgs{Num4: 1})))
	add("Engine.BlocksOf", "no owner", "look up", invalid, "Owner", second(e.BlocksOf(bg, zero)))
	add("Engine.ClaimAffinity", "no owner", "claim", invalid, "Owner", third(e.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/24"), zero)))
	add("Engine.ClaimAffinity", "no prefix", "claim", invalid, "Prefix", third(e.ClaimAffinity(bg, netip.Prefix{}, host)))
	add("Engine.Decline", "no address", "decline", invalid, "Address", second(e.Decline(bg, alloc.DeclineArgs{For: time.Hour})))
	add("Engine.Decline", "no time", "decline", invalid, "For", second(e.Decline(bg, alloc.DeclineArgs{Address: netip.MustParseAddr("10.0.0.1")})))
	add("Engine.Follow", "no owner", "follow", invalid, "Owner", e.Follow(bg, zero))
	add("Engine.IPsByAttribute", "no key", "look up", invalid, "attribute", second(e.IPsByAttribute(bg, "", "x")))
	add("Engine.IPsByShare", "no key", "look up", invalid, "sharing key", second(e.IPsByShare(bg, "")))
	add("Engine.IPsByHandle", "no handle", "look up", invalid, "handle", second(e.IPsByHandle(bg, "")))
	add("Engine.IPsByHost", "no host", "look up", invalid, "Owner", second(e.IPsByHost(bg, zero)))
	add("Engine.InSpace", "no name", "enter space", invalid, "name", second(e.InSpace("")))
	add("Engine.Lookup", "no address", "look up", invalid, "Address", second(e.Lookup(bg, netip.Addr{})))
	add("Engine.Lookup", "not held", "look up", ipalloc.ErrNotHeld, "", second(e.Lookup(bg, netip.MustParseAddr("10.0.0.1"))))
	add("Engine.Release", "no address", "release", invalid, "Address", second(e.Release(bg, alloc.ReleaseArgs{Addresses: []alloc.Release{{}}})))
	add("Engine.ReleaseAddressesOf", "no owner", "release", invalid, "Owner", second(e.ReleaseAddressesOf(bg, zero)))
	add("Engine.ReleaseByHandle", "no handle", "release", invalid, "handle", second(e.ReleaseByHandle(bg, "")))
	add("Engine.ReleaseIPs", "no address", "release", invalid, "Address", second(e.ReleaseIPs(bg, alloc.Release{})))
	add("Engine.RemoveHost", "no host", "remove host", invalid, "Owner", third(e.RemoveHost(bg, zero)))
	add("Engine.Renew", "no handle", "renew", invalid, "handle", second(e.Renew(bg, "", time.Hour)))
	add("Engine.Renew", "not held", "renew", ipalloc.ErrNotHeld, "", second(e.Renew(bg, "x", time.Hour)))
	add("Engine.RenewIP", "no address", "renew", invalid, "Address", second(e.RenewIP(bg, netip.Addr{}, alloc.Guard{}, time.Hour)))
	add("Engine.SetAttributes", "no address", "set attributes", invalid, "Address", e.SetAttributes(bg, alloc.SetOwnerArgs{}))
	for what, a := range map[string]alloc.DisownArgs{
		"neither": {}, "a prefix that is not masked": {Owner: host, Prefix: netip.PrefixFrom(ip("10.0.0.1"), 24)}, "a prefix of nobody": {Prefix: netip.MustParsePrefix("10.0.0.0/24")}, "both": {Owner: host, Pool: "pods"}, "a prefix of a pool": {Pool: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24")},
	} {
		field := "Owner"
		if what == "a prefix that is not masked" {
			field = "Prefix"
		}
		add("Engine.DisownBlocks", what, "disown", invalid, field, second(e.DisownBlocks(bg, a)))
	}
	add("Engine.DisownBlocks", "unknown", "disown", ipalloc.ErrNotFound, "", second(e.DisownBlocks(bg, alloc.DisownArgs{Pool: "x"})))

	add("Operator.BlockOf", "no address", "look up", invalid, "Address", second(o.BlockOf(bg, netip.Addr{})))
	add("Operator.ChangePools", "no prefix", "change pools", invalid, "Prefix", o.ChangePools(bg, alloc.PoolChanges{Set: []alloc.Pool{{Name: "x"}}}))
	add("Operator.Drain", "unknown", "drain", ipalloc.ErrNotFound, "", second(o.Drain(bg, "x")))
	add("Operator.ImportBlock", "no block", "import", invalid, "block", o.ImportBlock(bg, nil))
	b, err := block.New(netip.MustParsePrefix("10.9.0.0/28"), block.Options{})
	add("Operator.ImportBlock", "no pool", "import", ipalloc.ErrNotFound, "", o.ImportBlock(bg, b))
	add("Operator.ImportBlock", "a block to import", "", nil, "", err)
	add("Operator.MergePools", "no parts", "merge", invalid, "parts", o.MergePools(bg, "x"))
	add("Operator.Reindex", "unknown", "reindex", ipalloc.ErrNotFound, "", second(o.Reindex(bg, "x")))
	add("Operator.RemoveSpace", "no name", "remove space", invalid, "name", o.RemoveSpace(bg, ""))
	add("Operator.SetConfig", "contradiction", "configure", invalid, "MaxBlocksPerHost", o.SetConfig(bg, alloc.Config{MaxBlocksPerHost: -1}))
	add("Operator.SplitPool", "no bits", "split", invalid, "bits", o.SplitPool(bg, "pods", 0))
}

// refuseDamage makes every call that reads on a store whose catalog is damaged.
func refuseDamage(t *testing.T, add addRow) {
	db := store.NewMemory()
	if _, err := db.Commit(bg, []store.Op{{Kind: store.Put, Key: "c", Value: "\xff\xff\xff", Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
	e, err := New(db, Options{})
	if err != nil {
		t.Fatal(err)
	}
	corrupt := ipalloc.ErrCorrupt
	host, o := alloc.HostOwner("h"), e.Operator()
	second := func(_ any, err error) error { return err }
	add("Engine.AutoAssign", "damage", "assign", corrupt, "", second(e.AutoAssign(bg, alloc.AssignArgs{Owner: host, Num4: 1})))
	add("Engine.Hosts", "damage", "report", corrupt, "", second(e.Hosts(bg)))
	add("Engine.Pools", "damage", "read", corrupt, "", second(e.Pools(bg)))
	add("Engine.Utilization", "damage", "report", corrupt, "", second(e.Utilization(bg)))
	add("Operator.Check", "damage", "check", nil, "", second(o.Check(bg, nil)))
	add("Operator.Sweep", "nothing due", "sweep", nil, "", second(o.Sweep(bg, alloc.SweepArgs{IdleAfter: time.Hour})))
	add("Operator.Config", "damage", "read", corrupt, "", second(o.Config(bg)))
	add("Operator.Repair", "nothing to do", "repair", nil, "", second(o.Repair(bg, nil)))
	add("Operator.Reservations", "damage", "read", corrupt, "", second(o.Reservations(bg)))
	add("Operator.SetReservations", "damage", "reserve", corrupt, "", second(o.SetReservations(bg, &netipx.IPSet{})))
	add("Collector.Collect", "damage", "collect", corrupt, "", second(o.NewCollector(time.Hour).Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Gone })))
}
