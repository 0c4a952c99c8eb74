package servicealloc

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

var anyBoth = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// newRegistryT returns a registry with one dual-stack range.
func newRegistryT(t testing.TB, p4, p6 string, opts ...Option) *Registry {
	t.Helper()
	r, err := NewRegistry(PortRange{30000, 30127}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, r.AddRange("main", pfx(p4), pfx(p6)), nil)
	return r
}

// One request takes all of it or nothing; 100 that fail leak nothing, where Kubernetes
// leaks 87 addresses. SA7
func TestFailingRequestsLeakNothing(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", "fd00::/127") // one IPv6 address
	if _, err := r.Allocate("first", Request{Addrs: anyBoth}); err != nil {
		t.Fatal(err)
	}
	before := snapshotOf(t, r)
	for range 100 {
		_, err := r.Allocate("second", Request{Addrs: anyBoth, Ports: []Port{{TCP, 0}, {UDP, 30001}}})
		wantErr(t, err, ErrFull)
		_, err = r.Allocate("third", Request{Addrs: anyBoth[:1], Ports: []Port{{UDP, 30001}, {UDP, 29999}}})
		wantErr(t, err, ErrOutOfRange)
	}
	if snapshotOf(t, r) != before {
		t.Error("something leaked")
	}
	if s := r.Stats(IPv4); s.Dynamic.Used != 1 {
		t.Error(s)
	}
	check(t, r)
}

// What a request may ask for, and what comes of it. SA7, X1, X2
func TestRegistryRefuses(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", "fd00::/64", Reserve(pfx("10.0.0.64/26")), ReservePorts(PortRange{30010, 30019}))
	wantErr(t, r.AddRange("old", pfx("10.1.0.0/24")), nil)
	wantErr(t, r.DrainRange("old"), nil)
	held, err := r.Allocate("holder", Request{Addrs: []netip.Addr{ip("10.0.0.10")}, Ports: []Port{{TCP, 30005}}})
	if err != nil {
		t.Fatal(err)
	}
	before := snapshotOf(t, r)
	for _, tt := range []struct {
		owner string
		addrs []netip.Addr
		ports []Port
		want  error
		text  string // that the message must have
	}{
		{"", anyBoth, nil, ErrBadRequest, "no owner"},
		{"o", []netip.Addr{ip("10.0.0.1"), ip("10.0.0.2")}, nil, ErrBadRequest, "IPv4"},
		{"o", []netip.Addr{ip("fd00::1"), netip.IPv6Unspecified()}, nil, ErrBadRequest, "IPv6"},
		{"o", nil, []Port{{TCP, 30001}, {TCP, 30001}}, ErrBadRequest, "30001/TCP"},
		{"o", nil, slices.Repeat([]Port{{TCP, 0}}, 1025), ErrBadRequest, "1024"},
		{"o", []netip.Addr{{}}, nil, ErrOutOfRange, ""},
		{"o", []netip.Addr{ip("::ffff:10.0.0.1")}, nil, ErrOutOfRange, "::ffff:10.0.0.1"},
		{"o", []netip.Addr{ip("fd00::1%z")}, nil, ErrOutOfRange, "zone"},
		{"o", []netip.Addr{ip("10.0.0.0")}, nil, ErrOutOfRange, "10.0.0.0"},
		{"o", []netip.Addr{ip("10.0.0.255")}, nil, ErrOutOfRange, "10.0.0.255"},
		{"o", []netip.Addr{ip("fd00::")}, nil, ErrOutOfRange, "fd00::"},
		{"o", []netip.Addr{ip("10.2.0.1")}, nil, ErrOutOfRange, "10.2.0.1"},
		{"o", []netip.Addr{ip("10.0.0.64")}, nil, ErrReserved, "10.0.0.64"},
		{"o", []netip.Addr{ip("10.1.0.1")}, nil, ErrDraining, "10.1.0.1"},
		{"o", []netip.Addr{ip("10.0.0.10")}, nil, ErrOccupied, "by holder"},
		{"o", nil, []Port{{TCP, 30005}}, ErrOccupied, "by holder"},
		{"o", nil, []Port{{TCP, 29999}}, ErrOutOfRange, "29999/TCP"},
		{"o", nil, []Port{{TCP, 30128}}, ErrOutOfRange, "30128/TCP"},
		{"o", nil, []Port{{TCP, 30015}}, ErrReserved, "30015/TCP"},
		{"o", nil, []Port{{0, 30015}}, ErrBadPort, ""},
		{"o", nil, []Port{{4, 0}}, ErrBadPort, ""},
		{"o", nil, slices.Repeat([]Port{{SCTP, 0}}, 119), ErrFull, "SCTP"},
		{"holder", anyBoth, nil, ErrMismatch, "holder"},
		{"holder", []netip.Addr{ip("10.0.0.11")}, []Port{{TCP, 30005}}, ErrMismatch, "holder"},
	} {
		for what, call := range map[string]func() (Grant, error){
			"Allocate": func() (Grant, error) { return r.Allocate(tt.owner, Request{tt.addrs, tt.ports}) },
			"DryRun":   func() (Grant, error) { return r.DryRun(tt.owner, Request{tt.addrs, tt.ports}) },
		} {
			g, err := call()
			wantErr(t, err, tt.want)
			if !strings.Contains(err.Error(), tt.text) || g.Owner != "" {
				t.Errorf("%s(%v): %+v, %v; want %q in it", what, tt, g, err, tt.text)
			}
		}
	}
	for _, call := range []error{
		r.ReleaseIf("nobody", 1), errOf(r.Replace("nobody", 1, Request{})),
	} {
		wantErr(t, call, ErrNoOwner)
	}
	wantErr(t, r.ReleaseIf("holder", held.Generation+1), ErrGeneration)
	wantErr(t, errOf(r.Replace("holder", 0, Request{})), ErrGeneration)
	wantErr(t, errOf(r.Replace("holder", held.Generation, Request{Addrs: []netip.Addr{ip("10.0.0.64")}})), ErrReserved)
	wantErr(t, errOf(r.Replace("holder", held.Generation, Request{Ports: []Port{{TCP, 30005}, {TCP, 30005}}})), ErrBadRequest)
	if _, ok := r.Release("nobody"); ok {
		t.Error("released nobody")
	}
	if snapshotOf(t, r) != before {
		t.Error("something changed")
	}
	check(t, r)
}

