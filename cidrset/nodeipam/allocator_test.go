package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
)

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func pfxs(texts ...string) (ps []netip.Prefix) {
	for _, text := range texts {
		ps = append(ps, pfx(text))
	}
	return ps
}

// dual returns slots for IPv4 and IPv6 of one pool each.
func dual(v4 string, bits4 int, v6 string, bits6 int) Config {
	return Config{Slots: []Slot{{Bits: bits4, Pools: pfxs(v4)}, {Bits: bits6, Pools: pfxs(v6)}}}
}

func mustNew(t testing.TB, c Config, opts ...Option) *Allocator {
	t.Helper()
	a, err := New(c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if tt, ok := t.(*testing.T); ok {
		tt.Cleanup(func() {
			if err := a.Check(); err != nil {
				tt.Error(err)
			}
		})
	}
	return a
}

func snapshot(t testing.TB, a *Allocator) string {
	t.Helper()
	b, err := a.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func allocate(t testing.TB, a *Allocator, name string, want ...string) {
	t.Helper()
	got, err := a.Allocate(name)
	if err != nil || !slices.Equal(got, pfxs(want...)) {
		t.Fatalf("Allocate(%s) = %v, %v, want %v", name, got, err, want)
	}
}

func TestNewRefusesWhatCannotBe(t *testing.T) { // NA1
	v4, v6 := pfxs("10.0.0.0/16"), pfxs("fd00::/48")
	for _, c := range []struct {
		name string
		c    Config
		want error
		slot int
	}{
		{"no slot", Config{}, ErrNoSlot, -1},
		{"no pool", Config{Slots: []Slot{{24, v4}, {64, nil}}}, ErrNoPool, 1},
		{"two families", Config{Slots: []Slot{{24, append(slices.Clone(v4), v6...)}}}, ErrFamily, 0},
		{"host bits", Config{Slots: []Slot{{24, pfxs("10.0.5.0/16")}}}, ErrBadPool, 0},
		{"4-in-6", Config{Slots: []Slot{{120, pfxs("::ffff:10.0.0.0/112")}}}, ErrBadPool, 0},
		{"zero pool", Config{Slots: []Slot{{24, make([]netip.Prefix, 1)}}}, ErrBadPool, 0},
		{"child above pool", Config{Slots: []Slot{{15, v4}}}, ErrBadBits, 0},
		{"child of 33", Config{Slots: []Slot{{33, v4}}}, ErrBadBits, 0},
		{"child of 129", Config{Slots: []Slot{{129, v6}}}, ErrBadBits, 0},
		{"2^65 children", Config{Slots: []Slot{{113, v6}}}, ErrBadBits, 0},
		{"overlap in a slot", Config{Slots: []Slot{{24, pfxs("10.0.0.0/16", "10.0.128.0/17")}}}, ErrOverlap, 0},
		{"overlap between slots", Config{Slots: []Slot{{24, v4}, {26, pfxs("10.0.0.0/8")}}}, ErrOverlap, 1},
		{"reservation with host bits", Config{Slots: []Slot{{24, v4}}, Reserved: pfxs("10.0.0.1/24")}, ErrBadPrefix, -1},
		{"zero reservation", Config{Slots: []Slot{{24, v4}}, Reserved: make([]netip.Prefix, 1)}, ErrBadPrefix, -1},
	} {
		_, err := New(c.c)
		var e *Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Slot != c.slot || e.Error() == "" {
			t.Errorf("%s: %v, want %v in slot %d", c.name, err, c.want, c.slot)
		}
	}
	good := Config{Slots: []Slot{{24, v4}}}
	hook := OnChange(func(Change) {})
	for _, opts := range [][]Option{{nil}, {OnChange(nil)}, {hook, hook}} {
		if _, err := New(good, opts...); !errors.Is(err, ErrBadOption) {
			t.Errorf("%d options: %v", len(opts), err)
		}
	}
}

func TestSlotsInAnyOrderAndNumber(t *testing.T) { // NA1
	a := mustNew(t, Config{Slots: []Slot{
		{64, pfxs("fd00::/48")}, {24, pfxs("10.0.0.0/16")}, {28, pfxs("192.168.0.0/24")}, {128, pfxs("fd01::/64")},
	}})
	allocate(t, a, "n", "fd00::/64", "10.0.0.0/24", "192.168.0.0/28", "fd01::/128")
	allocate(t, a, "n", "fd00::/64", "10.0.0.0/24", "192.168.0.0/28", "fd01::/128") // NA2
	allocate(t, a, "m", "fd00:0:0:1::/64", "10.0.1.0/24", "192.168.0.16/28", "fd01::1/128")
}

func TestRoundRobinOverPoolsInOrder(t *testing.T) { // CS2, NA1
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.1.0/25", "10.0.0.0/26")}}})
	allocate(t, a, "a", "10.0.1.0/26")
	allocate(t, a, "b", "10.0.1.64/26")
	allocate(t, a, "c", "10.0.0.0/26")
	if _, err := a.Allocate("d"); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	a.Release("b")
	a.Release("a")
	allocate(t, a, "d", "10.0.1.0/26") // the cursor wrapped
	allocate(t, a, "e", "10.0.1.64/26")
}

func TestWidePools(t *testing.T) { // CS1: no limit of 2^16 children
	for _, c := range []struct {
		pool string
		bits int
	}{{"fd00::/32", 64}, {"fd00::/32", 96}, {"fd00::/64", 128}, {"0.0.0.0/0", 32}, {"::/0", 64}, {"10.0.0.0/24", 24}} {
		a := mustNew(t, Config{Slots: []Slot{{c.bits, pfxs(c.pool)}}})
		got, err := a.Allocate("n")
		if err != nil || got[0] != netip.PrefixFrom(pfx(c.pool).Addr(), c.bits) {
			t.Errorf("%s in /%d: %v, %v", c.pool, c.bits, got, err)
		}
		if err := a.Occupy("m", pfx(c.pool)); c.bits != 24 && !errors.Is(err, ErrMisaligned) {
			t.Errorf("%s in /%d: occupying all of it: %v", c.pool, c.bits, err)
		}
		st := a.Stats().Slots[0].Pools[0]
		if st.Used != 1 || st.Free == 0 && c.bits != 24 {
			t.Errorf("%s in /%d: %+v", c.pool, c.bits, st)
		}
	}
}

// The regression tests carry the names of what must not happen; V1 to V7 are the
// defects of the original that they stand for.

// V1, NA2: the original drains the first family.
func TestFailingDualStackDoesNotLeakTheFirstFamily(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/21", 24, "fd00::/64", 64))
	allocate(t, a, "n1", "10.0.0.0/24", "fd00::/64")
	before := snapshot(t, a)
	for range 1000 {
		_, err := a.Allocate("n2")
		var e *Error
		if !errors.Is(err, ErrFull) || !errors.As(err, &e) || e.Slot != 1 || e.Owner != "n2" {
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

// V2: the original loses a block for each retry of a node that is gone. Here asking
// again is free and releasing by name gives all back.
func TestRetriesForOneOwnerDoNotLeak(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/21", 24, "fd00::/48", 64))
	for range 100 {
		allocate(t, a, "gone", "10.0.0.0/24", "fd00::/64")
	}
	if !a.Release("gone") || a.Release("gone") {
		t.Fatal("Release must free once")
	}
	if st := a.Stats(); st.Prefixes != 0 || st.Owners != 0 || st.Slots[0].Pools[0].Free != 8 {
		t.Fatalf("leaked: %+v", st)
	}
}

// V4: two nodes with one prefix.
func TestDeletingOneOfTwoOwnersDoesNotFreeThePrefixOfTheOther(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}})
	problems := a.Load([]Node{ParseNode("n1", "10.0.0.0/24"), ParseNode("n2", "10.0.0.0/24")})
	if len(problems) != 1 || !errors.Is(problems[0], ErrDuplicate) || problems[0].Owner != "n2" || problems[0].Other != "n1" {
		t.Fatalf("problems %v", problems)
	}
	for i, gone := range []string{"n1", "n2"} {
		a.Release(gone)
		if free := a.Stats().Slots[0].Pools[0].Free; free != uint64(i)+1 {
			t.Fatalf("%d children free after %s was released", free, gone)
		}
	}
}

// V5, V15, NA1: a node whose prefix is the service CIDR.
func TestReleaseDoesNotFreeAReservation(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}, Reserved: pfxs("10.0.0.0/24", "10.0.4.0/28")})
	if err := a.Occupy("n", pfx("10.0.0.0/24")); !errors.Is(err, ErrReserved) {
		t.Fatal(err)
	}
	if problems := a.Load([]Node{ParseNode("n", "10.0.0.0/24")}); len(problems) != 1 || !errors.Is(problems[0], ErrReserved) {
		t.Fatal(problems)
	}
	a.Release("n")
	allocate(t, a, "m", "10.0.1.0/24")
	if _, err := a.Allocate("o"); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := a.AddPool(0, pfx("10.0.4.0/23")); err != nil { // also in pools added later
		t.Fatal(err)
	}
	allocate(t, a, "o", "10.0.5.0/24")
	want := PoolStats{Pool: pfx("10.0.4.0/23"), Capacity: 2, Used: 1, Reserved: 1}
	if st := a.Stats().Slots[0].Pools[1]; st != want {
		t.Fatalf("%+v, want %+v", st, want)
	}
}

