package servicealloc

import "slices"

// An ordered is a set that keeps its elements in the order of insertion. Finding, adding
// and removing an element take amortised constant time, which matters in a grant of
// 65,535 ports and among the claimants of one address. The zero value of T cannot be an
// element.
type ordered[T comparable] struct {
	items []T         // the first is an element; others are zero where one was removed
	at    map[T]int32 // where each is, plus base; nil while there are few
	base  int32       // how many were cut off at the front
	gone  int32       // how many of items are zero
}

// fewItems is the longest list in which a search is faster than a map.
const fewItems = 16

func orderedOf[T comparable](items []T) (o ordered[T]) {
	o.items = slices.Grow(o.items, len(items))
	for _, v := range items {
		o.add(v)
	}
	return o
}

func (o *ordered[T]) len() int { return len(o.items) - int(o.gone) }

// index returns the position of v, -1 if it is not in the set.
func (o *ordered[T]) index(v T) int {
	if o.at == nil {
		return slices.Index(o.items, v)
	}
	if i, ok := o.at[v]; ok {
		return int(i - o.base)
	}
	return -1
}

func (o *ordered[T]) has(v T) bool { return o.index(v) >= 0 }

// add appends v and reports whether it was absent.
func (o *ordered[T]) add(v T) bool {
	if o.has(v) {
		return false
	}
	o.items = append(o.items, v)
	if o.at != nil {
		o.at[v] = o.base + int32(len(o.items)-1)
	} else if len(o.items) > fewItems {
		o.pack()
	}
	return true
}

// remove removes v and reports whether it was present.
func (o *ordered[T]) remove(v T) bool {
	i := o.index(v)
	if i < 0 {
		return false
	}
	if o.at == nil {
		o.items = slices.Delete(o.items, i, i+1)
		return true
	}
	var none T
	delete(o.at, v)
	o.items[i] = none
	o.gone++
	for len(o.items) > 0 && o.items[0] == none {
		o.items = o.items[1:]
		o.base++
		o.gone--
	}
	if 2*int(o.gone) > len(o.items) || len(o.items) == 0 {
		o.pack()
	}
	return true
}

// pack drops the places of removed elements.
func (o *ordered[T]) pack() {
	*o = ordered[T]{items: o.list()}
	if len(o.items) <= fewItems {
		return
	}
	o.at = make(map[T]int32, len(o.items))
	for i, v := range o.items {
		o.at[v] = int32(i)
	}
}

// list returns the elements in order, in a new slice; nil for none.
func (o *ordered[T]) list() []T {
	if o.len() == 0 {
		return nil
	}
	var none T
	out := make([]T, 0, o.len())
	for _, v := range o.items {
		if v != none {
			out = append(out, v)
		}
	}
	return out
}
