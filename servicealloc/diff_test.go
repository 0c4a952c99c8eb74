package servicealloc

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// The cases that Kubernetes' repair loops are tested with, as a table of what is held,
// what is desired and what differs. The registry has 10.0.0.0/16 and 2001:db8::/64. SA8
func TestDiff(t *testing.T) {
	v4, v6, second := ip("10.0.1.1"), ip("2001:db8::10"), ip("10.0.1.2")
	held := func(owner string, addrs ...netip.Addr) (out []Claim) {
		for _, a := range addrs {
			out = append(out, Claim{Owner: owner, Addr: a, Generation: 1})
		}
		return out
	}
	want := func(owner string, addrs ...netip.Addr) (out []Claim) {
		for _, a := range addrs {
			out = append(out, Claim{Owner: owner, Addr: a})
		}
		return out
	}
	for _, tt := range []struct {
		name          string
		held, desired []Claim
		found         string
	}{
		{"nothing", nil, nil, ""},
		{"single stack", held("svc", v4), want("svc", v4), ""},
		{"dual stack", held("svc", v4, v6), want("svc", v4, v6), ""},
		{"the same twice", held("svc", v4), append(want("svc", v4), want("svc", v4)...), ""},
		{"not recorded", nil, want("svc", v4), "missing svc 10.0.1.1;"},
		{"not recorded, dual", nil, want("svc", v4, v6), "missing svc 10.0.1.1;missing svc 2001:db8::10;"},
		{"wrong owner", held("svc2", v4), want("svc", v4), "wrong owner svc 10.0.1.1 svc2;"},
		{"wrong owner, dual", held("svc2", v4, v6), want("svc", v4, v6), "wrong owner svc 10.0.1.1 svc2;wrong owner svc 2001:db8::10 svc2;"},
		{"out of range", held("svc", v6), want("svc", ip("192.168.1.1"), v6), "out of range svc 192.168.1.1;"},
		{"out of range though held", held("svc", ip("192.168.1.1")), want("svc", ip("192.168.1.1")), "out of range svc 192.168.1.1;"},
		{"network address", held("svc", ip("10.0.0.0")), want("svc", ip("10.0.0.0")), "out of range svc 10.0.0.0;"},
		{"broadcast address", nil, want("svc", ip("10.0.255.255")), "out of range svc 10.0.255.255;"},
		{"base address", nil, want("svc", ip("2001:db8::")), "out of range svc 2001:db8::;"},
		{"last of IPv6", held("svc", ip("2001:db8::ffff:ffff:ffff:ffff")), want("svc", ip("2001:db8::ffff:ffff:ffff:ffff")), ""},
		{"orphan", held("svc", v4), nil, "leaked svc 10.0.1.1;"},
		{"orphan out of range", held("svc", ip("10.0.255.255")), nil, "leaked svc 10.0.255.255;"},
		{"two for one", held("svc", v4, second), want("svc", v4), "leaked svc 10.0.1.2;"},
		{"one for two", held("svc2", v4), append(want("svc", v4), want("svc2", v4)...), "duplicate svc 10.0.1.1 svc2;"},
		{"none for two", nil, append(want("svc", v4), want("svc2", v4)...), "missing svc 10.0.1.1;duplicate svc2 10.0.1.1 svc;"},
		{"a third for two", held("svc3", v4), append(want("svc", v4), want("svc2", v4)...), "duplicate svc2 10.0.1.1 svc;wrong owner svc 10.0.1.1 svc3;"},
		{"invalid", nil, []Claim{{Owner: "svc"}}, "out of range svc invalid IP;"},
	} {
		state := testState(t, tt.held)
		before := slices.Clone(state.Held)
		got := ""
		for _, f := range Diff(state, tt.desired) {
			got += fmt.Sprintf("%v %s %v", f.Kind, f.Claim.Owner, f.Claim.Addr)
			if f.Holder != "" {
				got += " " + f.Holder
			}
			got += ";"
		}
		if got != tt.found {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.found)
		}
		if !slices.Equal(state.Held, before) {
			t.Errorf("%s: the state changed", tt.name)
		}
	}
}

// testState is the state of a registry with the ranges of TestDiff and any content.
func testState(t *testing.T, held []Claim) State {
	t.Helper()
	r, err := NewRegistry(PortRange{30000, 30127}, ReservePorts(PortRange{30010, 30010}))
	wantErr(t, err, nil)
	wantErr(t, r.AddRange("main", pfx("10.0.0.0/16"), pfx("2001:db8::/64")), nil)
	s := r.State()
	s.Held = held
	return s
}

