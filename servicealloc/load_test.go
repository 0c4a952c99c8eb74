package servicealloc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// grants reads "a: 10.0.1.1 30001; b: fd00::1".
func grants(s string) (out []Grant) {
	for _, line := range strings.Split(s, ";") {
		owner, list, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		g := Grant{Owner: strings.TrimSpace(owner)}
		for _, f := range strings.Fields(list) {
			var n uint16
			if a, err := netip.ParseAddr(f); err == nil {
				g.Addrs = append(g.Addrs, a)
			} else if number, proto, _ := strings.Cut(f, "/"); true {
				fmt.Sscan(number, &n)
				g.Ports = append(g.Ports, Port{Protocol(proto), n})
			}
		}
		out = append(out, g)
	}
	return out
}

// A generation that no registry counts to is replaced by the next one.
func TestLoadGenerations(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24")
	before := must(r.Allocate("before", Request{Addrs: anyBoth[:1]}))
	if problems := r.Load([]Grant{{Owner: "o", Generation: maxGeneration/2 + 1, Addrs: []netip.Addr{ip("10.0.0.7")}}}); len(problems) != 1 {
		t.Error(problems)
	}
	if g, _ := r.Get("o"); g.Generation != before.Generation+1 {
		t.Errorf("generation %d after %d", g.Generation, before.Generation)
	}
}

// Load reports each thing that is wrong, and what is named is not handed out, whatever
// is wrong with it.
func TestLoadProblems(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/28", LowestFirst())
	wantErr(t, r.SetRange(reserved(rangeOf("kept", "10.0.0.8/31"))), nil)
	problems := r.Load(append(grants("a: 10.0.0.1 30001/TCP; b: 10.0.0.1 10.0.0.2; b: 10.0.0.3; c: 30001/UDP 29999; d: 10.0.0.8 10.0.0.0 10.9.0.1; : 10.0.0.4; : 10.0.0.5"),
		Grant{Owner: "e", Addrs: []netip.Addr{ip("::ffff:10.0.0.6"), {}}, Ports: []Port{{"x", 5}, {"", 0}}}))
	var got []string
	for _, p := range problems {
		wantErr(t, p, p.Err)
		got = append(got, strings.TrimPrefix(p.Error(), "servicealloc: load "))
	}
	if want := []string{
		`10.0.0.1 for "b": occupied, held by "a"`,
		`for "b": the owner is listed twice`,
		`port 30001 for "c": occupied, held by "a"`,
		`port 29999 for "c" in "30000-30127": out of range`,
		`10.0.0.8 for "d" in "kept" 10.0.0.8/31: reserved`,
		`10.0.0.0 for "d": not a usable address of any range`,
		`10.9.0.1 for "d": not a usable address of any range`,
		`::ffff:10.0.0.6 for "e": IPv4-mapped IPv6 (4-in-6); use the IPv4 form`,
		`for "e": not a valid address or prefix`,
		`port 5 "x" for "e": not a port`,
		`for "e": not a port`,
	}; !slices.Equal(got, want) {
		t.Errorf("%s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantErr(t, problems[1], ipalloc.ErrExists)
	wantHeld(t, r, ": 10.0.0.4 10.0.0.5", "a: 10.0.0.1 30001/TCP", "b: 10.0.0.1 10.0.0.2 10.0.0.3",
		"c: 30001/UDP 29999", "d: 10.0.0.8 10.0.0.0 10.9.0.1", "e: 10.0.0.6")
	before := stateOf(t, r)
	r.Load(grants("a: 10.0.0.1 30001/TCP; d: 10.9.0.1"))
	if stateOf(t, r) != before {
		t.Error("loading what is held changes something")
	}
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"} {
		wantErr(t, errOf(r.Allocate("new", Request{Addrs: []netip.Addr{ip(a)}})), ipalloc.ErrOccupied)
	}
	if g := must(r.Allocate("new", Request{Addrs: anyBoth[:1]})); textOf(g) != "10.0.0.7" {
		t.Error(g)
	}
	// A duplicate goes to the other claimant when the holder gives it back.
	must(r.Release("a", 0))
	if owner, _, ok := r.OwnerOf(ip("10.0.0.1")); !ok || owner != "b" {
		t.Error(owner, ok)
	}
	if owner, _, ok := r.OwnerOfPort(Port{TCP, 30001}); !ok || owner != "c" {
		t.Error(owner, ok)
	}
	check(t, r)
	must(r.Release("b", 0))
	must(r.Allocate("last", Request{Addrs: []netip.Addr{ip("10.0.0.1")}}))
	// What lay in no range stays with its owner when a range comes.
	wantErr(t, r.SetRange(rangeOf("later", "10.9.0.0/24")), nil)
	wantErr(t, errOf(r.Allocate("thief", Request{Addrs: []netip.Addr{ip("10.9.0.1")}})), ipalloc.ErrOccupied)
	check(t, r)
	wantErr(t, r.RemoveRange("later"), ipalloc.ErrInUse)
	must(r.Release("d", 0))
	wantErr(t, r.RemoveRange("later"), nil)
	check(t, r)
}

// 100,000 dual-stack owners with a node port are loaded in one call; the work on each
// does not grow with their number, of which the allocations are the measure.
func TestLoadIsLinear(t *testing.T) {
	perOwner := func(n int) float64 {
		list := make([]Grant, n)
		for i := range list {
			a := [16]byte{0: 0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
			list[i] = Grant{Owner: fmt.Sprintf("ns/svc-%06d", i), Addrs: []netip.Addr{
				netip.AddrFrom4([4]byte{10, 1 + byte(i>>16), byte(i >> 8), byte(i)}), netip.AddrFrom16(a)}}
		}
		return testing.AllocsPerRun(1, func() {
			r := newRegistryT(t, "10.0.0.0/8 fd00::/64", LowestFirst())
			if problems := r.Load(list); len(problems) > 1 { // fd00:: is the base address
				t.Fatal(problems[:2])
			}
		}) / float64(n)
	}
	if small, large := perOwner(5000), perOwner(50000); large > 1.2*small {
		t.Errorf("%.1f allocations for each of 5,000 owners, %.1f for each of 50,000", small, large)
	}
}

func BenchmarkLoad(b *testing.B) {
	list := make([]Grant, 100000)
	for i := range list {
		list[i] = Grant{Owner: fmt.Sprintf("ns/svc-%06d", i), Addrs: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 1 + byte(i>>16), byte(i >> 8), byte(i)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 12: 1, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})}}
	}
	for b.Loop() {
		r := newRegistryT(b, "10.0.0.0/8 fd00::/64")
		if problems := r.Load(list); len(problems) > 0 {
			b.Fatal(problems[0])
		}
	}
}

