package repair

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// grants reads "a: 10.0.1.1 30001; b: fd00::1".
func grants(s string) (out []servicealloc.Grant) {
	for _, line := range strings.Split(s, ";") {
		owner, list, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		g := servicealloc.Grant{Owner: strings.TrimSpace(owner)}
		for _, f := range strings.Fields(list) {
			var n uint16
			if a, err := netip.ParseAddr(f); err == nil {
				g.Addrs = append(g.Addrs, a)
			} else if number, proto, _ := strings.Cut(f, "/"); true {
				fmt.Sscan(number, &n)
				g.Ports = append(g.Ports, servicealloc.Port{Protocol: servicealloc.Protocol(proto), Number: n})
			}
		}
		out = append(out, g)
	}
	return out
}

// newRegistry returns a registry of these prefixes.
func newRegistry(t *testing.T, ports servicealloc.PortRange, prefixes ...string) *servicealloc.Registry {
	t.Helper()
	r, err := servicealloc.NewRegistry(ports, servicealloc.LowestFirst())
	if err != nil {
		t.Fatal(err)
	}
	i := servicealloc.RangeInfo{Name: "main"}
	for _, p := range prefixes {
		i.Prefixes = append(i.Prefixes, netip.MustParsePrefix(p))
	}
	if err := r.SetRange(i); err != nil {
		t.Fatal(err)
	}
	return r
}

var testPorts = servicealloc.PortRange{First: 30000, Last: 30127}

