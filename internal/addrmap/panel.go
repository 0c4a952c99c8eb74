package addrmap

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Panel is the part of a pool that a picture draws: cells, and the place of each.
type Panel struct {
	Cells []Cell
	// Touched is set if the panel omits empty cells for lack of room. The number of cells is then arbitrary, and All is the number
	// including the empty ones.
	Touched bool
	All     addr.U128
	// Rows is set for cells in rows, as text is read. Without it they are in Hilbert order.
	Rows bool
}

// deep is log2 of the blocks that a cell may have: one of more shows nothing of them.
const deep = 16

// Panel returns at most 2^order cells that show a prefix of the pool. They cover all of it unless a cell would then have more
// than 2^16 blocks: in that case they are the non-empty blocks, in rows. If these are too many, the cells are larger ones around
// them.
func (s *Space) Panel(p netip.Prefix, order int, rows bool) Panel {
	finest := max(s.finest(), p.Bits())
	if finest-p.Bits() <= order+deep {
		return Panel{Cells: s.Cells(p, min(order, finest-p.Bits())), Rows: rows}
	}
	if len(s.in(p)) == 0 {
		return Panel{Cells: s.Cells(p, 0), Rows: rows}
	}
	for ; finest-p.Bits() > order; finest-- {
		if touched, ok := s.touched(p, finest, 1<<order); ok {
			panel := Panel{Touched: true, Rows: true, All: sizeOf(finest - p.Bits())}
			for _, q := range touched {
				panel.Cells = append(panel.Cells, s.Cells(q, 0)...)
			}
			return panel
		}
	}
	return Panel{Cells: s.Cells(p, finest-p.Bits()), Rows: rows}
}

// touched returns the prefixes of a length in which there is something, ascending, and false if they are more than most.
func (s *Space) touched(p netip.Prefix, bits, most int) (touched []netip.Prefix, ok bool) {
	for sp := range s.within(p) {
		if sp.State == Reserved {
			continue // such ranges may have most of the pool, and nothing is in them
		}
		lo, hi := sp.Lo, sp.Hi
		for {
			q := netip.PrefixFrom(s.Addr(lo), bits).Masked()
			if n := len(touched); n == 0 || touched[n-1] != q {
				touched = append(touched, q)
			}
			_, end := Of(q)
			if len(touched) > most {
				return nil, false
			}
			if end.Cmp(hi) >= 0 {
				break
			}
			lo = end.Add(one)
		}
	}
	return touched, len(touched) > 0
}

// Size returns the width and height of the panel in cells. In Hilbert order it is a square, or two side by side.
func (p *Panel) Size() (w, h int) {
	order := bits.Len(uint(len(p.Cells) - 1))
	w = 1 << ((order + 1) / 2)
	if p.Touched {
		w = min(64, max(16, w))
	}
	return w, (len(p.Cells) + w - 1) / w
}

// Place returns where a cell is. In Hilbert order neighbours in the order are neighbours in the picture, and each aligned group of
// 4^k cells is a square.
func (p *Panel) Place(i int) (x, y int) {
	w, side := p.Size()
	if p.Rows {
		return i % w, i / w
	}
	x0 := i / (side * side) * side // the second square of an odd order
	t := i % (side * side)
	for n := 1; n < side; n *= 2 {
		rx := 1 & (t / 2)
		ry := 1 & (t ^ rx)
		if ry == 0 {
			if rx == 1 {
				x, y = n-1-x, n-1-y
			}
			x, y = y, x
		}
		x += n * rx
		y += n * ry
		t /= 4
	}
	return x0 + x, y
}

// Square is a part of a panel: cells of the same look, drawn as one.
type Square struct {
	Cell
	X, Y, W, H int // in cells
}

// Squares places the cells of a panel. Aligned groups of cells with the same look become one square; byLabel includes the labels
// in the look.
func (p *Panel) Squares(byLabel bool) []Square {
	if p.Touched {
		return p.join(0, len(p.Cells), 1, byLabel)
	}
	w, side := p.Size()
	if p.Rows {
		return p.join(0, len(p.Cells), w, byLabel)
	}
	return p.join(0, len(p.Cells), side*side, byLabel)
}

// join returns the squares of n cells from lo on, of which at most group are joined.
func (p *Panel) join(lo, n, group int, byLabel bool) (out []Square) {
	parts := 4
	if p.Rows {
		parts = 2
	}
	for at := lo; at < lo+n; at += group {
		if cells := p.Cells[at : at+group]; group == 1 || alike(cells, byLabel) {
			out = append(out, p.square(at, group, byLabel))
		} else {
			out = append(out, p.join(at, group, group/parts, byLabel)...)
		}
	}
	return out
}

func alike(cells []Cell, byLabel bool) bool {
	first := cells[0].look(byLabel)
	return !slices.ContainsFunc(cells[1:], func(c Cell) bool { return c.look(byLabel) != first })
}

// square joins n cells that are drawn alike.
func (p *Panel) square(lo, n int, byLabel bool) Square {
	cells := p.Cells[lo : lo+n]
	s := Square{Cell: cells[0]}
	if n > 1 && s.Labels > 1 {
		if s.Labels = -1; !byLabel {
			s.Label = ""
		}
	}
	order := bits.Len(uint(n)) - 1
	s.Prefix = netip.PrefixFrom(s.Prefix.Addr(), s.Prefix.Bits()-order)
	for _, c := range cells[1:] {
		for st, k := range c.Counts {
			s.Counts[st] = s.Counts[st].Add(k)
		}
	}
	s.X, s.Y = p.Place(lo)
	if s.W, s.H = n, 1; !p.Rows {
		s.W, s.H = 1<<(order/2), 1<<(order/2)
	}
	s.X, s.Y = s.X&^(s.W-1), s.Y&^(s.H-1)
	return s
}
