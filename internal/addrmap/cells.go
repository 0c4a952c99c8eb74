package addrmap

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Cell is an aligned prefix as a picture shows it.
type Cell struct {
	Prefix netip.Prefix
	// State is the state of most of its taken addresses, or an urgent state if any address has one.
	State State
	// Level is the taken part in eighths, rounded up: 0 to 8.
	Level int
	// Label is the label of most of its labelled addresses. Labels is the number of different labels. It is
	// -1 in a [Square] of more than one cell, where they are not counted.
	Label  string
	Labels int
	Counts Counts
}

// Cells cuts a prefix of the pool into 2^order cells, ascending. order is capped at 20 and at the number
// of host bits.
func (s *Space) Cells(p netip.Prefix, order int) []Cell {
	order = min(order, s.width()-p.Bits(), 20)
	cells := make([]Cell, 1<<order)
	cellOrder := s.width() - p.Bits() - order
	base, _ := Of(p)
	for i := range cells {
		cells[i].Prefix = netip.PrefixFrom(s.Addr(base.Add(addr.U128{Lo: uint64(i)}.Shl(uint(cellOrder)))), p.Bits()+order)
	}
	f := filler{cells: cells, size: sizeOf(cellOrder), at: -1, labels: map[string]addr.U128{}}
	for sp := range s.within(p) {
		lo, hi := sp.Lo, sp.Hi
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
