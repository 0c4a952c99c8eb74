package cidrset

import (
	"errors"
	"fmt"
	"time"

	"github.com/ipalloc/ipalloc/bitmap"
)

// cooling holds the children that were released and may not be reused yet, in the order
// of their release. They stay set in Set.busy, so no search for a free child finds them.
//
// It holds runs of neighbours, not children: a queue of runs (a doubly linked list in one
// slice, so that steady state does not allocate) and an index that finds the run of a
// child.
//
// hot serves AllocatePrefix, for which the runs before edge are free. Because edge stays
// where the last call left it, a call that does not fit costs no more when many children
// have cooled.
type cooling struct {
	set    *bitmap.Bitmap   // the children in the queue
	hot    *bitmap.Bitmap   // the busy children but for those of the runs before edge
	starts *bitmap.Bitmap   // the first child of every run
	at     map[uint64]int32 // the run that starts there
	runs   []run
	head   int32 // oldest run; none if the queue is empty
	tail   int32
	edge   int32 // none if all runs are before it
	spare  int32 // list of unused runs, by next
	wait   time.Duration
	now    func() time.Time
}

// run is the children [lo, hi], reusable from until on. Along the queue until
// never decreases.
type run struct {
	lo, hi     uint64
	until      time.Time
	prev, next int32
}

const (
	none = -1

	// ripenStep is how many runs ripen moves edge under one lock: some 0.1 ms.
	ripenStep = 1024
)

func newCooling(order int, wait time.Duration, now func() time.Time) *cooling {
	return &cooling{
		set: bitmap.NewPow2(order), hot: bitmap.NewPow2(order), starts: bitmap.NewPow2(order), at: map[uint64]int32{},
		head: none, tail: none, edge: none, spare: none, wait: wait, now: now,
	}
}

// clock reads the set's clock; the zero time if it has none. It is called without
// the lock, because the clock is the caller's code.
func (s *Set) clock() time.Time {
	if s.cooling == nil {
		return time.Time{}
	}
	return s.cooling.now().Round(0) // without the monotonic reading, which no snapshot keeps
}

// add puts the children of [lo, hi] that are taken at the end of the queue and
// returns how many there were.
func (c *cooling) add(busy *bitmap.Bitmap, lo, hi uint64, now time.Time) (added uint64) {
	until := now.Add(c.wait)
	if c.tail != none && until.Before(c.runs[c.tail].until) {
		until = c.runs[c.tail].until // the clock was set back
	}
	for {
		x, ok := nextTaken(busy, c.set, lo, hi)
		if !ok {
			return added
		}
		end := min(endTaken(busy, c.set, x), hi)
		c.push(x, end, until)
		added += c.set.SetRange(x, end) // at most 2^64 - 1 if it is not the only run
		if end == hi {
			return added
		}
		lo = end + 1
	}
}

// nextTaken returns the lowest child of [x, hi] that is busy and not in cold, which
// may be nil.
func nextTaken(busy, cold *bitmap.Bitmap, x, hi uint64) (uint64, bool) {
	for {
		at, ok := busy.NextSet(x)
		if !ok || at > hi || cold == nil || !cold.Test(at) {
			return at, ok && at <= hi
		}
		if x, ok = cold.NextClear(at); !ok {
			return 0, false
		}
	}
}

// endTaken returns the last child of the run of taken ones that x is in.
func endTaken(busy, cold *bitmap.Bitmap, x uint64) uint64 {
	end, _ := busy.Last()
	if y, ok := busy.NextClear(x); ok {
		end = y - 1
	}
	if cold != nil {
		if y, ok := cold.NextSet(x); ok {
			end = min(end, y-1)
		}
	}
	return end
}

// push puts a run at the end of the queue. It lengthens the last run if they are
// neighbours in time and place, so that a batch of neighbours is one run.
func (c *cooling) push(lo, hi uint64, until time.Time) {
	if c.edge != none {
		if last := &c.runs[c.tail]; last.until.Equal(until) && last.hi != ^uint64(0) && last.hi+1 == lo {
			last.hi = hi
			return
		}
	}
	i := c.insert(c.tail, none, lo, hi, until)
	if c.edge == none {
		c.edge = i
	}
}

// insert puts a run between prev and next in the queue.
func (c *cooling) insert(prev, next int32, lo, hi uint64, until time.Time) int32 {
	i := c.spare
	if i == none {
		i = int32(len(c.runs))
		c.runs = append(c.runs, run{})
	} else {
		c.spare = c.runs[i].next
	}
	c.runs[i] = run{lo, hi, until, prev, next}
	c.link(prev, i)
	c.link(i, next)
	c.starts.Set(lo)
	c.at[lo] = i
	return i
}

// link makes a and b neighbours; either may be none.
func (c *cooling) link(a, b int32) {
	if a == none {
		c.head = b
	} else {
		c.runs[a].next = b
	}
	if b == none {
		c.tail = a
	} else {
		c.runs[b].prev = a
	}
}

