package block

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// orderBlock returns a block in which some addresses are held, and some that were held are at the end of the queue, and the spans to
// avoid.
func orderBlock(t *testing.T, r *rand.Rand, prefix string) (b *Block, avoid []Span) {
	b, err := New(netip.MustParsePrefix(prefix), Options{Head: r.Uint64N(2), Tail: r.Uint64N(2)})
	if err != nil {
		t.Fatal(err)
	}
	size := min(b.last, 300) + 1
	for range r.Uint64N(2 * size) {
		x := r.Uint64N(size)
		if st, _ := b.Look(x); st == Free {
			b.Hold(x, Identity{}, 1, 0)
		} else if st == Held {
			b.Drop(x, 1, 1)
		}
	}
	for x := uint64(0); x < size; x += 1 + r.Uint64N(20) {
		if hi := min(x+r.Uint64N(5), b.last); r.IntN(3) == 0 {
			avoid = append(avoid, Span{x, hi})
			x = hi
		}
	}
	return b, avoid
}

// TestPeekInOrder compares the orders with a look at every ordinal, on blocks below, of and above 64 addresses.
func TestPeekInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		for _, prefix := range []string{"10.0.0.0/30", "10.0.0.0/27", "10.0.0.0/26", "10.0.0.0/25", "fd00::/120"} {
			b, avoid := orderBlock(t, r, prefix)
			var free []uint64
			for x := range b.last + 1 {
				_, avoided := Within(avoid, x)
				if st, _ := b.Look(x); st == Free && !avoided {
					free = append(free, x)
				}
			}
			k := r.IntN(10)
			want := free[:min(k, len(free))]
			if got := b.PeekOrder(alloc.Lowest, 7, nil, k, avoid); !slices.Equal(got, want) {
				t.Fatalf("%s: lowest %v, want %v", prefix, got, want)
			}
			got := b.PeekOrder(alloc.Random, 7, nil, k, avoid)
			if again := b.PeekOrder(alloc.Random, 7, nil, k, avoid); !slices.Equal(got, again) {
				t.Fatalf("%v, then %v", got, again)
			}
			slices.Sort(got)
			if got = slices.Compact(got); len(got) != len(want) || slices.ContainsFunc(got, func(x uint64) bool { return !slices.Contains(free, x) }) {
				t.Fatalf("%s: random %v of %v", prefix, got, free)
			}
			if got := b.PeekOrder(alloc.FIFO, 7, nil, k, avoid); !slices.Equal(got, b.Peek(nil, k, avoid)) {
				t.Fatalf("%s: %v", prefix, got)
			}
			runs(t, b, avoid, free)
		}
	}
}

// runs compares the runs of every length that a block can have.
func runs(t *testing.T, b *Block, avoid []Span, free []uint64) {
	t.Helper()
	for _, n := range []int{1, 2, 3, 4, 8, 63, 64, 65, 128, 256, 257} {
		for _, aligned := range []bool{false, true} {
			var want []uint64
			for i := 0; i+n <= len(free) && want == nil; i++ {
				if free[i+n-1]-free[i] == uint64(n-1) && !(aligned && (free[i]%uint64(n) != 0)) {
					want = free[i : i+n]
				}
			}
			if aligned && n&(n-1) != 0 {
				continue
			}
			if got := b.PeekRun(nil, n, aligned, avoid); !slices.Equal(got, want) {
				t.Fatalf("%s: %d in a row, aligned %v: %v, want %v of %v", b.prefix, n, aligned, got, want, free)
			}
		}
	}
}

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
