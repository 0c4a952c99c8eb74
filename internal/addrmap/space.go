package addrmap

import (
	"iter"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// State is the state of an address in a picture.
type State uint8

// The states of addresses, then those of a comparison.
const (
	Free     State = iota // in no block
	Idle                  // in a block, and not held
	Used                  // held
	Reserved              // never assigned automatically
	Cooling               // released and not yet reusable
	Borrowed              // held for another host than the owner of the block
	Orphan                // held, in a block without owner
	Leaked                // held, and a candidate for leak collection

	Same    // held before and after, by the same holder
	Added   // held only after
	Removed // held only before
	Changed // held before and after, by different holders

	states
)

var stateNames = [states]string{"free", "idle", "used", "reserved", "cooling", "borrowed", "orphan", "leak candidate",
	"unchanged", "added", "removed", "changed"}

// String returns the state in one or two words.
func (s State) String() string { return stateNames[s] }

// taken reports whether an address in the state cannot be assigned.
func (s State) taken() bool { return s != Free && s != Idle }

// urgency orders the states that decide how a cell is drawn by their presence alone; 0 is the others.
func (s State) urgency() int {
	switch s {
	case Leaked:
		return 3
	case Orphan:
		return 2
	case Added, Removed, Changed:
		return 1
	}
	return 0
}

// Span is a closed range of addresses in one state.
type Span struct {
	Lo, Hi addr.U128
	State  State
	// Label is the holder, such as a host or a pool; a picture can be coloured by it. Empty for none.
	Label string
}

// Space is a pool and its spans.
type Space struct {
	Name string
	Pool netip.Prefix
	// Finest is the length of a block: no cell is longer, unless the picture would have too few
	// cells. 0 means single addresses.
	Finest int
	// Spans are ascending and disjoint, and lie in the pool.
	Spans []Span
}

// Add appends a span, or extends the last span if the new one continues it.
func (s *Space) Add(span Span) {
	if n := len(s.Spans); n > 0 {
		last := &s.Spans[n-1]
		if last.State == span.State && last.Label == span.Label && last.Hi.Add(one) == span.Lo {
			last.Hi = span.Hi
			return
		}
	}
	s.Spans = append(s.Spans, span)
}

// AddPrefixes adds prefixes of one state and label, in any order: call Sort after the last.
func (s *Space) AddPrefixes(st State, label string, prefixes ...netip.Prefix) {
	for _, p := range prefixes {
		lo, hi := Of(p)
		s.Spans = append(s.Spans, Span{lo, hi, st, label})
	}
}

// Sort orders the spans by address.
func (s *Space) Sort() {
	slices.SortFunc(s.Spans, func(x, y Span) int { return x.Lo.Cmp(y.Lo) })
}

var one = addr.U128{Lo: 1}

// Of returns the first and the last address of a prefix as numbers.
func Of(p netip.Prefix) (lo, hi addr.U128) {
	lo = addr.FromAddr(p.Addr())
	return lo, lo.Add(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
}

// Addr turns a number into an address of the pool's family.
func (s *Space) Addr(u addr.U128) netip.Addr {
	if s.Pool.Addr().Is4() {
		return u.Addr4()
	}
	return u.Addr6()
}

func (s *Space) width() int { return s.Pool.Addr().BitLen() }

// finest returns the prefix length of the smallest cells.
func (s *Space) finest() int {
	if s.Finest == 0 {
		return s.width()
	}
	return s.Finest
}

// in returns the spans that overlap a prefix.
func (s *Space) in(p netip.Prefix) []Span {
	lo, hi := Of(p)
	from, _ := slices.BinarySearchFunc(s.Spans, lo, func(sp Span, lo addr.U128) int {
		return sp.Hi.Cmp(lo)
	})
	to, found := slices.BinarySearchFunc(s.Spans, hi, func(sp Span, hi addr.U128) int { return sp.Lo.Cmp(hi) })
	if found {
		to++
	}
	return s.Spans[from:max(from, to)]
}

// within yields what the spans that overlap a prefix have of it.
func (s *Space) within(p netip.Prefix) iter.Seq[Span] {
	lo, hi := Of(p)
	return func(yield func(Span) bool) {
		for _, sp := range s.in(p) {
			if sp.Lo.Cmp(lo) < 0 {
				sp.Lo = lo
			}
			if sp.Hi.Cmp(hi) > 0 {
				sp.Hi = hi
			}
			if !yield(sp) {
				return
			}
		}
	}
}

// Counts are addresses by state.
type Counts [states]addr.U128

// Taken returns the number of addresses that cannot be assigned.
func (c *Counts) Taken() addr.U128 {
	var n addr.U128
	for st, k := range c {
		if State(st).taken() {
			n = n.Add(k)
		}
	}
	return n
}

// Total returns the addresses of the whole pool by state. For ::/0 the sum is one too low.
func (s *Space) Total() Counts {
	var c Counts
	free := sizeOf(s.width() - s.Pool.Bits())
	for _, sp := range s.Spans {
		n := sp.Hi.Sub(sp.Lo).Add(one)
		c[sp.State] = c[sp.State].Add(n)
		free = free.Sub(n)
	}
	c[Free] = c[Free].Add(free)
	return c
}

// SizeOf returns the number of addresses in a prefix; for ::/0 it is one too low.
func SizeOf(p netip.Prefix) addr.U128 { return sizeOf(p.Addr().BitLen() - p.Bits()) }

// sizeOf returns 2^order addresses, for order 128 one too few.
func sizeOf(order int) addr.U128 {
	if order >= 128 {
		return addr.Low(128)
	}
	return one.Shl(uint(order))
}

// Gaps yields the largest aligned prefixes without taken addresses, ascending, each with its span: prefixes outside every
// block, and idle prefixes inside a block.
func (s *Space) Gaps() iter.Seq2[netip.Prefix, Span] {
	return func(yield func(netip.Prefix, Span) bool) {
		give := func(sp Span) bool {
			for p := range s.prefixes(sp.Lo, sp.Hi) {
				if !yield(p, sp) {
					return false
				}
			}
			return true
		}
		at, end := Of(s.Pool)
		for _, sp := range s.Spans {
			switch {
			case sp.Hi.Cmp(at) < 0:
				continue // in a span before it
			case at.Cmp(sp.Lo) < 0 && !give(Span{Lo: at, Hi: sp.Lo.Sub(one)}):
				return
			case sp.State == Idle && !give(sp) || sp.Hi == end:
				return
			}
			at = sp.Hi.Add(one)
		}
		give(Span{Lo: at, Hi: end})
	}
}

// prefixes yields the maximal aligned prefixes that make up a range, ascending.
func (s *Space) prefixes(lo, hi addr.U128) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for {
			// The largest aligned block at lo that does not exceed hi; hi-lo is one less than the size.
			order := min(trailingZeros(lo), bitLen(hi.Sub(lo).Add(one))-1)
			if left := hi.Sub(lo); left == addr.Low(128) {
				order = 128
			}
			order = min(order, s.width()-s.Pool.Bits())
			if !yield(netip.PrefixFrom(s.Addr(lo), s.width()-order)) {
				return
			}
			next := lo.Add(addr.Low(uint(order)))
			if next.Cmp(hi) >= 0 {
				return
			}
			lo = next.Add(one)
		}
	}
}

// LargestFree returns the first of the largest aligned prefixes outside of every block.
func (s *Space) LargestFree() (p netip.Prefix, ok bool) {
	for q, sp := range s.Gaps() {
		if sp.State == Free && (!ok || q.Bits() < p.Bits()) {
			p, ok = q, true
		}
	}
	return p, ok
}

func trailingZeros(u addr.U128) int {
	if u.Lo != 0 {
		return bits.TrailingZeros64(u.Lo)
	}
	if u.Hi != 0 {
		return 64 + bits.TrailingZeros64(u.Hi)
	}
	return 128
}

func bitLen(u addr.U128) int {
	if u.Hi != 0 {
		return 64 + bits.Len64(u.Hi)
	}
	return bits.Len64(u.Lo)
}

// float returns u rounded.
func float(u addr.U128) float64 { return float64(u.Hi)*(1<<64) + float64(u.Lo) }
