package servicealloc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// One request takes all of it or nothing: 100 that fail leak nothing, where Kubernetes
// leaks 87 addresses.
func TestFailingRequestsLeakNothing(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 fd00::/127") // one IPv6 address
	must(r.Allocate("first", Request{Addrs: anyBoth}))
	before := stateOf(t, r)
	for range 100 {
		_, err := r.Allocate("second", Request{Addrs: anyBoth, Ports: []Port{{}, {UDP, 30001}}})
		wantErr(t, err, ipalloc.ErrFull)
		_, err = r.Allocate("third", Request{Addrs: anyBoth[:1], Ports: []Port{{UDP, 30001}, {UDP, 29999}}})
		wantErr(t, err, ipalloc.ErrOutOfRange)
		_, _, err = r.Begin("fourth", Request{Addrs: anyBoth})
		wantErr(t, err, ipalloc.ErrFull)
	}
	if stateOf(t, r) != before {
		t.Error("something leaked")
	}
	check(t, r)
}

// What a registry returns is the caller's: changing it changes nothing that is held.
func TestAnswersAreCopies(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 fd00::/64")
	spoil := func(g Grant) {
		for i := range g.Addrs {
			g.Addrs[i] = ip("192.0.2.1")
		}
		for i := range g.Ports {
			g.Ports[i] = Port{TCP, 1}
		}
	}
	req := Request{Addrs: anyBoth, Ports: []Port{{}, {TCP, 30001}}}
	for range 2 {
		g := must(r.Allocate("a", req))
		before := stateOf(t, r)
		spoil(g)
		if got := stateOf(t, r); got != before {
			t.Errorf("after a change of the answer\n%s\nwant\n%s", got, before)
		}
		if again := must(r.Allocate("a", req)); slices.Contains(again.Addrs, ip("192.0.2.1")) {
			t.Errorf("%+v", again)
		}
	}
	tx, g, err := r.Begin("b", Request{Addrs: anyBoth, Ports: []Port{{}, {TCP, 30002}}})
	if err != nil {
		t.Fatal(err)
	}
	spoil(g)
	wantErr(t, tx.Commit(), nil)
	if g, ok := r.Get("b"); !ok || slices.Contains(g.Addrs, ip("192.0.2.1")) || len(g.Addrs) != 2 {
		t.Errorf("%+v", g)
	}
	check(t, r)
}

