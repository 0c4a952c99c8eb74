package nodeipam

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// The regression tests are named after what must not happen: defects of the original.

// The original drains the first family.
func TestFailingDualStackDoesNotLeakTheFirstFamily(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/21", 24, "fd00::/64", 64))
	allocate(t, a, "n1", "10.0.0.0/24", "fd00::/64")
	before := snapshot(t, a)
	for range 1000 {
		_, err := a.Allocate(Node{Name: "n2"})
		var e *ipalloc.Error
		if !errors.Is(err, ipalloc.ErrFull) || !errors.As(err, &e) || e.Field != "Slots[1]" {
			t.Fatal(err)
		}
	}
	if snapshot(t, a) != before {
		t.Fatalf("1,000 failing attempts changed %+v", a.Stats())
	}
	if err := a.AddPool(1, pfx("fd00:0:0:1::/64")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "n2", "10.0.1.0/24", "fd00:0:0:1::/64")
}

// The original loses a block for each retry of a node that is gone. Here asking
// again is free and releasing by name gives all back.
func TestRetriesForOneOwnerDoNotLeak(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/21", 24, "fd00::/48", 64))
	for range 100 {
		allocate(t, a, "gone", "10.0.0.0/24", "fd00::/64")
	}
	_, first := a.Release("gone")
	if _, again := a.Release("gone"); !first || again {
		t.Fatal("Release must free once")
	}
	if st := a.Stats(); st.Nodes != 0 || st.Pools[0].Free != 8 {
		t.Fatalf("leaked: %+v", st)
	}
}

// Two nodes with one prefix.
func TestDeletingOneOfTwoOwnersDoesNotFreeThePrefixOfTheOther(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}})
	problems := a.Load([]Node{ParseNode("n1", "10.0.0.0/24"), ParseNode("n2", "10.0.0.0/24")})
	if len(problems) != 1 || !errors.Is(problems[0], ipalloc.ErrOccupied) || problems[0].Owner != "n2" || problems[0].Holder != "n1" {
		t.Fatalf("problems %v", problems)
	}
	for i, gone := range []string{"n1", "n2"} {
		a.Release(gone)
		if free := a.Stats().Pools[0].Free; free != uint64(i)+1 {
			t.Fatalf("%d children free after %s was released", free, gone)
		}
	}
}

// A node whose prefix is the service CIDR.
func TestReleaseDoesNotFreeAReservation(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}, Reserved: pfxs("10.0.0.0/24", "10.0.4.0/28")})
	if err := a.Occupy(Node{Name: "n", Prefixes: []netip.Prefix{pfx("10.0.0.0/24")}}); !errors.Is(err, ipalloc.ErrReserved) {
		t.Fatal(err)
	}
	if problems := a.Load([]Node{ParseNode("n", "10.0.0.0/24")}); len(problems) != 1 || !errors.Is(problems[0], ipalloc.ErrReserved) {
		t.Fatal(problems)
	}
	a.Release("n")
	allocate(t, a, "m", "10.0.1.0/24")
	if _, err := a.Allocate(Node{Name: "o"}); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
	if err := a.AddPool(0, pfx("10.0.4.0/23")); err != nil { // also in pools added later
		t.Fatal(err)
	}
	allocate(t, a, "o", "10.0.5.0/24")
	want := PoolStats{Pool: pfx("10.0.4.0/23"), Bits: 24, Capacity: 2, Used: 1, Reserved: 1}
	if st := a.Stats().Pools[1]; st != want {
		t.Fatalf("%+v, want %+v", st, want)
	}
}

// The mask was changed while nodes held smaller prefixes.
func TestReleasingOnePartDoesNotFreeTheChildOfItsNeighbour(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}})
	problems := a.Load([]Node{ParseNode("n1", "10.0.0.0/27"), ParseNode("n2", "10.0.0.32/27")})
	if len(problems) != 2 || !errors.Is(problems[0], ipalloc.ErrOutOfRange) || !errors.Is(problems[1], ipalloc.ErrOutOfRange) {
		t.Fatal(problems)
	}
	a.Release("n1")
	allocate(t, a, "n3", "10.0.1.0/24")
	if _, err := a.Allocate(Node{Name: "n4"}); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal("the child was freed with a part of it in use")
	}
	a.Release("n2")
	allocate(t, a, "n4", "10.0.0.0/24")
}

// The other way: nodes hold more than a child.
func TestReleasingALargePrefixDoesNotFreeWhatLiesInside(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.0.0/22")}}})
	a.Load([]Node{ParseNode("large", "10.0.0.0/23"), ParseNode("small", "10.0.0.64/26"), ParseNode("huge", "0.0.0.0/0")})
	if free := a.Stats().Pools[0].Free; free != 0 {
		t.Fatalf("%d free", free)
	}
	a.Release("huge")
	if free := a.Stats().Pools[0].Free; free != 8 {
		t.Fatalf("%d free, want 8", free)
	}
	a.Release("large")
	if free := a.Stats().Pools[0].Free; free != 15 {
		t.Fatalf("%d free, want 15", free)
	}
	allocate(t, a, "n", "10.0.0.0/26")
	allocate(t, a, "m", "10.0.0.128/26")
}

