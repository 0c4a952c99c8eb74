package bitmap

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// The binary form, version 1:
//
//	byte 0     0xB7
//	byte 1     version, 1
//	byte 2     0 for a set over no ordinals, which ends the body; else 1
//	uvarint    n-1
//	tokens     until they cover ceil(n/4096) pages; each a uvarint: length<<2 | kind
//	4 bytes    CRC-32C of all before, little-endian
//
// A token of kind clear or set stands for length pages that are wholly clear or set. A
// dense token is followed by length pages of 64 little-endian words each. A sparse token
// stands for one page: length>>1 of its ordinals have the state length&1, all others the
// opposite state. The ordinals follow as uvarints: the first itself, each later one as
// the distance to the one before, less 1. Ordinals from n on are not part of a page.
// AppendBinary writes one form for each set.
const (
	magic   = "\xB7"
	version = 1

	tokenClear  = 0
	tokenSet    = 1
	tokenDense  = 2
	tokenSparse = 3

	// maxSparse is the most ordinals that a sparse page lists. At two bytes each it is
	// still smaller than a dense page of 512 bytes.
	maxSparse = 192
)

// MarshalBinary returns the binary form of the set; see [Bitmap.AppendBinary].
func (b *Bitmap) MarshalBinary() ([]byte, error) { return b.AppendBinary(nil) }

// AppendBinary appends the binary form of the set to dst, run-length encoded with a
// version and a checksum. A full or empty set takes at most 27 bytes, an isolated
// ordinal 4 to 12, a dense page 512. Equal sets have equal forms. The error is always
// nil.
func (b *Bitmap) AppendBinary(dst []byte) ([]byte, error) {
	at := len(dst)
	dst = append(dst, magic[0], version, 0)
	if b.some {
		dst[at+2] = 1
		dst = binary.AppendUvarint(dst, b.last)
		e := encoder{b: b, dst: dst, dense: -1}
		if !b.touched {
			e.run(b.last>>pageBits+1, false)
		} else {
			e.node(&b.root)
		}
		e.flush()
		dst = e.dst
	}
	return wire.Seal(dst, at), nil
}

// An encoder walks the tree in order and writes tokens. The pending part is either a run
// of equal pages or a sequence of dense ones.
type encoder struct {
	b     *Bitmap
	dst   []byte
	pages uint64 // length of the pending run
	state bool   // its state
	dense int    // where in dst the first of the pending dense pages starts; -1: none
}

func (e *encoder) flush() {
	if e.pages != 0 {
		kind := uint64(tokenClear)
		if e.state {
			kind = tokenSet
		}
		e.dst = binary.AppendUvarint(e.dst, e.pages<<2|kind)
		e.pages = 0
	}
	if e.dense >= 0 {
		// The token precedes its pages, and its length is known only now: make room.
		n := uint64(len(e.dst)-e.dense) / (fan * 8)
		var head [binary.MaxVarintLen64]byte
		size := binary.PutUvarint(head[:], n<<2|tokenDense)
		e.dst = append(e.dst, head[:size]...)
		copy(e.dst[e.dense+size:], e.dst[e.dense:len(e.dst)-size])
		copy(e.dst[e.dense:], head[:size])
		e.dense = -1
	}
}

func (e *encoder) run(pages uint64, state bool) {
	if pages == 0 {
		return
	}
	if e.dense >= 0 || e.state != state {
		e.flush()
	}
	e.state = state
	e.pages += pages
}

func (e *encoder) node(nd *node) {
	if nd.kid == nil {
		e.page(nd)
		return
	}
	for c := range uint64(fan) {
		lo := nd.start(c)
		if e.b.size(nd, c) == 0 {
			return
		}
		pages := (min(e.b.last-lo, 1<<nd.shift-1))>>pageBits + 1
		if !nd.mixed(c) {
			e.run(pages, nd.some>>c&1 != 0)
			continue
		}
		kid := nd.kid[c]
		before := (kid.base - lo) >> pageBits
		inside := (e.b.nodeSize(kid)-1)>>pageBits + 1
		e.run(before, kid.outer)
		e.node(kid)
		e.run(pages-before-inside, kid.outer)
	}
}

func (e *encoder) page(nd *node) {
	size := e.b.nodeSize(nd)
	set := uint64(0)
	for c := range uint64(fan) {
		set += uint64(bits.OnesCount64(nd.words[c] & e.valid(nd, c)))
	}
	switch {
	case set == 0 || set == size:
		e.run(1, set != 0)
	case set <= maxSparse:
		e.sparse(nd, set, true)
	case size-set <= maxSparse:
		e.sparse(nd, size-set, false)
	default:
		if e.dense < 0 {
			e.flush()
			e.dense = len(e.dst)
		}
		for c := range uint64(fan) {
			e.dst = binary.LittleEndian.AppendUint64(e.dst, nd.words[c]&e.valid(nd, c))
		}
	}
}

// valid is the mask of the ordinals below n in word c of a page.
func (e *encoder) valid(nd *node, c uint64) uint64 {
	lo := nd.start(c)
	if lo > e.b.last {
		return 0
	}
	return through(min(e.b.last-lo, 63))
}

