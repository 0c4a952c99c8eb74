package bands

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// A Space is a set of taken positions [0, last], cut into bands. It knows neither
// addresses nor ports and has no lock. A bit is set only for a taken position. A position
// that must never be allocated is in no band, so a release need not check the bands'
// rules and a count needs no correction. A band has fewer than 2^64 positions.
type Space struct {
	Bits   *bitmap.Bitmap
	Bands  [2]Band // static, dynamic
	Closed uint64  // how much is taken outside the bands

	// Simple means that the static band ends where the dynamic one begins, at split, and
	// that the dynamic band ends at the last position. Nearly every range is simple,
	// which saves a search in each operation.
	Simple bool
	Split  uint64
}

// Band returns the static or the dynamic band.
func (s *Space) Band(b ID) *Band { return &s.Bands[(b-Static)&1] }

// New returns a space of the positions [0, last] with nothing taken and the bands of
// merged zones.
func New(last uint64, zones []Zone) Space {
	var s Space
	if last == ^uint64(0) {
		s.Bits = bitmap.NewPow2(64)
	} else {
		s.Bits = bitmap.New(last + 1)
	}
	s.Cut(zones)
	return s
}

// Cut rebuilds the bands from merged zones and counts the taken positions of each.
func (s *Space) Cut(zones []Zone) {
	s.Bands = [2]Band{}
	for _, z := range zones {
		s.Band(z.Band).add(z.Span)
	}
	last, _ := s.Bits.Last()
	st, dy := s.Band(Static), s.Band(Dynamic)
	s.Simple = len(dy.parts) == 1 && len(st.parts) <= 1 && dy.parts[0].Lo == st.Size && dy.parts[0].Hi == last
	s.Split = st.Size
	s.recount()
}

// recount recomputes the counts of the bands from the bits.
func (s *Space) recount() {
	s.Closed = s.Bits.Count()
	for i := range s.Bands {
		b := &s.Bands[i]
		b.Used = 0
		for j := range b.parts {
			p := &b.parts[j]
			p.used = s.Bits.CountRange(p.Lo, p.Hi)
			b.Used += p.used
		}
		s.Closed -= b.Used
	}
}

// BandOf returns the band of x.
func (s *Space) BandOf(x uint64) ID {
	switch {
	case s.Simple && x >= s.Split:
		return Dynamic
	case s.Simple:
		return Static
	case s.Band(Dynamic).holds(x):
		return Dynamic
	case s.Band(Static).holds(x):
		return Static
	}
	return Closed
}

// Take takes x, of any band, and reports whether it was free.
func (s *Space) Take(x uint64) bool {
	if !s.Bits.Set(x) {
		return false
	}
	s.count(x, 1)
	return true
}

// Drop releases x and reports whether it was taken.
func (s *Space) Drop(x uint64) bool {
	if !s.Bits.Clear(x) {
		return false
	}
	s.count(x, ^uint64(0))
	return true
}

// count adds d, which is 1 or -1, to the number of taken positions of x's band.
func (s *Space) count(x, d uint64) {
	for i := range s.Bands {
		if p := s.Bands[i].from(x); p != nil && p.Lo <= x {
			s.Bands[i].Used += d
			p.used += d
			return
		}
	}
	s.Closed += d
}

// Takeable returns nil if x can be taken, and outside if it is in no band.
func (s *Space) Takeable(x uint64, outside error) error {
	switch {
	case s.BandOf(x) == Closed:
		return outside
	case s.Bits.Test(x):
		return ipalloc.ErrOccupied
	}
	return nil
}

// SimpleUsed returns the count of the band of x in a simple space.
func (s *Space) SimpleUsed(x uint64) *uint64 {
	i := 0
	if x >= s.Split {
		i = 1
	}
	return &s.Bands[i].Used
}

// ComeRound releases x, which a walk to the end of a simple space has taken, and takes
// the first free position of the dynamic band instead.
func (s *Space) ComeRound(x uint64) uint64 {
	s.Bits.Clear(x)
	x, _ = s.Bits.SetNextClear(s.Split)
	return x
}

// Next returns the position selected by u and its band. It takes the position from the
// dynamic band if that has a free one, and else from the static band if the engine may
// use it. The band is closed if there is no free position.
func (s *Space) Next(u uint64, neverSpill bool) (uint64, ID) {
	for b := Dynamic; b > Closed && (b == Dynamic || !neverSpill); b-- {
		if bd := s.Band(b); bd.Free() > 0 {
			return s.nextFree(bd, bd.At(Scale(u, bd.Size))), b
		}
	}
	return 0, Closed
}

