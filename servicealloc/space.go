package servicealloc

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/snap"
)

// Stats says how much of a range is taken.
type Stats struct {
	Static, Dynamic BandStats
	Closed          uint64 // held outside both bands: reserved, in ranges that drain, or in none
}

// BandStats is the part of [Stats] for one band.
type BandStats struct{ Capacity, Used, Free uint64 }

// A space is a set of taken positions [0, last], cut into bands. It knows neither
// addresses nor ports and has no lock. Only what is taken is a set bit: a position
// that is never handed out is in no band, so a release needs no look at the bands'
// rules and a count no correction. A band has fewer than 2^64 positions.
type space struct {
	bits   *bitmap.Bitmap
	bands  [2]band // see band
	closed uint64  // how much is taken outside the bands

	// simple: the static band ends where the dynamic one begins, at split, and that
	// ends at the last position. Nearly every range is so, and spares a search in
	// each operation.
	simple bool
	split  uint64
}

// band returns the static or the dynamic band.
func (s *space) band(b bandID) *band { return &s.bands[(b-static)&1] }

// newSpace returns a space of the positions [0, last] with nothing taken and the bands
// that merged zones describe.
func newSpace(last uint64, zones []zone) space {
	var s space
	if last == ^uint64(0) {
		s.bits = bitmap.NewPow2(64)
	} else {
		s.bits = bitmap.New(last + 1)
	}
	s.cut(zones)
	return s
}

// cut makes the bands anew from merged zones and counts what is taken in each.
func (s *space) cut(zones []zone) {
	s.bands = [2]band{}
	for _, z := range zones {
		s.band(z.band).add(z.span)
	}
	last, _ := s.bits.Last()
	st, dy := s.band(static), s.band(dynamic)
	s.simple = len(dy.parts) == 1 && len(st.parts) <= 1 && dy.parts[0].lo == st.size && dy.parts[0].hi == last
	s.split = st.size
	s.recount()
}

// recount derives the counts of the bands from the bits.
func (s *space) recount() {
	s.closed = s.bits.Count()
	for i := range s.bands {
		b := &s.bands[i]
		b.used = 0
		for j := range b.parts {
			p := &b.parts[j]
			p.used = s.bits.CountRange(p.lo, p.hi)
			b.used += p.used
		}
		s.closed -= b.used
	}
}

func (s *space) bandOf(x uint64) bandID {
	switch {
	case s.simple && x >= s.split:
		return dynamic
	case s.simple:
		return static
	case s.band(dynamic).holds(x):
		return dynamic
	case s.band(static).holds(x):
		return static
	}
	return closed
}

// take takes x whatever its band and reports whether it was free.
func (s *space) take(x uint64) bool {
	if !s.bits.Set(x) {
		return false
	}
	s.count(x, 1)
	return true
}

// drop releases x and reports whether it was taken.
func (s *space) drop(x uint64) bool {
	if !s.bits.Clear(x) {
		return false
	}
	s.count(x, ^uint64(0))
	return true
}

// count adds d, which is 1 or -1, to what is taken where x lies.
func (s *space) count(x, d uint64) {
	for i := range s.bands {
		if p := s.bands[i].from(x); p != nil && p.lo <= x {
			s.bands[i].used += d
			p.used += d
			return
		}
	}
	s.closed += d
}

// takeable returns nil if x can be taken, outside if it is in no band.
func (s *space) takeable(x uint64, outside error) error {
	switch {
	case s.bandOf(x) == closed:
		return outside
	case s.bits.Test(x):
		return ipalloc.ErrOccupied
	}
	return nil
}

// simpleUsed returns the count of the band of x in a simple space.
func (s *space) simpleUsed(x uint64) *uint64 {
	i := 0
	if x >= s.split {
		i = 1
	}
	return &s.bands[i].used
}

// comeRound releases x, which a walk to the end of a simple space has taken instead of
// the first free position of the dynamic band, and takes that.
func (s *space) comeRound(x uint64) uint64 {
	s.bits.Clear(x)
	x, _ = s.bits.SetNextClear(s.split)
	return x
}

// next returns the position that u leads to and its band: in the dynamic band, if it has
// a free one, else in the static one, if the engine may use it. The band is closed if
// there is none.
func (s *space) next(u uint64, neverSpill bool) (uint64, bandID) {
	for b := dynamic; b > closed && (b == dynamic || !neverSpill); b-- {
		if bd := s.band(b); bd.free() > 0 {
			return s.nextFree(bd, bd.at(scale(u, bd.size))), b
		}
	}
	return 0, closed
}

// nextFree returns the first free position of bd, which has one, at or after from,
// coming round at the end of the band. It passes full parts in one step and never looks
// at a part twice: O(log n) for each gap between parts that it has to cross.
func (s *space) nextFree(bd *band, from uint64) uint64 {
	for {
		x, ok := s.bits.NextClear(from)
		p := bd.from(x)
		switch {
		case !ok || p == nil:
			from = bd.parts[0].lo
		case p.lo <= x:
			return x
		default:
			from = p.lo // x lies in a gap: go on where the band does
		}
	}
}

