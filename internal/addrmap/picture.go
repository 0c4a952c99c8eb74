package addrmap

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Picture is a view of a space.
type Picture struct {
	Space *Space
	// Prefix is the part of the pool that is drawn; the zero value is all of it.
	Prefix netip.Prefix
	// ByLabel colours by label instead of by state; the labels with the most addresses have a colour each.
	ByLabel bool
	// Rows draws the cells in rows, as text is read, instead of in Hilbert order.
	Rows bool

	classes []string // the labels with a colour
	tallies []addr.U128
	rest    addr.U128
	others  int
}

// maxClasses is how many labels have a colour: more cannot be told apart.
const maxClasses = 8

// prepare fills in defaults.
func (p *Picture) prepare() error {
	if !p.Prefix.IsValid() {
		p.Prefix = p.Space.Pool
	}
	if p.Prefix != p.Prefix.Masked() || !p.Space.Pool.Contains(p.Prefix.Addr()) || p.Prefix.Bits() < p.Space.Pool.Bits() {
		return fmt.Errorf("addrmap: %v is no part of the pool %v", p.Prefix, p.Space.Pool)
	}
	if !p.ByLabel {
		return nil
	}
	sums := map[string]addr.U128{}
	for _, sp := range p.Space.Spans {
		if sp.Label != "" {
			sums[sp.Label] = sums[sp.Label].Add(sp.Hi.Sub(sp.Lo)).Add(one)
		}
	}
	all := make([]string, 0, len(sums))
	for label := range sums {
		all = append(all, label)
	}
	slices.SortFunc(all, func(x, y string) int { return cmp.Or(sums[y].Cmp(sums[x]), strings.Compare(x, y)) })
	p.classes = all[:min(len(all), maxClasses)]
	if len(all) == maxClasses+1 {
		p.classes = all // the colour of the others is as good for one
	}
	p.tallies = nil
	for i, label := range all {
		if i < len(p.classes) {
			p.tallies = append(p.tallies, sums[label])
		} else {
			p.rest = p.rest.Add(sums[label])
			p.others++
		}
	}
	return nil
}

// class returns the place of a label among the colours.
func (p *Picture) class(label string) int {
	if i := slices.Index(p.classes, label); i >= 0 {
		return min(i, maxClasses)
	}
	return maxClasses
}

// Headline returns one line with the use of the pool.
func (s *Space) Headline() string {
	c := s.Total()
	size := sizeOf(s.width() - s.Pool.Bits())
	head := strings.TrimSpace(Printable(s.Name) + " " + s.Pool.String())
	if d := c[Same].Add(c[Added]).Add(c[Removed]).Add(c[Changed]); !d.IsZero() {
		return fmt.Sprintf("%s  %s added, %s removed, %s changed, %s unchanged", head, Number(c[Added]), Number(c[Removed]), Number(c[Changed]), Number(c[Same]))
	}
	used := c[Used].Add(c[Borrowed]).Add(c[Orphan]).Add(c[Leaked])
	parts := []string{Percent(used, size) + " used"}
	for _, st := range []State{Cooling, Reserved} {
		if !c[st].IsZero() {
			parts = append(parts, Percent(c[st], size)+" "+st.String())
		}
	}
	largest := "no free block"
	if p, ok := s.LargestFree(); ok {
		largest = fmt.Sprintf("largest free /%d", p.Bits())
	}
	return fmt.Sprintf("%s  %s, %s", head, strings.Join(parts, ", "), largest)
}

// Percent returns n of all in per cent. It returns "0 %" only for none and "100 %" only for all.
func Percent(n, all addr.U128) string {
	switch part := 100 * float(n) / float(all); {
	case n.IsZero() || all.IsZero():
		return "0 %"
	case n == all:
		return "100 %"
	case part < 0.1:
		return "<0.1 %"
	case part > 99.9:
		return ">99.9 %"
	default:
		return fmt.Sprintf("%.1f %%", part)
	}
}

// Number returns n in decimal, or from 2^40 on as the nearest power of two, with ~ before it if that is
// not exact.
func Number(n addr.U128) string {
	if n.Hi == 0 && n.Lo < 1<<40 {
		return fmt.Sprint(n.Lo)
	}
	k := bitLen(n) - 1
	if trailingZeros(n) == k {
		return fmt.Sprintf("2^%d", k)
	}
	return fmt.Sprintf("~2^%d", k+int(n.Shr(uint(k-1)).Lo&1))
}

// scale says what the cells of a panel are.
func (p *Panel) scale(s *Space) string {
	bits := p.Cells[0].Prefix.Bits()
	text := fmt.Sprintf("one cell: a /%d", bits)
	if finest := s.finest(); finest > bits {
		text += fmt.Sprintf(", %s /%d", Number(sizeOf(finest-bits)), finest)
	}
	if p.Touched {
		text += fmt.Sprintf("; only cells with something in them are drawn, %d of %s", len(p.Cells), Number(p.All))
	}
	return text
}

// title says what a cell is: prefix, state, holder, counts.
func (c *Cell) title() string {
	s := fmt.Sprintf("%v %s", c.Prefix, c.State)
	if taken := c.Counts.Taken(); !taken.IsZero() {
		size := sizeOf(c.Prefix.Addr().BitLen() - c.Prefix.Bits())
		s += fmt.Sprintf(" %s of %s", Number(taken), Number(size))
	}
	switch {
	case c.Labels < 0 && c.Label == "":
		s += ", several holders"
	case c.Labels < 0:
		s += ", mostly " + c.Label
	case c.Labels > 1:
		s += fmt.Sprintf(", %s and %d more", c.Label, c.Labels-1)
	case c.Labels == 1:
		s += ", " + c.Label
	}
	return Printable(s)
}

// Printable returns s with every unprintable character replaced. Labels are names that users choose,
// and an escape sequence in one must not reach a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// legend returns the states that occur, in order, with their addresses.
func (p *Picture) legend() (states []State, counts Counts) {
	counts = p.Space.Total()
	for st, n := range counts {
		if !n.IsZero() {
			states = append(states, State(st))
		}
	}
	return states, counts
}
