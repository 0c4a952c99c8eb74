package block

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// TestRandomOrderIsFair: each free address is drawn about as often as any other, and the draws of a full 2^64 block do not end.
func TestRandomOrderIsFair(t *testing.T) {
	b, err := New(netip.MustParsePrefix("10.0.0.0/28"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var count [16]int
	const n = 16000
	for seed := range uint64(n) {
		for _, x := range b.PeekOrder(alloc.Random, seed, nil, 2, []Span{{3, 6}}) {
			count[x]++
		}
	}
	for x, c := range count {
		if want := float64(n) * 2 / 12; x >= 3 && x <= 6 && c != 0 || (x < 3 || x > 6) && math.Abs(float64(c)-want) > 5*math.Sqrt(want) {
			t.Errorf("%d was drawn %d times, about %.0f are fair", x, c, want)
		}
	}
	huge, err := New(netip.MustParsePrefix("fd00::/64"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint64]bool)
	for range 1000 {
		x := huge.PeekOrder(alloc.Random, 1, nil, 1, nil)[0]
		if seen[x] {
			t.Fatalf("%x again", x)
		}
		seen[x] = true
		huge.Hold(x, Identity{}, 1, 0)
	}
	if got := huge.PeekRun(nil, 64, true, nil); len(got) != 64 {
		t.Errorf("%v", got)
	}
	if got := huge.PeekRun(nil, 2, true, []Span{{0, math.MaxUint64 - 1}}); len(got) != 0 {
		t.Errorf("two in the last ordinal: %v", got)
	}
}

func TestOrderText(t *testing.T) {
	for o, want := range []string{"fifo", "lowest", "random"} {
		text, err := alloc.Order(o).MarshalText()
		var back alloc.Order
		if err != nil || string(text) != want || back.UnmarshalText(text) != nil || back != alloc.Order(o) {
			t.Errorf("%d: %q, %v, %v", o, text, err, back)
		}
	}
	if _, err := alloc.Order(3).MarshalText(); !errors.Is(err, ipalloc.ErrInvalid) || fmt.Sprint(alloc.Order(3)) != "order 3" {
		t.Error(err)
	}
	if err := new(alloc.Order).UnmarshalText([]byte("sequential")); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}
