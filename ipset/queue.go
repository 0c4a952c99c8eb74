package ipset

import "slices"

// span is a closed range of ordinals.
type span struct{ lo, hi uint64 }

// queue is a first-in first-out list of ordinals kept as spans in the order in which they will be handed out: a
// new block's queue is one span whatever the block's size. No ordinal occurs twice, and no span begins where the one before it
// ends, so that an order has one form.
//
// spans[:head] are used up; they are dropped when they are half of the slice, so that steady state moves little
// and allocates nothing.
type queue struct {
	spans []span
	head  int
}

// empty reports whether nothing is queued.
func (q *queue) empty() bool { return q.head == len(q.spans) }

// push adds an ordinal at the tail.
func (q *queue) push(x uint64) {
	if !q.empty() {
		if t := &q.spans[len(q.spans)-1]; t.hi+1 == x && x != 0 {
			t.hi = x
			return
		}
	}
	if q.head > 0 && len(q.spans) == cap(q.spans) && q.head >= len(q.spans)/2 {
		n := copy(q.spans, q.spans[q.head:])
		q.spans, q.head = q.spans[:n], 0
	}
	q.spans = append(q.spans, span{x, x})
}

// remove takes x out, wherever it stands, and reports whether it was queued. Cost: the spans before it.
func (q *queue) remove(x uint64) bool {
	for i := q.head; i < len(q.spans); i++ {
		s := &q.spans[i]
		if x < s.lo || x > s.hi {
			continue
		}
		switch {
		case s.lo == s.hi && i == q.head:
			q.head++
		case s.lo == s.hi:
			q.spans = slices.Delete(q.spans, i, i+1)
			if i < len(q.spans) && q.spans[i-1].hi+1 == q.spans[i].lo {
				q.spans[i-1].hi = q.spans[i].hi // one form for one order
				q.spans = slices.Delete(q.spans, i, i+1)
			}
		case x == s.lo:
			s.lo++
		case x == s.hi:
			s.hi--
		default:
			right := span{x + 1, s.hi}
			s.hi = x - 1
			q.spans = slices.Insert(q.spans, i+1, right)
		}
		if q.empty() {
			q.spans, q.head = q.spans[:0], 0
		}
		return true
	}
	return false
}

// peek appends the next k ordinals in queue order that are in none of the avoided spans, which ascend.
// Nothing is taken.
func (q *queue) peek(dst []uint64, k int, avoid []span) []uint64 {
	for i := q.head; i < len(q.spans) && k > 0; i++ {
		for x, s := q.spans[i].lo, q.spans[i]; k > 0; x++ {
			if end, in := within(avoid, x); in {
				if end >= s.hi {
					break
				}
				x = end + 1
			}
			dst = append(dst, x)
			if k--; x == s.hi {
				break
			}
		}
	}
	return dst
}

// within reports whether x is in one of the ascending spans, and where that span, with those that adjoin it, ends.
func within(spans []span, x uint64) (end uint64, in bool) {
	if len(spans) == 0 {
		return 0, false
	}
	i, _ := slices.BinarySearchFunc(spans, x, func(s span, x uint64) int {
		if s.hi < x {
			return -1
		}
		return 1
	})
	for ; i < len(spans) && spans[i].lo <= x; i++ {
		end, in = spans[i].hi, true
		if end+1 == 0 {
			break
		}
		x = end + 1
	}
	return end, in
}