var (
	ip       = netip.MustParseAddr
	start    = time.Unix(1000, 0)
	anyPorts = []servicealloc.Port{{}}
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// heldBy is what each owner has: "a: 10.0.1.1 30001/TCP".
func heldBy(r *servicealloc.Registry) (out []string) {
	for g := range r.All() {
		s := g.Owner + ":"
		for _, ip := range g.Addrs {
			s += " " + ip.String()
		}
		for _, p := range g.Ports {
			if s += fmt.Sprint(" ", p.Number); p.Protocol != "" {
				s += "/" + string(p.Protocol)
			}
		}
		out = append(out, s)
	}
	return out
}

func check(t *testing.T, r *servicealloc.Registry) {
	t.Helper()
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
}

func wantHeld(t *testing.T, r *servicealloc.Registry, want ...string) {
	t.Helper()
	if got := heldBy(r); !slices.Equal(got, want) {
		t.Fatalf("held %q, want %q", got, want)
	}
	check(t, r)
}

// The cases of the repair loops of Kubernetes for cluster addresses and for node ports,
// as what is held, what the services say, what is found, and what is held once the loop
// has run three times over a minute or more.
func TestRepairLoops(t *testing.T) {
	for name, tt := range map[string]struct{ held, services, findings, after string }{
		"nothing to do":               {"a: 10.0.1.1 fd00::10 30001", "a: 10.0.1.1 fd00::10 30001", "", "a: 10.0.1.1 fd00::10 30001"},
		"empty":                       {"", "", "", ""},
		"not allocated: taken again":  {"", "a: 10.0.1.1", "missing 10.0.1.1 a", "a: 10.0.1.1"},
		"one family is missing":       {"a: 10.0.1.1", "a: 10.0.1.1 fd00::10", "missing fd00::10 a", "a: 10.0.1.1 fd00::10"},
		"leaked":                      {"a: 10.0.1.1", "", "leaked 10.0.1.1 a", ""},
		"leaked, and its owner stays": {"a: 10.0.1.1 30001", "a: 30001", "leaked 10.0.1.1 a", "a: 30001"},
		"all of a grant leaked":       {"a: 10.0.1.1 fd00::10 30001", "", "leaked 30001 a,leaked 10.0.1.1 a,leaked fd00::10 a", ""},
		"wrong owner":                 {"a: 10.0.1.1", "b: 10.0.1.1", "wrong owner 10.0.1.1 b held by a", "b: 10.0.1.1"},
		"of an unknown owner":         {": 10.0.1.1 30001", "b: 10.0.1.1", "leaked 30001 ,wrong owner 10.0.1.1 b held by ", "b: 10.0.1.1"},
		"duplicate":                   {"a: 10.0.1.1", "b: 10.0.1.1; a: 10.0.1.1", "duplicate 10.0.1.1 b held by a", "a: 10.0.1.1"},
		"duplicate of new ones":       {"", "b: 10.0.1.1; a: 10.0.1.1", "duplicate 10.0.1.1 a held by b,missing 10.0.1.1 b", "b: 10.0.1.1"},
		"three of one":                {"", "b: 10.0.1.1; a: 10.0.1.1; c: 10.0.1.1", "duplicate 10.0.1.1 a held by b,duplicate 10.0.1.1 c held by b,missing 10.0.1.1 b", "b: 10.0.1.1"},
		"out of range":                {"", "a: 172.16.0.1", "out of range 172.16.0.1 a", ""},
		"network address":             {"", "a: 10.0.0.0", "out of range 10.0.0.0 a", ""},
		"another family's range":      {"", "a: fd01::1", "out of range fd01::1 a", ""},
		"port out of range":           {"", "a: 29999", "out of range 29999 a", ""},
		"port leaked":                 {"a: 30001 30002", "a: 30002", "leaked 30001 a", "a: 30002"},
		"port of two services":        {"a: 30001", "a: 30001; b: 30001/UDP", "duplicate 30001 b held by a", "a: 30001"},
		"port of TCP and UDP":         {"", "a: 30001/TCP 30001/UDP", "missing 30001 a", "a: 30001"},
		"moved to another address":    {"a: 10.0.1.1", "a: 10.0.1.2", "leaked 10.0.1.1 a,missing 10.0.1.2 a", "a: 10.0.1.2"},
		"swapped":                     {"a: 10.0.1.1; b: 10.0.1.2", "a: 10.0.1.2; b: 10.0.1.1", "wrong owner 10.0.1.1 b held by a,wrong owner 10.0.1.2 a held by b", "a: 10.0.1.2;b: 10.0.1.1"},
		"mapped form":                 {"a: 10.0.1.1", "a: ::ffff:10.0.1.1", "", "a: 10.0.1.1"},
		"listed twice":                {"a: 10.0.1.1", "a: 10.0.1.1; a: 10.0.1.1", "", "a: 10.0.1.1"},
		"another one claims it too":   {"a: 10.0.1.1; c: 10.0.1.1", "b: 10.0.1.1", "wrong owner 10.0.1.1 b held by a", "b: 10.0.1.1;c: 10.0.1.1"},
	} {
		now := start
		r := newRegistry(t, testPorts, "10.0.0.0/16", "fd00::/64")
		r.Load(grants(tt.held))
		var findings []*Finding
		for look := range 4 {
			findings = Diff(r, grants(tt.services), findings, now)
			var texts []string
			for _, f := range findings {
				what := f.Addr.String()
				if !f.Addr.IsValid() {
					what = fmt.Sprint(f.Port.Number)
				}
				s := fmt.Sprint(string(f.Kind), " ", what, " ", f.Owner)
				if f.Kind == Duplicate || f.Kind == WrongOwner {
					s += " held by " + f.Holder
				}
				texts = append(texts, s)
				if f.Seen < look+1 && (f.Kind == Leaked || f.Kind == OutOfRange) && look < 2 && f.Owner != "a" {
					t.Errorf("%s: look %d: %v", name, look, f)
				}
			}
			if got := strings.Join(texts, ","); look == 0 && got != tt.findings {
				t.Errorf("%s: %q, want %q", name, got, tt.findings)
			}
			for _, p := range Apply(r, Plan(findings, 3, 60*time.Second)) {
				t.Errorf("%s, look %d: %v", name, look, p)
			}
			check(t, r)
			now = now.Add(30 * time.Second)
		}
		if got := strings.Join(heldBy(r), ";"); got != tt.after && !(name == "moved to another address" && got == "a: 10.0.1.2") {
			t.Errorf("%s: %q is held, want %q", name, got, tt.after)
		}
	}
}

// A leak ripens by count and by age, both. It begins anew when it was not seen, or has
// passed to another owner; other changes of its owner do not matter, or an owner that is
// changed often would keep it.
func TestFindingsRipen(t *testing.T) {
	now := start
	r := newRegistry(t, testPorts, "10.0.0.0/16")
	r.Load(grants("svc: 10.0.1.1"))
	var findings []*Finding
	for i, tt := range []struct {
		after   time.Duration
		desired string
		ripe    bool
		seen    int
		age     time.Duration
	}{
		{0, "", false, 1, 0},
		{70 * time.Second, "", false, 2, 70 * time.Second}, // old enough, seen too seldom
		{0, "svc: 10.0.1.1", false, 0, 0},
		{0, "", false, 1, 0}, // anew
		{10 * time.Second, "", false, 2, 10 * time.Second},
		{10 * time.Second, "", false, 3, 20 * time.Second}, // often enough, too young
		{39 * time.Second, "", false, 4, 59 * time.Second},
		{time.Second, "", true, 5, time.Minute},
		{time.Second, "", true, 6, 61 * time.Second},
	} {
		now = now.Add(tt.after)
		findings = Diff(r, grants(tt.desired), findings, now)
		if plan := Plan(findings, 3, time.Minute); (len(plan) == 1) != tt.ripe {
			t.Errorf("%d: %v", i, plan)
		}
		if tt.seen > 0 && (len(findings) != 1 || findings[0].Seen != tt.seen || findings[0].Age != tt.age) {
			t.Errorf("%d: %v, want %d, %v", i, findings, tt.seen, tt.age)
		}
	}
	g, _ := r.Get("svc")
	must(r.Allocate("svc", servicealloc.Request{Addrs: g.Addrs, Ports: anyPorts, Generation: g.Generation}))
	if findings = Diff(r, nil, findings, now); len(findings) != 2 || findings[0].Addr.IsValid() || findings[0].Seen != 1 || findings[1].Seen != 7 {
		t.Error(findings)
	}
	g, _ = r.Get("svc")
	if _, _, err := r.Move(g, servicealloc.Grant{Owner: "other", Addrs: g.Addrs}); err != nil {
		t.Fatal(err)
	}
	if findings = Diff(r, nil, findings, now); len(findings) != 1 || findings[0].Owner != "other" || findings[0].Seen != 1 {
		t.Error(findings)
	}
}

// A leak that was repaired and comes again is a new one, also if no look lies between.
func TestRepairedFindingBeginsAnew(t *testing.T) {
	r := newRegistry(t, testPorts, "10.0.0.0/16")
	var findings []*Finding
	for look, held := range []bool{true, true, false, true, true, false} { // after each look
		if look%3 == 0 {
			r.Load(grants("a: 10.0.1.1"))
		}
		findings = Diff(r, nil, findings, start)
		if problems := Apply(r, Plan(findings, 3, 0)); len(problems) > 0 {
			t.Fatal(problems)
		}
		if _, ok := r.Get("a"); ok != held {
			t.Errorf("look %d: held is %v", look, ok)
		}
	}
}

// A step that was planned for one grant is not taken on the next one, nor while a
// transaction is open, and the others of the plan are.
func TestApplyIsGuarded(t *testing.T) {
	r := newRegistry(t, testPorts, "10.0.0.0/16")
	r.Load(grants("a: 10.0.1.1; b: 10.0.1.2; c: 10.0.1.3; d: 10.0.1.4; e: 10.0.1.5"))
	plan := Plan(Diff(r, grants("x: 10.0.1.3; y: 10.0.1.9; z: 10.0.1.8"), nil, start), 1, 0)
	if len(plan) != 7 {
		t.Fatal(plan)
	}
	a, _ := r.Get("a")
	must(r.Allocate("a", servicealloc.Request{Addrs: a.Addrs, Ports: anyPorts, Generation: a.Generation})) // another generation
	tx, _, err := r.Begin("b", servicealloc.Request{})
	if err != nil {
		t.Fatal(err)
	}
	must(r.Release("d", 0))
	must(r.Allocate("thief", servicealloc.Request{Addrs: []netip.Addr{ip("10.0.1.9")}}))
	var got []string
	for _, p := range Apply(r, append(plan, &Finding{Kind: Duplicate, Owner: "q", Addr: ip("10.0.1.1")})) {
		got = append(got, p.Error())
	}
	if want := []string{
		`repair: apply 10.0.1.1 for "a": the owner's grant is of another generation`,
		`repair: apply 10.0.1.2 for "b": the owner has an open transaction`,
		`repair: apply 10.0.1.4 for "d": the owner's grant is of another generation`,
		`repair: apply 10.0.1.9 for "y": occupied, held by "thief"`,
		`repair: apply 10.0.1.1 "duplicate" for "q": Kind: no repair`,
	}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, r, "a: 10.0.1.1 30016", "b: 10.0.1.2", "thief: 10.0.1.9", "x: 10.0.1.3", "z: 10.0.1.8")
	if got := Apply(r, plan); len(got) != len(plan)-1 { // that of b, which is as it was
		t.Errorf("a plan is carried out twice: %v", got)
	}
}

