package spacemap

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// ErrBadDrawing is wrapped by every refusal of an input: the pool or a prefix is invalid or has
// host bits set, a prefix lies outside the pool, or Finest is no prefix length of the pool.
var ErrBadDrawing = errors.New("spacemap: bad drawing")

// Drawing says what to draw. Pool is required; the zero values of the rest mean none, and single
// addresses for Finest.
type Drawing struct {
	Title  string       // one line above the picture; control characters are replaced
	Pool   netip.Prefix // the space; masked
	Layers []Layer      // what is taken, by class; the order is that of the legend and of the colours
	Finest int          // no cell is longer than this prefix length: the child size of the pool, when it has one
}

// Layer is one class of taken prefixes.
type Layer struct {
	Label    string
	Prefixes []netip.Prefix // in any order; one that contains the pool takes all of it
}

// free is the layer of addresses that are free.
const free = -1

// cell is one aligned piece of the pool.
type cell struct {
	used  addr.U128
	layer int // which layer has most of it, or free
}

// tally is what the legend says about a layer.
type tally struct {
	prefixes int
	share    share
}

// grid is a pool cut into 2^order cells, ascending, with their use.
type grid struct {
	drawing  Drawing
	columns  int
	cellBits int // prefix length of a cell
	cells    []cell
	tallies  []tally
	total    share
}

// share is how much of something is taken. none and all are exact where part, rounded, can't be.
type share struct {
	part      float64
	none, all bool
}

// minColumns is the least width of a picture: fewer would hold no structure, and ::/0 in a single
// cell would overflow the counts.
const minColumns = 8

// maxColumns is the width of a picture whose style names none: with the addresses in front it fills
// a terminal of 100 columns.
const maxColumns = 64

// newGrid cuts d.Pool into at most columns*rows cells and fills them. columns and rows are rounded
// down to powers of two, and cut to what the pool and d.Finest allow. With columns 0 a small pool
// gets a narrower picture, sixteen times as wide as high or less, as two rows of 64 tell less than
// four of 32.
func newGrid(d Drawing, columns, rows int) (*grid, error) {
	if err := addr.Check(d.Pool); err != nil {
		return nil, fmt.Errorf("%w: pool %v: %w", ErrBadDrawing, d.Pool, err)
	}
	finest := d.Finest
	if finest == 0 {
		finest = d.Pool.Addr().BitLen()
	}
	if finest < d.Pool.Bits() || finest > d.Pool.Addr().BitLen() {
		return nil, fmt.Errorf("%w: cells of /%d in the pool %v", ErrBadDrawing, finest, d.Pool)
	}
	order := finest - d.Pool.Bits()
	columnOrder := floorLog2(max(columns, minColumns))
	if columns == 0 {
		columnOrder = min(order/2+2, floorLog2(maxColumns))
	}
	columnOrder = min(columnOrder, order)
	order = min(columnOrder+floorLog2(rows), order)
	g := &grid{
		drawing:  d,
		columns:  1 << columnOrder,
		cellBits: d.Pool.Bits() + order,
		cells:    make([]cell, 1<<order),
		tallies:  make([]tally, len(d.Layers)),
	}
	for i := range g.cells {
		g.cells[i].layer = free
	}
	spans, err := flatten(d)
	if err != nil {
		return nil, err
	}
	g.fill(spans)
	return g, nil
}

// floorLog2 returns the order of the largest power of two that is not above n; n below 1 counts as 1.
func floorLog2(n int) int { return bits.Len(uint(max(n, 1))) - 1 }

// rows returns how many rows the grid has.
func (g *grid) rows() int { return len(g.cells) / g.columns }

// rowBits returns the prefix length of a row.
func (g *grid) rowBits() int { return g.cellBits - floorLog2(g.columns) }

// cellOrder returns log2 of the addresses in a cell. It is below 128: a grid has one cell only
// where the pool is one prefix of the finest size, and 0 as the finest size means single addresses.
func (g *grid) cellOrder() uint { return uint(g.drawing.Pool.Addr().BitLen() - g.cellBits) }

// address returns the first address of cell i.
func (g *grid) address(i int) netip.Addr {
	return g.addr(addr.FromAddr(g.drawing.Pool.Addr()).Add(addr.U128{Lo: uint64(i)}.Shl(g.cellOrder())))
}

// lastAddress returns the last address of cell i.
func (g *grid) lastAddress(i int) netip.Addr {
	return g.addr(addr.FromAddr(g.address(i)).Add(addr.Low(g.cellOrder())))
}

// addr turns a number back into an address of the pool's family.
func (g *grid) addr(u addr.U128) netip.Addr {
	if g.drawing.Pool.Addr().Is4() {
		return u.Addr4()
	}
	return u.Addr6()
}

// share returns how much of cell i is taken.
func (g *grid) share(i int) share {
	used, size := g.cells[i].used, sizeOf(g.cellOrder())
	return share{part: float(used) / float(size), none: used.IsZero(), all: used == size}
}

// rowShare returns how much of row r is taken.
func (g *grid) rowShare(r int) share { return g.sum(r*g.columns, (r+1)*g.columns) }

// sum returns how much of the cells [from, to) is taken.
func (g *grid) sum(from, to int) share {
	s := share{none: true, all: true}
	for i := from; i < to; i++ {
		c := g.share(i)
		s.part += c.part / float64(to-from)
		s.none = s.none && c.none
		s.all = s.all && c.all
	}
	return s
}

// level returns the step in which a share is drawn: 0 nothing, 1 below a third, 2 below two thirds,
// 3 more, 4 everything.
func (s share) level() int {
	switch {
	case s.none:
		return 0
	case s.all:
		return 4
	case s.part < 1.0/3:
		return 1
	case s.part < 2.0/3:
		return 2
	default:
		return 3
	}
}

// levels is how many steps there are.
const levels = 5

// String returns the share in per cent. "0 %" and "100 %" are said only of nothing and of everything.
func (s share) String() string {
	percent := s.part * 100
	switch {
	case s.none:
		return "0 %"
	case s.all:
		return "100 %"
	case percent < 0.1:
		return "<0.1 %"
	case percent > 99.9:
		return ">99.9 %"
	default:
		return fmt.Sprintf("%.1f %%", percent)
	}
}

// sizeOf returns 2^order, for order below 128.
func sizeOf(order uint) addr.U128 { return addr.U128{Lo: 1}.Shl(order) }

// scale says what a cell and a row are.
func (g *grid) scale() string {
	s := fmt.Sprintf("one cell: a /%d", g.cellBits)
	switch finest, order := g.drawing.Finest, g.cellOrder(); {
	case finest > g.cellBits:
		s += fmt.Sprintf(", %s /%d", power(uint(finest-g.cellBits)), finest)
	case finest == 0 && order > 0:
		s += fmt.Sprintf(", %s addresses", power(order))
	}
	if g.rows() > 1 {
		s += fmt.Sprintf("; one row: a /%d", g.rowBits())
	}
	return s
}

// float returns u rounded to a float64.
func float(u addr.U128) float64 { return float64(u.Hi)*(1<<64) + float64(u.Lo) }

// power returns 2^order, as a number where a person can take it in.
func power(order uint) string {
	if order <= 16 {
		return fmt.Sprint(1 << order)
	}
	return fmt.Sprintf("2^%d", order)
}
