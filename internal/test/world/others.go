package world

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func at4(s ...string) (as []netip.Addr) {
	for _, a := range s {
		as = append(as, at(a))
	}
	return as
}

// prefixes makes two trees of prefixes, one with three levels.
func (f *filler) prefixes() {
	a, err := prefixes.New(f.db, prefixes.Options{Now: f.w.Clock.Now})
	f.must(err)
	root := prefixes.Pool{Prefix: prefix("172.16.0.0/12"), Sizes: prefixes.Sizes{Shortest: 14, Longest: 18}}
	f.must(a.AddPool(f.Context(), use(f, root)))
	f.must(a.AddPool(f.Context(), prefixes.Pool{Prefix: prefix("fd02::/32"), Sizes: prefixes.Sizes{Shortest: 40, Longest: 64}}))
	region, err := a.Allocate(f.Context(), use(f, prefixes.Request{Pool: root.Prefix, Owner: "region", Bits: 16, Children: prefixes.Sizes{Shortest: 18, Longest: 24}, Attributes: "eu"}))
	f.must(err)
	use(f, region)
	cluster, err := a.Assign(f.Context(), prefixes.Request{Pool: region.Prefix, Owner: "cluster", Bits: 20, Children: prefixes.Sizes{Shortest: 24, Longest: 28}})
	f.must(err)
	for _, owner := range []string{"node-1", "node-2", "node-2"} {
		_, err := a.Allocate(f.Context(), prefixes.Request{Pool: cluster.Prefix, Owner: owner, Bits: 26})
		f.must(err)
	}
	_, err = a.Occupy(f.Context(), prefix("172.20.0.0/16"), prefixes.Request{Pool: root.Prefix, Owner: "named", Attributes: "by hand"})
	f.must(err)
	for i, ttl := range []time.Duration{time.Minute, 24 * time.Hour} { // the first ends, and no call meets that
		lease, err := a.Assign(f.Context(), use(f, prefixes.Request{Pool: prefix("fd02::/32"), Owner: fmt.Sprint("client-", i), Bits: 60, TTL: ttl}))
		f.must(err)
		use(f, lease)
		_, err = a.Renew(f.Context(), lease.Prefix, lease.Owner, use(f, prefixes.RenewArgs{TTL: ttl, WithinRules: true}))
		f.must(err)
	}
	use := use(f, prefixes.Request{Pool: prefix("fd02::/32"), Owner: "region", Bits: 56, New: true})
	_, err = a.Assign(f.Context(), use, store.Op{Kind: store.Put, Key: "Machine/4", Value: "prefix", Expect: store.AnyRevision})
	f.must(err)
	_, err = a.SetChildren(f.Context(), prefix("172.20.0.0/16"), "named", prefixes.Sizes{Shortest: 17, Longest: 32})
	f.must(err)
	f.must(a.AddPool(f.Context(), prefixes.Pool{Prefix: prefix("192.0.2.7/32"), Sizes: prefixes.Sizes{Shortest: 32, Longest: 32}}))
	_, err = a.Occupy(f.Context(), prefix("192.0.2.7/32"), prefixes.Request{Pool: prefix("192.0.2.7/32"), Owner: "whole"})
	f.must(err)
}

// sets are the range sets of a network.
func sets(n string) []hostlocal.RangeSet {
	return []hostlocal.RangeSet{
		{{Subnet: prefix("10.16." + n + ".0/24"), First: at("10.16." + n + ".10"), Last: at("10.16." + n + ".99"), Gateway: at("10.16." + n + ".1"), Exclude: []netip.Prefix{prefix("10.16." + n + ".32/28")}}, {Subnet: prefix("10.17." + n + ".0/24")}},
		{{Subnet: prefix("fd03:0:0:" + n + "::/64")}},
	}
}

// networks makes a network of one node, one whose attachments use keys, and one that two nodes share.
func (f *filler) networks() {
	plain, err := hostlocal.New(f.db, use(f, hostlocal.Config{Network: "plain", Sets: sets("1")}))
	f.must(err)
	_, err = plain.Import(f.Context(), hostlocal.State{Holdings: []hostlocal.Holding{{Attachment: hostlocal.Attachment{Container: "old"}, Addresses: at4("10.16.1.50")}}})
	f.must(err)
	_, err = plain.Add(f.Context(), hostlocal.Attachment{Container: "a", Interface: "eth0"})
	f.must(err)
	_, err = plain.Add(f.Context(), hostlocal.Attachment{Container: "b", Interface: "eth0"}, at("10.16.1.77"))
	f.must(err)
	keyed, err := hostlocal.New(f.db, use(f, hostlocal.Config{Network: "keyed", Sets: sets("3"), Keys: true}))
	f.must(err)
	_, err = keyed.AddKey(f.Context(), "vm", hostlocal.Attachment{Container: "vm-1", Interface: "eth0"})
	f.must(err)
	state, err := keyed.Export(f.Context())
	f.must(err)
	use(f, state.Holdings)
	for _, scope := range []string{"node-1", "node-2"} {
		e, err := hostlocal.New(f.db, use(f, hostlocal.Config{Network: "shared", Sets: sets("2"), Scope: scope, Boot: "boot of " + scope, Leases: true}))
		f.must(err)
		for _, container := range []string{"a", "b"} {
			_, err = e.Add(f.Context(), hostlocal.Attachment{Container: scope + container, Interface: "eth0"})
			f.must(err)
		}
		_, err = e.Del(f.Context(), hostlocal.Attachment{Container: scope + "b", Interface: "eth0"})
		f.must(err)
		held, err := e.Export(f.Context())
		f.must(err)
		use(f, held.Holdings)
	}
}

// openNumbers opens the numbers of a world.
func (w *World) openNumbers(tb testing.TB, r numbers.Range) *numbers.Numbers {
	tb.Helper()
	n, err := numbers.New(context.Background(), w.DB, Numbers, r, ipset.Options{Now: w.Clock.Now})
	must(tb, err)
	return n
}

// numbers makes a set of numbers: some in order, one named, one outside of the range, and a hole.
func (w *World) numbers(tb testing.TB) {
	tb.Helper()
	ctx, r := context.Background(), numbers.Range{First: 100, Last: 4094}
	n := w.openNumbers(tb, r)
	for _, tenant := range []string{"a", "b", "c"} {
		_, err := n.Assign(ctx, tenant)
		must(tb, err)
	}
	must(tb, n.Occupy(ctx, "d", 4000))
	must(tb, n.Occupy(ctx, "a", 7))
	_, err := n.Release(ctx, "b")
	must(tb, err)
	w.used = append(w.used, r)
	for h, err := range n.All(ctx) {
		must(tb, err)
		w.used = append(w.used, h)
	}
}