// What a request may ask for, and what the error says.
func TestRegistryRefuses(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 fd00::/64")
	wantErr(t, r.SetRange(draining(rangeOf("old", "10.1.0.0/24"))), nil)
	wantErr(t, r.SetRange(RangeInfo{Name: "kept", Prefixes: []netip.Prefix{pfx("10.0.0.64/26")}, Ports: []PortRange{{First: 30010, Last: 30019}}, Reserved: true}), nil)
	held := must(r.Allocate("holder", Request{Addrs: []netip.Addr{ip("10.0.0.10")}, Ports: []Port{{TCP, 30005}}}))
	before := stateOf(t, r)
	for _, tt := range []struct {
		owner string
		addrs []netip.Addr
		ports []Port
		want  error
		text  string // that the message must have
	}{
		{"", anyBoth, nil, ipalloc.ErrInvalid, "no owner"},
		{"o", []netip.Addr{ip("10.0.0.1"), ip("10.0.0.2")}, nil, ipalloc.ErrInvalid, "10.0.0.2"},
		{"o", []netip.Addr{ip("fd00::1"), netip.IPv6Unspecified()}, nil, ipalloc.ErrInvalid, "one family"},
		{"o", nil, []Port{{TCP, 30001}, {TCP, 30001}}, ipalloc.ErrInvalid, "30001"},
		{"o", nil, []Port{{TCP, 30001}, {"", 30001}}, ipalloc.ErrInvalid, "30001"},
		{"o", nil, slices.Repeat([]Port{{}}, 1025), ipalloc.ErrInvalid, "1024"},
		{"o", []netip.Addr{{}}, nil, ipalloc.ErrInvalid, "Addrs"},
		{"o", []netip.Addr{ip("::ffff:10.0.0.1")}, nil, ipalloc.ErrInvalid, "::ffff:10.0.0.1"},
		{"o", []netip.Addr{ip("fd00::1%z")}, nil, ipalloc.ErrInvalid, "zone"},
		{"o", []netip.Addr{ip("10.0.0.0")}, nil, ipalloc.ErrOutOfRange, "10.0.0.0"},
		{"o", []netip.Addr{ip("10.0.0.255")}, nil, ipalloc.ErrOutOfRange, "10.0.0.255"},
		{"o", []netip.Addr{ip("fd00::")}, nil, ipalloc.ErrOutOfRange, "fd00::"},
		{"o", []netip.Addr{ip("10.2.0.1")}, nil, ipalloc.ErrOutOfRange, "10.2.0.1"},
		{"o", []netip.Addr{ip("10.0.0.64")}, nil, ipalloc.ErrReserved, `"kept"`},
		{"o", []netip.Addr{ip("10.1.0.1")}, nil, ipalloc.ErrInUse, "draining"},
		{"o", []netip.Addr{ip("10.0.0.10")}, nil, ipalloc.ErrOccupied, `held by "holder"`},
		{"o", nil, []Port{{TCP, 30005}}, ipalloc.ErrOccupied, `held by "holder"`},
		{"o", nil, []Port{{UDP, 30005}}, ipalloc.ErrOccupied, `held by "holder"`},
		{"o", nil, []Port{{TCP, 29999}}, ipalloc.ErrOutOfRange, "29999"},
		{"o", nil, []Port{{TCP, 30128}}, ipalloc.ErrOutOfRange, "30000-30127"},
		{"o", nil, []Port{{TCP, 30015}}, ipalloc.ErrReserved, "30015"},
		{"o", nil, []Port{{"x", 30015}}, ipalloc.ErrInvalid, `"x"`},
		{"o", nil, slices.Repeat([]Port{{}}, 119), ipalloc.ErrFull, "no free port"},
		{"holder", anyBoth, nil, ipalloc.ErrMismatch, "holder"},
		{"holder", []netip.Addr{ip("10.0.0.11")}, []Port{{TCP, 30005}}, ipalloc.ErrMismatch, "holder"},
	} {
		for _, dry := range []bool{true, false} {
			g, err := r.Allocate(tt.owner, Request{Addrs: tt.addrs, Ports: tt.ports, DryRun: dry})
			wantErr(t, err, tt.want)
			if !strings.Contains(err.Error(), tt.text) || g.Generation != 0 {
				t.Errorf("%v: %+v, %v; want %q in it", tt, g, err, tt.text)
			}
		}
	}
	wantErr(t, errOf(r.Release("nobody", 0)), ipalloc.ErrNotHeld)
	wantErr(t, errOf(r.Allocate("nobody", Request{Addrs: anyBoth, Generation: 1})), ipalloc.ErrNotHeld)
	wantErr(t, errOf(r.Release("holder", held.Generation+1)), ipalloc.ErrMismatch)
	wantErr(t, errOf(r.Allocate("holder", Request{Generation: held.Generation + 1})), ipalloc.ErrMismatch)
	wantErr(t, errOf(r.Allocate("holder", Request{Generation: held.Generation, Addrs: []netip.Addr{ip("10.0.0.64")}})), ipalloc.ErrReserved)
	if stateOf(t, r) != before {
		t.Error("something changed")
	}
	check(t, r)
}

// Without ports, every port is out of range. A request for nothing makes no owner.
func TestRegistryWithoutPorts(t *testing.T) {
	r := must(NewRegistry(PortRange{}))
	wantErr(t, errOf(r.Allocate("o", Request{Ports: []Port{{}}})), ipalloc.ErrOutOfRange)
	wantErr(t, errOf(r.Allocate("o", Request{Ports: []Port{{TCP, 5}}})), ipalloc.ErrOutOfRange)
	wantErr(t, errOf(r.Allocate("o", Request{Addrs: anyBoth})), ipalloc.ErrFull)
	g, err := r.Allocate("o", Request{})
	if err != nil || g.Generation != 0 || len(heldBy(r)) != 0 {
		t.Fatal(g, err)
	}
	check(t, r)
}