// cut takes [lo, hi], a part of run i, out of it and out of the queue, and returns
// how many children that is.
func (c *cooling) cut(i int32, lo, hi uint64) (removed uint64) {
	r, atEdge := c.runs[i], c.edge == i
	removed = c.set.ClearRange(lo, hi)
	c.starts.Clear(r.lo)
	delete(c.at, r.lo)
	c.link(r.prev, r.next)
	c.runs[i] = run{next: c.spare}
	c.spare = i
	next := r.next
	if r.hi > hi {
		next = c.insert(r.prev, next, hi+1, r.hi, r.until)
	}
	if r.lo < lo {
		next = c.insert(r.prev, next, r.lo, lo-1, r.until)
	}
	if atEdge {
		c.edge = next
	}
	return removed
}

// pop takes the oldest child out of the queue if it has cooled long enough.
func (c *cooling) pop(now time.Time) (i uint64, ok bool) {
	if c.head == none || c.runs[c.head].until.After(now) {
		return 0, false
	}
	i = c.runs[c.head].lo
	c.cut(c.head, i, i)
	return i, true
}

// when returns from when on n children, at least one, may be reused; ok is false
// if fewer are cooling. O(n).
func (c *cooling) when(n uint64) (t time.Time, ok bool) {
	for i := c.head; i != none; i = c.runs[i].next {
		size := c.runs[i].hi - c.runs[i].lo
		if size >= n-1 {
			return c.runs[i].until, true
		}
		n -= size + 1
	}
	return time.Time{}, false
}

// ripen moves edge to the first run that is cooling at the given time, by at most
// ripenStep runs, and reports whether it is there.
func (c *cooling) ripen(now time.Time) bool {
	for range ripenStep {
		before := c.tail
		if c.edge != none {
			before = c.runs[c.edge].prev
		}
		switch {
		case c.edge != none && !c.runs[c.edge].until.After(now):
			r := c.runs[c.edge]
			c.hot.ClearRange(r.lo, r.hi)
			c.edge = r.next
		case before != none && c.runs[before].until.After(now): // the clock was set back
			c.hot.SetRange(c.runs[before].lo, c.runs[before].hi)
			c.edge = before
		default:
			return true
		}
	}
	return false
}

// addSat returns a + b, at most the largest uint64: all of 2^64 children are one
// more than that.
func addSat(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return ^uint64(0)
}

// wholly reports whether all of [lo, hi] is set.
func wholly(b *bitmap.Bitmap, lo, hi uint64) bool {
	x, ok := b.NextClear(lo)
	return !ok || x > hi
}

// remove takes the children of [lo, hi] out of the queue and returns how many
// were in it.
func (c *cooling) remove(lo, hi uint64) (removed uint64) {
	for {
		x, ok := c.set.NextSet(lo)
		if !ok || x > hi {
			return removed
		}
		rank := c.starts.Rank(x)
		if !c.starts.Test(x) {
			rank--
		}
		start, _ := c.starts.Select(rank)
		i := c.at[start]
		end := min(c.runs[i].hi, hi)
		removed = addSat(removed, c.cut(i, x, end))
		if end == hi {
			return removed
		}
		lo = end + 1
	}
}

// check recomputes the queue's index and the order of its times.
func (c *cooling) check(busy *bitmap.Bitmap) error {
	if err := errors.Join(c.set.Check(), c.starts.Check()); err != nil {
		return err
	}
	last, _ := busy.Last()
	set := bitmap.New(last + 1)
	if last == ^uint64(0) {
		set = bitmap.NewPow2(64)
	}
	hot, ripe := busy.Clone(), c.edge != c.head
	n, prev := 0, int32(none)
	for i := c.head; i != none; prev, i = i, c.runs[i].next {
		r := c.runs[i]
		n++
		switch {
		case r.lo > r.hi || r.hi > last:
			return fmt.Errorf("cooling run %d [%d, %d] is not one", i, r.lo, r.hi)
		case r.prev != prev:
			return fmt.Errorf("cooling run %d: previous is %d, want %d", i, r.prev, prev)
		case prev != none && r.until.Before(c.runs[prev].until):
			return fmt.Errorf("cooling run %d is ready before the one it follows", i)
		case c.at[r.lo] != i || !c.starts.Test(r.lo):
			return fmt.Errorf("cooling run %d is not in the index", i)
		case set.CountRange(r.lo, r.hi) != 0:
			return fmt.Errorf("cooling run %d [%d, %d] overlaps another", i, r.lo, r.hi)
		case !wholly(busy, r.lo, r.hi):
			return fmt.Errorf("cooling run %d [%d, %d] is free", i, r.lo, r.hi)
		}
		set.SetRange(r.lo, r.hi)
		if ripe = ripe && i != c.edge; ripe {
			hot.ClearRange(r.lo, r.hi)
		}
	}
	spare := 0
	for i := c.spare; i != none; i = c.runs[i].next {
		spare++
	}
	if n+spare != len(c.runs) {
		return fmt.Errorf("cooling: %d runs and %d spare ones of %d", n, spare, len(c.runs))
	}
	if ripe != (c.edge == none && n > 0) || !hot.Equal(c.hot) {
		return fmt.Errorf("cooling: edge %d, and other children are hot", c.edge)
	}
	if c.tail != prev || n != len(c.at) || uint64(n) != c.starts.Count() || !set.Equal(c.set) {
		return fmt.Errorf("cooling: %d runs, %d in the index, %d starts", n, len(c.at), c.starts.Count())
	}
	return nil
}