// nextFree returns the first free position of bd at or after from, wrapping at the end of
// the band; bd must have a free position. It skips a full part in one step and never
// looks at a part twice: O(log n) for each gap between parts that it crosses.
func (s *Space) nextFree(bd *Band, from uint64) uint64 {
	for {
		x, ok := s.Bits.NextClear(from)
		p := bd.from(x)
		switch {
		case !ok || p == nil:
			from = bd.parts[0].Lo
		case p.Lo <= x:
			return x
		default:
			from = p.Lo // x lies in a gap: go on where the band does
		}
	}
}

// FreeAt returns the free position of rank k in bd, which must have more than k free
// positions.
func (s *Space) FreeAt(bd *Band, k uint64) uint64 {
	for i := range bd.parts {
		p := &bd.parts[i]
		free := bd.freeIn(p)
		if k < free {
			x, _ := s.Bits.SelectClear(p.Lo - s.Bits.Rank(p.Lo) + k)
			return x
		}
		k -= free
	}
	panic("bands: a band Has fewer free positions than it counts")
}

// Share returns the number of the n picks that the dynamic band can serve; the static
// band serves the others. It returns false if there is not enough room.
func (s *Space) Share(n uint64, spill bool) (k uint64, ok bool) {
	k = min(n, s.Band(Dynamic).Free())
	return k, k == n || spill && s.Band(Static).Free() >= n-k
}

// TakeRun fills dst with free positions of band b, which must have that many. They are
// the positions that len(dst) calls of nextFree would find, the first call from from,
// each later call from the end of the one before. TakeRun returns the start of the next
// call.
func (s *Space) TakeRun(b ID, from uint64, dst []uint64) uint64 {
	bd := s.Band(b)
	bd.Used += uint64(len(dst))
	for len(dst) > 0 {
		p := bd.from(from)
		if p == nil {
			from = bd.parts[0].Lo
			continue
		}
		Lo := max(p.Lo, from)
		from = p.Hi + 1
		if free := p.Hi - Lo + 1 - s.Bits.CountRange(Lo, p.Hi); free > 0 {
			run := dst[:min(uint64(len(dst)), free)]
			s.Bits.SetNextN(run, Lo)
			p.used += uint64(len(run))
			dst = dst[len(run):]
			from = run[len(run)-1] + 1
		}
		if from == 0 { // beyond 2^64-1
			from = bd.parts[0].Lo
		}
	}
	return from
}

// word returns the taken positions at or after x in one word of the bitmap: bit i stands
// for position from+i. ok is false if nothing is taken from x on.
func (s *Space) word(x uint64) (from, word uint64, ok bool) {
	x, ok = s.Bits.NextSet(x)
	if !ok {
		return 0, 0, false
	}
	from = x &^ 63
	word = s.Bits.Word(x) >> (x & 63) << (x & 63)
	if last, _ := s.Bits.Last(); last-from < 63 { // beyond the end a word reads as taken
		word &= 1<<(last-from+1) - 1
	}
	return from, word, true
}

// Each yields the taken positions, ascending, word by word; it reads each word under mu.
func (s *Space) Each(mu sync.Locker, yield func(x uint64) bool) {
	for next, more := uint64(0), true; more; {
		mu.Lock()
		from, w, ok := s.word(next)
		last, _ := s.Bits.Last()
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

// Check recomputes s from merged zones and compares.
func (s *Space) Check(zones []Zone) error {
	if err := s.Bits.Check(); err != nil {
		return err
	}
	want := &Space{Bits: s.Bits}
	want.Cut(zones)
	if want.Simple != s.Simple || want.Split != s.Split {
		return errors.New("shape of the bands")
	}
	if want.Closed != s.Closed {
		return fmt.Errorf("closed band: counted %d taken, there are %d", s.Closed, want.Closed)
	}
	for i := range s.Bands {
		w, h, name := &want.Bands[i], &s.Bands[i], (Static + ID(i)).String()
		if w.Used != h.Used {
			return fmt.Errorf("%s band: counted %d taken, there are %d", name, h.Used, w.Used)
		}
		if w.Size != h.Size || !slices.EqualFunc(w.parts, h.parts, func(w, h part) bool {
			return w.Span == h.Span && w.before == h.before && (len(want.Bands[i].parts) == 1 || w.used == h.used)
		}) {
			return fmt.Errorf("%s band: its parts", name)
		}
	}
	return nil
}

// Read reads the taken positions.
func (s *Space) Read(d *wire.Coder) {
	last, _ := s.Bits.Last()
	b := new(bitmap.Bitmap)
	d.Value(b)
	if is, ok := b.Last(); d.Err == nil && (!ok || is != last) {
		d.Fail("a set of another size")
	}
	if d.Err == nil {
		s.Bits = b
		s.recount()
	}
}
