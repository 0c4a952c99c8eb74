package servicealloc

import (
	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// A space is a set of taken positions [0, last], last below 2^64, cut into bands. It
// knows neither addresses nor ports and has no lock. Only what is taken is a set bit:
// network, broadcast and reserved positions are in no band (or outside the space), so
// a release needs no look at them and a count no correction.
type space struct {
	bits   *bitmap.Bitmap
	bands  [2]band   // see band
	closed addr.U128 // how much is taken outside the bands

	// simple: the static band is [0, split) and the dynamic one [split, last]. It is
	// what nearly every range is, and spares a search in each operation.
	simple bool
	split  uint64
}

// band returns the static or the dynamic band.
func (s *space) band(b Band) *band { return &s.bands[(b-Static)&1] }

func (s *space) dynamic() *band { return &s.bands[Dynamic-Static] }

// init makes s a space of the positions [0, last] with nothing taken. The zones are
// merged ones of a larger space that this one begins at base of; only what overlaps it
// counts.
func (s *space) init(last uint64, zones []zone, base addr.U128) {
	if last == ^uint64(0) {
		s.bits = bitmap.NewPow2(64)
	} else {
		s.bits = bitmap.New(last + 1)
	}
	s.cut(last, zones, base)
}

// cut makes the bands anew from zones, and counts what is taken in each.
func (s *space) cut(last uint64, zones []zone, base addr.U128) {
	s.bands = [2]band{}
	top := base.Add(addr.U128{Lo: last})
	for _, z := range zones {
		if z.hi.Cmp(base) < 0 || z.lo.Cmp(top) > 0 {
			continue
		}
		sp := span{0, last}
		if z.lo.Cmp(base) > 0 {
			sp.lo = z.lo.Sub(base).Lo
		}
		if z.hi.Cmp(top) < 0 {
			sp.hi = z.hi.Sub(base).Lo
		}
		s.band(z.band).add(sp)
	}
	st, dy := s.band(Static), s.band(Dynamic)
	s.simple = !dy.size.IsZero() && len(dy.more) == 0 && dy.hi == last && len(st.more) == 0 &&
		(st.size.IsZero() && dy.lo == 0 || !st.size.IsZero() && st.lo == 0 && st.hi+1 == dy.lo)
	s.split = 0
	if s.simple {
		s.split = dy.lo
	}
	s.recount()
}

// recount derives the counts of the bands from the bits.
func (s *space) recount() {
	last, _ := s.bits.Last()
	s.closed = countTaken(s.bits, span{0, last})
	for i := range s.bands {
		b := &s.bands[i]
		b.used = addr.U128{}
		for _, sp := range b.spans() {
			b.used = b.used.Add(countTaken(s.bits, sp))
		}
		s.closed = s.closed.Sub(b.used)
	}
}

// countTaken counts exactly where CountRange of 2^64 positions would saturate.
func countTaken(b *bitmap.Bitmap, sp span) addr.U128 {
	mid := sp.lo + (sp.hi-sp.lo)/2
	n := addr.U128{Lo: b.CountRange(sp.lo, mid)}
	if mid < sp.hi {
		n = n.Add(addr.U128{Lo: b.CountRange(mid+1, sp.hi)})
	}
	return n
}

func (s *space) bandOf(x uint64) Band {
	switch {
	case s.simple && x >= s.split:
		return Dynamic
	case s.simple:
		return Static
	case s.band(Dynamic).holds(x):
		return Dynamic
	case s.band(Static).holds(x):
		return Static
	}
	return Closed
}

// used returns the count of what is taken in b.
func (s *space) used(b Band) *addr.U128 {
	if b == Closed {
		return &s.closed
	}
	return &s.band(b).used
}

// take takes x whatever its band and reports whether it was free.
func (s *space) take(x uint64) bool {
	if !s.bits.Set(x) {
		return false
	}
	if s.simple {
		inc(&s.bands[s.simpleBand(x)].used)
		return true
	}
	inc(s.used(s.bandOf(x)))
	return true
}

// drop releases x and reports whether it was taken.
func (s *space) drop(x uint64) bool {
	if !s.bits.Clear(x) {
		return false
	}
	dec(s.used(s.bandOf(x)))
	return true
}

// dropSimple is drop of a simple space.
func (s *space) dropSimple(x uint64) bool {
	if !s.bits.Clear(x) {
		return false
	}
	dec(&s.bands[s.simpleBand(x)].used)
	return true
}

// simpleBand returns the index of the band of x in a simple space.
func (s *space) simpleBand(x uint64) int {
	if x >= s.split {
		return int(Dynamic - Static)
	}
	return 0
}

// takeNext takes what peek names. The band has room.
func (s *space) takeNext(b Band, u uint64) uint64 {
	if s.simple && b == Dynamic {
		return s.takeSimple(u)
	}
	x := s.peek(b, u)
	s.bits.Set(x)
	inc(&s.band(b).used)
	return x
}

// takeSimple is takeNext from the dynamic band of a simple space. It takes one descent:
// the band reaches the end of the space, so the first free position is the answer,
// unless the walk came round and ended in the static band.
func (s *space) takeSimple(u uint64) uint64 {
	b := s.dynamic()
	inc(&b.used)
	x, _ := s.bits.SetNextClear(s.split + scale(u, b.size))
	if x < s.split {
		s.bits.Clear(x)
		x, _ = s.bits.SetNextClear(s.split)
	}
	return x
}

// peek returns the free position of band b, which has room, that lies next to the one
// that u chooses, going up and round inside the band.
func (s *space) peek(b Band, u uint64) uint64 {
	bd := s.band(b)
	return s.nextFree(bd, bd.at(scale(u, bd.size)))
}

// nextFree returns the first free position of bd, which has room, at or after from,
// coming round at the end of the band. It goes over full spans in one step and never
// looks at a span twice: O(log n) for each gap between spans that it has to cross.
func (s *space) nextFree(bd *band, from uint64) uint64 {
	for {
		x, ok := s.bits.NextClear(from)
		if !ok {
			from = bd.lo
			continue
		}
		sp, ok := bd.from(x)
		if !ok {
			from = bd.lo
			continue
		}
		if sp.lo <= x {
			return x
		}
		from = sp.lo // x lies in a gap: go on where the band does
	}
}

// takeRun fills dst with the free positions of band b from from on, as that many calls
// of takeNext would find them if each began where the last one ended. The band has room
// for all.
func (s *space) takeRun(b Band, from uint64, dst []uint64) {
	bd := s.band(b)
	bd.used = bd.used.Add(addr.U128{Lo: uint64(len(dst))})
	for len(dst) > 0 {
		sp, ok := bd.from(from)
		if !ok {
			from = bd.lo
			continue
		}
		sp.lo = max(sp.lo, from)
		if k := s.room(sp, len(dst)); k > 0 {
			s.bits.SetNextN(dst[:k], sp.lo)
			dst = dst[k:]
		}
		if from = sp.hi + 1; from == 0 {
			from = bd.lo
		}
	}
}

// room returns how many positions of sp are free, at most k.
func (s *space) room(sp span, k int) int {
	n := addr.U128{Lo: sp.hi - sp.lo}.Add(addr.U128{Lo: 1}).Sub(countTaken(s.bits, sp))
	if n.Hi == 0 && n.Lo < uint64(k) {
		return int(n.Lo)
	}
	return k
}

func inc(n *addr.U128) {
	n.Lo++
	if n.Lo == 0 {
		n.Hi++
	}
}

func dec(n *addr.U128) {
	if n.Lo == 0 {
		n.Hi--
	}
	n.Lo--
}
