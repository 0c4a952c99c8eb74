package servicealloc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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

// newClock returns a registry whose clock stands until it is moved.
func newClock(t *testing.T, prefixes string) (*Registry, *time.Time) {
	clock := time.Unix(1000, 0)
	return newRegistryT(t, prefixes, LowestFirst(), Clock(func() time.Time { return clock })), &clock
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
	} {
		r, clock := newClock(t, "10.0.0.0/16 fd00::/64")
		r.Load(grants(tt.held))
		var findings []Finding
		for look := range 4 {
			findings = r.Diff(grants(tt.services), findings)
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
			for _, p := range r.Apply(Plan(findings, 3, 60*time.Second)) {
				t.Errorf("%s, look %d: %v", name, look, p)
			}
			check(t, r)
			*clock = clock.Add(30 * time.Second)
		}
		if got := strings.Join(heldBy(r), ";"); got != tt.after && !(name == "moved to another address" && got == "a: 10.0.1.2") {
			t.Errorf("%s: %q is held, want %q", name, got, tt.after)
		}
	}
}

// A leak ripens by count and by age, both; it begins anew when it was not seen, or has
// passed to another grant.
func TestFindingsRipen(t *testing.T) {
	r, clock := newClock(t, "10.0.0.0/16")
	r.Load(grants("svc: 10.0.1.1"))
	var findings []Finding
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
		*clock = clock.Add(tt.after)
		findings = r.Diff(grants(tt.desired), findings)
		if plan := Plan(findings, 3, time.Minute); (len(plan) == 1) != tt.ripe {
			t.Errorf("%d: %v", i, plan)
		}
		if tt.seen > 0 && (len(findings) != 1 || findings[0].Seen != tt.seen || findings[0].Age != tt.age) {
			t.Errorf("%d: %v, want %d, %v", i, findings, tt.seen, tt.age)
		}
	}
	g, _ := r.Get("svc")
	must(r.Allocate("svc", Request{Addrs: g.Addrs, Ports: []Port{{}}, Generation: g.Generation}))
	if findings = r.Diff(nil, findings); len(findings) != 2 || findings[0].Seen != 1 || findings[1].Seen != 1 {
		t.Error(findings)
	}
}

// A step that was planned for one grant is not taken on the next one, nor while a
// transaction is open, and the others of the plan are.
func TestApplyIsGuarded(t *testing.T) {
	r, _ := newClock(t, "10.0.0.0/16")
	r.Load(grants("a: 10.0.1.1; b: 10.0.1.2; c: 10.0.1.3; d: 10.0.1.4; e: 10.0.1.5"))
	plan := Plan(r.Diff(grants("x: 10.0.1.3; y: 10.0.1.9; z: 10.0.1.8"), nil), 1, 0)
	if len(plan) != 7 {
		t.Fatal(plan)
	}
	a, _ := r.Get("a")
	must(r.Allocate("a", Request{Addrs: a.Addrs, Ports: []Port{{}}, Generation: a.Generation})) // another generation
	tx, _, err := r.Begin("b", Request{})
	wantErr(t, err, nil)
	must(r.Release("d", 0))
	must(r.Allocate("thief", Request{Addrs: []netip.Addr{ip("10.0.1.9")}}))
	var got []string
	for _, p := range r.Apply(append(plan, Finding{Kind: Duplicate, Owner: "q", Addr: ip("10.0.1.1")})) {
		wantErr(t, p, p.Err)
		got = append(got, p.Error())
	}
	if want := []string{
		`servicealloc: repair 10.0.1.1 for "a": the grant is of another generation by now`,
		`servicealloc: repair 10.0.1.2 for "b": the owner has an open transaction`,
		`servicealloc: repair 10.0.1.4 for "d": held by another owner by now`,
		`servicealloc: repair 10.0.1.9 for "y": occupied, held by "thief"`,
		`servicealloc: repair Kind 10.0.1.1 "duplicate" for "q": no repair`,
	}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	wantErr(t, tx.Rollback(), nil)
	wantHeld(t, r, "a: 10.0.1.1 30016", "b: 10.0.1.2", "thief: 10.0.1.9", "x: 10.0.1.3", "z: 10.0.1.8")
	if got := r.Apply(plan); len(got) != len(plan)-1 { // that of b, which is as it was
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
	if got := (Finding{Kind: Leaked, Owner: "a", Port: Port{UDP, 53}, Seen: 1}).String(); got != `release port 53/UDP of "a" (leaked, seen 1 time in 0s)` {
		t.Error(got)
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
		`10.0.0.1 for "b": duplicate, held by "a"`,
		`for "b": the owner is listed twice`,
		`port 30001 for "c": duplicate, held by "a"`,
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
	if g, ok := r.OwnerOf(ip("10.0.0.1")); !ok || g.Owner != "b" {
		t.Error(g, ok)
	}
	if g, ok := r.OwnerOfPort(Port{TCP, 30001}); !ok || g.Owner != "c" {
		t.Error(g, ok)
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
