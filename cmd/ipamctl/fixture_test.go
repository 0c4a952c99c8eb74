package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// noon is the time of the tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// progressLine is what progress says, which depends on how busy the machine is.
var progressLine = regexp.MustCompile(`(?m)^ipamctl: [a-z ]+, \d+ s\n`)

// call runs the program in this process, and leaves out what progress says.
func call(t *testing.T, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return callUntil(t, t.Context(), env, args...)
}

// callUntil is call with a context that a signal ends.
func callUntil(t *testing.T, ctx context.Context, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(env["stdin"]), stdout: &out, stderr: &errs, getenv: func(k string) string { return env[k] }, now: func() time.Time { return noon }}
	status = a.run(ctx, args)
	return status, out.String(), progressLine.ReplaceAllString(errs.String(), "")
}

// newBolt returns the name of a new store in a file, filled by fill.
func newBolt(t testing.TB, fill func(e *ipset.Engine)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ipam.db")
	db, err := boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	fill(newEngine(t, db))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return "bolt://" + path
}

func newEngine(t testing.TB, db store.Store) *ipset.Engine {
	t.Helper()
	e, err := ipset.New(db, ipset.Options{Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// must fails the test on an error.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// cluster fills a store with three hosts: a has two blocks, b one, and c, which may claim none,
// has borrowed from b; one address cools.
func cluster(t testing.TB) func(e *ipset.Engine) {
	return func(e *ipset.Engine) {
		t.Helper()
		ctx := context.Background()
		for _, p := range []alloc.Pool{
			{Name: "pods", Prefix: netip.MustParsePrefix("10.1.0.0/24"), BlockBits: 28, Cooldown: time.Hour},
			{Name: "pods6", Prefix: netip.MustParsePrefix("fd00:10::/64"), BlockBits: 122},
			{Name: "lb", Prefix: netip.MustParsePrefix("192.0.2.0/27"), BlockBits: 29, Manual: true, Uses: alloc.LoadBalancer},
		} {
			if err := e.AddPool(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		assign := must[alloc.Assigned](t)
		for _, c := range []struct {
			host, handle string
			n4, n6, most int
		}{{"a", "web-0", 1, 1, 0}, {"a", "batch", 18, 0, 0}, {"b", "db-0", 1, 0, 0}, {"b", "old", 1, 0, 0}, {"c", "first", 13, 0, 1}} {
			attrs := must[alloc.Attributes](t)(alloc.NewAttributes(map[string]string{"namespace": "default"}))
			assign(e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner(c.host), Num4: c.n4, Num6: c.n6, Blocks: alloc.BlockArgs{Max: c.most},
				Handle: c.handle, Attributes: attrs}))
		}
		assign(e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("c"), Num4: 4, Blocks: alloc.BlockArgs{Max: 1}, Handle: "guest"}))
		must[[]netip.Addr](t)(e.ReleaseByHandle(ctx, "old"))
	}
}

// reserving returns the reservations of some prefixes.
func reserving(prefixes ...string) (rs []alloc.Reservation) {
	for _, p := range prefixes {
		rs = append(rs, alloc.Reservations(netipx.RangeOfPrefix(netip.MustParsePrefix(p)))...)
	}
	return rs
}

// fillOthers fills a store with what the packages beside ipset keep: prefixes, numbers, attachments, kept addresses and limits.
func fillOthers(t testing.TB, db store.Store) {
	t.Helper()
	ctx, clock := t.Context(), func() time.Time { return noon }
	of := must[*prefixes.Allocator](t)(prefixes.New(db, prefixes.Options{Now: clock}))
	for _, pool := range []string{"10.96.0.0/16", "10.97.0.0/16"} {
		if err := of.AddPool(ctx, prefixes.Pool{Prefix: netip.MustParsePrefix(pool), Sizes: prefixes.Sizes{Shortest: 20, Longest: 24}}); err != nil {
			t.Fatal(err)
		}
	}
	must[prefixes.Holding](t)(of.Assign(ctx, prefixes.Request{Owner: "net-a", Pool: netip.MustParsePrefix("10.96.0.0/16"), Bits: 24}))
	o := ipset.Options{Now: clock}
	must[uint64](t)(must[*numbers.Numbers](t)(numbers.New(ctx, db, "vlan", numbers.Range{First: 100, Last: 199}, o)).Assign(ctx, "tenant-a"))
	sets := []hostlocal.RangeSet{{{Subnet: netip.MustParsePrefix("10.98.0.0/24")}}}
	for network, container := range map[string]string{"net": "c1", "idle": "c2"} {
		e := must[*hostlocal.Engine](t)(hostlocal.New(db, hostlocal.Config{Network: network, Scope: "node-1", Sets: sets, Keys: true, Now: clock}))
		who := hostlocal.Attachment{Container: container, Interface: "eth0"}
		must[[]hostlocal.Address](t)(e.Add(ctx, who))
		if network == "idle" {
			must[[]netip.Addr](t)(e.Del(ctx, who))
		} else {
			must[[]hostlocal.Address](t)(e.AddKey(ctx, "vm-1", hostlocal.Attachment{Container: "c3", Interface: "eth0"}))
		}
	}
	k := must[*kept.Keeper](t)(kept.New(db, alloc.VirtualOwner("dhcp"), o))
	err := k.Keep(ctx, netip.MustParseAddr("10.1.0.120"), "printer")
	if err = errors.Join(err, limits.New(db, o).Set(ctx, limits.Prefixes("net-a", 4, prefixes.Options{}))); err != nil {
		t.Fatal(err)
	}
}