// V6: the mask was changed while nodes held smaller prefixes.
func TestReleasingOnePartDoesNotFreeTheChildOfItsNeighbour(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}})
	problems := a.Load([]Node{ParseNode("n1", "10.0.0.0/27"), ParseNode("n2", "10.0.0.32/27")})
	if len(problems) != 2 || !errors.Is(problems[0], ErrMisaligned) || !errors.Is(problems[1], ErrMisaligned) {
		t.Fatal(problems)
	}
	a.Release("n1")
	allocate(t, a, "n3", "10.0.1.0/24")
	if _, err := a.Allocate("n4"); !errors.Is(err, ErrFull) {
		t.Fatal("the child was freed with a part of it in use")
	}
	a.Release("n2")
	allocate(t, a, "n4", "10.0.0.0/24")
}

// V6 the other way: nodes hold more than a child.
func TestReleasingALargePrefixDoesNotFreeWhatLiesInside(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.0.0/22")}}})
	a.Load([]Node{ParseNode("large", "10.0.0.0/23"), ParseNode("small", "10.0.0.64/26"), ParseNode("huge", "0.0.0.0/0")})
	if free := a.Stats().Slots[0].Pools[0].Free; free != 0 {
		t.Fatalf("%d free", free)
	}
	a.Release("huge")
	if free := a.Stats().Slots[0].Pools[0].Free; free != 8 {
		t.Fatalf("%d free, want 8", free)
	}
	a.Release("large")
	if free := a.Stats().Slots[0].Pools[0].Free; free != 15 {
		t.Fatalf("%d free, want 15", free)
	}
	allocate(t, a, "n", "10.0.0.0/26")
	allocate(t, a, "m", "10.0.0.128/26")
}