// freeAt returns the free position of bd, which has more than k, of rank k.
func (s *space) freeAt(bd *band, k uint64) uint64 {
	for i := range bd.parts {
		p := &bd.parts[i]
		free := bd.freeIn(p)
		if k < free {
			x, _ := s.bits.SelectClear(p.lo - s.bits.Rank(p.lo) + k)
			return x
		}
		k -= free
	}
	panic("servicealloc: a band has fewer free positions than it counts")
}

// share says how many of n picks come from the dynamic band, the rest being for the
// static one, and whether there is room for all.
func (s *space) share(n uint64, spill bool) (k uint64, ok bool) {
	k = min(n, s.band(dynamic).free())
	return k, k == n || spill && s.band(static).free() >= n-k
}

// takeRun fills dst with free positions of band b, which has that many: what as many
// calls of nextFree would find if the first began at from and each of the others where
// the one before ended. It returns where the next one would begin.
func (s *space) takeRun(b bandID, from uint64, dst []uint64) uint64 {
	bd := s.band(b)
	bd.used += uint64(len(dst))
	for len(dst) > 0 {
		p := bd.from(from)
		if p == nil {
			from = bd.parts[0].lo
			continue
		}
		lo := max(p.lo, from)
		from = p.hi + 1
		if free := p.hi - lo + 1 - s.bits.CountRange(lo, p.hi); free > 0 {
			run := dst[:min(uint64(len(dst)), free)]
			s.bits.SetNextN(run, lo)
			p.used += uint64(len(run))
			dst = dst[len(run):]
			from = run[len(run)-1] + 1
		}
		if from == 0 { // beyond 2^64-1
			from = bd.parts[0].lo
		}
	}
	return from
}

// word returns the taken positions at or after x, as many as one word of the bitmap
// has: bit i stands for position from+i. ok is false if nothing is taken from x on.
func (s *space) word(x uint64) (from, word uint64, ok bool) {
	x, ok = s.bits.NextSet(x)
	if !ok {
		return 0, 0, false
	}
	from = x &^ 63
	word = s.bits.Word(x) >> (x & 63) << (x & 63)
	if last, _ := s.bits.Last(); last-from < 63 { // beyond the end a word reads as taken
		word &= 1<<(last-from+1) - 1
	}
	return from, word, true
}

// each yields the taken positions, ascending, word by word, each read under mu.
func (s *space) each(mu sync.Locker, yield func(x uint64) bool) {
	for next, more := uint64(0), true; more; {
		mu.Lock()
		from, w, ok := s.word(next)
		last, _ := s.bits.Last()
		mu.Unlock()
		if !ok {
			return
		}
		for ; w != 0; w &= w - 1 {
			if !yield(from + uint64(bits.TrailingZeros64(w))) {
				return
			}
		}
		next = from + 64
		more = next > from && next <= last
	}
}

func (s *space) stats() Stats {
	st, dy := &s.bands[0], &s.bands[1]
	return Stats{
		Static:  BandStats{st.size, st.used, st.size - st.used},
		Dynamic: BandStats{dy.size, dy.used, dy.size - dy.used},
		Closed:  s.closed,
	}
}

// add returns the sum of the counts, which saturate at 2^64-1.
func (s Stats) add(o Stats) Stats {
	sum := func(x, y uint64) uint64 {
		if sum, carry := bits.Add64(x, y, 0); carry == 0 {
			return sum
		}
		return ^uint64(0)
	}
	band := func(x, y BandStats) BandStats {
		return BandStats{sum(x.Capacity, y.Capacity), sum(x.Used, y.Used), sum(x.Free, y.Free)}
	}
	return Stats{band(s.Static, o.Static), band(s.Dynamic, o.Dynamic), sum(s.Closed, o.Closed)}
}

// check recomputes s from merged zones.
func (s *space) check(zones []zone) error {
	if err := s.bits.Check(); err != nil {
		return err
	}
	want := &space{bits: s.bits}
	want.cut(zones)
	if want.simple != s.simple || want.split != s.split {
		return errors.New("shape of the bands")
	}
	if want.closed != s.closed {
		return fmt.Errorf("closed band: counted %d taken, there are %d", s.closed, want.closed)
	}
	for i := range s.bands {
		w, h, name := &want.bands[i], &s.bands[i], (static + bandID(i)).name()
		if w.used != h.used {
			return fmt.Errorf("%s band: counted %d taken, there are %d", name, h.used, w.used)
		}
		if w.size != h.size || !slices.EqualFunc(w.parts, h.parts, func(w, h part) bool {
			return w.span == h.span && w.before == h.before && (len(want.bands[i].parts) == 1 || w.used == h.used)
		}) {
			return fmt.Errorf("%s band: its parts", name)
		}
	}
	return nil
}

// readBits reads what is taken.
func (s *space) readBits(d *snap.Reader) {
	last, _ := s.bits.Last()
	b := new(bitmap.Bitmap)
	d.Unmarshal(b)
	if is, ok := b.Last(); d.Err() == nil && (!ok || is != last) {
		d.Fail("a set of another size")
	}
	if d.Err() == nil {
		s.bits = b
		s.recount()
	}
}
