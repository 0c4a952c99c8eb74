package addrmap

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Every cell counts what each of its addresses says, whatever the prefix and the number of cells.
func TestCellsAreWhatAddressesSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		pool := netip.MustParsePrefix("10.0.0.0/23")
		s, all := random(rng, pool)
		base, _ := Of(pool)
		for order := range 10 {
			for _, c := range s.Cells(pool, order) {
				var want Counts
				lo, hi := Of(c.Prefix)
				for i := lo.Sub(base).Lo; i <= hi.Sub(base).Lo; i++ {
					want[all[i]] = want[all[i]].Add(one)
				}
				if c.Counts != want {
					t.Fatalf("%v: %v, want %v", c.Prefix, c.Counts, want)
				}
				taken, size := want.Taken().Lo, hi.Sub(lo).Lo+1
				if c.Level != int((taken*8+size-1)/size) {
					t.Fatalf("%v: level %d, %d of %d taken", c.Prefix, c.Level, taken, size)
				}
				if got := c.State; want[got].IsZero() || !want[Leaked].IsZero() && got != Leaked ||
					want[Leaked].IsZero() && !want[Orphan].IsZero() && got != Orphan {
					t.Fatalf("%v is %v: %v", c.Prefix, got, want)
				}
			}
		}
	}
}

func TestLabels(t *testing.T) {
	s := space("10.0.0.0/24", 28, span("10.0.0.0/28", Used, "a"), span("10.0.0.16/29", Idle, "b"), span("10.0.0.24/29", Idle, ""), span("10.0.0.32/28", Used, "c"))
	c := s.Cells(s.Pool, 1)
	if c[0].Label != "a" || c[0].Labels != 3 || c[1].Label != "" || c[1].Labels != 0 {
		t.Errorf("%+v", c)
	}
}

// In Hilbert order neighbours are neighbours, each place has one cell, and an aligned group of 4^k cells is a
// square.
func TestPlace(t *testing.T) {
	for order := range 11 {
		w, h := Size(order)
		seen := map[[2]int]bool{}
		px, py := Place(0, order)
		for i := range 1 << order {
			x, y := Place(i, order)
			if x < 0 || y < 0 || x >= w || y >= h || seen[[2]int{x, y}] {
				t.Fatalf("order %d: cell %d at %d, %d", order, i, x, y)
			}
			seen[[2]int{x, y}] = true
			if d := (x-px)*(x-px) + (y-py)*(y-py); i > 0 && d != 1 {
				t.Fatalf("order %d: from %d, %d to %d, %d", order, px, py, x, y)
			}
			px, py = x, y
			for k := 1; 2*k <= order; k++ {
				fx, fy := Place(i>>(2*k)<<(2*k), order)
				if x>>k != fx>>k || y>>k != fy>>k {
					t.Fatalf("order %d: cell %d is outside of the square of its group of 4^%d", order, i, k)
				}
			}
		}
	}
}

// Merging loses and doubles nothing, and what is merged is drawn alike.
func TestSquares(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for order := range 9 {
		s, _ := random(rng, netip.MustParsePrefix("10.0.0.0/22"))
		s.Spans = s.Spans[:len(s.Spans)/2]
		cells := s.Cells(s.Pool, order)
		at := map[[2]int]int{}
		for i := range cells {
			x, y := Place(i, order)
			at[[2]int{x, y}] = i
		}
		for _, merge := range []bool{false, true} {
			var sum Counts
			covered := 0
			for _, q := range Squares(cells, merge, false) {
				for st, n := range q.Counts {
					sum[st] = sum[st].Add(n)
				}
				for x := q.X; x < q.X+q.W; x++ {
					for y := q.Y; y < q.Y+q.H; y++ {
						covered++
						c := cells[at[[2]int{x, y}]]
						if c.look(false).state != q.State || c.Level != q.Level || !q.Prefix.Contains(c.Prefix.Addr()) {
							t.Fatalf("order %d: %v is in the square of %v", order, c.Prefix, q.Prefix)
						}
					}
				}
			}
			if covered != len(cells) || sum != s.Total() {
				t.Fatalf("order %d: %d of %d cells, %v", order, covered, len(cells), sum)
			}
		}
	}
}

