package servicealloc

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc/bitmap"
)

// Stats says how much of a range is taken.
type Stats struct {
	Static, Dynamic BandStats
	Closed          uint64 // held outside both bands: reserved, or in ranges that drain
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

// newBits returns a bitmap over [0, last].
func newBits(last uint64) *bitmap.Bitmap {
	if last == ^uint64(0) {
		return bitmap.NewPow2(64)
	}
	return bitmap.New(last + 1)
}

// init makes s a space of the positions [0, last] with nothing taken and the bands that
// merged zones describe.
func (s *space) init(last uint64, zones []zone) {
	s.bits = newBits(last)
	s.cut(zones)
}

// cut makes the bands anew from merged zones and counts what is taken in each.
func (s *space) cut(zones []zone) {
	s.bands = [2]band{}
	for _, z := range zones {
		s.band(z.band).add(z.span)
	}
	last, _ := s.bits.Last()
	st, dy := s.band(static), s.band(dynamic)
	s.split = dy.lo
	s.simple = dy.size != 0 && len(dy.more) == 0 && dy.hi == last &&
		(st.size == 0 && dy.lo == 0 || st.size != 0 && len(st.more) == 0 && st.lo == 0 && st.hi+1 == dy.lo)
	s.recount()
}

// recount derives the counts of the bands from the bits.
func (s *space) recount() {
	s.closed = s.bits.Count()
	for i := range s.bands {
		b := &s.bands[i]
		b.used = 0
		for _, sp := range b.spans() {
			b.used += s.bits.CountRange(sp.lo, sp.hi)
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

// used returns the count of what is taken in b.
func (s *space) used(b bandID) *uint64 {
	if b == closed {
		return &s.closed
	}
	return &s.band(b).used
}

// take takes x whatever its band and reports whether it was free.
func (s *space) take(x uint64) bool {
	if !s.bits.Set(x) {
		return false
	}
	*s.used(s.bandOf(x))++
	return true
}

// drop releases x and reports whether it was taken.
func (s *space) drop(x uint64) bool {
	if !s.bits.Clear(x) {
		return false
	}
	*s.used(s.bandOf(x))--
	return true
}

// simpleUsed returns the count of the band of x in a simple space.
func (s *space) simpleUsed(x uint64) *uint64 {
	i := 0
	if x >= s.split {
		i = 1
	}
	return &s.bands[i].used
}

// takeSimple takes the next free position of the dynamic band of a simple space, which
// has one. The band reaches the end of the space, so the first free position is the
// answer, unless the walk came round and ended in the static band.
func (s *space) takeSimple(u uint64) uint64 {
	b := &s.bands[1]
	b.used++
	x, _ := s.bits.SetNextClear(s.split + scale(u, b.size))
	if x < s.split {
		s.bits.Clear(x)
		x, _ = s.bits.SetNextClear(s.split)
	}
	return x
}

// peek returns the free position of band b, which has one, that lies next to the one
// that u chooses, going up and round inside the band.
func (s *space) peek(b bandID, u uint64) uint64 {
	return s.nextFree(s.band(b), s.start(b, u))
}

// start returns the position of band b that u chooses, 0 if it has none.
func (s *space) start(b bandID, u uint64) uint64 {
	bd := s.band(b)
	return bd.at(scale(u, bd.size))
}

// nextFree returns the first free position of bd, which has one, at or after from,
// coming round at the end of the band. It passes full spans in one step and never looks
// at a span twice: O(log n) for each gap between spans that it has to cross.
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
		sp, ok := bd.from(from)
		if !ok {
			from = bd.lo
			continue
		}
		sp.lo = max(sp.lo, from)
		from = sp.hi + 1
		if free := sp.hi - sp.lo + 1 - s.bits.CountRange(sp.lo, sp.hi); free > 0 {
			run := dst[:min(uint64(len(dst)), free)]
			s.bits.SetNextN(run, sp.lo)
			dst = dst[len(run):]
			from = run[len(run)-1] + 1
		}
		if from == 0 {
			from = bd.lo
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

// unshared is the lock of a space that no other goroutine uses.
type unshared struct{}

func (unshared) Lock()   {}
func (unshared) Unlock() {}

func (s *space) stats() Stats {
	st, dy := &s.bands[0], &s.bands[1]
	return Stats{
		Static:  BandStats{st.size, st.used, st.size - st.used},
		Dynamic: BandStats{dy.size, dy.used, dy.size - dy.used},
		Closed:  s.closed,
	}
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
	for b := closed; b <= dynamic; b++ {
		if w, h := *want.used(b), *s.used(b); w != h {
			return fmt.Errorf("%s band: counted %d taken, there are %d", b.name(), h, w)
		}
	}
	for i := range s.bands {
		w, h := &want.bands[i], &s.bands[i]
		if w.span != h.span || !slices.Equal(w.more, h.more) || w.size != h.size {
			return fmt.Errorf("%s band: its positions", (static + bandID(i)).name())
		}
	}
	return nil
}