// V7, V14, NA3: a bad record.
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
		`nodeipam: load garbage slot 0 "10.0.0/24x": bad prefix: not a valid address or prefix`,
		`nodeipam: load foreign slot 0 172.16.0.0/24: not in the pool`,
		`nodeipam: load small slot 0 10.0.1.0/28 in 10.0.0.0/22: not of the size of a child: children are /24`,
		`nodeipam: load service slot 0 10.0.3.0/24: overlaps a reservation`,
		`nodeipam: load swapped slot 0 fd00:0:0:2::/64: of the other address family than its slot`,
		`nodeipam: load swapped slot 1 10.0.2.0/24: of the other address family than its slot`,
		`nodeipam: load three slot 0 10.0.0.0/24: held by another owner: good`,
		`nodeipam: load three slot 1 fd00::/64: held by another owner: good`,
		`nodeipam: load three slot 2 10.9.0.0/24: more prefixes than slots`,
		`nodeipam: load good: listed twice`,
		`nodeipam: load single slot 0 10.0.2.0/24: held by another owner: swapped`,
		`nodeipam: load good: listed twice`,
		`nodeipam: load good slot 0 10.0.0.0/24: held by another owner: three`,
	}
	if !slices.Equal(got, want) {
		t.Fatalf("problems:\n%s\nwant:\n%s", lines(got), lines(want))
	}
	// All of it is out of circulation: no IPv4 child is left, the IPv6 ones are skipped.
	if _, err := a.Allocate("n"); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := a.AddPool(0, pfx("172.16.0.0/23")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "n", "172.16.1.0/24", "fd00:0:0:3::/64")
	a.Release("foreign")
	allocate(t, a, "m", "172.16.0.0/24", "fd00:0:0:4::/64")
}

