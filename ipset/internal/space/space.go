// Package space finds free places in a space of up to 2^128 of them, by pages that a caller keeps as records.
//
// Terms: a place is a number, such as the index of a block among all blocks of its size. A page is one word. At level
// 0 it says which of 64 places in a row are taken; at level n, which of 64 pages of level n-1 are full. A set bit
// means taken. A page that was never written is all clear. Which page has which place follows from the number alone,
// so pools and ranges may be split, merged and moved without touching a page.
//
// The functions read and write pages through the caller, which keeps them in a transaction. They keep nothing
// themselves, and return the caller's errors as they are.
//
// Complexity: Mark reads and writes one page, and one more for each level above that becomes full or ceases to be.
// Find reads at most two pages a level.
package space

import (
	"math/bits"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// Bits is log2 of the children of a page.
const Bits = 6

// Full is the word of a page without a clear bit.
const Full = ^uint64(0)

// ID names a page: its level, and its number among the pages of that level, from place 0.
type ID struct {
	Level uint8
	Index addr.U128
}

// Leaf returns the page that says whether a place is taken, and the position of the place in it.
func Leaf(place addr.U128) (ID, uint) {
	return ID{Index: place.Shr(Bits)}, uint(place.Lo & 63)
}

// Parent returns the page above and the position of id in it. ok is false for the one page that spans a space of 2^width
// places.
func (id ID) Parent(width int) (up ID, child uint, ok bool) {
	if Bits*(int(id.Level)+1) >= width {
		return id, 0, false
	}
	return ID{Level: id.Level + 1, Index: id.Index.Shr(Bits)}, uint(id.Index.Lo & 63), true
}

// Pages is the storage of a caller: the word of every page.
type Pages interface {
	// Word returns the word of a page.
	Word(id ID) (uint64, error)
	// SetWord changes the word of a page that Word has returned.
	SetWord(id ID, word uint64) error
}

// Mark notes in a space of 2^width places that a place is taken, or free. A page that becomes full, or ceases to be full,
// changes the page above it.
func Mark(p Pages, width int, place addr.U128, taken bool) error {
	id, child := Leaf(place)
	for ok := true; ok; id, child, ok = id.Parent(width) {
		was, err := p.Word(id)
		if err != nil {
			return err
		}
		w := was &^ (1 << child)
		if taken {
			w |= 1 << child
		}
		if err := p.SetWord(id, w); err != nil {
			return err
		}
		if (was == Full) == (w == Full) {
			return nil
		}
	}
	return nil
}

// Find returns the first free place from first to last, both included; ok is false if there is none. word returns the word
// of a page.
//
// It climbs while a page has no clear bit left in the searched part, and descends to the first clear one.
func Find(word func(ID) (uint64, error), first, last addr.U128) (place addr.U128, ok bool, err error) {
	at := first // the next child to look at, in units of its level
	for level := uint(0); ; {
		end := last.Shr(Bits * level)
		if at.Cmp(end) > 0 {
			return addr.U128{}, false, nil
		}
		id := ID{Level: uint8(level), Index: at.Shr(Bits)}
		w, err := word(id)
		if err != nil {
			return addr.U128{}, false, err
		}
		if invariant.Enabled {
			invariant.Step(1)
		}
		free := ^w & (Full << (at.Lo & 63))
		if free == 0 {
			if id.Index.Cmp(end.Shr(Bits)) >= 0 {
				return addr.U128{}, false, nil // last is in this page or before it
			}
			at, level = id.Index.Add(addr.U128{Lo: 1}), level+1
			continue
		}
		at = id.Index.Shl(Bits).Or(addr.U128{Lo: uint64(bits.TrailingZeros64(free))})
		if at.Cmp(end) > 0 {
			return addr.U128{}, false, nil
		}
		if level == 0 {
			return at, true, nil
		}
		at, level = at.Shl(Bits), level-1
	}
}
