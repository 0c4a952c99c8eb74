package world

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/selector"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// Services is a registry with every kind of range and of grant, and an open transaction.
type Services struct {
	*servicealloc.Registry
	Open *servicealloc.Tx
}

// NewServices makes a registry.
func NewServices(tb testing.TB, opts ...servicealloc.Option) *Services {
	tb.Helper()
	clock := &Clock{t: start}
	r, err := servicealloc.NewRegistry(servicealloc.PortRange{First: 30000, Last: 30063}, append([]servicealloc.Option{servicealloc.Clock(clock.Now)}, opts...)...)
	must(tb, err)
	for _, info := range []servicealloc.RangeInfo{
		{Name: "main", Prefixes: []netip.Prefix{prefix("10.96.0.0/24"), prefix("fd04::/112")}},
		{Name: "nested", Prefixes: []netip.Prefix{prefix("10.96.0.128/26")}},
		{Name: "tiny", Prefixes: []netip.Prefix{prefix("10.97.0.0/30")}},
		{Name: "leaving", Prefixes: []netip.Prefix{prefix("10.98.0.0/28")}},
		{Name: "kept", Prefixes: []netip.Prefix{prefix("10.96.0.200/30")}, Reserved: true, Ports: []servicealloc.PortRange{{First: 30010, Last: 30012}}},
	} {
		must(tb, r.SetRange(info))
	}
	one := func(owner string, req servicealloc.Request) {
		_, err := r.Allocate(owner, req)
		must(tb, err)
	}
	one("dual", servicealloc.Request{Addrs: at4("0.0.0.0", "::"), Ports: []servicealloc.Port{{Protocol: servicealloc.TCP}, {}}})
	one("static", servicealloc.Request{Addrs: at4("10.96.0.10"), Ports: []servicealloc.Port{{Protocol: servicealloc.UDP, Number: 30001}}})
	one("left", servicealloc.Request{Addrs: at4("10.98.0.5")})
	must(tb, r.SetRange(servicealloc.RangeInfo{Name: "leaving", Prefixes: []netip.Prefix{prefix("10.98.0.0/28")}, Draining: true}))
	r.Load([]servicealloc.Grant{
		{Owner: "recorded", Generation: 40, Addrs: at4("10.96.0.77", "fd04::77"), Ports: []servicealloc.Port{{Protocol: servicealloc.TCP, Number: 30040}}},
		{Owner: "outside", Addrs: at4("192.0.2.1")},
		{Owner: "duplicate", Addrs: at4("10.96.0.10")}, // held by another
	})
	tx, _, err := r.Begin("dual", servicealloc.Request{Addrs: at4("10.96.0.99"), Deadline: start.Add(time.Hour)})
	must(tb, err)
	return &Services{Registry: r, Open: tx}
}

// LookServices returns the picture of a registry.
func LookServices(r *servicealloc.Registry) Picture {
	p := Picture{}
	for g := range r.All() {
		p["/grant "+g.Owner] = fmt.Sprintf("%+v", g)
		for _, a := range g.Addrs {
			owner, _, ok := r.OwnerOf(a)
			p["/address "+a.String()] = fmt.Sprint(owner, ok)
		}
		for _, port := range g.Ports {
			owner, _, ok := r.OwnerOfPort(port)
			p[fmt.Sprint("/port ", port)] = fmt.Sprint(owner, ok)
		}
	}
	for _, info := range r.Ranges() {
		p["/range "+info.Name] = fmt.Sprintf("%+v", info)
	}
	return p
}

// NewNodes makes the two allocators for nodes, by slots and by labels, with every kind of pool, entry and node.
func NewNodes(tb testing.TB, opts ...nodeipam.Option) (slots, byLabels *nodeipam.Allocator) {
	tb.Helper()
	reserved := []netip.Prefix{prefix("10.128.3.0/24"), prefix("192.0.2.0/24")}
	slots, err := nodeipam.New(nodeipam.Config{Reserved: reserved, Slots: []nodeipam.Slot{
		{Bits: 24, Pools: []netip.Prefix{prefix("10.128.0.0/20"), prefix("10.144.0.0/20")}}, {Bits: 64, Pools: []netip.Prefix{prefix("fd05::/56")}},
	}}, opts...)
	must(tb, err)
	must(tb, slots.AddPool(0, prefix("10.160.0.0/22")))
	must(tb, slots.GrowPool(prefix("10.160.0.0/22"), prefix("10.160.0.0/20")))
	must(tb, slots.DrainPool(prefix("10.144.0.0/20"), true))
	byLabels, err = nodeipam.New(nodeipam.Config{ByLabels: true, Families: []nodeipam.Family{nodeipam.IPv4}, Reserved: reserved}, opts...)
	must(tb, err)
	term := func(value string) []selector.Term {
		return selector.Selector{{Labels: []selector.Requirement{{Key: "rack", Op: selector.In, Values: []string{value}}}}}
	}
	for _, e := range []nodeipam.Entry{
		{Name: "default", IPv4: prefix("10.128.0.0/20"), HostBits: 8},
		{Name: "rack", Selector: term("1"), IPv4: prefix("10.128.0.0/19"), IPv6: prefix("fd06::/100"), HostBits: 7},
		{Name: "leaving", Selector: term("2"), IPv4: prefix("10.200.0.0/20"), MaskIPv4: 26},
	} {
		must(tb, byLabels.AddEntry(e))
	}
	for _, a := range []*nodeipam.Allocator{slots, byLabels} {
		for i := range 6 {
			_, err := a.Allocate(nodeipam.Node{Name: fmt.Sprint("node-", i), UID: fmt.Sprint("uid-", i), Labels: map[string]string{"rack": fmt.Sprint(i % 3)}})
			must(tb, err)
		}
		a.Terminate("node-4")
		a.Load([]nodeipam.Node{{Name: "foreign", Prefixes: []netip.Prefix{prefix("172.31.0.0/24")}}, {Name: "unreadable", Prefixes: []netip.Prefix{{}}, Texts: []string{"10.0.0.0/8x"}}})
	}
	_, err = byLabels.DeleteEntry("leaving")
	must(tb, err)
	return slots, byLabels
}

// LookNodes returns the picture of an allocator.
func LookNodes(a *nodeipam.Allocator) Picture {
	p := Picture{}
	for n := range a.All() {
		as, ok := a.Lookup(n.Name)
		p["/node "+n.Name] = fmt.Sprintf("%+v %+v %v", n, as, ok)
	}
	for e := range a.Entries() {
		p["/entry "+e.Name] = fmt.Sprintf("%+v", e)
	}
	for _, s := range a.Stats().Pools {
		p[fmt.Sprint("/pool ", s.Slot, s.Entry, s.Pool)] = fmt.Sprintf("%+v", s)
	}
	p["/reserved"] = fmt.Sprint(a.Reserved())
	return p
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
