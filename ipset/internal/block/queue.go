package block

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Span is a closed range of ordinals.
type Span struct{ Lo, Hi uint64 }

// adjoins reports whether x is the ordinal after the span. Nothing follows the last ordinal of 2^64.
func (s Span) adjoins(x uint64) bool { return x != 0 && s.Hi == x-1 }

// queue is a first-in first-out list of ordinals kept as spans in the order in which they will be handed out: a
// new block's queue is one span whatever the block's size. No ordinal occurs twice, and no span begins where the one before it
// ends, so that an order has one form.
//
// spans[:head] are used up; they are dropped when they are half of the slice, so that steady state moves little
// and allocates nothing.
type queue struct {
	spans []Span
	head  int
}

// empty reports whether nothing is queued.
func (q *queue) empty() bool { return q.head == len(q.spans) }

// push adds an ordinal at the tail.
func (q *queue) push(x uint64) {
	if !q.empty() {
		if t := &q.spans[len(q.spans)-1]; t.adjoins(x) {
			t.Hi = x
			return
		}
	}
	if q.head > 0 && len(q.spans) == cap(q.spans) && q.head >= len(q.spans)/2 {
		n := copy(q.spans, q.spans[q.head:])
		q.spans, q.head = q.spans[:n], 0
	}
	q.spans = append(q.spans, Span{x, x})
}

// remove takes x out, wherever it stands, and reports whether it was queued. Cost: the spans before it.
func (q *queue) remove(x uint64) bool {
	for i := q.head; i < len(q.spans); i++ {
		s := &q.spans[i]
		if x < s.Lo || x > s.Hi {
			continue
		}
		switch {
		case s.Lo == s.Hi && i == q.head:
			q.head++
		case s.Lo == s.Hi:
			q.spans = slices.Delete(q.spans, i, i+1)
			if i < len(q.spans) && q.spans[i-1].adjoins(q.spans[i].Lo) {
				q.spans[i-1].Hi = q.spans[i].Hi // one form for one order
				q.spans = slices.Delete(q.spans, i, i+1)
			}
		case x == s.Lo:
			s.Lo++
		case x == s.Hi:
			s.Hi--
		default:
			right := Span{x + 1, s.Hi}
			s.Hi = x - 1
			q.spans = slices.Insert(q.spans, i+1, right)
		}
		if q.empty() {
			q.spans, q.head = q.spans[:0], 0
		}
		return true
	}
	return false
}

// Peek appends the next k ordinals in queue order that are in none of the avoided spans, which ascend.
// Nothing is taken.
func (q *queue) peek(dst []uint64, k int, avoid []Span) []uint64 {
	for i := q.head; i < len(q.spans) && k > 0; i++ {
		for x, s := q.spans[i].Lo, q.spans[i]; k > 0; x++ {
			if end, in := Within(avoid, x); in {
				if end >= s.Hi {
					break
				}
				x = end + 1
			}
			dst = append(dst, x)
			if k--; x == s.Hi {
				break
			}
		}
	}
	return dst
}

// Within reports whether a span contains x, and where that span and the spans that adjoin it end. The spans ascend.
func Within(spans []Span, x uint64) (end uint64, in bool) {
	if len(spans) == 0 {
		return 0, false
	}
	i, _ := slices.BinarySearchFunc(spans, x, func(s Span, x uint64) int {
		if s.Hi < x {
			return -1
		}
		return 1
	})
	for ; i < len(spans) && spans[i].Lo <= x; i++ {
		end, in = spans[i].Hi, true
		if end+1 == 0 {
			break
		}
		x = end + 1
	}
	return end, in
}

// Spans returns the ordinals of the block that are in the ranges.
func (b *Block) Spans(ranges []netipx.IPRange) []Span {
	var spans []Span
	first, last := b.Addr(0), b.Addr(b.last)
	from, _ := slices.BinarySearchFunc(ranges, first, func(r netipx.IPRange, a netip.Addr) int {
		if r.To().Less(a) {
			return -1
		}
		return 1
	})
	for _, r := range ranges[from:] {
		if last.Less(r.From()) {
			break
		}
		s := Span{0, b.last}
		if first.Less(r.From()) {
			s.Lo, _ = b.codec.Ordinal(r.From())
		}
		if r.To().Less(last) {
			s.Hi, _ = b.codec.Ordinal(r.To())
		}
		spans = append(spans, s)
	}
	return spans
}
