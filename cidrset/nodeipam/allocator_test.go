package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
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
	got, err := a.Allocate(Node{Name: name})
	if err != nil || !slices.Equal(got.Prefixes, pfxs(want...)) {
		t.Fatalf("Allocate(%s) = %v, %v, want %v", name, got, err, want)
	}
}

// held returns what the node holds.
func held(a *Allocator, name string) []netip.Prefix {
	as, _ := a.Lookup(name)
	return as.Prefixes
}

// occupy returns the error of Occupy.
func occupy(a *Allocator, name string, prefixes ...netip.Prefix) error {
	return a.Occupy(Node{Name: name, Prefixes: prefixes})
}

// A configuration that cannot be is refused with the field that is wrong.
func TestNewRefusesWhatCannotBe(t *testing.T) {
	v4, v6 := pfxs("10.0.0.0/16"), pfxs("fd00::/48")
	for _, c := range []struct {
		name  string
		c     Config
		want  error
		field string
	}{
		{"nothing", Config{}, ipalloc.ErrInvalid, "Slots"},
		{"no pool", Config{Slots: []Slot{{24, v4}, {64, nil}}}, ipalloc.ErrInvalid, "Slots[1].Pools"},
		{"two families", Config{Slots: []Slot{{24, append(slices.Clone(v4), v6...)}}}, ipalloc.ErrInvalid, "Slots[0].Pools[1]"},
		{"host bits", Config{Slots: []Slot{{24, pfxs("10.0.5.0/16")}}}, ipalloc.ErrInvalid, "Slots[0].Pools[0]"},
		{"4-in-6", Config{Slots: []Slot{{120, pfxs("::ffff:10.0.0.0/112")}}}, ipalloc.ErrInvalid, "Slots[0].Pools[0]"},
		{"around 4-in-6", Config{Slots: []Slot{{96, pfxs("::fffe:0:0/95")}}}, ipalloc.ErrInvalid, "Slots[0].Pools[0]"},
		{"all of IPv6", Config{Slots: []Slot{{64, pfxs("::/0")}}}, ipalloc.ErrInvalid, "Slots[0].Pools[0]"},
		{"zero pool", Config{Slots: []Slot{{24, make([]netip.Prefix, 1)}}}, ipalloc.ErrInvalid, "Slots[0].Pools[0]"},
		{"child above pool", Config{Slots: []Slot{{15, v4}}}, ipalloc.ErrInvalid, "Slots[0].Bits"},
		{"child of 33", Config{Slots: []Slot{{33, v4}}}, ipalloc.ErrInvalid, "Slots[0].Bits"},
		{"child of 129", Config{Slots: []Slot{{129, v6}}}, ipalloc.ErrInvalid, "Slots[0].Bits"},
		{"child of -1", Config{Slots: []Slot{{-1, v6}}}, ipalloc.ErrInvalid, "Slots[0].Bits"},
		{"overlap in a slot", Config{Slots: []Slot{{24, pfxs("10.0.0.0/16", "10.0.128.0/17")}}}, ipalloc.ErrExists, "Slots[0]"},
		{"overlap between slots", Config{Slots: []Slot{{26, pfxs("10.0.0.0/8")}, {24, v4}}}, ipalloc.ErrExists, "Slots[1]"},
		{"reservation with host bits", Config{Slots: []Slot{{24, v4}}, Reserved: pfxs("10.0.0.1/24")}, ipalloc.ErrInvalid, "Reserved[0]"},
		{"zero reservation", Config{ByLabels: true, Reserved: append(v4, netip.Prefix{})}, ipalloc.ErrInvalid, "Reserved[1]"},
		{"both policies", Config{ByLabels: true, Slots: []Slot{{24, v4}}}, ipalloc.ErrInvalid, "ByLabels"},
		{"families of slots", Config{Families: []Family{IPv4}, Slots: []Slot{{24, v4}}}, ipalloc.ErrInvalid, "Families"},
		{"family twice", Config{ByLabels: true, Families: []Family{IPv4, IPv4}}, ipalloc.ErrInvalid, "Families[1]"},
		{"no such family", Config{ByLabels: true, Families: []Family{"IPv5"}}, ipalloc.ErrInvalid, "Families[0]"},
	} {
		_, err := New(c.c)
		var e *ipalloc.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Field != c.field || e.Package != "nodeipam" || e.Op != "new" {
			t.Errorf("%s: %v, want %v in %s", c.name, err, c.want, c.field)
		}
	}
	good := Config{Slots: []Slot{{24, v4}}}
	hook := OnChange(func(Change) {})
	for _, opts := range [][]Option{{nil}, {OnChange(nil)}, {hook, hook}} {
		if _, err := New(good, opts...); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%d options: %v", len(opts), err)
		}
	}
}

