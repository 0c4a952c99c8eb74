//go:build transplant

// Package bitmap puts bitmap.Bitmap in the place of moby's. Their sequence stays as the form in which a bitmap is stored.
package bitmap

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/ipalloc/ipalloc/bitmap"
)

// Bitmap keeps the sequence beside the set, because their tests read and write it.
type Bitmap struct {
	bits, unselected, curr uint64
	head                   *sequence
	set                    *bitmap.Bitmap
	shown                  *sequence // the head that agrees with set
}

func New(n uint64) *Bitmap {
	h := &Bitmap{bits: n, set: bitmap.New(n)}
	h.show()
	return h
}

func Copy(b *Bitmap) *Bitmap {
	b.load()
	h := &Bitmap{bits: b.bits, curr: b.curr, set: b.set.Clone()}
	h.show()
	return h
}

// load takes over a sequence that was put into head.
func (h *Bitmap) load() {
	if h.head == h.shown {
		return
	}
	h.set, h.shown = bitmap.New(h.bits), h.head
	at := uint64(0)
	for s := h.head; s != nil; s = s.next {
		for n := s.count; n > 0 && s.block != 0; n-- {
			if s.block == blockMAX {
				h.set.SetRange(at, min(at+n*blockLen, h.bits)-1)
				at += n * blockLen
				break
			}
			for i := range uint64(blockLen) {
				if s.block&(blockFirstBit>>i) != 0 {
					h.set.Set(at + i)
				}
			}
			at += blockLen
		}
		if s.block == 0 {
			at += s.count * blockLen
		}
	}
}

// show makes the sequence of the set.
func (h *Bitmap) show() {
	h.unselected = h.bits - h.set.Count()
	blocks := (h.bits + blockLen - 1) / blockLen
	var first sequence
	last := &first
	for b := uint64(0); b < blocks; {
		x := b * blockLen
		word := bits.Reverse32(uint32(h.set.Word(x) >> (x % 64)))
		if beyond := (b+1)*blockLen - h.bits; b+1 == blocks {
			word = word >> beyond << beyond
		}
		end, found := b*blockLen, true
		switch word {
		case 0:
			end, found = h.set.NextSet(x)
		case blockMAX:
			end, found = h.set.NextClear(x)
		}
		n := max(1, end/blockLen-b)
		if !found {
			n = blocks - b
		}
		if last == &first || last.block != word {
			last.next = &sequence{block: word}
			last = last.next
		}
		last.count += n
		b += n
	}
	h.head, h.shown = first.next, first.next
}

func (h *Bitmap) Bits() uint64       { return h.bits }
func (h *Bitmap) Unselected() uint64 { return h.unselected }

func (h *Bitmap) IsSet(x uint64) bool {
	h.load()
	return x < h.bits && h.set.Test(x)
}

func (h *Bitmap) Set(x uint64) error {
	h.load()
	if x >= h.bits {
		return errors.New("bit does not belong to the sequence")
	}
	if !h.set.Set(x) {
		return ErrBitAllocated
	}
	h.show()
	return nil
}

func (h *Bitmap) Unset(x uint64) error {
	h.load()
	if x >= h.bits {
		return errors.New("bit does not belong to the sequence")
	}
	h.set.Clear(x)
	h.show()
	return nil
}

func (h *Bitmap) SetAny(serial bool) (uint64, error) { return h.SetAnyInRange(0, h.bits-1, serial) }

func (h *Bitmap) SetAnyInRange(start, end uint64, serial bool) (uint64, error) {
	h.load()
	if end < start || end >= h.bits {
		return invalidPos, fmt.Errorf("invalid bit range [%d, %d)", start, end)
	}
	from := start
	if serial {
		from = max(start, h.curr)
	}
	for _, x := range []uint64{from, start} {
		if x > end {
			continue
		}
		if x, ok := h.set.NextClear(x); ok && x <= end {
			h.set.Set(x)
			h.curr = x + 1
			h.show()
			return x, nil
		}
	}
	return invalidPos, ErrNoBitAvailable
}

func (h *Bitmap) OnesCount(start, end uint64) (uint64, error) {
	h.load()
	if end < start || end >= h.bits {
		return 0, fmt.Errorf("invalid bit range [%d, %d]", start, end)
	}
	return h.set.CountRange(start, end), nil
}
