package store

import (
	"encoding/binary"
)

// packer is the working memory of a table: records on their way into pages or out of them.
type packer struct {
	text []byte // keys and values
	recs []view
	out  []byte
}

// view is one record: its key and its value in text, or the record itself if it is a large one.
type view struct {
	from, mid, to int
	rev           uint64
	large         Record
}

func (b *packer) reset() {
	clear(b.recs)
	b.text, b.recs = b.text[:0], b.recs[:0]
}

// add appends a record.
func add[T string | []byte](b *packer, key, value T, rev uint64) {
	v := view{from: len(b.text), rev: rev}
	if isLarge(len(key), len(value)) {
		v.large = Record{Key: string(key), Value: string(value), Rev: rev}
	} else {
		b.text = append(append(b.text, key...), value...)
		v.mid, v.to = v.from+len(key), len(b.text)
	}
	b.recs = append(b.recs, v)
}

// load appends record i of a page.
func (b *packer) load(p *page, i int) {
	form, suffix, o := p.key(p.slot(i))
	v := view{from: len(b.text)}
	if form == formLarge {
		v.large = *p.big(o)
		v.rev = v.large.Rev
		b.recs = append(b.recs, v)
		return
	}
	b.text = append(append(b.text, p.buf[:p.prefix]...), suffix...)
	at, n, rev := p.value(o)
	v.mid, v.rev = len(b.text), rev
	if form == formRaw {
		b.text = append(b.text, p.buf[at:at+n]...)
	} else {
		b.text = p.unpack(b.text, at, n)
	}
	v.to = len(b.text)
	b.recs = append(b.recs, v)
}

// loadAll appends all records of a page.
func (b *packer) loadAll(p *page) {
	for i := range int(p.n) {
		b.load(p, i)
	}
}

// emit appends the records to dst and drops them. Their strings are parts of one.
func (b *packer) emit(dst []Record) []Record {
	s := string(b.text)
	for i := range b.recs {
		v := &b.recs[i]
		if v.large.Key != "" {
			dst = append(dst, v.large)
			continue
		}
		dst = append(dst, Record{Key: s[v.from:v.mid], Value: s[v.mid:v.to], Rev: v.rev})
	}
	b.reset()
	return dst
}

// keyOf returns the key of a record.
func (b *packer) keyOf(v *view) []byte {
	if v.large.Key != "" {
		return []byte(v.large.Key)
	}
	return b.text[v.from:v.mid]
}

// valueOf returns the value of a record.
func (b *packer) valueOf(v *view) []byte {
	if v.large.Key != "" {
		return []byte(v.large.Value)
	}
	return b.text[v.mid:v.to]
}

// pack packs a page. Its keys have the given length in common, perhaps more; spare is the room to leave.
func (p *page) pack(b *packer, prefix, spare int) {
	b.reset()
	b.loadAll(p)
	b.build(p, b.recs, prefix, spare)
	b.reset()
}

// build makes a page of records in key order. At most prefix bytes of their keys are its prefix.
func (b *packer) build(p *page, recs []view, prefix, spare int) {
	first := b.keyOf(&recs[0])
	n := min(common(first, string(b.keyOf(&recs[len(recs)-1]))), headMax, prefix)
	*p = page{n: uint16(len(recs)), prefix: uint8(n), moves: p.moves}
	for i := range recs {
		p.last = max(p.last, recs[i].rev)
	}
	p.base = p.last // what is written next is near
	out := append(b.out[:0], first[:n]...)
	v := &recs[len(recs)/2]
	model := b.text[v.mid:v.to]
	if len(model) < modelMin || len(model) > headMax {
		model = nil
	}
	p.model = uint8(len(model))
	out = append(out, model...)
	var offsets [pageMax + 1]uint16
	for i := range recs {
		v := &recs[i]
		offsets[i] = uint16(len(out))
		if v.large.Key != "" {
			out = binary.AppendUvarint(append(out, 0, formLarge), uint64(len(p.large)))
			p.large = append(p.large, v.large)
			continue
		}
		suffix := b.text[v.from+n : v.mid]
		out = append(append(out, byte(len(suffix)), formPacked), suffix...)
		out = binary.AppendUvarint(out, p.delta(v.rev))
		value := b.text[v.mid:v.to]
		out = binary.AppendUvarint(out, uint64(len(value)))
		out = appendRuns(out, value, model)
	}
	p.end, p.packed, b.out = uint16(len(out)), uint16(len(out)), out
	p.buf = append([]byte(nil), make([]byte, min(len(out)+2*len(recs)+spare, bufMax))...)
	p.buf = p.buf[:min(cap(p.buf), bufMax)]
	copy(p.buf, out)
	for i := range recs {
		p.setSlot(i, int(offsets[i]))
	}
}

// appendRuns appends the runs of a value: how many bytes equal the bytes of the model at the same place, how many do
// not, and the latter bytes.
func appendRuns(dst, value, model []byte) []byte {
	both := min(len(value), len(model))
	for i := 0; i < len(value); {
		from := i
		for i < both && value[i] == model[i] {
			i++
		}
		same := i - from
		from = i
		for i < len(value) && !(i+3 <= both && value[i] == model[i] && value[i+1] == model[i+1] && value[i+2] == model[i+2]) {
			i++
		}
		for i-from > 255 {
			dst = append(append(dst, byte(same), 255), value[from:from+255]...)
			from, same = from+255, 0
		}
		dst = append(append(dst, byte(same), byte(i-from)), value[from:i]...)
	}
	return dst
}

// common returns the length of the common prefix of two keys.
func common(a []byte, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
