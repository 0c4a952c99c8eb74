package spacemap

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// span is a closed range of offsets from the start of the pool that belongs to one layer.
type span struct {
	lo, hi addr.U128
	layer  int
}

// flatten turns the prefixes of all layers into ascending spans that don't overlap: each address
// goes to the longest prefix around it, among equal ones to the later layer.
//
// Prefixes are nested or disjoint, never crossing. Sorted by start, longer spans first, those that
// are open at any point form a stack, each inside the one below, and the top owns the point.
func flatten(d Drawing) ([]span, error) {
	all, err := collect(d)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b span) int {
		return cmp.Or(a.lo.Cmp(b.lo), b.hi.Cmp(a.hi), cmp.Compare(a.layer, b.layer))
	})
	var out, open []span
	// upTo gives the top of the stack what it has before end. What it has behind end is settled
	// when the span that starts there is popped.
	upTo := func(end addr.U128) {
		top := open[len(open)-1]
		if top.lo.Cmp(end) < 0 {
			out = append(out, span{top.lo, end.Sub(addr.U128{Lo: 1}), top.layer})
		}
	}
	// pop gives the top all it has left; the span below continues behind it, unless it ends there too.
	pop := func() {
		top := open[len(open)-1]
		open = open[:len(open)-1]
		out = append(out, top)
		for len(open) > 0 && open[len(open)-1].hi == top.hi {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			open[len(open)-1].lo = top.hi.Add(addr.U128{Lo: 1})
		}
	}
	for _, s := range all {
		for len(open) > 0 && open[len(open)-1].hi.Cmp(s.lo) < 0 {
			pop()
		}
		if len(open) > 0 {
			upTo(s.lo)
		}
		open = append(open, s)
	}
	for len(open) > 0 {
		pop()
	}
	return out, nil
}

// collect returns every prefix as a span, cut to the pool.
func collect(d Drawing) ([]span, error) {
	n := 0
	for _, l := range d.Layers {
		n += len(l.Prefixes)
	}
	all := make([]span, 0, n)
	base := addr.FromAddr(d.Pool.Addr())
	for i, l := range d.Layers {
		for _, p := range l.Prefixes {
			if err := addr.Check(p); err != nil {
				return nil, fmt.Errorf("%w: %v of %q: %w", ErrBadDrawing, p, l.Label, err)
			}
			if !p.Overlaps(d.Pool) {
				return nil, fmt.Errorf("%w: %v of %q: outside the pool %v", ErrBadDrawing, p, l.Label, d.Pool)
			}
			if p.Bits() < d.Pool.Bits() {
				p = d.Pool
			}
			lo := addr.FromAddr(p.Addr()).Sub(base)
			all = append(all, span{lo, lo.Add(addr.Low(uint(p.Addr().BitLen() - p.Bits()))), i})
		}
	}
	return all, nil
}

// fill adds the spans, ascending and disjoint, to the cells and the tallies. One pass: spans reach
// the cells in order, so what each layer has in a cell needs to be known for one cell at a time.
func (g *grid) fill(spans []span) {
	var (
		order   = g.cellOrder()
		at      = free                // the cell being filled
		touched []int                 // layers in that cell
		inCell  = map[int]addr.U128{} // and what they have of it
		parts   = make([]float64, len(g.tallies))
	)
	finish := func() {
		if at == free {
			return
		}
		c := &g.cells[at]
		slices.Sort(touched)
		for _, l := range touched {
			c.used = c.used.Add(inCell[l])
			parts[l] += float(inCell[l]) / float(sizeOf(order))
			if c.layer == free || inCell[l].Cmp(inCell[c.layer]) > 0 {
				c.layer = l
			}
		}
		touched = touched[:0]
		clear(inCell)
	}
	for _, s := range spans {
		for last := false; !last; {
			i := int(s.lo.Shr(order).Lo)
			end := addr.U128{Lo: uint64(i)}.Shl(order).Or(addr.Low(order))
			last = s.hi.Cmp(end) <= 0
			if last {
				end = s.hi
			}
			if i != at {
				finish()
				at = i
			}
			if _, ok := inCell[s.layer]; !ok {
				touched = append(touched, s.layer)
			}
			inCell[s.layer] = inCell[s.layer].Add(end.Sub(s.lo)).Add(addr.U128{Lo: 1})
			s.lo = end.Add(addr.U128{Lo: 1})
		}
	}
	finish()
	g.total = g.sum(0, len(g.cells))
	g.tally(spans, parts)
}

// tally writes the legend's numbers. parts says how many cells' worth each layer has.
func (g *grid) tally(spans []span, parts []float64) {
	owners := map[int]bool{}
	for _, s := range spans {
		owners[s.layer] = true
	}
	for l := range g.tallies {
		g.tallies[l] = tally{
			prefixes: len(g.drawing.Layers[l].Prefixes),
			share: share{
				part: parts[l] / float64(len(g.cells)),
				none: !owners[l],
				all:  owners[l] && len(owners) == 1 && g.total.all,
			},
		}
	}
}
