package servicealloc

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	var rows []refusal.Row
	add := func(call, what, op string, is error, field string, err error) {
		rows = append(rows, refusal.Row{Call: call, What: what, Op: op, Is: is, Field: field, Err: err})
	}
	refuseConstructors(add)
	refusePools(t, add)
	refuseGrants(t, add)
	refuseRanges(t, add)
	refusal.Check(t, "servicealloc", rows)
}

type addRow func(call, what, op string, is error, field string, err error)

func refuseConstructors(add addRow) {
	for what, p := range map[string]netip.Prefix{"zero": {}, "host bits": pfx("10.0.0.1/24"), "4-in-6": pfx("::ffff:10.0.0.0/112"), "wide": pfx("fd00::/63")} {
		_, err := NewRange(p)
		add("NewRange", what, "new", ipalloc.ErrInvalid, "prefix", err)
	}
	for what, r := range map[string]PortRange{"no first": {Last: 5}, "backwards": {First: 6, Last: 5}} {
		_, err := NewPorts(r)
		add("NewPorts", what, "new", ipalloc.ErrInvalid, "PortRange", err)
	}
	_, err := NewRegistry(PortRange{First: 6, Last: 5})
	add("NewRegistry", "backwards", "new", ipalloc.ErrInvalid, "PortRange", err)
	for field, opts := range map[string][]Option{"Option": {nil}, "Random": {Random(nil)}, "StaticBand": {StaticBand(0, netip.Prefix{})}, "OnChange": {OnChange(nil)}, "Clock": {Clock(nil)}} {
		_, err := NewRange(pfx("10.0.0.0/24"), opts...)
		add("NewRange", field, "new", ipalloc.ErrInvalid, field, err)
		_, err = NewPorts(testPorts, opts...)
		add("NewPorts", field, "new", ipalloc.ErrInvalid, field, err)
		_, err = NewRegistry(testPorts, opts...)
		add("NewRegistry", field, "new", ipalloc.ErrInvalid, field, err)
	}
	for _, data := range [][]byte{nil, []byte("x"), make([]byte, 40)} {
		_, err := NewRange(pfx("10.0.0.0/24"), Restore(data))
		add("NewRange", "damage", "restore", ipalloc.ErrCorrupt, "", err)
		_, err = NewPorts(testPorts, Restore(data))
		add("NewPorts", "damage", "restore", ipalloc.ErrCorrupt, "", err)
		_, err = NewRegistry(testPorts, Restore(data))
		add("NewRegistry", "damage", "restore", ipalloc.ErrCorrupt, "", err)
	}
}

func refusePools(t *testing.T, add addRow) {
	r, empty := newRangeT(t, "10.0.0.0/30"), newRangeT(t, "10.0.0.0/31")
	for what, a := range map[string]netip.Addr{"zero": {}, "elsewhere": ip("10.1.0.1"), "network": ip("10.0.0.0"), "IPv6": ip("fd00::1")} {
		add("Pool.Allocate", what, "allocate", ipalloc.ErrOutOfRange, "", r.Allocate(a))
		if what != "zero" {
			_, _, err := r.DryRun(a)
			add("Pool.DryRun", what, "allocate", ipalloc.ErrOutOfRange, "", err)
		}
	}
	_ = r.Allocate(ip("10.0.0.1"))
	add("Pool.Allocate", "taken", "allocate", ipalloc.ErrOccupied, "", r.Allocate(ip("10.0.0.1")))
	_, _, err := r.DryRun(ip("10.0.0.1"))
	add("Pool.DryRun", "taken", "allocate", ipalloc.ErrOccupied, "", err)
	_, _, err = empty.AllocateNext()
	add("Pool.AllocateNext", "full", "allocate", ipalloc.ErrFull, "", err)
	_, err = r.AllocateN(make([]netip.Addr, 2))
	add("Pool.AllocateN", "full", "allocate", ipalloc.ErrFull, "", err)
	_, err = r.MarshalBinary()
	add("Pool.MarshalBinary", "never", "", nil, "", err)
	r.space.Closed++
	add("Pool.Check", "a wrong count", "check", ipalloc.ErrCorrupt, "", r.Check())
}

