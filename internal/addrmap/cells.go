package addrmap

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Cell is an aligned prefix as a picture shows it.
type Cell struct {
	Prefix netip.Prefix
	// State is the one that most of its taken addresses are in, unless one that is urgent is present.
	State State
	// Level is how much is taken in eighths, rounded up: 0 to 8.
	Level int
	// Label is the one that most of its labelled addresses have, and Labels how many there are, -1 in a [Square] of
	// several cells that are not counted.
	Label  string
	Labels int
	Counts Counts
}

// Cells cuts a prefix of the pool into 2^order cells, ascending. order is at most 20, and what the
// prefix has.
func (s *Space) Cells(p netip.Prefix, order int) []Cell {
	order = min(order, s.width()-p.Bits(), 20)
	cells := make([]Cell, 1<<order)
	cellOrder := s.width() - p.Bits() - order
	base, end := Of(p)
	for i := range cells {
		cells[i].Prefix = netip.PrefixFrom(s.Addr(base.Add(addr.U128{Lo: uint64(i)}.Shl(uint(cellOrder)))), p.Bits()+order)
	}
	f := filler{cells: cells, size: sizeOf(cellOrder), at: -1, labels: map[string]addr.U128{}}
	for _, sp := range s.in(p) {
		lo, hi := sp.Lo, sp.Hi
		if lo.Cmp(base) < 0 {
			lo = base
		}
		if hi.Cmp(end) > 0 {
			hi = end
		}
		for {
			i := int(lo.Sub(base).Shr(uint(cellOrder)).Lo)
			if cellOrder >= 128 {
				i = 0
			}
			last := base.Add(addr.U128{Lo: uint64(i)}.Shl(uint(cellOrder))).Add(addr.Low(uint(cellOrder)))
			if last.Cmp(hi) > 0 {
				last = hi
			}
			f.add(i, sp.State, sp.Label, last.Sub(lo).Add(one))
			if last == hi {
				break
			}
			lo = last.Add(one)
		}
	}
	f.finish()
	for i := range cells {
		if cells[i].Counts == (Counts{}) {
			cells[i].Counts[Free] = f.size
		}
	}
	return cells
}

// filler fills cells from spans, which come in order: the labels of one cell at a time are known.
type filler struct {
	cells  []Cell
	size   addr.U128
	at     int
	labels map[string]addr.U128
}

func (f *filler) add(i int, st State, label string, n addr.U128) {
	if i != f.at {
		f.finish()
		f.at = i
	}
	c := &f.cells[i]
	c.Counts[st] = c.Counts[st].Add(n)
	if label != "" {
		f.labels[label] = f.labels[label].Add(n)
	}
}

// finish settles the cell that was being filled.
func (f *filler) finish() {
	if f.at < 0 {
		return
	}
	c := &f.cells[f.at]
	c.settle(f.size)
	c.Labels = len(f.labels)
	var most addr.U128
	for label, n := range f.labels {
		if d := n.Cmp(most); d > 0 || d == 0 && label < c.Label {
			c.Label, most = label, n
		}
	}
	clear(f.labels)
}

// settle decides how a cell of size addresses is drawn.
func (c *Cell) settle(size addr.U128) {
	free := size
	for st, n := range c.Counts {
		if State(st) != Free {
			free = free.Sub(n)
		}
	}
	c.Counts[Free] = free
	taken := c.Counts.Taken()
	c.Level = eighths(taken, size)
	best, urgency := Free, 0
	if !c.Counts[Idle].IsZero() {
		best = Idle
	}
	var most addr.U128
	for st, n := range c.Counts {
		s := State(st)
		if !s.taken() || n.IsZero() || s.urgency() < urgency {
			continue
		}
		if s.urgency() > urgency || n.Cmp(most) > 0 {
			best, urgency, most = s, s.urgency(), n
		}
	}
	c.State = best
}

// eighths returns how many eighths of size n is, rounded up.
func eighths(n, size addr.U128) int {
	switch {
	case n.IsZero():
		return 0
	case n == size:
		return 8
	}
	for k := 1; k < 8; k++ { // n*8 may overflow, and a float may round a full cell up
		if float(n)*8 <= float(size)*float64(k) {
			return k
		}
	}
	return 8
}

// look is what two cells share that are drawn alike.
type look struct {
	state State
	level int
	label string
	many  bool
}

func (c *Cell) look(byLabel bool) look {
	l := look{c.State, c.Level, c.Label, c.Labels > 1}
	if l.many && !byLabel {
		l.label = ""
	}
	return l
}

// Square is a part of a picture in Hilbert order: cells that are drawn alike, as one.
type Square struct {
	Cell
	X, Y, W, H int // in cells
}

// Size returns the width and height of a picture of 2^order cells in Hilbert order: a square, or two
// side by side.
func Size(order int) (w, h int) { return 1 << ((order + 1) / 2), 1 << (order / 2) }

