package ipset

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

type addRow func(call, what string, is error, field string, err error)

// Every exported call that can fail refuses in one form, with the sentinel and the field that it promises.
func TestRefusals(t *testing.T) {
	var rows []refusal.Row
	add := func(call, what string, is error, field string, err error) {
		rows = append(rows, refusal.Row{Call: call, What: what, Err: err, Is: is, Op: refusal.Words(call), Field: field})
	}
	refuseValues(add)
	refuseArguments(newWorld(t, alloc.Config{}, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28}).Engine, add)
	refuseDamage(t, add)
	refusal.Check(t, "ipset", rows)
}

func refuseValues(add addRow) {
	_, err := New(nil, Options{})
	add("New", "no store", ipalloc.ErrInvalid, "db", err)
	for field, o := range map[string]Options{"Skew": {Skew: -1}, "Cache": {Cache: -1}, "Retry": {Retry: Retry{Attempts: -1}}} {
		_, err = New(store.NewMemory(), o)
		add("New", "a negative number", ipalloc.ErrInvalid, field, err)
	}
}

func refuseArguments(e *Engine, add addRow) {
	invalid := ipalloc.ErrInvalid
	host, zero := alloc.HostOwner("h"), alloc.Owner{}
	o := e.Operator()
	second := func(_ any, err error) error { return err }
	third := func(_, _ any, err error) error { return err }

	add("Engine.AddPool", "no prefix", invalid, "Prefix", e.AddPool(bg, alloc.Pool{Name: "x"}))
	add("Engine.UpdatePool", "unknown", ipalloc.ErrNotFound, "", e.UpdatePool(bg, alloc.Pool{Name: "x", Prefix: netip.MustParsePrefix("10.1.0.0/24")}))
	add("Engine.RemovePool", "unknown", ipalloc.ErrNotFound, "", e.RemovePool(bg, "x"))
	add("Engine.Assign", "no handle", invalid, "handle", second(e.Assign(bg, alloc.HostOwner("h"), "")))
	add("Engine.Assign", "no host", invalid, "Owner", second(e.Assign(bg, zero, "x")))
	for field, a := range map[string]alloc.AssignArgs{
		"Choose":  {Num4: 1, Choose: alloc.From(ip("fe80::1%eth0"))},
		"Also":    {Num4: 1, Also: []store.Op{{Key: "A"}, {Key: "A"}}},
		"Handle":  {Num4: 1, Existing: true},
		"Request": {Num4: 1, Handle: "x", Request: "a\x00b"},
	} {
		a.Owner = host
		add("Engine.AutoAssign", "a bad "+field, invalid, field, second(e.AutoAssign(bg, a)))
	}
	add("Engine.AutoAssign", "a bad preference", invalid, "Choose", second(e.AutoAssign(bg, alloc.AssignArgs{Owner: host, Num4: 1, Choose: alloc.Prefer(ip("fe80::1%eth0"))})))
	add("Engine.Offer", "a request key", invalid, "Request", second(e.Offer(bg, alloc.AssignArgs{Owner: host, Num4: 1, Request: "r", Handle: "x", TTL: 1})))
	add("Engine.AddPool", "no name in Index", invalid, "Index", e.AddPool(bg, alloc.Pool{Name: "x", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Index: []string{""}}))
	add("Engine.Update", "no host", invalid, "Host", e.Update(bg, alloc.UpdateArgs{Address: ip("10.0.0.9"), Host: &zero}))
	add("Operator.ChangePools", "no range", invalid, "Reserve", o.ChangePools(bg, alloc.PoolChanges{Reserve: make([]alloc.Reservation, 1)}))
	add("Engine.AssignIP", "no address", invalid, "Address", second(e.AssignIP(bg, alloc.AssignIPArgs{Owner: host})))
	add("Engine.AutoAssign", "no host", invalid, "Owner", second(e.AutoAssign(bg, alloc.AssignArgs{Num4: 1})))
	add("Engine.AutoAssign", "fewer than none", invalid, "Num4", second(e.AutoAssign(bg, alloc.AssignArgs{Owner: host, Num4: -1})))
	add("Engine.Offer", "no time", invalid, "TTL", second(e.Offer(bg, alloc.AssignArgs{Owner: host, Num4: 1})))
	add("Engine.Explain", "no host", invalid, "Owner", second(e.Explain(bg, alloc.AssignArgs{Num4: 1})))
	add("Engine.EnsureBlock", "no host", invalid, "Owner", second(e.EnsureBlock(bg, alloc.AssignArgs{Num4: 1})))
	add("Engine.BlocksOf", "no owner", invalid, "Owner", second(e.BlocksOf(bg, zero)))
	add("Engine.ClaimAffinity", "no owner", invalid, "Owner", third(e.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/24"), zero)))
	add("Engine.ClaimAffinity", "no prefix", invalid, "Prefix", third(e.ClaimAffinity(bg, netip.Prefix{}, host)))
	add("Engine.Decline", "no address", invalid, "Address", second(e.Decline(bg, alloc.DeclineArgs{For: time.Hour})))
	add("Engine.Decline", "no time", invalid, "For", second(e.Decline(bg, alloc.DeclineArgs{Address: netip.MustParseAddr("10.0.0.1")})))
	add("Engine.Follow", "no owner", invalid, "Owner", e.Follow(bg, zero))
	add("Engine.IPsByAttribute", "no key", invalid, "attribute", second(e.IPsByAttribute(bg, "", "x")))
	add("Engine.IPsByShare", "no key", invalid, "sharing key", second(e.IPsByShare(bg, "")))
	add("Engine.IPsByHandle", "no handle", invalid, "handle", second(e.IPsByHandle(bg, "")))
	add("Engine.IPsByHost", "no host", invalid, "Owner", second(e.IPsByHost(bg, zero)))
	add("Engine.InSpace", "no name", invalid, "name", second(e.InSpace("")))
	add("Engine.Lookup", "no address", invalid, "Address", second(e.Lookup(bg, netip.Addr{})))
	add("Engine.Lookup", "not held", ipalloc.ErrNotHeld, "", second(e.Lookup(bg, netip.MustParseAddr("10.0.0.1"))))
	add("Engine.Release", "no address", invalid, "Address", second(e.Release(bg, alloc.ReleaseArgs{Addresses: []alloc.Release{{}}})))
	add("Engine.ReleaseByHost", "no owner", invalid, "Owner", second(e.ReleaseByHost(bg, zero)))
	add("Engine.ReleaseByHandle", "no handle", invalid, "handle", second(e.ReleaseByHandle(bg, "")))
	add("Engine.ReleaseIPs", "no address", invalid, "Address", second(e.ReleaseIPs(bg, alloc.Release{})))
	add("Engine.Withdraw", "no request", invalid, "request", second(e.Withdraw(bg, "")))
	for field, a := range map[string]alloc.TransferArgs{
		"From": {To: "b"}, "To": {From: "a", To: "a"}, "Address": {From: "a", To: "b", Address: ip("fe80::1%eth0")}, "Also": {From: "a", To: "b", Also: []store.Op{{Key: "a"}}},
	} {
		add("Engine.Transfer", "a bad "+field, invalid, field, second(e.Transfer(bg, a)))
	}
	add("Engine.Transfer", "not held", ipalloc.ErrNotHeld, "", second(e.Transfer(bg, alloc.TransferArgs{From: "a", To: "b", Address: ip("10.0.0.9")})))
	add("Operator.RenameHost", "no host", invalid, "From", third(o.RenameHost(bg, alloc.RenameArgs{To: host})))
	add("Operator.RenameHost", "no name", invalid, "To", third(o.RenameHost(bg, alloc.RenameArgs{From: host, To: host})))
	add("Engine.RemoveHost", "no host", invalid, "Owner", third(e.RemoveHost(bg, zero)))
	add("Engine.Renew", "no handle", invalid, "handle", second(e.Renew(bg, "", alloc.RenewArgs{TTL: time.Hour})))
	add("Engine.Renew", "a host without the rules", invalid, "WithinRules", second(e.Renew(bg, "x", alloc.RenewArgs{Owner: host})))
	add("Engine.Renew", "rules of no host", invalid, "Owner", second(e.Renew(bg, "x", alloc.RenewArgs{WithinRules: true})))
	add("Engine.RenewIP", "rules of no host", invalid, "Owner", second(e.RenewIP(bg, ip("10.0.0.1"), alloc.Guard{}, alloc.RenewArgs{WithinRules: true})))
	add("Engine.AssignIPs", "what is held, in place of the named", invalid, "Existing", second(e.AssignIPs(bg, alloc.AssignArgs{Owner: host, Handle: "x", Existing: true}, ip("10.0.0.1"))))
	add("Engine.AssignIP", "shared within the rules", invalid, "WithinRules", second(e.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: host, Handle: "x", Share: alloc.Share{Max: 2}, WithinRules: true})))
	add("Engine.Renew", "not held", ipalloc.ErrNotHeld, "", second(e.Renew(bg, "x", alloc.RenewArgs{TTL: time.Hour})))
	add("Engine.RenewIP", "no address", invalid, "Address", second(e.RenewIP(bg, netip.Addr{}, alloc.Guard{}, alloc.RenewArgs{TTL: time.Hour})))
	add("Engine.Update", "no address", invalid, "Address", e.Update(bg, alloc.UpdateArgs{}))
	for what, a := range map[string]alloc.DisownArgs{
		"neither": {}, "a prefix that is not masked": {Owner: host, Prefix: netip.PrefixFrom(ip("10.0.0.1"), 24)}, "a prefix of nobody": {Prefix: netip.MustParsePrefix("10.0.0.0/24")}, "both": {Owner: host, Pool: "pods"}, "a prefix of a pool": {Pool: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24")},
	} {
		field := "Owner"
		if what == "a prefix that is not masked" {
			field = "Prefix"
		}
		add("Engine.DisownBlocks", what, invalid, field, second(e.DisownBlocks(bg, a)))
	}
	add("Engine.DisownBlocks", "unknown", ipalloc.ErrNotFound, "", second(e.DisownBlocks(bg, alloc.DisownArgs{Pool: "x"})))

	add("Operator.BlockOf", "no address", invalid, "Address", second(o.BlockOf(bg, netip.Addr{})))
	add("Operator.ChangePools", "no prefix", invalid, "Prefix", o.ChangePools(bg, alloc.PoolChanges{Set: []alloc.Pool{{Name: "x"}}}))
	add("Operator.Drain", "unknown", ipalloc.ErrNotFound, "", second(o.Drain(bg, "x")))
	add("Operator.ImportBlock", "no block", invalid, "block", o.ImportBlock(bg, nil))
	b, err := block.New(netip.MustParsePrefix("10.9.0.0/28"), block.Options{})
	add("Operator.ImportBlock", "no pool", ipalloc.ErrNotFound, "", o.ImportBlock(bg, b))
	add("Operator.ImportBlock", "a block to import", nil, "", err)
	add("Operator.MergePools", "no parts", invalid, "parts", o.MergePools(bg, "x"))
	add("Operator.OpenPool", "unknown", ipalloc.ErrNotFound, "", o.OpenPool(bg, "x"))
	add("Operator.Reindex", "unknown", ipalloc.ErrNotFound, "", second(o.Reindex(bg, "x")))
	add("Operator.RemoveSpace", "no name", invalid, "name", o.RemoveSpace(bg, ""))
	add("Operator.SetConfig", "contradiction", invalid, "MaxBlocksPerHost", o.SetConfig(bg, alloc.Config{MaxBlocksPerHost: -1}))
	add("SweepAll", "no store", invalid, "db", second(SweepAll(bg, nil, Options{}, alloc.SweepArgs{})))
	add("Operator.Sweep", "a negative time", invalid, "IdleAfter", second(o.Sweep(bg, alloc.SweepArgs{IdleAfter: -1})))
	add("Operator.Sweep", "a negative number", invalid, "Keep", second(o.Sweep(bg, alloc.SweepArgs{Keep: -1})))
	add("Collector.Collect", "no function", invalid, "live", second(o.NewCollector(0).Collect(bg, nil)))
	add("Engine.Release", "nothing", invalid, "Handle", second(e.Release(bg, alloc.ReleaseArgs{})))
	add("Engine.AssignIPs", "an address twice", invalid, "named", second(e.AssignIPs(bg, alloc.AssignArgs{Owner: host}, slices.Repeat([]netip.Addr{netip.MustParseAddr("10.0.0.1")}, 2)...)))
	add("Operator.SplitPool", "no bits", invalid, "bits", o.SplitPool(bg, "pods", 0))
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
	add("Engine.AutoAssign", "damage", corrupt, "", second(e.AutoAssign(bg, alloc.AssignArgs{Owner: host, Num4: 1})))
	add("Engine.Hosts", "damage", corrupt, "", second(e.Hosts(bg)))
	add("Engine.Pools", "damage", corrupt, "", second(e.Pools(bg)))
	add("Engine.Utilization", "damage", corrupt, "", second(e.Utilization(bg)))
	add("Operator.Check", "damage", nil, "", second(o.Check(bg, nil)))
	add("Operator.Sweep", "nothing due", nil, "", second(o.Sweep(bg, alloc.SweepArgs{IdleAfter: time.Hour})))
	add("Operator.Config", "damage", corrupt, "", second(o.Config(bg)))
	add("Operator.Repair", "nothing to do", nil, "", second(o.Repair(bg, nil)))
	add("Operator.Reservations", "damage", corrupt, "", second(o.Reservations(bg)))
	add("Operator.SetReservations", "damage", corrupt, "", second(o.SetReservations(bg, nil)))
	add("Collector.Collect", "damage", corrupt, "", second(o.NewCollector(time.Hour).Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Gone })))
}