func lines(ss []string) (out string) {
	for _, s := range ss {
		out += s + "\n"
	}
	return out
}

func TestParseNode(t *testing.T) {
	n := ParseNode("n", "127.123.3.0/16", "::ffff:10.1.2.3/120", "010.001.0.0/16", "fd00::1/64", "", "10.0.0.0", "x/8", "300.0.0.0/8", "::ffff:0:0/90", "0.0.0.0/0")
	want := append(pfxs("127.123.0.0/16", "10.1.2.0/24", "10.1.0.0/16", "fd00::/64"), make([]netip.Prefix, 4)...)
	want = append(want, pfxs("::ffc0:0:0/90", "0.0.0.0/0")...)
	if !slices.Equal(n.Prefixes, want) || len(n.Texts) != len(want) {
		t.Fatalf("got %v, want %v", n.Prefixes, want)
	}
}

func TestUnmaskedRecordsAreHeldAsWhatTheyMean(t *testing.T) { // NA3, X1
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}})
	changed, problems := a.Observe(Node{Name: "n", Prefixes: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.7/24"), netip.MustParsePrefix("::ffff:10.0.1.0/120")}})
	if !changed || len(problems) != 3 || !errors.Is(problems[0], ErrBadPrefix) || !errors.Is(problems[1], ErrBadPrefix) || !errors.Is(problems[2], ErrTooMany) {
		t.Fatal(changed, problems)
	}
	if got := a.Prefixes("n"); !slices.Equal(got, pfxs("10.0.0.0/24", "10.0.1.0/24")) {
		t.Fatal(got)
	}
	if err := a.Occupy("m", netip.MustParsePrefix("10.0.0.7/24")); !errors.Is(err, ErrBadPrefix) {
		t.Fatal(err)
	}
}

func TestOccupyIsAllOrNothing(t *testing.T) { // NA3
	a := mustNew(t, dual("10.0.0.0/22", 24, "fd00::/56", 64))
	if _, err := a.Reserve(pfx("10.0.3.0/25")); err != nil {
		t.Fatal(err)
	}
	if err := a.Occupy("n", pfxs("10.0.1.0/24", "fd00::/64")...); err != nil {
		t.Fatal(err)
	}
	if err := a.Occupy("n", pfxs("10.0.1.0/24", "fd00::/64")...); err != nil { // again
		t.Fatal(err)
	}
	before := snapshot(t, a)
	for _, c := range []struct {
		name  string
		ps    []netip.Prefix
		want  error
		slot  int
		other string
	}{
		{"", pfxs("10.0.0.0/24"), ErrBadOwner, -1, ""},
		{"m", nil, ErrBadPrefix, -1, ""},
		{"m", []netip.Prefix{pfx("10.0.0.0/24"), {}}, ErrBadPrefix, 1, ""},
		{"m", pfxs("10.0.0.0/24", "fd00::/64"), ErrDuplicate, 1, "n"},
		{"m", pfxs("fd00:0:0:1::/64"), ErrFamily, 0, ""},
		{"m", pfxs("10.1.0.0/24"), ErrOutOfRange, 0, ""},
		{"m", pfxs("10.0.0.0/16"), ErrOutOfRange, 0, ""},
		{"m", pfxs("10.0.0.0/25"), ErrMisaligned, 0, ""},
		{"m", pfxs("10.0.0.0/23"), ErrMisaligned, 0, ""},
		{"m", pfxs("10.0.3.0/24"), ErrReserved, 0, ""},
		{"m", pfxs("10.0.0.0/24", "fd00:0:0:1::/64", "10.0.2.0/24"), ErrTooMany, 2, ""},
		{"n", pfxs("10.0.0.0/24"), ErrHolds, 0, ""},
	} {
		err := a.Occupy(c.name, c.ps...)
		var e *Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Slot != c.slot || e.Other != c.other {
			t.Errorf("Occupy(%q, %v): %v, want %v", c.name, c.ps, err, c.want)
		}
	}
	if snapshot(t, a) != before {
		t.Fatal("a refused Occupy changed something")
	}
	if _, err := a.Allocate(""); !errors.Is(err, ErrBadOwner) {
		t.Fatal(err)
	}
	allocate(t, a, "n", "10.0.1.0/24", "fd00::/64")
	allocate(t, a, "m", "10.0.0.0/24", "fd00:0:0:1::/64")
}

func TestObserveTakesBackWhatTheNodeDoesNotHave(t *testing.T) { // NA5
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/22")}}})
	allocate(t, a, "n", "10.0.0.0/24")
	if changed, problems := a.Observe(Node{Name: "n"}); changed || problems != nil {
		t.Fatal("a node that has none yet keeps what it is about to get", changed, problems)
	}
	if changed, problems := a.Observe(ParseNode("n", "10.0.2.0/24")); !changed || problems != nil {
		t.Fatal(changed, problems)
	}
	if err := a.Occupy("m", pfx("10.0.0.0/24")); err != nil {
		t.Fatal(err)
	}
	if changed, _ := a.Observe(ParseNode("n", "garbage")); !changed || a.Prefixes("n") != nil {
		t.Fatal("a node with a record that is no prefix holds", a.Prefixes("n"))
	}
}

func TestTerminatingKeepsItsPrefixes(t *testing.T) { // NA4
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/24")}}})
	allocate(t, a, "n", "10.0.0.0/24")
	if !a.Terminate("n") || !a.Terminate("n") || a.Terminate("m") {
		t.Fatal("Terminate")
	}
	if _, err := a.Allocate("m"); !errors.Is(err, ErrFull) {
		t.Fatal("a terminating node lost its prefix")
	}
	if st := a.Stats(); st.Terminating != 1 {
		t.Fatal(st)
	}
	a.Release("n")
	allocate(t, a, "m", "10.0.0.0/24")
	if st := a.Stats(); st.Terminating != 0 {
		t.Fatal(st)
	}
}

func TestPoolsOnline(t *testing.T) { // NA6
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.1.0/25")}, {64, pfxs("fd00::/60")}}})
	allocate(t, a, "a", "10.0.1.0/26", "fd00::/64")
	if err := a.GrowPool(pfx("10.0.1.0/25"), pfx("10.0.0.0/23")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "b", "10.0.1.64/26", "fd00:0:0:1::/64") // the cursor stayed at its address
	if err := a.AddPool(0, pfx("10.1.0.0/25")); err != nil {
		t.Fatal(err)
	}
	if err := a.DrainPool(pfx("10.0.0.0/23")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "c", "10.1.0.0/26", "fd00:0:0:2::/64")
	in, err := a.RemovePool(pfx("10.0.0.0/23"))
	if want := []Holding{{"a", pfx("10.0.1.0/26")}, {"b", pfx("10.0.1.64/26")}}; !errors.Is(err, ErrInUse) || !slices.Equal(in, want) {
		t.Fatal(in, err)
	}
	a.Release("a")
	if err := a.UndrainPool(pfx("10.0.0.0/23")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "d", "10.0.1.128/26", "fd00:0:0:3::/64")
	a.Release("b")
	a.Release("d")
	if in, err := a.RemovePool(pfx("10.0.0.0/23")); err != nil || in != nil {
		t.Fatal(in, err)
	}
	allocate(t, a, "e", "10.1.0.64/26", "fd00:0:0:4::/64")

	before := snapshot(t, a)
	for _, c := range []struct {
		err, want error
	}{
		{a.AddPool(2, pfx("10.2.0.0/16")), ErrNoSlot},
		{a.AddPool(-1, pfx("10.2.0.0/16")), ErrNoSlot},
		{a.AddPool(0, pfx("fd02::/48")), ErrFamily},
		{a.AddPool(0, pfx("10.1.0.0/16")), ErrOverlap},
		{a.AddPool(1, pfx("fd02::/65")), ErrBadBits},
		{a.AddPool(0, netip.Prefix{}), ErrBadPool},
		{a.GrowPool(pfx("10.9.0.0/24"), pfx("10.8.0.0/15")), ErrNoPool},
		{a.GrowPool(pfx("10.1.0.0/25"), pfx("10.2.0.0/24")), ErrBadPool},
		{a.GrowPool(pfx("10.1.0.0/25"), pfx("10.1.0.0/26")), ErrBadPool},
		{a.GrowPool(pfx("10.1.0.0/25"), pfx("fd00::/25")), ErrFamily},
		{a.GrowPool(pfx("fd00::/60"), pfx("fd00::1/59")), ErrBadPool},
		{a.DrainPool(pfx("10.1.0.0/24")), ErrNoPool},
		{a.UndrainPool(netip.Prefix{}), ErrNoPool},
		{a.Unreserve(pfx("10.1.0.0/24")), ErrBadPrefix},
		{second(a.RemovePool(pfx("10.9.0.0/24"))), ErrNoPool},
		{second(a.Reserve(pfx("10.0.0.1/24"))), ErrBadPrefix},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
	if snapshot(t, a) != before {
		t.Fatal("a refused call changed something")
	}
}

func second[T any](_ T, err error) error { return err }

func TestGrowingAPoolKeepsItsPlaceAndWhatIsTaken(t *testing.T) { // NA6
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.0.0/26", "10.1.0.0/26", "10.2.0.0/26")}}, Reserved: pfxs("10.0.0.128/27")})
	a.Load([]Node{ParseNode("outside", "10.0.0.64/26")})
	if err := a.GrowPool(pfx("10.0.0.0/26"), pfx("10.0.0.0/24")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "a", "10.0.0.0/26")
	allocate(t, a, "b", "10.0.0.192/26") // the rest is held and reserved
	allocate(t, a, "c", "10.1.0.0/26")
	allocate(t, a, "d", "10.2.0.0/26")
}

func TestSlotLeftWithoutAPool(t *testing.T) { // NA6: a slot may be left without a pool
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}})
	if _, err := a.RemovePool(pfx("10.0.0.0/16")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Allocate("n"); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := a.AddPool(0, pfx("fd00::/16")); !errors.Is(err, ErrFamily) { // it keeps its family
		t.Fatal(err)
	}
}