// Place returns where cell i is in a picture of 2^order cells. Neighbours in the order are neighbours
// in the picture, and each aligned group of 4^k cells is a square.
func Place(i, order int) (x, y int) {
	side := 1 << (order / 2)
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

// Squares places cells, a power of two of them, in Hilbert order. With merge, aligned groups of cells
// that are drawn alike become one square; byLabel says that cells are drawn by label, too.
func Squares(cells []Cell, merge, byLabel bool) []Square {
	order := bitLen(addr.U128{Lo: uint64(len(cells))}) - 1
	var out []Square
	var walk func(lo, n int) // n cells from lo on, n = 4^k
	walk = func(lo, n int) {
		if n == 1 || merge && alike(cells[lo:lo+n], byLabel) {
			out = append(out, square(cells[lo:lo+n], lo, order, byLabel))
			return
		}
		for i := range 4 {
			walk(lo+i*n/4, n/4)
		}
	}
	whole := 1 << (order &^ 1)
	for lo := 0; lo < len(cells); lo += whole {
		walk(lo, whole)
	}
	return out
}

func alike(cells []Cell, byLabel bool) bool {
	first := cells[0].look(byLabel)
	return !slices.ContainsFunc(cells[1:], func(c Cell) bool { return c.look(byLabel) != first })
}

// square joins 4^k cells that are drawn alike.
func square(cells []Cell, lo, order int, byLabel bool) Square {
	s := Square{Cell: cells[0]}
	if len(cells) > 1 && s.Labels > 1 {
		if s.Labels = -1; !byLabel {
			s.Label = ""
		}
	}
	k := (bitLen(addr.U128{Lo: uint64(len(cells))}) - 1) / 2
	s.Prefix = netip.PrefixFrom(s.Prefix.Addr(), s.Prefix.Bits()-2*k)
	for _, c := range cells[1:] {
		for st, n := range c.Counts {
			s.Counts[st] = s.Counts[st].Add(n)
		}
	}
	s.W, s.H = 1<<k, 1<<k
	s.X, s.Y = Place(lo, order)
	s.X, s.Y = s.X&^(s.W-1), s.Y&^(s.H-1)
	return s
}

// Panel is a part of a pool in a picture.
type Panel struct {
	Prefix netip.Prefix
	Cells  []Cell
	// Before and After are the prefixes of the length of a cell that lie between this panel and the one before,
	// and behind the last one: all free.
	Before, After addr.U128
}

const (
	maxPanels = 16 // what a person looks at one after the other
	minOrder  = 4  // the least panel has 16 cells
	deep      = 16 // a cell of more than 2^16 blocks shows nothing of them
)

// Panels returns what to draw of a prefix of the pool, with at most 2^order cells each: one panel of all
// of it, or, where a cell of that would hold more than 2^16 blocks, one for each place that is touched.
func (s *Space) Panels(p netip.Prefix, order int) []Panel {
	finest := max(s.finest(), p.Bits())
	if finest-p.Bits() <= order+deep {
		return []Panel{{Prefix: p, Cells: s.Cells(p, min(order, finest-p.Bits()))}}
	}
	for ; finest-p.Bits() > order; finest -= 2 {
		if parts, ok := s.parts(p, finest, order); ok {
			return s.panels(p, parts, finest)
		}
	}
	return []Panel{{Prefix: p, Cells: s.Cells(p, finest-p.Bits())}}
}

// parts returns the prefixes around what is touched of p, and false if they are too many.
func (s *Space) parts(p netip.Prefix, finest, order int) (parts []netip.Prefix, ok bool) {
	var walk func(p netip.Prefix) bool
	walk = func(p netip.Prefix) bool {
		if len(s.in(p)) == 0 {
			return true
		}
		left := finest - p.Bits()
		if left <= minOrder {
			parts = append(parts, p)
			return len(parts) <= maxPanels
		}
		low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
		lo, _ := Of(p)
		high := netip.PrefixFrom(s.Addr(lo.Add(sizeOf(s.width()-p.Bits()-1))), p.Bits()+1)
		if left <= order && len(s.in(low)) > 0 && len(s.in(high)) > 0 {
			parts = append(parts, p)
			return len(parts) <= maxPanels
		}
		return walk(low) && walk(high)
	}
	ok = walk(p)
	return parts, ok
}

// panels fills the parts of p.
func (s *Space) panels(p netip.Prefix, parts []netip.Prefix, finest int) []Panel {
	if len(parts) == 0 {
		return []Panel{{Prefix: p, Cells: s.Cells(p, 0)}}
	}
	cellOrder := uint(s.width() - finest)
	at, end := Of(p)
	var out []Panel
	for _, part := range parts {
		lo, hi := Of(part)
		out = append(out, Panel{Prefix: part, Cells: s.Cells(part, finest-part.Bits()), Before: lo.Sub(at).Shr(cellOrder)})
		at = hi.Add(one)
	}
	if _, last := Of(parts[len(parts)-1]); last != end {
		out[len(out)-1].After = end.Sub(last).Shr(cellOrder)
	}
	return out
}