// The life of a service: one family, two, a node port, back. What it has, it keeps.
func TestReplace(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 fd00::/64", LowestFirst())
	g := must(r.Allocate("svc", Request{Addrs: anyBoth[:1]}))
	seen := map[uint64]bool{g.Generation: true}
	for i, s := range []struct {
		req  Request
		want string
	}{
		{Request{Addrs: anyBoth}, "10.0.0.17 fd00::101"},
		{Request{Addrs: []netip.Addr{anyBoth[1], anyBoth[0]}}, "fd00::101 10.0.0.17"},
		{Request{Addrs: anyBoth, Ports: []Port{{}, {}}}, "10.0.0.17 fd00::101 30016 30017"},
		{Request{Addrs: anyBoth, Ports: []Port{{UDP, 0}, {"", 30017}}}, "10.0.0.17 fd00::101 30018/UDP 30017"},
		{Request{Addrs: anyBoth, Ports: []Port{{TCP, 30018}, {UDP, 30018}}}, "10.0.0.17 fd00::101 30018/TCP 30018/UDP"},
		{Request{Addrs: anyBoth[1:], Ports: []Port{{TCP, 30018}}}, "fd00::101 30018/TCP"},
		{Request{Addrs: []netip.Addr{ip("fd00::5"), anyBoth[0]}}, "fd00::5 10.0.0.17"},
	} {
		old := g
		s.req.Generation = old.Generation
		var err error
		if g, err = r.Allocate("svc", s.req); err != nil || textOf(g) != s.want || seen[g.Generation] {
			t.Fatalf("%d: %+v, %v, want %s", i, g, err, s.want)
		}
		seen[g.Generation] = true
		wantErr(t, errOf(r.Allocate("svc", s.req)), ipalloc.ErrMismatch)
		s.req.Generation = 0
		if again := must(r.Allocate("svc", s.req)); again.Generation != g.Generation {
			t.Fatal(i, again)
		}
		wantErr(t, errOf(r.Release("svc", old.Generation)), ipalloc.ErrMismatch)
		wantHeld(t, r, "svc: "+s.want)
	}
	if by, _, ok := r.OwnerOf(ip("fd00::5")); !ok || by != "svc" {
		t.Error(by, ok)
	}
	if _, _, ok := r.OwnerOfPort(Port{TCP, 30018}); ok {
		t.Error("the port is given back")
	}
	if g, err := r.Allocate("svc", Request{Generation: g.Generation}); err != nil || g.Generation != 0 {
		t.Error(g, err)
	}
	wantHeld(t, r)
}

// That the engine had to spill stays known as long as the owner has a grant.
func TestSpilledStays(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 fd00::/64", StaticBand(0, pfx("10.0.0.0/24"), pfx("fd00::/64")))
	g := must(r.Allocate("svc", Request{Addrs: anyBoth[:1]}))
	if !g.Spilled {
		t.Fatal(g)
	}
	if g = must(r.Allocate("svc", Request{Addrs: anyBoth[:1], Ports: []Port{{}}, Generation: g.Generation})); !g.Spilled {
		t.Fatal(g)
	}
	if g = must(r.Allocate("other", Request{Ports: []Port{{}}})); g.Spilled {
		t.Fatal(g)
	}
}

// The engine never chooses a port that the same request names, whatever the order.
func TestNamedPortsGoFirst(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst(), NeverSpill())
	g := must(r.Allocate("a", Request{Ports: []Port{{}, {TCP, 30016}, {}}}))
	if textOf(g) != "30017 30016/TCP 30018" {
		t.Fatal(g)
	}
	for _, tt := range []struct { // 112 dynamic ones, of which 3 are taken
		ports []Port
		want  error
	}{
		{slices.Repeat([]Port{{}}, 110), ipalloc.ErrFull},
		{append(slices.Repeat([]Port{{}}, 109), Port{TCP, 30100}), ipalloc.ErrFull},
		{append(slices.Repeat([]Port{{}}, 109), Port{TCP, 30001}), nil},
	} {
		wantErr(t, errOf(r.Allocate("b", Request{Ports: tt.ports, DryRun: true})), tt.want)
		check(t, r)
	}
}