// Ports are compared like addresses, of each protocol for itself. SA8
func TestDiffPorts(t *testing.T) {
	s := testState(t, []Claim{{Owner: "a", Port: Port{TCP, 30001}}, {Owner: "b", Port: Port{UDP, 30001}}})
	got := Diff(s, []Claim{{Owner: "a", Port: Port{TCP, 30001}}, {Owner: "a", Port: Port{UDP, 30001}}, {Owner: "c", Port: Port{SCTP, 30001}},
		{Owner: "c", Port: Port{TCP, 29999}}, {Owner: "c", Port: Port{TCP, 30010}}, {Owner: "c", Port: Port{7, 30001}}})
	var kinds []Kind
	for _, f := range got {
		kinds = append(kinds, f.Kind)
	}
	if !slices.Equal(kinds, []Kind{OutOfRange, OutOfRange, WrongOwner, Missing, OutOfRange}) {
		t.Errorf("%+v", got)
	}
}

// The state of a registry is its grants, and does not follow it. SA8
func TestRegistryState(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", "fd00::/64")
	g, err := r.Allocate("svc", Request{Addrs: anyBoth, Ports: []Port{{TCP, 0}}})
	wantErr(t, err, nil)
	s := r.State()
	var desired []Claim
	for _, c := range s.Held {
		if c.Owner != "svc" || c.Generation != g.Generation || !s.Usable(c) {
			t.Errorf("%+v", c)
		}
		c.Generation = 0
		desired = append(desired, c)
	}
	if len(desired) != 3 || len(Diff(s, desired)) != 0 {
		t.Error(desired, Diff(s, desired))
	}
	r.Release("svc")
	wantErr(t, r.RemoveRange("main"), nil)
	if len(Diff(s, desired)) != 0 {
		t.Error("the state has followed the registry")
	}
	if got := Diff(r.State(), desired); len(got) != 3 || got[0].Kind != Missing || got[1].Kind != OutOfRange {
		t.Errorf("%+v", got)
	}
}

// The answer does not depend on the order of what is desired, duplicates apart. SA8, X3
func TestDiffIsOrderly(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var desired, held []Claim
	for i := range 40 {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(60))})
		desired = append(desired, Claim{Owner: string(rune('a' + i)), Addr: a})
		b := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		held = append(held, Claim{Owner: string(rune('a' + rng.IntN(40))), Addr: b})
	}
	desired = slices.CompactFunc(sorted(desired), func(x, y Claim) bool { return x.Addr == y.Addr })
	want := Diff(State{Held: held}, desired)
	for range 20 {
		rng.Shuffle(len(desired), func(i, j int) { desired[i], desired[j] = desired[j], desired[i] })
		rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		if got := Diff(State{Held: held}, desired); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

func sorted(cs []Claim) []Claim {
	slices.SortFunc(cs, func(x, y Claim) int { return x.Addr.Compare(y.Addr) })
	return cs
}

// A leak ripens by count and by age, both; it begins anew when it was not seen or has
// passed to another grant. SA8
func TestLeakWatch(t *testing.T) {
	clock := time.Unix(1000, 0)
	w, err := NewLeakWatch(3, time.Minute, func() time.Time { return clock })
	wantErr(t, err, nil)
	leak := Claim{Owner: "svc", Addr: ip("10.0.1.1"), Generation: 4}
	other := Finding{Kind: Missing, Claim: Claim{Owner: "x", Addr: ip("10.0.1.9")}}
	for i, tt := range []struct {
		after time.Duration
		seen  *Claim
		want  bool
		n     int
		age   time.Duration
	}{
		{0, &leak, false, 1, 0},
		{70 * time.Second, &leak, false, 2, 70 * time.Second}, // old enough, seen too seldom
		{0, nil, false, 0, 0},
		{0, &leak, false, 1, 0}, // anew
		{10 * time.Second, &leak, false, 2, 10 * time.Second},
		{10 * time.Second, &leak, false, 3, 20 * time.Second}, // often enough, too young
		{39 * time.Second, &leak, false, 4, 59 * time.Second},
		{time.Second, &leak, true, 5, time.Minute},
		{time.Second, &leak, true, 6, 61 * time.Second}, // still there
		{time.Second, &Claim{Owner: "svc", Addr: ip("10.0.1.1"), Generation: 5}, false, 1, 0},
	} {
		clock = clock.Add(tt.after)
		findings := []Finding{other}
		if tt.seen != nil {
			findings = append(findings, Finding{Kind: Leaked, Claim: *tt.seen})
		}
		ripe := w.Observe(findings)
		if (len(ripe) == 1) != tt.want {
			t.Errorf("%d: %+v", i, ripe)
		}
		if tt.seen != nil && (findings[1].Seen != tt.n || findings[1].Age != tt.age) {
			t.Errorf("%d: seen %d, age %v; want %d, %v", i, findings[1].Seen, findings[1].Age, tt.n, tt.age)
		}
	}
	for _, bad := range []func() (*LeakWatch, error){
		func() (*LeakWatch, error) { return NewLeakWatch(0, 0, time.Now) },
		func() (*LeakWatch, error) { return NewLeakWatch(1, -1, time.Now) },
		func() (*LeakWatch, error) { return NewLeakWatch(1, 0, nil) },
	} {
		if w, err := bad(); w != nil {
			t.Error("made")
		} else {
			wantErr(t, err, ErrBadOption)
		}
	}
}
