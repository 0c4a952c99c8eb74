package addrmap

import (
	"math/rand/v2"
	"net/netip"
	"slices"
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

// In Hilbert order neighbours are neighbours, each place has one cell, and an aligned group of 4^k cells is a square.
func TestPlace(t *testing.T) {
	for order := range 11 {
		p := Panel{Cells: make([]Cell, 1<<order)}
		w, h := p.Size()
		seen := map[[2]int]bool{}
		px, py := p.Place(0)
		for i := range p.Cells {
			x, y := p.Place(i)
			if x < 0 || y < 0 || x >= w || y >= h || seen[[2]int{x, y}] {
				t.Fatalf("order %d: cell %d at %d, %d", order, i, x, y)
			}
			seen[[2]int{x, y}] = true
			if d := (x-px)*(x-px) + (y-py)*(y-py); i > 0 && d != 1 {
				t.Fatalf("order %d: from %d, %d to %d, %d", order, px, py, x, y)
			}
			px, py = x, y
			for k := 1; 2*k <= order; k++ {
				fx, fy := p.Place(i >> (2 * k) << (2 * k))
				if x>>k != fx>>k || y>>k != fy>>k {
					t.Fatalf("order %d: cell %d is outside of the square of its group of 4^%d", order, i, k)
				}
			}
		}
	}
}

// Squares cover each cell once, in both orders: joining loses and doubles nothing, and what is joined is drawn alike.
func TestSquares(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for order := range 9 {
		s, _ := random(rng, netip.MustParsePrefix("10.0.0.0/22"))
		s.Spans = s.Spans[:len(s.Spans)/2]
		for _, rows := range []bool{false, true} {
			p := s.Panel(s.Pool, order, rows)
			at := map[[2]int]int{}
			for i := range p.Cells {
				x, y := p.Place(i)
				at[[2]int{x, y}] = i
			}
			var sum Counts
			covered := 0
			for _, q := range p.Squares(false) {
				for st, n := range q.Counts {
					sum[st] = sum[st].Add(n)
				}
				for x := q.X; x < q.X+q.W; x++ {
					for y := q.Y; y < q.Y+q.H; y++ {
						covered++
						c := p.Cells[at[[2]int{x, y}]]
						if c.look(false).state != q.State || c.Level != q.Level || !q.Prefix.Contains(c.Prefix.Addr()) {
							t.Fatalf("order %d, rows %v: %v is in the square of %v", order, rows, c.Prefix, q.Prefix)
						}
					}
				}
			}
			if covered != len(p.Cells) || sum != s.Total() {
				t.Fatalf("order %d, rows %v: %d of %d cells, %v", order, rows, covered, len(p.Cells), sum)
			}
		}
	}
}

// Of a /64 with three hosts far apart the blocks are drawn in which something is, and what is reserved takes no room.
func TestTouched(t *testing.T) {
	s := space("fd00::/64", 122, span("fd00::40/122", Used, "a"), span("fd00::80/122", Idle, "a"), span("fd00::1:0:0:0/80", Reserved, ""),
		span("fd00::6a6d:9fb9:9677:6880/122", Used, "b"), span("fd00::ffff:ffff:ffff:ffc0/122", Idle, "c"))
	p := s.Panel(s.Pool, 12, false)
	var got []string
	for _, c := range p.Cells {
		got = append(got, c.Prefix.String())
	}
	if want := []string{"fd00::40/122", "fd00::80/122", "fd00::6a6d:9fb9:9677:6880/122", "fd00::ffff:ffff:ffff:ffc0/122"}; !slices.Equal(got, want) || !p.Touched || p.All.Lo != 1<<58 {
		t.Errorf("%q of %v", got, p.All)
	}
	if q := p.Squares(false); len(q) != 4 || q[3].X != 3 || q[3].Prefix.String() != got[3] {
		t.Errorf("%+v", q)
	}
	for prefix, want := range map[string]int{"10.0.0.0/8": 1 << 12, "::/0": 1, "fd00::/48": 1} {
		empty := space(prefix, 0)
		if p := empty.Panel(empty.Pool, 12, false); p.Touched || len(p.Cells) != want {
			t.Errorf("%s: %d cells", prefix, len(p.Cells))
		}
	}
}

// With more blocks than there is room for, the cells around them become larger, and each address is in one.
func TestTouchedCoarsens(t *testing.T) {
	s := &Space{Pool: netip.MustParsePrefix("fd00::/48"), Finest: 122}
	base, _ := Of(s.Pool)
	for i := range uint64(10_000) {
		lo := base.Add(addr.U128{Lo: i * i}.Shl(50))
		s.Add(Span{lo, lo.Add(addr.Low(6)), Used, "h"})
	}
	var used addr.U128
	p := s.Panel(s.Pool, 12, false)
	for _, c := range p.Cells {
		used = used.Add(c.Counts[Used])
	}
	if len(p.Cells) > 1<<12 || !p.Touched || used != (addr.U128{Lo: 640_000}) {
		t.Errorf("%d cells, touched %v, %v used", len(p.Cells), p.Touched, used)
	}
}