// What a plan says of itself.
func TestFindingsAreReadable(t *testing.T) {
	f := Finding{Owner: "ns/a", Addr: ip("10.0.0.1"), Holder: "ns/b", Seen: 3, Age: 90 * time.Second}
	for kind, want := range map[Kind]string{
		Missing:    `take 10.0.0.1 for "ns/a" (missing, seen 3 times in 1m30s)`,
		Leaked:     `release 10.0.0.1 of "ns/a" (leaked, seen 3 times in 1m30s)`,
		WrongOwner: `transfer 10.0.0.1 from "ns/b" to "ns/a" (wrong owner, seen 3 times in 1m30s)`,
		Duplicate:  `leave 10.0.0.1 to "ns/b", not "ns/a" (duplicate, seen 3 times in 1m30s)`,
		OutOfRange: `leave 10.0.0.1 of "ns/a" (out of range, seen 3 times in 1m30s)`,
	} {
		if f.Kind = kind; f.String() != want {
			t.Errorf("%q, want %q", f, want)
		}
	}
	if got := (Finding{Kind: Leaked, Owner: "a", Port: servicealloc.Port{Protocol: servicealloc.UDP, Number: 53}, Seen: 1}).String(); got != `release port 53/UDP of "a" (leaked, seen 1 time in 0s)` {
		t.Error(got)
	}
}