func errOf(_ Grant, err error) error { return err }

// Without ports, every port is out of range; an empty request is an owner of nothing.
func TestRegistryWithoutPorts(t *testing.T) {
	r, err := NewRegistry(PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Allocate("o", Request{Ports: []Port{{TCP, 0}}})
	wantErr(t, err, ErrOutOfRange)
	_, err = r.Allocate("o", Request{Addrs: anyBoth})
	wantErr(t, err, ErrFull)
	g, err := r.Allocate("o", Request{})
	if err != nil || g.Generation != 1 || r.Len() != 1 || r.PortRange() != (PortRange{}) || r.PortStats(TCP) != (Stats{}) {
		t.Fatal(g, err)
	}
	check(t, r)
	for _, opt := range []Option{StaticPorts(PortRange{1, 2}), ReservePorts(PortRange{1, 2})} {
		_, err := NewRegistry(PortRange{}, opt)
		wantErr(t, err, ErrBadOption)
	}
	_, err = NewRegistry(PortRange{5, 4})
	wantErr(t, err, ErrBadPort)
	_, err = NewRegistry(PortRange{1, 4}, ReservePorts(PortRange{4, 5}))
	wantErr(t, err, ErrBadOption)
	_, err = NewRegistry(PortRange{}, Reserve(netip.Prefix{}))
	wantErr(t, err, ErrBadPrefix)
}

// The life of a service: one family, two, a node port, back. What it has, it keeps. SA7
func TestRegistryReplace(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", "fd00::/64", LowestFirst())
	g, err := r.Allocate("svc", Request{Addrs: anyBoth[:1]})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		req   Request
		addrs string
		ports string
	}{
		{Request{Addrs: anyBoth}, "[10.0.0.17 fd00::101]", "[]"},
		{Request{Addrs: []netip.Addr{anyBoth[1], anyBoth[0]}}, "[fd00::101 10.0.0.17]", "[]"},
		{Request{Addrs: anyBoth, Ports: []Port{{TCP, 0}, {TCP, 0}}}, "[10.0.0.17 fd00::101]", "[30016/TCP 30017/TCP]"},
		{Request{Addrs: anyBoth, Ports: []Port{{UDP, 0}, {TCP, 30017}}}, "[10.0.0.17 fd00::101]", "[30016/UDP 30017/TCP]"},
		{Request{Addrs: anyBoth, Ports: []Port{{TCP, 0}, {TCP, 30017}}}, "[10.0.0.17 fd00::101]", "[30016/TCP 30017/TCP]"},
		{Request{Addrs: anyBoth[1:], Ports: []Port{{TCP, 30017}}}, "[fd00::101]", "[30017/TCP]"},
		{Request{Addrs: []netip.Addr{ip("fd00::5"), anyBoth[0]}}, "[fd00::5 10.0.0.17]", "[]"},
	}
	seen := map[uint64]bool{g.Generation: true}
	for i, s := range steps {
		old := g
		if g, err = r.Replace("svc", g.Generation, s.req); err != nil {
			t.Fatal(i, err)
		}
		if textOf(g.Addrs) != s.addrs || textOf(g.Ports) != s.ports || seen[g.Generation] {
			t.Fatalf("%d: %+v, want %s %s", i, g, s.addrs, s.ports)
		}
		seen[g.Generation] = true
		again, err := r.Replace("svc", g.Generation, s.req)
		if err != nil || again.Generation != g.Generation {
			t.Fatal(i, again, err)
		}
		wantErr(t, errOf(r.Replace("svc", old.Generation, s.req)), ErrGeneration)
		wantErr(t, r.ReleaseIf("svc", old.Generation), ErrGeneration)
		check(t, r)
	}
	if s := r.Stats(IPv4); s.Dynamic.Used != 1 {
		t.Error(s)
	}
	if by, ok := r.OwnerOf(ip("fd00::5")); !ok || by.Owner != "svc" {
		t.Error(by, ok)
	}
	if _, ok := r.OwnerOfPort(Port{TCP, 30017}); ok {
		t.Error("the port is given back")
	}
	wantErr(t, r.ReleaseIf("svc", g.Generation), nil)
	if r.Len() != 0 || r.Stats(IPv4).Dynamic.Used+r.Stats(IPv6).Dynamic.Used != 0 {
		t.Error("not all is given back")
	}
	check(t, r)
}