func TestHoldersAndReservations(t *testing.T) { // NA6
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}})
	a.Load([]Node{ParseNode("z", "10.0.1.0/24"), ParseNode("y", "10.0.1.0/24"), ParseNode("x", "10.0.0.0/15"), ParseNode("w", "10.0.1.128/25")})
	want := []Holding{{"x", pfx("10.0.0.0/15")}, {"y", pfx("10.0.1.0/24")}, {"z", pfx("10.0.1.0/24")}, {"w", pfx("10.0.1.128/25")}}
	in, err := a.Reserve(pfx("10.0.1.0/24"))
	if err != nil || !slices.Equal(in, want) || !slices.Equal(a.Holders(pfx("10.0.1.0/24")), want) {
		t.Fatal(in, err)
	}
	if got := a.Holders(netip.Prefix{}); got != nil {
		t.Fatal(got)
	}
	if got := a.Reserved(); !slices.Equal(got, pfxs("10.0.1.0/24")) {
		t.Fatal(got)
	}
	for _, h := range want {
		a.Release(h.Owner)
	}
	if st := a.Stats().Slots[0].Pools[0]; st.Used != 0 || st.Reserved != 1 {
		t.Fatal(st)
	}
	if err := a.Unreserve(pfx("10.0.1.0/24")); err != nil {
		t.Fatal(err)
	}
	if st := a.Stats().Slots[0].Pools[0]; st.Free != 256 {
		t.Fatal(st)
	}
}

