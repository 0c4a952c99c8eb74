package cidrset

import (
	"errors"
	"fmt"
	"time"

	"github.com/ipalloc/ipalloc/bitmap"
)

// cooling is the queue of the children that were released and may not be reused yet, oldest
// first. They stay set in Set.busy, so no search for a free child finds them.
//
// The queue holds runs of neighbours, not single children. It is a ring in one slice, so
// steady state does not allocate. runs[0] lies between the newest run and the oldest. An
// index maps the first child of a run to the run.
//
// The queue keeps at most the newest 4,096 runs that have cooled. Older runs leave it, and
// their children count as never used. In a wide pool, which allocates children that were
// never used first, the queue would otherwise grow with every release.
//
// AllocatePrefix searches hot if nothing else fits. As time passes, edge moves along the
// queue and passes each run once. A request that does not fit therefore stays cheap,
// however many children have cooled.
//
// For example, a set of eight children with a cooldown of 60 s has this state after each
// call. A run [lo, hi] is written with its until, and > stands before the run at edge:
//
//	              queue, oldest first           taken    hot
//	 all taken                                  0-7      0-7
//	 0s release 0-3   > [0,3] 60s               4-7      0-7
//	10s release 5     > [0,3] 60s, [5,5] 70s    4 6-7    0-7
//	20s occupy 2      > [0,1] 60s, [3,3] 60s,   2 4 6-7  0-7
//	                    [5,5] 70s
//	60s allocate two  [3,3] 60s, > [5,5] 70s    0-2 4    0-2 4-7
//	                                            6-7
//	70s allocate one  > [5,5] 70s               0-4 6-7  0-7
//
// All eight stay busy throughout. occupy cuts its child out of the run that holds it. At
// 60s no two children are free. AllocatePrefix therefore moves edge past both runs that
// have cooled, which clears 0, 1 and 3 in hot. It finds 0-1 there and takes these two. At
// 70s AllocateNext takes the oldest child, 3, because no child is free.
type cooling struct {
	busy   *bitmap.Bitmap   // Set.busy
	taken  *bitmap.Bitmap   // the busy children that are not in the queue
	hot    *bitmap.Bitmap   // the busy children that are not in a run before edge
	starts *bitmap.Bitmap   // the first child of every run
	at     map[uint64]int32 // the run that starts there
	runs   []run
	edge   int32 // 0 if all runs are before it
	spare  int32 // list of unused runs, by next, up to 0
	most   int   // runs, beyond which one that has cooled leaves the queue
	wait   time.Duration
	now    func() time.Time
}

// run is the children [lo, hi], reusable from until on. Along the queue until never
// decreases.
type run struct {
	lo, hi     uint64
	until      time.Time
	prev, next int32
}

// mostRuns bounds the number of runs that have cooled: they take some 350 KB of memory
// and 80 KB of a snapshot.
const mostRuns = 4096

// ripenStep is how many runs ripen passes under one lock: about 0.1 ms of work.
const ripenStep = 1024

func newCooling(busy *bitmap.Bitmap, order int, wait time.Duration, now func() time.Time) *cooling {
	return &cooling{
		busy: busy, taken: bitmap.NewPow2(order), hot: bitmap.NewPow2(order), starts: bitmap.NewPow2(order), at: map[uint64]int32{},
		runs: make([]run, 1), most: mostRuns, wait: wait, now: now,
	}
}

// clock reads the set's clock; it returns the zero time if the set has none. The caller
// must not hold the lock, because the clock is foreign code.
func (s *Set) clock() time.Time {
	if s.cooling == nil {
		return time.Time{}
	}
	return s.cooling.now().Round(0) // without the monotonic reading, which no snapshot keeps
}

// take takes the children of [lo, hi], which must be busy.
func (c *cooling) take(lo, hi uint64) (taken uint64) {
	c.remove(lo, hi)
	c.hot.SetRange(lo, hi)
	return c.taken.SetRange(lo, hi)
}

// release appends the taken children of [lo, hi] to the queue and returns how many these
// are.
func (c *cooling) release(lo, hi uint64, now time.Time) (released uint64) {
	until := now.Add(c.wait)
	if newest := c.runs[0].prev; newest != 0 && until.Before(c.runs[newest].until) {
		until = c.runs[newest].until // the clock was set back
	}
	for x := lo; ; {
		first, ok := c.taken.NextSet(x)
		if !ok || first > hi {
			break
		}
		end := hi
		if y, ok := c.taken.NextClear(first); ok {
			end = min(hi, y-1)
		}
		c.push(first, end, until)
		c.retire(now)
		if end == hi {
			break
		}
		x = end + 1
	}
	return c.taken.ClearRange(lo, hi)
}

// If the queue has too many runs, retire removes the oldest that have cooled and makes
// their children free. It removes at most two, because a new run may also have split
// another one.
func (c *cooling) retire(now time.Time) {
	for range 2 {
		oldest := c.runs[0].next
		r := c.runs[oldest]
		if len(c.at) <= c.most || r.until.After(now) {
			return
		}
		c.cut(oldest, r.lo, r.hi)
		c.busy.ClearRange(r.lo, r.hi)
		c.hot.ClearRange(r.lo, r.hi)
	}
}

// push appends a run to the queue. It extends the last run instead if that run ends just
// before lo and has the same until, so a batch of neighbours is one run.
func (c *cooling) push(lo, hi uint64, until time.Time) {
	if c.edge != 0 {
		if last := &c.runs[c.runs[0].prev]; last.until.Equal(until) && last.hi != ^uint64(0) && last.hi+1 == lo {
			last.hi = hi
			return
		}
	}
	if i := c.insert(0, lo, hi, until); c.edge == 0 {
		c.edge = i
	}
}