// That the engine had to spill stays known as long as the owner has a grant. SA3, SA7
func TestSpilledStays(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", "fd00::/64", StaticSize(254))
	g, err := r.Allocate("svc", Request{Addrs: anyBoth[:1]})
	if err != nil || !g.Spilled {
		t.Fatal(g, err)
	}
	if g, err = r.Replace("svc", g.Generation, Request{Addrs: anyBoth[:1], Ports: []Port{{TCP, 0}}}); err != nil || !g.Spilled {
		t.Fatal(g, err)
	}
	if g, err = r.Allocate("other", Request{Ports: []Port{{TCP, 0}}}); err != nil || g.Spilled {
		t.Fatal(g, err)
	}
}

func textOf[T interface{ String() string }](xs []T) string {
	var out []string
	for _, x := range xs {
		out = append(out, x.String())
	}
	return "[" + strings.Join(out, " ") + "]"
}

// The engine never chooses a port that the same request names, whatever the order.
func TestNamedPortsGoFirst(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", "fd00::/64", LowestFirst(), NeverSpill())
	g, err := r.Allocate("a", Request{Ports: []Port{{TCP, 0}, {TCP, 30016}, {TCP, 0}}})
	if err != nil || textOf(g.Ports) != "[30017/TCP 30016/TCP 30018/TCP]" {
		t.Fatal(g, err)
	}
	// 112 dynamic ones, of which 3 are taken: 109 fit, with one of them named 108 do.
	for _, tt := range []struct {
		ports []Port
		want  error
	}{
		{slices.Repeat([]Port{{TCP, 0}}, 110), ErrFull},
		{append(slices.Repeat([]Port{{TCP, 0}}, 109), Port{TCP, 30100}), ErrFull},
		{append(slices.Repeat([]Port{{TCP, 0}}, 109), Port{TCP, 30001}), nil},
	} {
		_, err := r.DryRun("b", Request{Ports: tt.ports})
		wantErr(t, err, tt.want)
		check(t, r)
	}
}

// The window of an area beyond 2^64 does not move by a dry run. X8, SA3
func TestRegistryDryRunKeepsTheWindow(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", "fd00::/48", Reserve(pfx("fd00::/64")))
	before := snapshotOf(t, r)
	dry, err := r.DryRun("o", Request{Addrs: anyBoth})
	if err != nil || snapshotOf(t, r) != before {
		t.Fatal(dry, err)
	}
	g, err := r.Allocate("o", Request{Addrs: anyBoth})
	if err != nil || !slices.Equal(g.Addrs, dry.Addrs) || !pfx("fd00:0:0:1::/64").Contains(g.Addrs[1]) {
		t.Fatal(g, dry, err)
	}
	check(t, r)
}

// The ranges of a registry: who stands in the way of removing one. SA6, SA7
func TestRegistryRanges(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/28", "fd00::/124")
	a, err := r.Allocate("a", Request{Addrs: anyBoth})
	wantErr(t, err, nil)
	wantErr(t, r.AddRange("next", pfx("10.1.0.0/28"), pfx("fd01::/124")), nil)
	wantErr(t, r.AddRange("next", pfx("10.1.0.0/28")), ErrExists)
	wantErr(t, r.DrainRange("main"), nil)
	wantErr(t, r.DrainRange("none"), ErrNoRange)
	b, err := r.Allocate("b", Request{Addrs: anyBoth})
	if err != nil || !pfx("10.1.0.0/28").Contains(b.Addrs[0]) {
		t.Fatal(b, err)
	}
	err = r.RemoveRange("main")
	wantErr(t, err, ErrInUse)
	if e := (*Error)(nil); !errors.As(err, &e) || e.Holder != "a" || e.Addr != a.Addrs[0] {
		t.Errorf("%+v", e)
	}
	left, err := r.Remaining("main")
	if err != nil || len(left) != 1 || left[0].Owner != "a" {
		t.Fatal(left, err)
	}
	_, err = r.Remaining("none")
	wantErr(t, err, ErrNoRange)
	if s := r.Stats(IPv4); s.Closed != 1 || s.Dynamic.Used != 1 {
		t.Error(s)
	}
	again, err := r.Allocate("a", Request{Addrs: anyBoth}) // the same answer, while it drains
	if err != nil || !slices.Equal(again.Addrs, a.Addrs) {
		t.Fatal(again, err)
	}
	r.Release("a")
	wantErr(t, r.RemoveRange("main"), nil)
	wantErr(t, r.RemoveRange("main"), ErrNoRange)
	if got := r.Ranges(); len(got) != 1 || got[0].Name != "next" || got[0].Draining {
		t.Error(got)
	}
	check(t, r)
}