// A bad record.
func TestBadRecordsDoNotStopTheStart(t *testing.T) {
	c := dual("10.0.0.0/22", 24, "fd00::/56", 64)
	c.Reserved = pfxs("10.0.3.0/24")
	a := mustNew(t, c)
	nodes := []Node{
		ParseNode("good", "10.0.0.0/24", "fd00::/64"),
		ParseNode("garbage", "10.0.0/24x", "fd00:0:0:1::/64"),
		ParseNode("foreign", "172.16.0.0/24"),
		ParseNode("small", "10.0.1.0/28"),
		ParseNode("service", "10.0.3.0/24"),
		ParseNode("swapped", "fd00:0:0:2::/64", "10.0.2.0/24"),
		ParseNode("three", "10.0.0.0/24", "fd00::/64", "10.9.0.0/24"),
		ParseNode("good"),
		ParseNode("single", "10.0.2.0/24"),
		ParseNode("good", "10.0.0.0/24"),
	}
	var got []string
	for _, e := range a.Load(nodes) {
		got = append(got, e.Error())
	}
	want := []string{
		`nodeipam: record "10.0.0/24x" for "garbage": Prefixes[0]: not a valid address or prefix`,
		`nodeipam: record for "garbage": Slots[0]: no IPv4 prefix, which every node needs`,
		`nodeipam: record 172.16.0.0/24 for "foreign": Prefixes[0]: in no pool of its slot`,
		`nodeipam: record for "foreign": Slots[1]: no IPv6 prefix, which every node needs`,
		`nodeipam: record 10.0.1.0/28 for "small" in 10.0.0.0/22: Prefixes[0]: not a /24`,
		`nodeipam: record for "small": Slots[1]: no IPv6 prefix, which every node needs`,
		`nodeipam: record 10.0.3.0/24 for "service": Prefixes[0]: overlaps a reservation`,
		`nodeipam: record for "service": Slots[1]: no IPv6 prefix, which every node needs`,
		`nodeipam: record fd00:0:0:2::/64 for "swapped": Prefixes[0]: of the other address family than its slot`,
		`nodeipam: record 10.0.2.0/24 for "swapped": Prefixes[1]: of the other address family than its slot`,
		`nodeipam: record 10.0.0.0/24 for "three": Prefixes[0]: overlaps another node's prefix, held by "good"`,
		`nodeipam: record fd00::/64 for "three": Prefixes[1]: overlaps another node's prefix, held by "good"`,
		`nodeipam: record 10.9.0.0/24 for "three": Prefixes[2]: more prefixes than slots`,
		`nodeipam: record for "good": listed twice`,
		`nodeipam: record 10.0.2.0/24 for "single": Prefixes[0]: overlaps another node's prefix, held by "swapped"`,
		`nodeipam: record for "single": Slots[1]: no IPv6 prefix, which every node needs`,
		`nodeipam: record for "good": listed twice`,
		`nodeipam: record 10.0.0.0/24 for "good": Prefixes[0]: overlaps another node's prefix, held by "three"`,
	}
	if !slices.Equal(got, want) {
		t.Fatalf("problems:\n%s\nwant:\n%s", lines(got), lines(want))
	}
	// All of it is out of circulation: no IPv4 child is left, the IPv6 ones are skipped.
	if _, err := a.Allocate(Node{Name: "n"}); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
	if err := a.AddPool(0, pfx("172.16.0.0/23")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "n", "172.16.1.0/24", "fd00:0:0:3::/64")
	a.Release("foreign")
	allocate(t, a, "m", "172.16.0.0/24", "fd00:0:0:4::/64")
}

// A node that holds some of the families that every node needs is reported, as it is by labels.
// Such nodes are left by a cluster that became dual stack. Occupy takes what the caller names.
func TestAMissingFamilyIsReported(t *testing.T) {
	c := Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}, {64, pfxs("fd00::/48")}, {26, pfxs("10.1.0.0/16")}}}
	for record, want := range map[string]string{
		"": "", "10.0.0.0/24,fd00::/64,10.1.0.0/26": "",
		"10.0.0.0/24":             "Slots[1] no IPv6; Slots[2] no IPv4; ",
		"10.0.0.0/24,fd00::/64":   "Slots[2] no IPv4; ",
		"10.0.0.0/24,10.1.0.0/26": "Slots[1] no IPv6; ",
		"fd00::/64":               "Slots[0] no IPv4; Slots[2] no IPv4; ",
	} {
		n := Node{Name: "n"}
		if record != "" {
			n = ParseNode("n", strings.Split(record, ",")...)
		}
		missing := func(problems []*ipalloc.Error) (text string) {
			for _, p := range problems {
				if errors.Is(p, ipalloc.ErrNotHeld) {
					text += strings.TrimSuffix(p.Field+" "+p.Reason, " prefix, which every node needs") + "; "
				}
			}
			return text
		}
		a := mustNew(t, c)
		if got := missing(a.Load([]Node{n})); got != want {
			t.Errorf("Load of %q: %q, want %q", record, got, want)
		}
		if _, problems := a.Observe(n); missing(problems) != want {
			t.Errorf("Observe of %q: %q, want %q", record, missing(problems), want)
		}
	}
	a := mustNew(t, c)
	if err := a.Occupy(ParseNode("n", "10.0.0.0/24")); err != nil {
		t.Error(err)
	}
}

func lines(ss []string) (out string) {
	for _, s := range ss {
		out += s + "\n"
	}
	return out
}