// By default a number is one for all protocols, as in Kubernetes: the TCP and the UDP
// port of one service port are one number, and no other service gets it for any protocol.
func TestPortsAreShared(t *testing.T) {
	r := newRegistryT(t, "", LowestFirst())
	must(r.Allocate("dns", Request{Ports: []Port{{}}}))
	wantErr(t, errOf(r.Allocate("x", Request{Ports: []Port{{UDP, 30016}}})), ipalloc.ErrOccupied)
	must(r.Allocate("y", Request{Ports: []Port{{TCP, 30001}, {UDP, 30001}}}))
	wantHeld(t, r, "dns: 30016", "y: 30001/TCP 30001/UDP")
	each := must(NewRegistry(PortRange{First: 30000, Last: 30127, PerProtocol: true}, LowestFirst()))
	must(each.Allocate("a", Request{Ports: []Port{{TCP, 0}}}))
	must(each.Allocate("b", Request{Ports: []Port{{UDP, 0}, {"", 0}}}))
	wantHeld(t, each, "a: 30016/TCP", "b: 30016/UDP 30017")
	if g, _, ok := each.OwnerOfPort(Port{SCTP, 30017}); !ok || g != "b" {
		t.Error(g, ok)
	}
	if _, _, ok := each.OwnerOfPort(Port{SCTP, 30016}); ok {
		t.Error("nobody has it")
	}
	must(each.Release("a", 0))
	if g, _, ok := each.OwnerOfPort(Port{"", 30016}); !ok || g != "b" {
		t.Error("without a protocol:", g, ok)
	}
}

// The tables of Kubernetes' tests of several ServiceCIDRs: nothing, one, another beside
// it; a small one inside a large one; growing and shrinking.
func TestSeveralRanges(t *testing.T) {
	fill := func(r *Registry, prefix string) (n int) {
		for ; ; n++ {
			if _, err := r.Allocate(fmt.Sprint(prefix, len(heldBy(r))), Request{Addrs: anyBoth[:1]}); err != nil {
				wantErr(t, err, ipalloc.ErrFull)
				check(t, r)
				return n
			}
		}
	}
	r := newRegistryT(t, "")
	if n := fill(r, "none"); n != 0 {
		t.Fatal(n)
	}
	wantErr(t, r.SetRange(rangeOf("test", "192.168.0.0/28")), nil)
	if n := fill(r, "a"); n != 14 {
		t.Fatal(n)
	}
	wantErr(t, r.SetRange(rangeOf("test2", "10.0.0.0/28")), nil)
	must(r.Allocate("named", Request{Addrs: []netip.Addr{ip("10.0.0.11")}}))
	if n := fill(r, "b"); n != 13 {
		t.Fatal(n)
	}
	wantErr(t, r.SetRange(rangeOf("test3", "192.168.0.0/24")), nil) // grows around the first
	if n := fill(r, "c"); n != 254-14 {
		t.Fatal(n)
	}
	wantErr(t, r.RemoveRange("test"), nil) // the /24 has them all
	wantErr(t, r.RemoveRange("test2"), ipalloc.ErrInUse)

	s := newRegistryT(t, "192.168.1.0/24")
	for _, a := range []string{"192.168.1.0", "192.168.1.255"} {
		wantErr(t, errOf(s.Allocate(a, Request{Addrs: []netip.Addr{ip(a)}})), ipalloc.ErrOutOfRange)
	}
	wantErr(t, s.SetRange(rangeOf("large", "192.168.0.0/16")), nil)
	for _, a := range []string{"192.168.1.0", "192.168.1.255"} { // usable in the larger one
		must(s.Allocate(a, Request{Addrs: []netip.Addr{ip(a)}}))
	}
	wantErr(t, errOf(s.Allocate("o", Request{Addrs: []netip.Addr{ip("192.168.0.0")}})), ipalloc.ErrOutOfRange)
	err := s.RemoveRange("large")
	wantErr(t, err, ipalloc.ErrInUse)
	if e := (*ipalloc.Error)(nil); !errors.As(err, &e) || e.Holder != "192.168.1.0" || e.Addr != ip("192.168.1.0") || e.Name != "large" {
		t.Errorf("%+v", e)
	}
	s.Release("192.168.1.0", 0)
	s.Release("192.168.1.255", 0)
	must(s.Allocate("kept", Request{Addrs: []netip.Addr{ip("192.168.1.5")}}))
	wantErr(t, s.RemoveRange("large"), nil) // shrinks
	wantErr(t, errOf(s.Allocate("o", Request{Addrs: []netip.Addr{ip("192.168.1.0")}})), ipalloc.ErrOutOfRange)
	wantHeld(t, s, "kept: 192.168.1.5")
}