func refuseGrants(t *testing.T, add addRow) {
	r := newRegistryT(t, "10.0.0.0/29")
	one := must(r.Allocate("one", Request{Addrs: []netip.Addr{ip("10.0.0.1")}}))
	request := func(what, owner string, is error, field string, req Request) {
		_, err := r.Allocate(owner, req)
		add("Registry.Allocate", what, "allocate", is, field, err)
		_, _, err = r.Begin(owner, req)
		add("Registry.Begin", what, "begin", is, field, err)
	}
	request("no owner", "", ipalloc.ErrInvalid, "owner", Request{})
	request("no address", "two", ipalloc.ErrInvalid, "Addrs", Request{Addrs: []netip.Addr{{}}})
	request("4-in-6", "two", ipalloc.ErrInvalid, "Addrs", Request{Addrs: []netip.Addr{ip("::ffff:10.0.0.1")}})
	request("one family twice", "two", ipalloc.ErrInvalid, "Addrs", Request{Addrs: []netip.Addr{ip("10.0.0.2"), ip("10.0.0.3")}})
	request("many ports", "two", ipalloc.ErrInvalid, "Ports", Request{Ports: make([]Port, 1025)})
	request("protocol", "two", ipalloc.ErrInvalid, "Ports", Request{Ports: []Port{{Protocol: "x"}}})
	request("port twice", "two", ipalloc.ErrInvalid, "Ports", Request{Ports: []Port{{Number: 30000}, {Number: 30000}}})
	request("held", "two", ipalloc.ErrOccupied, "", Request{Addrs: []netip.Addr{ip("10.0.0.1")}})
	request("elsewhere", "two", ipalloc.ErrOutOfRange, "", Request{Addrs: []netip.Addr{ip("10.9.0.1")}})
	request("no range", "two", ipalloc.ErrFull, "", Request{Addrs: []netip.Addr{netip.IPv6Unspecified()}})
	request("generation", "one", ipalloc.ErrMismatch, "", Request{Generation: one.Generation + 1})
	request("not held", "two", ipalloc.ErrNotHeld, "", Request{Generation: 1})

	_, err := r.Release("two", 0)
	add("Registry.Release", "not held", "release", ipalloc.ErrNotHeld, "", err)
	_, err = r.Release("one", one.Generation+1)
	add("Registry.Release", "generation", "release", ipalloc.ErrMismatch, "", err)
	bad := Grant{Owner: "one", Generation: one.Generation, Addrs: []netip.Addr{{}}}
	_, _, err = r.Move(bad, Grant{})
	add("Registry.Move", "from", "move", ipalloc.ErrInvalid, "from", err)
	_, _, err = r.Move(Grant{}, bad)
	add("Registry.Move", "to", "move", ipalloc.ErrInvalid, "to", err)
	for _, p := range []Port{{TCP, 0}, {"x", 30000}} {
		_, _, err = r.Move(Grant{}, Grant{Owner: "two", Ports: []Port{p}})
		add("Registry.Move", "port", "move", ipalloc.ErrInvalid, "to", err)
	}
	_, _, err = r.Move(Grant{Owner: "one", Generation: one.Generation, Addrs: []netip.Addr{ip("10.0.0.2")}}, Grant{})
	add("Registry.Move", "not held", "move", ipalloc.ErrNotHeld, "", err)
	for field, c := range map[string]Change{"Grant": {Op: OpAllocate, Grant: bad}, "From": {Op: OpMove, From: bad}, "Op": {Op: "x"}} {
		add("Registry.Apply", field, "apply", ipalloc.ErrInvalid, field, r.Apply(c))
	}

	tx, _, err := r.Begin("three", Request{Addrs: []netip.Addr{ip("10.0.0.3")}})
	if err != nil {
		t.Fatal(err)
	}
	request("open transaction", "three", ipalloc.ErrInUse, "", Request{})
	_ = tx.Rollback()
	add("Tx.Commit", "ended", "commit", ipalloc.ErrClosed, "", tx.Commit())
	add("Tx.Rollback", "ended", "rollback", ipalloc.ErrClosed, "", tx.Rollback())
	r.Close()
	request("closed", "one", ipalloc.ErrClosed, "", Request{})
	_, err = r.MarshalBinary()
	add("Registry.MarshalBinary", "never", "", nil, "", err)
	r.owners["one"].addrs = ordered[netip.Addr]{}
	add("Registry.Check", "an owner lacks what is marked", "check", ipalloc.ErrCorrupt, "", r.Check())
}

func refuseRanges(t *testing.T, add addRow) {
	r := newRegistryT(t, "10.0.0.0/29")
	for what, c := range map[string]struct {
		info  RangeInfo
		field string
	}{
		"nothing":             {RangeInfo{Name: "x"}, "Prefixes"},
		"host bits":           {RangeInfo{Name: "x", Prefixes: []netip.Prefix{pfx("10.0.0.1/24")}}, "Prefixes"},
		"zero":                {RangeInfo{Name: "x", Prefixes: []netip.Prefix{{}}}, "Prefixes"},
		"wide":                {RangeInfo{Name: "x", Prefixes: []netip.Prefix{pfx("fd00::/8")}}, "Prefixes"},
		"ports of a range":    {RangeInfo{Name: "x", Ports: []PortRange{testPorts}}, "Ports"},
		"backwards":           {RangeInfo{Name: "x", Reserved: true, Ports: []PortRange{{First: 2, Last: 1}}}, "Ports"},
		"a draining reserved": {RangeInfo{Name: "x", Reserved: true, Draining: true, Ports: []PortRange{testPorts}}, "Draining"},
	} {
		add("Registry.SetRange", what, "set range", ipalloc.ErrInvalid, c.field, r.SetRange(c.info))
		add("Registry.Apply", what, "apply", ipalloc.ErrInvalid, c.field, r.Apply(Change{Op: OpSetRange, Range: c.info}))
	}
	add("Registry.SetRange", "many", "set range", ipalloc.ErrLimit, "", r.SetRange(RangeInfo{Name: "x", Reserved: true, Ports: repeated(testPorts, maxPrefixes+1)}))
	add("Registry.RemoveRange", "none", "remove range", ipalloc.ErrNotFound, "", r.RemoveRange("x"))
	_ = must(r.Allocate("one", Request{Addrs: []netip.Addr{ip("10.0.0.1")}}))
	add("Registry.RemoveRange", "in use", "remove range", ipalloc.ErrInUse, "", r.RemoveRange("main"))
	for _, want := range []string{"an address is held", "addresses are held"} {
		if err := r.RemoveRange("main"); err == nil || !strings.Contains(err.Error(), want+" that no other range has") {
			t.Errorf("%v, want %q", err, want)
		}
		_ = must(r.Allocate("two", Request{Addrs: []netip.Addr{ip("10.0.0.2")}}))
	}
	r.Close()
	add("Registry.RemoveRange", "closed", "remove range", ipalloc.ErrClosed, "", r.RemoveRange("main"))
}

func repeated[T any](v T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}
