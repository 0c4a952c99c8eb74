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
	bits  *bitmap.Bitmap
	bands [3]band // by Band; of the closed one only the taken positions are counted

	// simple: the static band is [0, split) and the dynamic one [split, last]. It is
	// what nearly every range is, and spares a search in each operation.
	simple bool
	split  uint64
}

// newSpace returns a space of the positions [0, last] with nothing taken. The zones
// are merged ones of a larger space that this one begins at base of; only what
// overlaps it counts.
func newSpace(last uint64, zones []zone, base addr.U128) *space {
	s := &space{}
	if last == ^uint64(0) {
		s.bits = bitmap.NewPow2(64)
	} else {
		s.bits = bitmap.New(last + 1)
	}
	s.cut(last, zones, base)
	return s
}

// cut makes the bands anew from zones, and counts what is taken in each.
func (s *space) cut(last uint64, zones []zone, base addr.U128) {
	s.bands = [3]band{}
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
		s.bands[z.band].add(sp)
	}
	st, dy := s.bands[Static].spans, s.bands[Dynamic].spans
	s.simple = len(dy) == 1 && dy[0].hi == last && len(st) <= 1 &&
		(len(st) == 0 && dy[0].lo == 0 || len(st) == 1 && st[0].lo == 0 && st[0].hi+1 == dy[0].lo)
	if s.simple {
		s.split = dy[0].lo
	}
	s.recount()
}

// recount derives the counts of the bands from the bits.
func (s *space) recount() {
	last, _ := s.bits.Last()
	closed := countTaken(s.bits, span{0, last})
	for _, b := range []Band{Static, Dynamic} {
		s.bands[b].used = addr.U128{}
		for _, sp := range s.bands[b].spans {
			s.bands[b].used = s.bands[b].used.Add(countTaken(s.bits, sp))
		}
		closed = closed.Sub(s.bands[b].used)
	}
	s.bands[Closed].used = closed
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
	case s.bands[Dynamic].holds(x):
		return Dynamic
	case s.bands[Static].holds(x):
		return Static
	}
	return Closed
}

// take takes x whatever its band and reports whether it was free.
func (s *space) take(x uint64) bool {
	if !s.bits.Set(x) {
		return false
	}
	inc(&s.bands[s.bandOf(x)].used)
	return true
}

// drop releases x and reports whether it was taken.
func (s *space) drop(x uint64) bool {
	if !s.bits.Clear(x) {
		return false
	}
	dec(&s.bands[s.bandOf(x)].used)
	return true
}

// takeNext takes what peek names. The band has room.
func (s *space) takeNext(b Band, u uint64) uint64 {
	bd := &s.bands[b]
	inc(&bd.used)
	if !s.simple || b != Dynamic {
		x := s.nextFree(bd, bd.at(scale(u, bd.size)))
		s.bits.Set(x)
		return x
	}
	// One descent: the band reaches the end of the space, so the first free position
	// is the answer, unless the walk came round and ended in the static band.
	x, _ := s.bits.SetNextClear(s.split + scale(u, bd.size))
	if x < s.split {
		s.bits.Clear(x)
		x, _ = s.bits.SetNextClear(s.split)
	}
	return x
}

// peek returns the free position of band b, which has room, that lies next to the one
// that u chooses, going up and round inside the band.
func (s *space) peek(b Band, u uint64) uint64 {
	bd := &s.bands[b]
	return s.nextFree(bd, bd.at(scale(u, bd.size)))
}

// nextFree returns the first free position of bd, which has room, at or after from,
// coming round at the end of the band. It goes over a full span in one step and never
// looks at a span twice: O(log n) for each gap between spans that it has to cross.
func (s *space) nextFree(bd *band, from uint64) uint64 {
	for {
		x, ok := s.bits.NextClear(from)
		if !ok {
			from = bd.spans[0].lo
			continue
		}
		i := bd.spanFrom(x)
		if i == len(bd.spans) {
			from = bd.spans[0].lo
			continue
		}
		if bd.spans[i].lo <= x {
			return x
		}
		from = bd.spans[i].lo // x lies in a gap: go on where the band does
	}
}

// takeRun fills dst with the free positions of band b from the one that u chooses, as
// that many calls of takeNext would find them if each began where the last one ended.
// The band has room for all.
func (s *space) takeRun(b Band, from uint64, dst []uint64) {
	bd := &s.bands[b]
	bd.used = bd.used.Add(addr.U128{Lo: uint64(len(dst))})
	for len(dst) > 0 {
		i := bd.spanFrom(from)
		if i == len(bd.spans) {
			i, from = 0, bd.spans[0].lo
		}
		sp := span{max(from, bd.spans[i].lo), bd.spans[i].hi}
		if k := s.room(sp, len(dst)); k > 0 {
			s.bits.SetNextN(dst[:k], sp.lo)
			dst = dst[k:]
		}
		if sp.hi == ^uint64(0) {
			from = bd.spans[0].lo
			continue
		}
		from = sp.hi + 1
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