func TestSlotsInAnyOrderAndNumber(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{
		{64, pfxs("fd00::/48")}, {24, pfxs("10.0.0.0/16")}, {28, pfxs("192.168.0.0/24")}, {128, pfxs("fd01::/64")},
	}})
	allocate(t, a, "n", "fd00::/64", "10.0.0.0/24", "192.168.0.0/28", "fd01::/128")
	allocate(t, a, "n", "fd00::/64", "10.0.0.0/24", "192.168.0.0/28", "fd01::/128")
	allocate(t, a, "m", "fd00:0:0:1::/64", "10.0.1.0/24", "192.168.0.16/28", "fd01::1/128")
}

func TestRoundRobinOverPoolsInOrder(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.1.0/25", "10.0.0.0/26")}}})
	allocate(t, a, "a", "10.0.1.0/26")
	allocate(t, a, "b", "10.0.1.64/26")
	allocate(t, a, "c", "10.0.0.0/26")
	if _, err := a.Allocate(Node{Name: "d"}); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
	a.Release("b")
	a.Release("a")
	allocate(t, a, "d", "10.0.1.0/26") // the cursor wrapped
	allocate(t, a, "e", "10.0.1.64/26")
}

func TestWidePools(t *testing.T) {
	for _, c := range []struct {
		pool string
		bits int
	}{{"fd00::/32", 64}, {"fd00::/32", 96}, {"fd00::/64", 128}, {"0.0.0.0/0", 32}, {"8000::/1", 128}, {"fd00::/48", 113}, {"10.0.0.0/24", 24}} {
		a := mustNew(t, Config{Slots: []Slot{{c.bits, pfxs(c.pool)}}})
		got, err := a.Allocate(Node{Name: "n"})
		if err != nil || got.Prefixes[0] != netip.PrefixFrom(pfx(c.pool).Addr(), c.bits) {
			t.Errorf("%s in /%d: %v, %v", c.pool, c.bits, got, err)
		}
		if err := a.Occupy(Node{Name: "m", Prefixes: []netip.Prefix{pfx(c.pool)}}); c.bits != 24 && !errors.Is(err, ipalloc.ErrOutOfRange) {
			t.Errorf("%s in /%d: occupying all of it: %v", c.pool, c.bits, err)
		}
		st := a.Stats().Pools[0]
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

func TestUnmaskedRecordsAreHeldAsWhatTheyMean(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/23")}}})
	changed, problems := a.Observe(Node{Name: "n", Prefixes: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.7/24"), netip.MustParsePrefix("::ffff:10.0.1.0/120")}})
	if !changed || len(problems) != 3 || !errors.Is(problems[0], ipalloc.ErrInvalid) || !errors.Is(problems[1], ipalloc.ErrInvalid) || !errors.Is(problems[2], ipalloc.ErrLimit) {
		t.Fatal(changed, problems)
	}
	if got := held(a, "n"); !slices.Equal(got, pfxs("10.0.0.0/24", "10.0.1.0/24")) {
		t.Fatal(got)
	}
	if err := a.Occupy(Node{Name: "m", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/24")}}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Fatal(err)
	}
}

func TestOccupyIsAllOrNothing(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/22", 24, "fd00::/56", 64))
	if err := a.Reserve(pfx("10.0.3.0/25")); err != nil {
		t.Fatal(err)
	}
	if err := a.Occupy(Node{Name: "n", Prefixes: pfxs("10.0.1.0/24", "fd00::/64")}); err != nil {
		t.Fatal(err)
	}
	if err := a.Occupy(Node{Name: "n", Prefixes: pfxs("10.0.1.0/24", "fd00::/64")}); err != nil { // again
		t.Fatal(err)
	}
	before := snapshot(t, a)
	for _, c := range []struct {
		name   string
		ps     []netip.Prefix
		want   error
		field  string
		holder string
	}{
		{"", pfxs("10.0.0.0/24"), ipalloc.ErrInvalid, "Name", ""},
		{"m", nil, ipalloc.ErrInvalid, "Prefixes", ""},
		{"m", []netip.Prefix{pfx("10.0.0.0/24"), {}}, ipalloc.ErrInvalid, "Prefixes[1]", ""},
		{"m", pfxs("10.0.0.0/24", "10.0.0.0/24"), ipalloc.ErrInvalid, "Prefixes[1]", ""},
		{"m", pfxs("10.0.0.0/24", "fd00::/64"), ipalloc.ErrOccupied, "Prefixes[1]", "n"},
		{"m", pfxs("fd00:0:0:1::/64"), ipalloc.ErrMismatch, "Prefixes[0]", ""},
		{"m", pfxs("10.1.0.0/24"), ipalloc.ErrOutOfRange, "Prefixes[0]", ""},
		{"m", pfxs("10.0.0.0/16"), ipalloc.ErrOutOfRange, "Prefixes[0]", ""},
		{"m", pfxs("10.0.0.0/25"), ipalloc.ErrOutOfRange, "Prefixes[0]", ""},
		{"m", pfxs("10.0.0.0/23"), ipalloc.ErrOutOfRange, "Prefixes[0]", ""},
		{"m", pfxs("10.0.3.0/24"), ipalloc.ErrReserved, "Prefixes[0]", ""},
		{"m", pfxs("10.0.0.0/24", "fd00:0:0:1::/64", "10.0.2.0/24"), ipalloc.ErrLimit, "Prefixes[2]", ""},
		{"n", pfxs("10.0.0.0/24"), ipalloc.ErrMismatch, "Prefixes[0]", ""},
	} {
		err := occupy(a, c.name, c.ps...)
		var e *ipalloc.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Field != c.field || e.Holder != c.holder || e.Op != "occupy" {
			t.Errorf("Occupy(%q, %v): %v, want %v", c.name, c.ps, err, c.want)
		}
	}
	if snapshot(t, a) != before {
		t.Fatal("a refused Occupy changed something")
	}
	if _, err := a.Allocate(Node{Name: ""}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Fatal(err)
	}
	allocate(t, a, "n", "10.0.1.0/24", "fd00::/64")
	allocate(t, a, "m", "10.0.0.0/24", "fd00:0:0:1::/64")
}

func TestObserveTakesBackWhatTheNodeDoesNotHave(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/22")}}})
	allocate(t, a, "n", "10.0.0.0/24")
	if changed, problems := a.Observe(Node{Name: "n"}); changed || problems != nil {
		t.Fatal("a node that has none yet keeps what it is about to get", changed, problems)
	}
	if changed, problems := a.Observe(ParseNode("n", "10.0.2.0/24")); !changed || problems != nil {
		t.Fatal(changed, problems)
	}
	if err := a.Occupy(Node{Name: "m", Prefixes: []netip.Prefix{pfx("10.0.0.0/24")}}); err != nil {
		t.Fatal(err)
	}
}

// What cannot be read in a record frees nothing, place by place.
func TestObserveKeepsWhatItCannotRead(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/22", 24, "fd00::/56", 64))
	allocate(t, a, "n", "10.0.0.0/24", "fd00::/64")
	for _, c := range []struct {
		texts []string
		want  []netip.Prefix
	}{
		{[]string{"garbage"}, pfxs("10.0.0.0/24", "fd00::/64")},
		{[]string{"10.0.0.0/24", "garbage"}, pfxs("10.0.0.0/24", "fd00::/64")},
		{[]string{"garbage", "fd00::/64"}, pfxs("10.0.0.0/24", "fd00::/64")},
		{[]string{"10.0.1.0/24", "garbage"}, pfxs("10.0.1.0/24", "fd00::/64")},
		{[]string{"garbage", "fd00:0:0:1::/64"}, pfxs("10.0.1.0/24", "fd00:0:0:1::/64")},
		{[]string{"garbage", "10.0.2.0/24", "x"}, pfxs("10.0.2.0/24", "10.0.1.0/24", "fd00:0:0:1::/64")},
	} {
		before := held(a, "n")
		changed, problems := a.Observe(ParseNode("n", c.texts...))
		if got := held(a, "n"); !slices.Equal(got, c.want) || changed == slices.Equal(before, c.want) || !errors.Is(problems[0], ipalloc.ErrInvalid) {
			t.Fatalf("%q: holds %v (changed: %v), want %v; %v", c.texts, got, changed, c.want, problems)
		}
	}
}

// Another UID under the same name is a deletion first; an empty one is unknown.
func TestAnotherUIDIsADeletionFirst(t *testing.T) {
	var ops []string
	a := mustNew(t, dual("10.0.0.0/22", 24, "fd00::/56", 64), OnChange(func(c Change) { ops = append(ops, c.Op.String()) }))
	for _, c := range []struct {
		do   string
		uid  string
		text string // of the record
		want []netip.Prefix
		ops  string
	}{
		{"allocate", "", "", pfxs("10.0.0.0/24", "fd00::/64"), "allocate"},
		{"allocate", "u1", "", pfxs("10.0.0.0/24", "fd00::/64"), "occupy"},
		{"allocate", "", "", pfxs("10.0.0.0/24", "fd00::/64"), ""},
		{"allocate", "u2", "", pfxs("10.0.1.0/24", "fd00:0:0:1::/64"), "release allocate"},
		{"observe", "u2", "", pfxs("10.0.1.0/24", "fd00:0:0:1::/64"), ""},
		{"observe", "", "10.0.1.0/24", pfxs("10.0.1.0/24"), "occupy"},
		{"observe", "u3", "10.0.3.0/24", pfxs("10.0.3.0/24"), "release occupy"},
		{"observe", "u4", "garbage", nil, "release"},
		{"load", "u5", "172.16.0.0/24", pfxs("172.16.0.0/24"), "occupy"},
		{"load", "u6", "", nil, "release"},
		{"occupy", "u7", "10.0.0.0/24", pfxs("10.0.0.0/24"), "occupy"},
		{"occupy", "u8", "10.0.1.0/24", pfxs("10.0.1.0/24"), "release occupy"},
	} {
		ops = nil
		n := Node{Name: "n", UID: c.uid}
		if c.text != "" {
			n = ParseNode("n", c.text)
			n.UID = c.uid
		}
		switch c.do {
		case "allocate":
			_, _ = a.Allocate(n)
		case "observe":
			if changed, _ := a.Observe(n); changed != (c.ops != "") {
				t.Errorf("%+v: changed %v", c, changed)
			}
		case "load":
			a.Load([]Node{n})
		case "occupy":
			_ = a.Occupy(n)
		}
		if got := held(a, "n"); !slices.Equal(got, c.want) || strings.Join(ops, " ") != c.ops {
			t.Errorf("%+v: holds %v after %q", c, got, ops)
		}
	}
}

func TestTerminatingKeepsItsPrefixes(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/24")}}})
	allocate(t, a, "n", "10.0.0.0/24")
	for range 2 {
		if !a.Terminate("n") || a.Terminate("m") {
			t.Fatal("Terminate")
		}
	}
	if _, err := a.Allocate(Node{Name: "m"}); !errors.Is(err, ipalloc.ErrFull) {
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

// The IPv4-mapped block itself means all of IPv4 and is no record: it is reported and
// frees nothing, in both policies.
func TestRecordOfTheMappedBlock(t *testing.T) {
	all := netip.PrefixFrom(netip.MustParseAddr("::ffff:0.0.0.0"), 96)
	for _, a := range []*Allocator{mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/20")}}}), byLabelsForTest(t)} {
		as, err := a.Allocate(Node{Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []Node{{Name: "n", Prefixes: []netip.Prefix{all}}, {Name: "m", Prefixes: []netip.Prefix{all}}, ParseNode("n", "::ffff:0:0/96")} {
			changed, problems := a.Observe(n)
			if changed || len(problems) != 1 || !errors.Is(problems[0], ipalloc.ErrInvalid) || !slices.Equal(held(a, "n"), as.Prefixes) || held(a, "m") != nil {
				t.Errorf("%+v: changed %v, %v, holds %v", n, changed, problems, held(a, n.Name))
			}
		}
		if _, err := a.Allocate(Node{Name: "o"}); err != nil {
			t.Error(err)
		}
	}
}

// Load and Observe report one record in the same words, so that a caller that remembers
// the words reports it once.
func TestLoadAndObserveUseTheSameWords(t *testing.T) {
	for _, a := range []*Allocator{mustNew(t, dual("10.0.0.0/20", 24, "fd00::/56", 64)), byLabelsForTest(t)} {
		_ = a.Reserve(pfx("10.0.3.0/24"))
		for _, n := range []Node{ParseNode("n", "x", "10.0.3.0/24"), ParseNode("m", "10.0.3.0/25"), ParseNode("o", "192.0.2.0/24")} {
			first := a.Load([]Node{n})
			changed, again := a.Observe(n)
			if changed || len(first) == 0 || fmt.Sprint(first) != fmt.Sprint(again) {
				t.Errorf("%s: Load %v, Observe %v", n.Name, first, again)
			}
		}
	}
}

// The number of a Load does not wrap within 2^32 calls: a node that an earlier Load
// listed is not listed twice in a later one.
func TestManyLoads(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/20")}}})
	n := ParseNode("n", "10.0.0.0/24")
	a.loads = 1<<32 - 2
	a.Load([]Node{n})
	a.loads += 1<<32 - 1
	if problems := a.Load([]Node{n}); problems != nil {
		t.Error(problems)
	}
}
