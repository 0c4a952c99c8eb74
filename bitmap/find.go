package bitmap

// NextSet returns the lowest set ordinal at or after x; ok is false if there is
// none. It panics if x is out of range. O(log64 n).
func (b *Bitmap) NextSet(x uint64) (next uint64, ok bool) {
	b.check(x)
	if b.root == nil {
		return 0, false
	}
	next, ok = b.root.next(x, true)
	return next, ok && next <= b.last
}

// NextClear returns the lowest clear ordinal at or after x; ok is false if there
// is none. It panics if x is out of range. O(log64 n).
func (b *Bitmap) NextClear(x uint64) (next uint64, ok bool) {
	b.check(x)
	if b.root == nil {
		return x, true
	}
	return b.root.next(x, false)
}

// NextClearWrap returns the lowest clear ordinal at or after x or, if there is
// none, the lowest of all; ok is false if the set is full. It panics if x is out
// of range. O(log64 n).
func (b *Bitmap) NextClearWrap(x uint64) (next uint64, ok bool) {
	next, ok = b.NextClear(x)
	if !ok && x != 0 {
		next, ok = b.NextClear(0)
	}
	return next, ok
}

// SetNextClear finds as [Bitmap.NextClearWrap] does and sets what it found. It
// costs little more than [Bitmap.Set] alone when a clear ordinal is near.
func (b *Bitmap) SetNextClear(x uint64) (next uint64, ok bool) {
	b.check(x)
	if b.root == nil {
		b.plant()
	}
	var p path
	if page := p.descend(b.root, x); page != nil {
		if next, ok = page.nextWord(x); ok {
			b.set(&p, page, next)
			return next, true
		}
	}
	if next, ok = b.NextClearWrap(x); ok {
		b.Set(next)
	}
	return next, ok
}

// nextWord returns the lowest clear ordinal of a page at or after x.
func (nd *node) nextWord(x uint64) (next uint64, ok bool) {
	c := x / 64 % fan
	if w := ^nd.words[c] & from(x%64); w != 0 {
		return x&^63 + lowest(w), true
	}
	m := nd.room & (from(c) << 1)
	if m == 0 {
		return 0, false
	}
	step(1)
	c = lowest(m)
	return nd.base + c*64 + lowest(^nd.words[c]), true
}

// AppendNextClear appends to dst the next k clear ordinals at or after x,
// wrapping once, fewer if the set has not as many, and returns the extended
// slice. The set is unchanged. It panics if x is out of range. It looks at each
// word once and allocates only to grow dst.
func (b *Bitmap) AppendNextClear(dst []uint64, x uint64, k int) []uint64 {
	b.check(x)
	end := len(dst) + k
	dst = b.appendClear(dst, x, b.last, end)
	if len(dst) < end && x != 0 {
		dst = b.appendClear(dst, 0, x-1, end)
	}
	return dst
}

// appendClear appends clear ordinals of [lo, hi] until dst has length end.
func (b *Bitmap) appendClear(dst []uint64, lo, hi uint64, end int) []uint64 {
	for len(dst) < end {
		x, ok := b.NextClear(lo)
		if !ok || x > hi {
			return dst
		}
		base := x &^ 63
		for w := ^b.Word(x) & from(x%64); w != 0 && len(dst) < end; w &= w - 1 {
			if x = base + lowest(w); x > hi {
				return dst
			}
			dst = append(dst, x)
		}
		if base|63 >= hi {
			return dst
		}
		lo = base + 64
	}
	return dst
}

// SetNextN fills dst with the next clear ordinals at or after x, wrapping once,
// sets them, and returns how many there were: len(dst) unless the set is full
// by then. It panics if x is out of range. It does not allocate but for pages,
// as [Bitmap.Set].
func (b *Bitmap) SetNextN(dst []uint64, x uint64) int {
	dst = b.AppendNextClear(dst[:0], x, len(dst))
	for i := 0; i < len(dst); {
		// A run of neighbours, and a batch mostly is one, is set in one go.
		j := i + 1
		for j < len(dst) && dst[j] > dst[j-1] && dst[j]-dst[j-1] == 1 {
			j++
		}
		b.SetRange(dst[i], dst[j-1])
		i = j
	}
	return len(dst)
}

// next returns the lowest ordinal of the given state at or after x within the
// node, where x lies in it. Ordinals from n on count as set.
func (nd *node) next(x uint64, state bool) (uint64, bool) {
	step(1)
	c := nd.slot(x)
	has := nd.room
	if state {
		has = nd.some
	}
	if has>>c&1 != 0 {
		if y, ok := nd.nextIn(c, x, state); ok {
			return y, true
		}
	}
	if has &= from(c) << 1; has == 0 {
		return 0, false
	}
	c = lowest(has)
	if nd.kid != nil && c >= uint64(len(nd.kid)) {
		return 0, false // beyond n, and perhaps beyond 2^64
	}
	return nd.nextIn(c, nd.start(c), state)
}

// nextIn is next within slot c, which has an ordinal of the given state.
func (nd *node) nextIn(c, x uint64, state bool) (uint64, bool) {
	if nd.kid == nil {
		step(1)
		w := (nd.words[c] ^ fill(!state)) & from(x%64)
		return nd.start(c) + lowest(w), w != 0
	}
	if !nd.mixed(c) {
		return x, true
	}
	kid := nd.kid[c]
	if x < kid.base {
		if kid.rest == state {
			return x, true
		}
		x = kid.base
	}
	if x <= kid.end() {
		if y, ok := kid.next(x, state); ok {
			return y, true
		}
		if kid.end() == nd.start(c)|(1<<nd.shift-1) {
			return 0, false
		}
		x = kid.end() + 1
	}
	return x, kid.rest == state && nd.smaller(kid)
}