// Move gives and takes parts of grants: all of it or nothing, each side guarded by its
// generation.
func TestMove(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	wantErr(t, r.SetRange(reserved(rangeOf("kept", "10.0.0.8/31"))), nil)
	r.Load(grants("a: 10.0.0.1 10.0.0.2 30001 30002; b: 10.0.0.3"))
	r.Load(grants("c: 10.0.0.2"))
	of := func(owner, what string, newer uint64) Grant {
		g := grants(owner + ": " + what)[0]
		is, _ := r.Get(owner)
		g.Generation = is.Generation + newer
		return g
	}
	tx, _, err := r.Begin("open", Request{Ports: []Port{{}}})
	wantErr(t, err, nil)
	before := stateOf(t, r)
	for i, tt := range []struct {
		from, to Grant
		want     error
		text     string
	}{
		{of("a", "10.0.0.1", 1), Grant{}, ipalloc.ErrMismatch, "generation"},
		{Grant{}, of("new", "10.0.0.5", 1), ipalloc.ErrMismatch, "new"},
		{of("a", "10.0.0.1", 0), of("b", "10.0.0.1", 1), ipalloc.ErrMismatch, `"b"`},
		{grants("a: 10.0.0.1")[0], Grant{}, ipalloc.ErrMismatch, "generation"}, // of an owner that holds nothing
		{Grant{}, grants("b: 10.0.0.7")[0], ipalloc.ErrMismatch, "generation"},
		{Grant{Owner: "a", Generation: 99}, Grant{}, ipalloc.ErrMismatch, "generation"}, // also where nothing is listed
		{Grant{}, Grant{Owner: "b"}, ipalloc.ErrMismatch, "generation"},
		{Grant{}, Grant{Owner: "open"}, ipalloc.ErrInUse, "transaction"},
		{of("a", "10.0.0.3", 0), Grant{}, ipalloc.ErrNotHeld, `held by "b"`},
		{of("a", "10.0.0.1 10.0.0.9", 0), Grant{}, ipalloc.ErrNotHeld, "10.0.0.9"},
		{of("a", "10.0.0.1", 0), of("b", "10.0.0.2", 0), ipalloc.ErrOccupied, `held by "a"`},
		{Grant{}, of("b", "10.0.0.8", 0), ipalloc.ErrReserved, `"kept"`},
		{Grant{}, of("b", "10.0.0.0", 0), ipalloc.ErrOutOfRange, "10.0.0.0"},
		{Grant{}, of("b", "10.0.0.7 29999", 0), ipalloc.ErrOutOfRange, "29999"},
		{Grant{}, of("open", "10.0.0.7", 0), ipalloc.ErrInUse, "transaction"},
		{Grant{}, Grant{Owner: "b", Addrs: []netip.Addr{ip("fe80::1%z")}}, ipalloc.ErrInvalid, "b"},
		{Grant{Owner: "b", Ports: []Port{{"x", 1}}}, Grant{}, ipalloc.ErrInvalid, "b"},
	} {
		_, _, err := r.Move(tt.from, tt.to)
		if wantErr(t, err, tt.want); !strings.Contains(err.Error(), tt.text) || stateOf(t, r) != before {
			t.Errorf("%d: %v", i, err)
		}
	}
	wantErr(t, tx.Rollback(), nil)
	left, got, err := r.Move(of("a", "10.0.0.1 30001/TCP", 0), of("b", "10.0.0.1 10.0.0.7", 0))
	if a, b := of("a", "1", 0), of("b", "1", 0); err != nil || left != a.Generation || got != b.Generation || left == got {
		t.Error(left, got, err)
	}
	wantHeld(t, r, "a: 10.0.0.2 30002", "b: 10.0.0.3 10.0.0.1 10.0.0.7", "c: 10.0.0.2")
	// What another one claims too goes there first.
	if left, _, err = r.Move(of("a", "10.0.0.2 30002", 0), Grant{}); err != nil || left != 0 {
		t.Error(left, err)
	}
	if owner, _, ok := r.OwnerOf(ip("10.0.0.2")); !ok || owner != "c" {
		t.Error(owner, ok)
	}
	// To another address and back to nothing, of one owner.
	if left, got, err = r.Move(of("c", "10.0.0.2", 0), of("c", "10.0.0.4", 0)); err != nil || left != got {
		t.Error(left, got, err)
	}
	wantHeld(t, r, "b: 10.0.0.3 10.0.0.1 10.0.0.7", "c: 10.0.0.4")
	c, _ := r.Get("c")
	for _, named := range []Grant{{}, {Owner: "c", Generation: c.Generation}, {Owner: "none"}} {
		if l, g, err := r.Move(named, named); err != nil || l != 0 || g != 0 {
			t.Error(named, l, g, err)
		}
	}
	// A port entry of several protocols leaves those that stay.
	each := must(NewRegistry(PortRange{First: 1, Last: 20, PerProtocol: true}))
	each.Load(grants("a: 5"))
	g, _ := each.Get("a")
	_, _, err = each.Move(Grant{Owner: "a", Generation: g.Generation, Ports: []Port{{UDP, 5}}}, Grant{})
	wantErr(t, err, nil)
	wantHeld(t, each, "a: 5/TCP 5/SCTP")
}

