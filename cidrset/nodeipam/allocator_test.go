package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
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

// occupy returns the error of Occupy.
func occupy(a *Allocator, name string, prefixes ...netip.Prefix) error {
	return a.Occupy(Node{Name: name, Prefixes: prefixes})
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