// Every held prefix times every reservation times every released prefix, in and
// around a slot of four children: the whole neighbourhood of what a release may and may not free. NA3, NA4
func TestSmallWorldExhaustively(t *testing.T) {
	var all []netip.Prefix // every prefix in and just around the pool
	for bits := 27; bits <= 32; bits++ {
		for i := range 1 << (bits - 27) {
			a := pfx("10.0.0.0/27").Addr().As4()
			a[3] = byte(i << (32 - bits))
			all = append(all, netip.PrefixFrom(netip.AddrFrom4(a), bits))
		}
	}
	pool := pfxs("10.0.0.0/28")
	for _, held := range all {
		for _, reserved := range all {
			for _, p := range all {
				a, err := New(Config{Slots: []Slot{{30, pool}}, Reserved: []netip.Prefix{reserved}})
				if err != nil {
					t.Fatal(err)
				}
				before := snapshot(t, a)
				a.Load([]Node{{Name: "held", Prefixes: []netip.Prefix{held}}, {Name: "p", Prefixes: []netip.Prefix{p}}})
				a.Release("p")
				for i := range 4 {
					child := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i * 4)}), 30)
					taken := a.pools[0].taken.Test(uint64(i))
					if want := child.Overlaps(held) || child.Overlaps(reserved); taken != want {
						t.Fatalf("held %v, reserved %v, released %v: %v taken %v", held, reserved, p, child, taken)
					}
				}
				a.Release("held")
				if snapshot(t, a) != before || a.Check() != nil {
					t.Fatalf("held %v, reserved %v, released %v: %v", held, reserved, p, a.Check())
				}
			}
		}
	}
}

