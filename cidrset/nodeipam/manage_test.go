package nodeipam

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
)

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
