package store

import (
	"encoding/binary"
	"slices"
	"strings"
)

// page is up to pageMax records of the memory store, in key order and as bytes, so that a record costs little more than its
// bytes and the garbage collector has nothing to look at.
//
// The buffer begins with the prefix that all keys of the page share and with a template, the value of a record. Then come
// the records in the order in which they were written, then free space, then one slot of two bytes for each record, its
// offset, from the end of the buffer backwards in key order.
//
//	suffix length          one byte
//	capacity * 4 + form    one byte
//	suffix                 the key without the prefix
//
// and in form
//
//	raw     in as many units of 8 bytes as the capacity says: revision, value length, value
//	packed  revision, value length, the value's runs: how many bytes are those of the template at the same place and how
//	        many are not, in one byte each; then the latter
//	large   index into large, which has the record; the suffix is empty
//
// A revision is stored as its signed distance from base. A record is written raw, so that writing is quick and it can be
// overwritten in place; packing a whole page makes all its records packed.
type page struct {
	buf   []byte
	base  uint64   // revisions are coded against it
	last  uint64   // the highest revision written since the page was packed
	large []Record // records too large for the buffer; one without key is unused

	n      uint16 // records
	raw    uint16 // those of them in form raw
	end    uint16 // of the records
	waste  uint16 // bytes of the records that are no longer in use
	packed uint16 // end when the page was last packed
	prefix uint8  // length of the prefix
	model  uint8  // length of the template
	moves  uint32 // counts what changes the places of records
}

const (
	// pageMax is the number of records at which a page is split in two; pageFill is how far bulk loading fills one, which
	// leaves room to insert before the first split.
	pageMax  = 128
	pageFill = 120
	// inlineMax bounds the key and the value of a record in the page itself. Even pageMax + 1 such records with their
	// overhead, and one eighth of waste, fit into bufMax bytes, the range of an offset.
	inlineMax = 384
	bufMax    = 1<<16 - 1
	headMax   = 255 // of the prefix, of the template, and of a key in the page
)

// isLarge reports whether a record does not lie in a page itself.
func isLarge(key, value int) bool { return key > headMax || key+value > inlineMax }

// The forms of a record.
const (
	formRaw = iota
	formPacked
	formLarge
)

// modelMin is the shortest value that is worth comparing with a template.
const modelMin = 8

func (p *page) head() int        { return int(p.prefix) + int(p.model) }
func (p *page) template() []byte { return p.buf[p.prefix:p.head()] }

// slot returns the offset of record i.
func (p *page) slot(i int) int {
	at := len(p.buf) - 2*i - 2
	return int(p.buf[at]) | int(p.buf[at+1])<<8
}

func (p *page) setSlot(i, offset int) {
	at := len(p.buf) - 2*i - 2
	p.buf[at], p.buf[at+1] = byte(offset), byte(offset>>8)
}

// number reads a uvarint at an offset and returns the offset after it.
func (p *page) number(o int) (uint64, int) {
	if b := p.buf[o]; b < 0x80 {
		return uint64(b), o + 1
	}
	v, n := binary.Uvarint(p.buf[o:])
	return v, o + n
}

// delta codes a revision against base; revision is its inverse.
func (p *page) delta(rev uint64) uint64 { return (rev-p.base)<<1 ^ uint64(int64(rev-p.base)>>63) }

func (p *page) revision(d uint64) uint64 { return p.base + (d>>1 ^ -(d & 1)) }

// key returns the form of the record at an offset, its suffix, and the offset after it. The suffix of a large one is not there.
func (p *page) key(o int) (form int, suffix []byte, after int) {
	after = o + 2 + int(p.buf[o])
	return int(p.buf[o+1] & 3), p.buf[o+2 : after], after
}

// big returns the large record of which an index is at an offset.
func (p *page) big(o int) *Record {
	i, _ := p.number(o)
	return &p.large[i]
}