// Draining: nothing is handed out while every range with a prefix drains, what is held
// stays, and it can be undone.
func TestDraining(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 fd00::/64", LowestFirst())
	wantErr(t, r.SetRange(rangeOf("b", "10.0.0.0/24")), nil)
	a := must(r.Allocate("a", Request{Addrs: anyBoth}))
	wantErr(t, r.SetRange(draining(rangeOf("main", "10.0.0.0/24 fd00::/64"))), nil)
	wantErr(t, errOf(r.Allocate("o", Request{Addrs: anyBoth[1:]})), ipalloc.ErrFull)
	wantErr(t, errOf(r.Allocate("o", Request{Addrs: []netip.Addr{ip("fd00::7")}})), ipalloc.ErrInUse)
	must(r.Allocate("o", Request{Addrs: anyBoth[:1]})) // b still has it
	wantErr(t, r.SetRange(draining(rangeOf("b", "10.0.0.0/24"))), nil)
	wantErr(t, errOf(r.Allocate("p", Request{Addrs: anyBoth[:1]})), ipalloc.ErrFull)
	if st := r.Stats(); st.V4 != (Stats{Closed: 2}) || st.V6 != (Stats{Closed: 1}) {
		t.Fatalf("%+v", st)
	}
	if again := must(r.Allocate("a", Request{Addrs: anyBoth})); again.Generation != a.Generation {
		t.Fatal(again)
	}
	if got := r.Ranges(); len(got) != 2 || !got[0].Draining || got[0].Name != "b" {
		t.Fatal(got)
	}
	wantErr(t, r.RemoveRange("main"), ipalloc.ErrInUse) // for the IPv6 address
	wantErr(t, r.SetRange(rangeOf("b", "10.0.0.0/24")), nil)
	must(r.Allocate("p", Request{Addrs: anyBoth[:1]}))
	r.Release("a", 0) // of a range that drains
	wantErr(t, r.RemoveRange("main"), nil)
	wantErr(t, r.RemoveRange("main"), ipalloc.ErrNotFound)
	wantHeld(t, r, "o: 10.0.0.18", "p: 10.0.0.19")
}

// A reservation closes what it covers at once and reopens it when it goes; what is held
// in it stays.
func TestReservations(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/28", LowestFirst())
	must(r.Allocate("held", Request{Addrs: []netip.Addr{ip("10.0.0.3")}, Ports: []Port{{TCP, 30016}}}))
	keep := RangeInfo{Name: "keep", Prefixes: []netip.Prefix{pfx("10.0.0.0/29"), pfx("::/0")}, Ports: []PortRange{{First: 1, Last: 30020}}, Reserved: true}
	wantErr(t, r.SetRange(keep), nil)
	must(r.Allocate("a", Request{Addrs: anyBoth[:1], Ports: []Port{{}}}))
	wantHeld(t, r, "a: 10.0.0.8 30021", "held: 10.0.0.3 30016/TCP")
	if st := r.Stats(); st.V4.Closed != 1 || st.Ports.Closed != 1 {
		t.Errorf("%+v", st)
	}
	r.Release("held", 0)
	wantErr(t, errOf(r.Allocate("b", Request{Addrs: []netip.Addr{ip("10.0.0.3")}})), ipalloc.ErrReserved)
	wantErr(t, r.SetRange(reserved(rangeOf("keep", "10.0.0.0/30"))), nil)
	must(r.Allocate("b", Request{Addrs: anyBoth[:1], Ports: []Port{{}}}))
	wantErr(t, r.RemoveRange("keep"), nil)
	must(r.Allocate("c", Request{Addrs: anyBoth[:1]}))
	wantHeld(t, r, "a: 10.0.0.8 30021", "b: 10.0.0.4 30016", "c: 10.0.0.1")
}