// A /64 with three hosts far apart is three panels of blocks, and the gaps between say how much is not shown.
func TestPanelsDescend(t *testing.T) {
	s := space("fd00::/64", 122, span("fd00::40/122", Used, "a"), span("fd00::80/122", Idle, "a"),
		span("fd00::6a6d:9fb9:9677:6880/122", Used, "b"), span("fd00::ffff:ffff:ffff:ffc0/122", Idle, "c"))
	panels := s.Panels(s.Pool, 12)
	var got []string
	total := uint64(0)
	for _, p := range panels {
		got = append(got, p.Prefix.String())
		total += p.Before.Lo + p.After.Lo + uint64(len(p.Cells))
		for _, c := range p.Cells {
			if c.Prefix.Bits() != 122 {
				t.Errorf("a cell of %v", c.Prefix)
			}
		}
	}
	if len(got) != 3 || got[0] != "fd00::/118" || total != 1<<58 {
		t.Errorf("%v, %d blocks", got, total)
	}
	for _, prefix := range []string{"10.0.0.0/8", "::/0", "fd00::/48"} {
		empty := space(prefix, 0)
		if p := empty.Panels(empty.Pool, 12); len(p) != 1 {
			t.Errorf("%s: %d panels", prefix, len(p))
		}
	}
}

// With hosts all over a pool the cells become larger until the picture can be looked at.
func TestPanelsCoarsen(t *testing.T) {
	s := &Space{Pool: netip.MustParsePrefix("fd00::/48"), Finest: 122}
	base, _ := Of(s.Pool)
	for i := range uint64(1000) {
		lo := base.Add(addr.U128{Lo: i}.Shl(70))
		s.Add(Span{lo, lo.Add(addr.Low(6)), Used, "h"})
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	var used addr.U128
	panels := s.Panels(s.Pool, 12)
	for _, p := range panels {
		for _, c := range p.Cells {
			used = used.Add(c.Counts[Used])
		}
	}
	if len(panels) > maxPanels || used != (addr.U128{Lo: 64000}) {
		t.Errorf("%d panels, %v used", len(panels), used)
	}
}

// What fits is what a search of every place finds.
func TestSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 50 {
		pool := netip.MustParsePrefix("10.0.0.0/24")
		s, all := random(rng, pool)
		for _, f := range s.Sizes(3) {
			n := 1 << (32 - f.Bits)
			var count uint64
			first, outside := -1, -1
			strip := make([]float64, 8)
			for at := 0; at < len(all); at += n {
				fits, out := true, true
				for _, st := range all[at : at+n] {
					fits = fits && !st.taken()
					out = out && st == Free
				}
				if !fits {
					continue
				}
				count++
				if first < 0 {
					first = at
				}
				if out && outside < 0 {
					outside = at
				}
				for i := range n {
					strip[(at+i)/32] += 1.0 / 32
				}
			}
			if f.Count.Lo != count {
				t.Fatalf("/%d: %d fit, want %d", f.Bits, f.Count.Lo, count)
			}
			want := outside
			if outside < 0 {
				want = first
			}
			if f.First.IsValid() != (want >= 0) || want >= 0 && (f.First.Addr().As4()[3] != byte(want) || f.InBlock != (outside < 0) || f.First.Bits() != f.Bits) {
				t.Fatalf("/%d: first %v, in a block %v; want %d", f.Bits, f.First, f.InBlock, want)
			}
			for i := range strip {
				if strip[i] != f.Strip[i] {
					t.Fatalf("/%d: strip %v, want %v", f.Bits, f.Strip, strip)
				}
			}
		}
	}
}
