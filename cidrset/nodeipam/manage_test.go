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

// Adding the pool of another slot says that the slot differs.
func TestAddPoolOfAnotherSlot(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.0.0/24")}, {28, pfxs("10.1.0.0/24")}}})
	err := a.AddPool(1, pfx("10.0.0.0/24"))
	var e *ipalloc.Error
	if !errors.Is(err, ipalloc.ErrExists) || !errors.As(err, &e) || e.Field != "slot" {
		t.Error(err)
	}
}

func TestPoolsOnline(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{26, pfxs("10.0.1.0/25")}, {64, pfxs("fd00::/60")}}})
	allocate(t, a, "a", "10.0.1.0/26", "fd00::/64")
	if err := a.GrowPool(pfx("10.0.1.0/25"), pfx("10.0.0.0/23")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "b", "10.0.1.64/26", "fd00:0:0:1::/64") // the cursor stayed at its address
	if err := a.AddPool(0, pfx("10.1.0.0/25")); err != nil {
		t.Fatal(err)
	}
	if err := a.DrainPool(pfx("10.0.0.0/23"), true); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "c", "10.1.0.0/26", "fd00:0:0:2::/64")
	err := a.RemovePool(pfx("10.0.0.0/23"))
	var e *ipalloc.Error
	if !errors.Is(err, ipalloc.ErrInUse) || !errors.As(err, &e) || e.Holder != "a" {
		t.Fatal(err)
	}
	if got := holdings(a, "10.0.0.0/23"); got != "a 10.0.1.0/26, b 10.0.1.64/26" {
		t.Fatal(got)
	}
	a.Release("a")
	if err := a.DrainPool(pfx("10.0.0.0/23"), false); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "d", "10.0.1.128/26", "fd00:0:0:3::/64")
	a.Release("b")
	a.Release("d")
	if err := a.RemovePool(pfx("10.0.0.0/23")); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "e", "10.1.0.64/26", "fd00:0:0:4::/64")

	before := snapshot(t, a)
	for _, c := range []struct {
		err, want error
	}{
		{a.AddPool(2, pfx("10.2.0.0/16")), ipalloc.ErrInvalid},
		{a.AddPool(-1, pfx("10.2.0.0/16")), ipalloc.ErrInvalid},
		{a.AddPool(0, pfx("fd02::/48")), ipalloc.ErrInvalid},
		{a.AddPool(1, pfx("::/1")), ipalloc.ErrInvalid},
		{a.AddPool(0, pfx("10.1.0.0/16")), ipalloc.ErrExists},
		{a.AddPool(0, pfx("10.1.0.0/25")), nil}, // as it is
		{a.AddPool(1, pfx("fd02::/65")), ipalloc.ErrInvalid},
		{a.AddPool(0, netip.Prefix{}), ipalloc.ErrInvalid},
		{a.GrowPool(pfx("10.9.0.0/24"), pfx("10.8.0.0/15")), ipalloc.ErrNotFound},
		{a.GrowPool(pfx("10.1.0.0/25"), pfx("10.2.0.0/24")), ipalloc.ErrInvalid},
		{a.GrowPool(pfx("10.1.0.0/25"), pfx("10.1.0.0/26")), ipalloc.ErrInvalid},
		{a.GrowPool(pfx("10.1.0.0/25"), pfx("fd00::/25")), ipalloc.ErrInvalid},
		{a.GrowPool(pfx("fd00::/60"), pfx("fd00::1/59")), ipalloc.ErrInvalid},
		{a.DrainPool(pfx("10.1.0.0/24"), true), ipalloc.ErrNotFound},
		{a.DrainPool(netip.Prefix{}, false), ipalloc.ErrNotFound},
		{a.Unreserve(pfx("10.1.0.0/24")), ipalloc.ErrNotFound},
		{a.Unreserve(pfx("10.1.0.5/24")), ipalloc.ErrInvalid},
		{a.AddEntry(Entry{Name: "e", IPv4: pfx("10.2.0.0/16"), HostBits: 8}), ipalloc.ErrMismatch},
		{a.RemovePool(pfx("10.9.0.0/24")), ipalloc.ErrNotFound},
		{a.Reserve(pfx("10.0.0.1/24")), ipalloc.ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
	if snapshot(t, a) != before {
		t.Fatal("a refused call changed something")
	}
}

// holdings returns the holders of p as one line.
func holdings(a *Allocator, p string) string {
	var all []string
	for _, n := range a.Holders(pfx(p)) {
		all = append(all, fmt.Sprint(n.Name, " ", n.Prefixes[0]))
	}
	return strings.Join(all, ", ")
}

func TestGrowingAPoolKeepsItsPlaceAndWhatIsTaken(t *testing.T) {
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

func TestSlotLeftWithoutAPool(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}})
	if err := a.RemovePool(pfx("10.0.0.0/16")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Allocate(Node{Name: "n"}); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
	if err := a.AddPool(0, pfx("fd00::/16")); !errors.Is(err, ipalloc.ErrInvalid) { // it keeps its family
		t.Fatal(err)
	}
}