// insert inserts a run before next.
func (c *cooling) insert(next int32, lo, hi uint64, until time.Time) int32 {
	i := c.spare
	if i == 0 {
		i = int32(len(c.runs))
		c.runs = append(c.runs, run{})
	} else {
		c.spare = c.runs[i].next
	}
	prev := c.runs[next].prev
	c.runs[i] = run{lo, hi, until, prev, next}
	c.runs[prev].next, c.runs[next].prev = i, i
	c.starts.Set(lo)
	c.at[lo] = i
	return i
}

// cut removes [lo, hi], which must be a part of run i, from the queue.
func (c *cooling) cut(i int32, lo, hi uint64) {
	r, atEdge := c.runs[i], c.edge == i
	c.starts.Clear(r.lo)
	delete(c.at, r.lo)
	c.runs[r.prev].next, c.runs[r.next].prev = r.next, r.prev
	c.runs[i] = run{next: c.spare}
	c.spare = i
	next := r.next
	if r.hi > hi {
		next = c.insert(next, hi+1, r.hi, r.until)
	}
	if r.lo < lo {
		next = c.insert(next, r.lo, lo-1, r.until)
	}
	if atEdge {
		c.edge = next
	}
}

// remove removes the children of [lo, hi] from the queue.
func (c *cooling) remove(lo, hi uint64) {
	if rank := c.starts.Rank(lo); rank != 0 && !c.starts.Test(lo) {
		start, _ := c.starts.Select(rank - 1)
		if i := c.at[start]; c.runs[i].hi >= lo {
			c.cut(i, lo, min(c.runs[i].hi, hi))
		}
	}
	for start, ok := c.starts.NextSet(lo); ok && start <= hi; start, ok = c.starts.NextSet(lo) {
		i := c.at[start]
		c.cut(i, start, min(c.runs[i].hi, hi))
	}
}

// pop takes the oldest child.
func (c *cooling) pop() uint64 {
	oldest := c.runs[0].next
	i := c.runs[oldest].lo
	c.cut(oldest, i, i)
	c.taken.Set(i)
	c.hot.Set(i)
	return i
}

// when returns the earliest time when n children, at least one, may be reused. ok is
// false if fewer are cooling, or if c is nil. O(n).
func (c *cooling) when(n uint64) (t time.Time, ok bool) {
	if c == nil {
		return time.Time{}, false
	}
	for i := c.runs[0].next; i != 0; i = c.runs[i].next {
		size := c.runs[i].hi - c.runs[i].lo
		if size >= n-1 {
			return c.runs[i].until, true
		}
		n -= size + 1
	}
	return time.Time{}, false
}

// ripen moves edge past at most ripenStep runs, towards the first run that is still
// cooling. It reports whether edge has reached that run.
func (c *cooling) ripen(now time.Time) bool {
	for range ripenStep {
		at, before := c.runs[c.edge], c.runs[c.edge].prev
		switch {
		case c.edge != 0 && !at.until.After(now):
			c.hot.ClearRange(at.lo, at.hi)
			c.edge = at.next
		case before != 0 && c.runs[before].until.After(now): // the clock was set back
			c.hot.SetRange(c.runs[before].lo, c.runs[before].hi)
			c.edge = before
		default:
			return true
		}
	}
	return false
}

// wholly reports whether all of [lo, hi] is set.
func wholly(b *bitmap.Bitmap, lo, hi uint64) bool {
	x, ok := b.NextClear(lo)
	return !ok || x > hi
}

// check recomputes everything the queue derives.
func (c *cooling) check(busy *bitmap.Bitmap) error {
	if err := errors.Join(c.taken.Check(), c.hot.Check(), c.starts.Check()); err != nil {
		return err
	}
	taken, hot := busy.Clone(), busy.Clone()
	last, _ := busy.Last()
	n, ripe := 0, true
	for i := c.runs[0].next; i != 0; i = c.runs[i].next {
		r := c.runs[i]
		switch {
		case r.lo > r.hi || r.hi > last:
			return fmt.Errorf("cooling run %d [%d, %d] is not one", i, r.lo, r.hi)
		case c.runs[r.prev].next != i || c.runs[r.next].prev != i:
			return fmt.Errorf("cooling run %d is between %d and %d, which disagree", i, r.prev, r.next)
		case r.prev != 0 && r.until.Before(c.runs[r.prev].until):
			return fmt.Errorf("cooling run %d is ready before the one it follows", i)
		case c.at[r.lo] != i || !c.starts.Test(r.lo):
			return fmt.Errorf("cooling run %d is not in the index", i)
		case !wholly(taken, r.lo, r.hi):
			return fmt.Errorf("cooling run %d [%d, %d] is free or overlaps another", i, r.lo, r.hi)
		}
		taken.ClearRange(r.lo, r.hi)
		if ripe = ripe && i != c.edge; ripe {
			hot.ClearRange(r.lo, r.hi)
		}
		n++
	}
	spare := 0
	for i := c.spare; i != 0; i = c.runs[i].next {
		spare++
	}
	switch {
	case n+spare+1 != len(c.runs):
		return fmt.Errorf("cooling: %d runs and %d spare ones of %d", n, spare, len(c.runs)-1)
	case n != len(c.at) || uint64(n) != c.starts.Count() || !taken.Equal(c.taken):
		return fmt.Errorf("cooling: %d runs, %d in the index, %d starts", n, len(c.at), c.starts.Count())
	case ripe != (c.edge == 0) || !hot.Equal(c.hot):
		return fmt.Errorf("cooling: edge %d, and other children are hot", c.edge)
	}
	return nil
}