func TestSnapshot(t *testing.T) { // X5
	c := dual("10.0.0.0/16", 24, "fd00::/32", 64)
	c.Reserved = pfxs("10.0.0.0/25", "10.0.0.0/24", "fd00::/33")
	a := mustNew(t, c)
	for i := range 100 {
		if _, err := a.Allocate(fmt.Sprint("n", i)); err != nil {
			t.Fatal(err)
		}
	}
	a.Load([]Node{ParseNode("dup", "10.0.1.0/24"), ParseNode("far", "172.16.0.0/12")})
	a.Terminate("n3")
	_ = a.DrainPool(pfx("10.0.0.0/16"))
	data, err := a.AppendBinary([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Restore(data[1:])
	if err != nil {
		t.Fatal(err)
	}
	if snapshot(t, b) != string(data[1:]) || b.Check() != nil || fmt.Sprint(b.Stats()) != fmt.Sprint(a.Stats()) {
		t.Fatalf("%+v, want %+v: %v", b.Stats(), a.Stats(), b.Check())
	}
	if _, err := Restore(data[1:], nil); !errors.Is(err, ErrBadOption) {
		t.Fatal(err)
	}
	for i := range data[1:] { // cut short, and every byte damaged
		if _, err := Restore(data[1 : i+1]); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("%d bytes: %v", i, err)
		}
		data[i+1] ^= 0x55
		if _, err := Restore(data[1:]); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("byte %d: %v", i, err)
		}
		data[i+1] ^= 0x55
	}
}