func TestHoldersAndReservations(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}})
	a.Load([]Node{ParseNode("z", "10.0.1.0/24"), ParseNode("y", "10.0.1.0/24"), ParseNode("x", "10.0.0.0/15"), ParseNode("w", "10.0.1.128/25")})
	if err := a.Reserve(pfx("10.0.1.0/24")); err != nil {
		t.Fatal(err)
	}
	want := "x 10.0.0.0/15, y 10.0.1.0/24, z 10.0.1.0/24, w 10.0.1.128/25"
	if got := holdings(a, "10.0.1.0/24"); got != want {
		t.Fatal(got)
	}
	if got := a.Holders(netip.Prefix{}); got != nil {
		t.Fatal(got)
	}
	if got := a.Reserved(); !slices.Equal(got, pfxs("10.0.1.0/24")) {
		t.Fatal(got)
	}
	for n := range a.All() {
		a.Release(n.Name)
	}
	if st := a.Stats().Pools[0]; st.Used != 0 || st.Reserved != 1 {
		t.Fatal(st)
	}
	if err := a.Unreserve(pfx("10.0.1.0/24")); err != nil {
		t.Fatal(err)
	}
	if st := a.Stats().Pools[0]; st.Free != 256 {
		t.Fatal(st)
	}
}

// Growing a pool to itself, and naming a receiver that is nil, are told as what they are.
func TestManageDetails(t *testing.T) {
	var told []Change
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}}, OnChange(func(c Change) { told = append(told, c) }))
	if _, err := a.Allocate(Node{Name: "n"}); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, a)
	if err := a.GrowPool(pfx("10.0.0.0/16"), pfx("10.0.0.0/16")); err != nil || snapshot(t, a) != before {
		t.Errorf("a pool that grows to itself: %v", err)
	}
	_, err := New(Config{ByLabels: true}, OnChange(nil))
	if e := (*ipalloc.Error)(nil); !errors.As(err, &e) || e.Field != "OnChange" || !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := a.AddPool(0, pfx("::fffe:0:0/95")); err == nil || strings.Contains(err.Error(), "use the IPv4 form") || !strings.Contains(err.Error(), "overlaps ::ffff:0:0/96") {
		t.Errorf("a pool that overlaps the mapped addresses: %v", err)
	}
	for text, want := range map[string]string{"10.0.0.0/024": "10.0.0.0/24", "fd00::/064": "fd00::/64", "010.00.0.0/08": "10.0.0.0/8", "0.0.0.0/00": "0.0.0.0/0"} {
		if n := ParseNode("n", text); n.Prefixes[0] != pfx(want) {
			t.Errorf("%s is read as %v", text, n.Prefixes[0])
		}
	}
	for _, text := range []string{"10.0.0.0/", "fd00::/", "10.0.0.0/033", "/24"} {
		if n := ParseNode("n", text); n.Prefixes[0].IsValid() {
			t.Errorf("%q is read as %v", text, n.Prefixes[0])
		}
	}
}