func (e *encoder) sparse(nd *node, n uint64, state bool) {
	e.flush()
	polarity := uint64(0)
	if state {
		polarity = 1
	}
	e.dst = binary.AppendUvarint(e.dst, (n<<1|polarity)<<2|tokenSparse)
	next := uint64(0)
	for c := range uint64(fan) {
		for w := (nd.words[c] ^ fill(!state)) & e.valid(nd, c); w != 0; w &= w - 1 {
			x := c*64 + lowest(w)
			e.dst = binary.AppendUvarint(e.dst, x-next)
			next = x + 1
		}
	}
}

// UnmarshalBinary replaces the set with the set that data encodes.
//
// It accepts any bytes. UnmarshalBinary fails with [ipalloc.ErrCorrupt] if data is
// damaged, and with [ipalloc.ErrVersion] if a newer version wrote it; the set is
// unchanged then. It allocates at most a few nodes for each byte.
func (b *Bitmap) UnmarshalBinary(data []byte) error {
	d := decoder{b: &Bitmap{}, r: wire.Open(data, magic, version)}
	if wire.Bool(d.r, &d.b.some); d.b.some {
		d.b.last = d.r.Uvarint()
		d.pages()
	}
	if err := d.r.End(); err != nil {
		return &ipalloc.Error{Package: "bitmap", Op: "unmarshal", Err: err}
	}
	*b = *d.b
	if b.touched {
		b.gather(0) // a page that is the root has moved
	}
	return nil
}

type decoder struct {
	b *Bitmap
	r *wire.Coder
}

func (d *decoder) pages() {
	left := d.b.last>>pageBits + 1
	for page := uint64(0); left != 0 && d.r.Err == nil; {
		t := d.r.Uvarint()
		kind, n := t&3, t>>2
		pages := n
		if kind == tokenSparse {
			pages = 1
		}
		if pages == 0 || pages > left {
			d.r.Fail("token of %d pages, %d left", pages, left)
			return
		}
		lo := page << pageBits
		switch kind {
		case tokenSet:
			d.b.SetRange(lo, min(d.b.last-lo, pages<<pageBits-1)+lo)
		case tokenDense:
			d.dense(lo, n)
		case tokenSparse:
			d.sparse(lo, n)
		}
		page += pages
		left -= pages
	}
}

func (d *decoder) dense(lo, pages uint64) {
	for ; pages != 0; pages-- {
		src := d.r.Bytes(fan * 8)
		if d.r.Err != nil {
			return
		}
		var words [fan]uint64
		for i := range words {
			words[i] = binary.LittleEndian.Uint64([]byte(src[8*i : 8*i+8]))
		}
		if !d.b.load(lo, &words) {
			d.r.Fail("ordinals beyond %d in the page at %d", d.b.last, lo)
			return
		}
		lo += pageSize
	}
}

// load sets the ordinals of words in the page from lo, which must be wholly clear. It
// sets none and returns false if an ordinal of words is beyond n.
func (b *Bitmap) load(lo uint64, words *[fan]uint64) bool {
	first := -1
	for c, w := range words {
		if w == 0 {
			continue
		}
		if first < 0 {
			first = c
		}
		if at := lo + uint64(c)*64; at > b.last || w&^through(min(b.last-at, 63)) != 0 {
			return false
		}
	}
	if first < 0 {
		return true
	}
	// Setting one ordinal makes the page; the others follow in place.
	b.Set(lo + uint64(first)*64 + lowest(words[first]))
	page := b.find(lo)
	if page == nil {
		return true // that one was all the page lacked, and it has become a mark
	}
	more := uint64(0)
	for c, w := range words {
		more += uint64(bits.OnesCount64(w &^ page.words[c]))
		page.words[c] |= w
		page.setState(uint64(c), page.words[c])
	}
	b.account(lo, more)
	b.settle(page, lo)
	return true
}

func (d *decoder) sparse(lo, n uint64) {
	state, n := n&1 != 0, n>>1
	if n == 0 || n > maxSparse {
		d.r.Fail("sparse page of %d ordinals", n)
		return
	}
	hi := min(d.b.last-lo, pageSize-1) + lo
	if !state {
		d.b.SetRange(lo, hi)
	}
	for x := lo; n != 0 && d.r.Err == nil; n-- {
		gap := d.r.Uvarint()
		if x > hi || gap > hi-x || x < lo {
			d.r.Fail("ordinal beyond its page at %d", lo)
			return
		}
		x += gap
		if state {
			d.b.Set(x)
		} else {
			d.b.Clear(x)
		}
		x++ // wraps to 0 after the last ordinal of all, which x < lo catches
	}
}

// String returns n and the first runs of set ordinals, for messages and tests:
// "[0, 9]: 0-3 7".
func (b *Bitmap) String() string {
	if !b.some {
		return "[]:"
	}
	s := fmt.Appendf(nil, "[0, %d]:", b.last)
	shown := 0
	for lo, hi := range b.Runs() {
		if shown++; shown > 16 {
			return string(append(s, " ..."...))
		}
		if s = fmt.Appendf(s, " %d", lo); hi != lo {
			s = fmt.Appendf(s, "-%d", hi)
		}
	}
	return string(s)
}