// Usable says what may be held, whether it is held or not.
func TestUsable(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 fd00::/64")
	wantErr(t, r.SetRange(draining(rangeOf("old", "10.1.0.0/24"))), nil)
	wantErr(t, r.SetRange(RangeInfo{Name: "kept", Prefixes: rangeOf("", "10.0.0.64/26").Prefixes, Ports: []PortRange{{First: 30010, Last: 30019}}, Reserved: true}), nil)
	r.Load(grants("a: 10.0.0.5 10.0.0.65 fd00::1 30005 30011 9"))
	for a, want := range map[string]bool{"10.0.0.5": true, "10.0.0.6": true, "10.0.0.65": false, "10.0.0.0": false, "10.0.0.255": false, "10.1.0.3": true,
		"10.1.0.0": false, "fd00::1": true, "fd00::": false, "fd01::1": false, "::ffff:10.0.0.5": false, "fd00::1%z": false} {
		if got := r.Usable(ip(a)); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
	for p, want := range map[Port]bool{{"", 30005}: true, {TCP, 30006}: true, {"", 30011}: false, {"", 9}: false, {"x", 30006}: false, {}: false} {
		if got := r.UsablePort(p); got != want {
			t.Errorf("%v: %v", p, got)
		}
	}
	if r.Usable(netip.Addr{}) || r.Ports() != testPorts || must(NewRegistry(PortRange{})).Ports() != (PortRange{}) {
		t.Error("no address, or the ports")
	}
	if _, _, ok := r.OwnerOf(ip("fd00::1%z")); ok {
		t.Error("an address with a zone is held")
	}
}

// What is held on no line at all is counted as closed, stays held when a range comes and
// goes, and is not handed out by it.
func TestHeldWhereNoRangeIs(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	r.Load(grants("a: fd01::1 10.9.0.1 9"))
	for range 2 {
		if st := r.Stats(); st.V4.Closed != 1 || st.V6.Closed != 1 || st.Ports.Closed != 1 {
			t.Errorf("%+v", st)
		}
		check(t, r)
		wantErr(t, r.SetRange(rangeOf("later", "fd01::/120 10.9.0.0/24")), nil)
		wantErr(t, errOf(r.Allocate("thief", Request{Addrs: []netip.Addr{ip("fd01::1")}})), ipalloc.ErrOccupied)
		if st := r.Stats(); st.V4.Closed != 0 || st.V6.Closed != 0 || st.V6.Static.Used != 1 {
			t.Errorf("%+v", st)
		}
		check(t, r)
		wantErr(t, r.RemoveRange("later"), ipalloc.ErrInUse)
		g, _ := r.Get("a")
		must(r.Release("a", 0))
		wantErr(t, r.RemoveRange("later"), nil)
		r.Load([]Grant{g})
	}
}