// What is desired is whose Apply says it is, also if others were loaded with it: the next
// comparison finds nothing.
func TestApplyAmongClaimants(t *testing.T) {
	r := newRegistry(t, testPorts, "10.0.0.0/16")
	r.Load(grants("a: 10.0.1.1; c: 10.0.1.1"))
	desired := grants("b: 10.0.1.1")
	if problems := Apply(r, Plan(Diff(r, desired, nil, start), 0, 0)); len(problems) > 0 {
		t.Fatal(problems)
	}
	if owner, _, _ := r.OwnerOf(ip("10.0.1.1")); owner != "b" {
		t.Errorf("it is of %q", owner)
	}
	if again := Diff(r, desired, nil, start); len(again) > 0 {
		t.Error(again[0])
	}
}

// A leak is of the owner that holds the item, also if another one claims it in a grant of
// the same generation, which records may name.
func TestLeakAmongClaimants(t *testing.T) {
	r := newRegistry(t, testPorts, "10.0.0.0/16")
	held := grants("b: 10.0.1.1; a: 10.0.1.1")
	held[0].Generation, held[1].Generation = 7, 7
	r.Load(held)
	if got := Diff(r, nil, nil, start); len(got) != 1 || got[0].Kind != Leaked || got[0].Owner != "b" {
		t.Error(got)
	}
}

// With ports numbered for each protocol, a port without a protocol is one of each: what is
// missing, leaked and doubled is found by protocol, and port 0 is none.
func TestPortsOfEachProtocol(t *testing.T) {
	r := newRegistry(t, servicealloc.PortRange{First: 1, Last: 100, PerProtocol: true}, "10.0.0.0/16")
	r.Load(grants("a: 5 6/TCP; leak: 7/SCTP"))
	desired := append(grants("a: 5 6; b: 5/UDP 1 8/TCP"), servicealloc.Grant{Owner: "c", Ports: []servicealloc.Port{{}}})
	findings := Diff(r, desired, nil, start)
	var got []string
	for _, f := range findings {
		got = append(got, fmt.Sprintf("%s %d/%s %s", f.Kind, f.Port.Number, f.Port.Protocol, f.Owner))
	}
	if want := []string{"missing 1/SCTP b", "missing 1/TCP b", "missing 1/UDP b", "duplicate 5/UDP b", "missing 6/SCTP a", "missing 6/UDP a",
		"leaked 7/SCTP leak", "missing 8/TCP b"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	if problems := Apply(r, Plan(findings, 0, 0)); len(problems) > 0 {
		t.Error(problems)
	}
	wantHeld(t, r, "a: 5 6/TCP 6/SCTP 6/UDP", "b: 1/SCTP 1/TCP 1/UDP 8/TCP")
	if again := Diff(r, desired, findings, start); len(again) != 1 || again[0].Kind != Duplicate {
		t.Error(again)
	}
}

// A finding that is nil is a problem of its own, and a clock that was set back makes none
// younger than it was.
func TestOddFindings(t *testing.T) {
	r := newRegistry(t, testPorts, "10.0.0.0/16")
	r.Load(grants("a: 10.0.1.1"))
	findings := Diff(r, nil, []*Finding{nil}, start)
	if problems := Apply(r, []*Finding{nil}); len(problems) != 1 || !errors.Is(problems[0], ipalloc.ErrInvalid) || len(Plan([]*Finding{nil}, 0, 0)) > 0 {
		t.Error(problems)
	}
	if findings = Diff(r, nil, findings, start.Add(-time.Hour)); findings[0].Age != 0 || findings[0].Seen != 2 {
		t.Errorf("%+v", findings[0])
	}
}
