package nodeipam

import (
	"errors"
	"net/netip"
	"slices"
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
	for range 2 {
		if !a.Terminate("n") || a.Terminate("m") {
			t.Fatal("Terminate")
		}
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