// search returns the place of a key, or the one where it would be.
func (p *page) search(key string) (i int, found bool) {
	buf, n := p.buf, int(p.prefix)
	if prefix := buf[:n]; len(key) < n || key[:n] != string(prefix) {
		if key < string(prefix) {
			return 0, false
		}
		return int(p.n), false
	}
	rest := key[n:]
	lo, hi := 0, int(p.n)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		at := len(buf) - 2*m - 2
		o := int(buf[at]) | int(buf[at+1])<<8
		var less bool
		if head := buf[o : o+2]; head[1]&3 != formLarge {
			less = string(buf[o+2:o+2+int(head[0])]) < rest
		} else {
			less = p.big(o + 2).Key[n:] < rest
		}
		if less {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo, lo < int(p.n) && p.is(lo, key)
}

// is reports whether record i has a key.
func (p *page) is(i int, key string) bool {
	form, suffix, at := p.key(p.slot(i))
	if form == formLarge {
		return p.big(at).Key == key
	}
	n := int(p.prefix)
	return len(key) == n+len(suffix) && key[n:] == string(suffix) && key[:n] == string(p.buf[:n])
}

// value returns where the code of a value begins, its length, and the revision of its record. It is not for large ones.
func (p *page) value(at int) (code, length int, rev uint64) {
	d, at := p.number(at)
	n, at := p.number(at)
	return at, int(n), p.revision(d)
}

// rev returns the revision of record i.
func (p *page) rev(i int) uint64 {
	form, _, o := p.key(p.slot(i))
	if form == formLarge {
		return p.big(o).Rev
	}
	_, _, rev := p.value(o)
	return rev
}

// get returns the value of record i and its revision.
func (p *page) get(i int) (string, uint64) {
	form, _, o := p.key(p.slot(i))
	if form == formLarge {
		r := p.big(o)
		return r.Value, r.Rev
	}
	at, n, rev := p.value(o)
	if form == formRaw {
		return string(p.buf[at : at+n]), rev
	}
	var buf [inlineMax]byte
	return string(p.unpack(buf[:0], at, n)), rev
}

// unpack appends a packed value of n bytes to dst.
func (p *page) unpack(dst []byte, at, n int) []byte {
	model := p.template()
	for i := 0; i < n; {
		same, other := int(p.buf[at]), int(p.buf[at+1])
		dst = append(dst, model[i:i+same]...)
		dst = append(dst, p.buf[at+2:at+2+other]...)
		i += same + other
		at += 2 + other
	}
	return dst
}

// capacity returns the number of units that a raw record at an offset has.
func (p *page) capacity(o int) int { return int(p.buf[o+1] >> 2) }

// length returns the number of bytes that the record at an offset takes.
func (p *page) length(o int) int {
	form, _, at := p.key(o)
	switch form {
	case formRaw:
		return at + 8*p.capacity(o) - o
	case formLarge:
		_, at = p.number(at)
		return at - o
	}
	at, n, _ := p.value(at)
	for n > 0 {
		n -= int(p.buf[at]) + int(p.buf[at+1])
		at += 2 + int(p.buf[at+1])
	}
	return at - o
}

// free returns the number of bytes between the records and the slots.
func (p *page) free() int { return len(p.buf) - 2*int(p.n) - int(p.end) }

// sizeOf returns the number of bytes of a number's code.
func sizeOf(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// room makes room for need bytes: by moving the records together, by packing them or by a larger buffer.
func (p *page) room(need int, b *packer) {
	if p.free() >= need {
		return
	}
	size := func() int { n := int(p.end) + 2*int(p.n) + need; return n + n/8 + 64 }
	switch {
	case int(p.waste)*8 > int(p.end) || size() > bufMax:
		p.compact(b)
	case p.n > 0 && int(p.end) > 2*int(p.packed)+1024:
		p.pack(b, int(p.prefix), need)
	}
	if p.free() < need {
		p.resize(min(size(), bufMax))
	}
}

// resize gives the page a buffer of at least size bytes.
func (p *page) resize(size int) {
	buf := append([]byte(nil), make([]byte, size)...) // the whole of what the allocator gives
	buf = buf[:min(cap(buf), bufMax)]
	copy(buf, p.buf[:p.end])
	copy(buf[len(buf)-2*int(p.n):], p.buf[len(p.buf)-2*int(p.n):])
	p.buf = buf
}

// compact moves the records together.
func (p *page) compact(b *packer) {
	out := append(b.out[:0], p.buf[:p.end]...)
	end := p.head()
	for i := range int(p.n) {
		o := p.slot(i)
		n := copy(p.buf[end:], out[o:o+p.lengthIn(out, o)])
		p.setSlot(i, end)
		end += n
	}
	p.end, p.waste, b.out = uint16(end), 0, out
}

// lengthIn is length in a copy of the buffer.
func (p *page) lengthIn(buf []byte, o int) int {
	return (&page{buf: buf, base: p.base}).length(o)
}

// insert puts a new record at place i.
func (p *page) insert(i int, r *Record, b *packer) {
	if n := int(p.prefix); p.n > 0 && !strings.HasPrefix(r.Key, string(p.buf[:n])) {
		p.pack(b, common(p.buf[:n], r.Key), len(r.Key)+len(r.Value)+16)
	}
	o := p.write(r, b)
	n := int(p.n)
	from := len(p.buf) - 2*n
	copy(p.buf[from-2:], p.buf[from:from+2*(n-i)])
	p.n++
	p.moves++
	p.setSlot(i, o)
}

// write appends a record and returns its offset. It leaves room for a slot.
func (p *page) write(r *Record, b *packer) int {
	const slot = 2
	if isLarge(len(r.Key), len(r.Value)) {
		p.room(2+binary.MaxVarintLen16+slot, b)
		i := slices.IndexFunc(p.large, func(r Record) bool { return r.Key == "" })
		if i < 0 {
			i = len(p.large)
			p.large = append(p.large, Record{})
		}
		p.large[i] = *r
		p.last = max(p.last, r.Rev)
		o := int(p.end)
		p.buf[o], p.buf[o+1] = 0, formLarge
		p.end += uint16(2 + binary.PutUvarint(p.buf[o+2:], uint64(i)))
		return o
	}
	suffix := r.Key[p.prefix:]
	p.room(2+len(suffix)+2*binary.MaxVarintLen64+len(r.Value)+slot, b)
	p.last = max(p.last, r.Rev)
	d := p.delta(r.Rev) // room may have changed base
	units := (sizeOf(d) + sizeOf(uint64(len(r.Value))) + len(r.Value) + 7) / 8
	o := int(p.end)
	p.buf[o], p.buf[o+1] = byte(len(suffix)), byte(units<<2)+formRaw
	at := o + 2 + copy(p.buf[o+2:], suffix)
	p.fill(at, d, r.Value)
	p.end = uint16(at + 8*units)
	p.raw++
	return o
}

// fill writes the revision and the value of a raw record.
func (p *page) fill(at int, d uint64, value string) {
	at += binary.PutUvarint(p.buf[at:], d)
	at += binary.PutUvarint(p.buf[at:], uint64(len(value)))
	copy(p.buf[at:], value)
}

// set overwrites record i, whose key r has.
func (p *page) set(i int, r *Record, b *packer) {
	o := p.slot(i)
	form, _, at := p.key(o)
	switch form {
	case formLarge:
		if isLarge(len(r.Key), len(r.Value)) {
			*p.big(at), p.last = *r, max(p.last, r.Rev)
			return
		}
	case formRaw:
		d := p.delta(r.Rev)
		if sizeOf(d)+sizeOf(uint64(len(r.Value)))+len(r.Value) <= 8*p.capacity(o) {
			p.fill(at, d, r.Value)
			p.last = max(p.last, r.Rev)
			return
		}
	}
	moves := p.moves
	p.remove(i)
	p.insert(i, r, b)
	p.moves = moves
}

// remove deletes record i.
func (p *page) remove(i int) {
	o := p.slot(i)
	n := p.length(o)
	switch form, _, at := p.key(o); form {
	case formRaw:
		p.raw--
	case formLarge:
		*p.big(at) = Record{}
	}
	if o+n == int(p.end) {
		p.end = uint16(o)
	} else {
		p.waste += uint16(n)
	}
	from := len(p.buf) - 2*int(p.n)
	copy(p.buf[from+2:], p.buf[from:len(p.buf)-2*i-2])
	p.n--
	p.moves++
}