func FuzzRestore(f *testing.F) {
	a, _ := New(dual("10.0.0.0/24", 28, "fd00::/48", 64))
	_, _ = a.Allocate("n")
	b, _ := a.MarshalBinary()
	f.Add(b[:len(b)-4])
	f.Add([]byte("ni\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := Restore(seal(body))
		if err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatal(err)
			}
			return
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRestoreOfHostileBodies(t *testing.T) { // X5
	p := "\x05\x0a\x00\x00\x00\x18" // 10.0.0.0/24
	for name, body := range map[string]string{
		"no slot":               "ni\x01\x00\x00\x00",
		"family 5":              "ni\x01\x01\x1c\x05\x00\x00\x00",
		"pool of another":       "ni\x01\x01\x1c\x06\x01" + p + "\x00\x00\x00\x00",
		"two pools":             "ni\x01\x01\x1c\x04\x02" + p + "\x00\x00" + p + "\x00\x00\x00\x00",
		"cursor beyond":         "ni\x01\x01\x1c\x04\x01" + p + "\x00\x10\x00\x00",
		"version":               "ni\x02\x01\x1c\x04\x01" + p + "\x00\x00\x00\x00",
		"reserved twice":        "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x02" + p + p + "\x00",
		"owner without":         "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\x01\x01n\x00\x00",
		"owner twice":           "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\x02\x01n\x00\x01" + p + "\x01n\x00\x01" + p,
		"owners out of order":   "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\x02\x01n\x00\x01" + p + "\x01m\x00\x01" + p,
		"prefix twice":          "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\x01\x01n\x00\x02" + p + p,
		"host bits":             "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\x01\x01n\x00\x01\x05\x0a\x00\x00\x01\x18",
		"more owners than data": "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\xff\xff\x03",
		"trailing":              "ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\x00\x00",
	} {
		if _, err := Restore(seal([]byte(body))); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Restore(seal([]byte("ni\x01\x01\x1c\x04\x01" + p + "\x00\x00\x00\x01\x01n\x00\x01" + p))); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestConcurrentOwnersGetDistinctPrefixes(t *testing.T) { // NA2, CS9
	a := mustNew(t, dual("10.0.0.0/16", 24, "fd00::/48", 64))
	got := make([][]netip.Prefix, 256)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < len(got); i += 8 {
				if i%4 == 0 {
					_, _ = a.Allocate(fmt.Sprint("brief", i))
					a.Release(fmt.Sprint("brief", i))
				}
				name := fmt.Sprint("n", i)
				for got[i] == nil {
					got[i], _ = a.Allocate(name)
				}
				_ = a.Stats()
				_ = a.Prefixes(name)
			}
		}()
	}
	wg.Wait()
	seen := map[netip.Prefix]int{}
	for i, ps := range got {
		for _, p := range ps {
			if j, dup := seen[p]; dup {
				t.Fatalf("%v given to %d and %d", p, i, j)
			}
			seen[p] = i
		}
	}
	if len(seen) != 512 {
		t.Fatalf("%d prefixes", len(seen))
	}
}

func TestChangesComeInOrderAndOutsideTheLock(t *testing.T) { // X5
	var a *Allocator
	var got []string
	a = mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/22")}}}, OnChange(func(c Change) {
		_ = a.Stats() // would deadlock under the lock
		text := c.Op.String()
		for _, n := range c.Nodes {
			text += fmt.Sprint(" ", n.Name, n.Prefixes)
		}
		if c.Prefix.IsValid() {
			text += " " + c.Prefix.String()
		}
		got = append(got, text)
	}))
	allocate(t, a, "a", "10.0.0.0/24")
	allocate(t, a, "a", "10.0.0.0/24") // nothing changed
	a.Load([]Node{ParseNode("b", "10.0.1.0/24"), ParseNode("c", "10.0.2.0/24"), ParseNode("a", "10.0.0.0/24")})
	_ = a.Occupy("d", pfx("10.0.3.0/24"))
	a.Release("b")
	a.Release("b")
	a.Terminate("c")
	a.Terminate("c")
	a.Observe(ParseNode("a", "x"))
	_, _ = a.Reserve(pfx("10.1.0.0/16"))
	_, _ = a.Reserve(pfx("10.1.0.0/16"))
	_ = a.Unreserve(pfx("10.1.0.0/16"))
	_ = a.AddPool(0, pfx("10.4.0.0/16"))
	_ = a.GrowPool(pfx("10.4.0.0/16"), pfx("10.4.0.0/15"))
	_ = a.DrainPool(pfx("10.4.0.0/15"))
	_ = a.DrainPool(pfx("10.4.0.0/15"))
	_ = a.UndrainPool(pfx("10.4.0.0/15"))
	_, _ = a.RemovePool(pfx("10.4.0.0/15"))
	want := []string{
		"allocate a[10.0.0.0/24]", "occupy b[10.0.1.0/24] c[10.0.2.0/24]", "occupy d[10.0.3.0/24]", "release b[10.0.1.0/24]",
		"terminate c[]", "occupy a[invalid Prefix]", "reserve 10.1.0.0/16", "unreserve 10.1.0.0/16", "add pool 10.4.0.0/16",
		"grow pool 10.4.0.0/16", "drain pool 10.4.0.0/15", "undrain pool 10.4.0.0/15", "remove pool 10.4.0.0/15",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("changes:\n%s\nwant:\n%s", lines(got), lines(want))
	}
	if Op(200).String() != "unknown" {
		t.Fatal(Op(200))
	}
}

func TestAllocations(t *testing.T) { // BM7: nothing in steady state
	a := mustNew(t, dual("10.0.0.0/12", 24, "fd00::/44", 64))
	for i := range 1000 {
		_, _ = a.Allocate(fmt.Sprint("n", i))
	}
	buf := make([]netip.Prefix, 0, 2)
	for _, c := range []struct {
		name string
		want float64
		f    func()
	}{
		{"AppendAllocate and Release", 0, func() {
			_, _ = a.AppendAllocate(buf, "x")
			a.Release("x")
		}},
		{"AppendAllocate again", 0, func() { _, _ = a.AppendAllocate(buf, "n7") }},
		{"Allocate again", 1, func() { _, _ = a.Allocate("n7") }},
		{"AppendPrefixes", 0, func() { _ = a.AppendPrefixes(buf, "n7") }},
	} {
		if got := testing.AllocsPerRun(5000, c.f); got > c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
}