// What SetRange refuses, with nothing changed.
func TestSetRangeRefuses(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24")
	must(r.Allocate("o", Request{Addrs: []netip.Addr{ip("10.0.0.200")}}))
	before := stateOf(t, r)
	for what, tt := range map[string]struct {
		info RangeInfo
		want error
	}{
		"nothing":             {RangeInfo{Name: "x"}, ipalloc.ErrInvalid},
		"zero prefix":         {RangeInfo{Name: "x", Prefixes: []netip.Prefix{{}}}, ipalloc.ErrInvalid},
		"host bits":           {rangeOf("x", "10.2.0.0/16 10.0.0.1/24"), ipalloc.ErrInvalid},
		"4-in-6":              {rangeOf("x", "::ffff:10.0.0.0/120"), ipalloc.ErrInvalid},
		"wide":                {rangeOf("x", "fd00::/63"), ipalloc.ErrInvalid},
		"ports of a range":    {RangeInfo{Name: "x", Ports: []PortRange{{First: 1, Last: 2}}}, ipalloc.ErrInvalid},
		"bad ports":           {RangeInfo{Name: "x", Reserved: true, Ports: []PortRange{{First: 3, Last: 2}}}, ipalloc.ErrInvalid},
		"drained reservation": {draining(reserved(rangeOf("x", "10.0.0.0/24"))), ipalloc.ErrInvalid},
		"another prefix":      {rangeOf("main", "10.1.0.0/24"), ipalloc.ErrInUse},
		"smaller":             {rangeOf("main", "10.0.0.0/25"), ipalloc.ErrInUse},
		"made a reservation":  {reserved(rangeOf("main", "10.0.0.0/24")), ipalloc.ErrInUse},
		"too many":            {manyRanges("x", 4096), ipalloc.ErrLimit},
	} {
		err := r.SetRange(tt.info)
		if wantErr(t, err, tt.want); stateOf(t, r) != before {
			t.Errorf("%s: something changed", what)
		}
	}
	wantErr(t, r.SetRange(rangeOf("main", "10.0.0.0/24")), nil)
	wantErr(t, r.SetRange(rangeOf("main", "10.0.0.0/24 10.1.0.0/24")), nil)
	wantErr(t, r.SetRange(rangeOf("main", "10.0.0.128/25")), nil)
	wantErr(t, r.SetRange(manyRanges("x", 4095)), nil)
	wantHeld(t, r, "o: 10.0.0.200")
}

func manyRanges(name string, n int) RangeInfo {
	i := RangeInfo{Name: name}
	for k := range n {
		i.Prefixes = append(i.Prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(k >> 8), byte(k), 0}), 24))
	}
	return i
}

// A change of one range leaves the others as they are: many are added one by
// one, and the bands are made anew once, at the next use.
func TestRangesAreAddedOneByOne(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 200
	}
	for what, p := range map[string]func(i int) netip.Prefix{
		"IPv4": func(i int) netip.Prefix { return manyRanges("", 4096).Prefixes[i] },
		"IPv6": func(i int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 6: byte(i >> 8), 7: byte(i)}), 64)
		},
	} {
		r := newRegistryT(t, "10.0.0.0/24 fd99::/64")
		r.Stats()
		for i := range n {
			wantErr(t, r.SetRange(RangeInfo{Name: fmt.Sprintf("%04d", i), Prefixes: []netip.Prefix{p(i)}}), nil)
		}
		if parts := r.ranges.lines[0].Bands[1].Parts(); parts != 1 && what == "IPv4" {
			t.Errorf("%s: the bands were made anew: %d parts", what, parts)
		}
		must(r.Allocate("o", Request{Addrs: anyBoth}))
		if r.ranges.stale {
			t.Errorf("%s: the bands are old", what)
		}
		check(t, r)
		r.Release("o", 0)
		for i := range n {
			wantErr(t, r.RemoveRange(fmt.Sprintf("%04d", i)), nil)
		}
		if r.Stats(); len(r.ranges.lines) != 3 {
			t.Errorf("%s: %d lines", what, len(r.ranges.lines))
		}
		check(t, r)
	}
}
