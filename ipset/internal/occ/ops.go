package occ

import "github.com/ipalloc/ipalloc/ipset/store"

// Ops collects the operations of a commit. Keys and values that are appended to Buf become parts of one string, made after
// the last of them, so a commit costs one allocation for them.
type Ops struct {
	Buf  []byte
	ops  []store.Op
	done int // where the last part of Buf ends
	refs []ref
}

// ref is one key or value: of which operation, and its part of the buffer.
type ref struct {
	op       int
	value    bool
	from, to int
}

// reset empties o. The first time it makes room for a commit of a few addresses.
func (o *Ops) reset() {
	if o.Buf == nil {
		room := new(struct {
			buf  [512]byte
			ops  [16]store.Op
			refs [16]ref
		})
		o.Buf, o.ops, o.refs = room.buf[:0], room.ops[:0], room.refs[:0]
	}
	clear(o.ops)
	o.ops, o.Buf, o.refs, o.done = o.ops[:0], o.Buf[:0], o.refs[:0], 0
}

// count returns how many records an entry writes.
func (o *Ops) count(e Entry) (n int) {
	o.reset()
	e.Write(o)
	for i := range o.ops {
		if o.ops[i].Kind != store.Guard {
			n++
		}
	}
	return n
}

// Add adds an operation. [Ops.Key] and [Ops.Value] complete it.
func (o *Ops) Add(op store.Op) { o.ops = append(o.ops, op) }

// Put writes the record of a cell on the revision that is known. [Ops.Value] completes it.
func (o *Ops) Put(c *Cell) { o.write(c, store.Put) }

// Delete deletes the record of a cell on the revision that is known.
func (o *Ops) Delete(c *Cell) { o.write(c, store.Delete) }

// Guard leaves the record of a cell as it is known.
func (o *Ops) Guard(c *Cell) { o.write(c, store.Guard) }

func (o *Ops) write(c *Cell, kind store.Kind) {
	c.wrote = kind
	o.ops = append(o.ops, store.Op{Kind: kind, Key: c.Key, Expect: c.Rev})
}

// Key makes the bytes appended to Buf since the last part the key of the last operation.
func (o *Ops) Key() { o.part(false) }

// Value makes the bytes appended to Buf since the last part the value of the last operation.
func (o *Ops) Value() { o.part(true) }

func (o *Ops) part(value bool) {
	o.refs = append(o.refs, ref{len(o.ops) - 1, value, o.done, len(o.Buf)})
	o.done = len(o.Buf)
}

// finish returns the operations.
func (o *Ops) finish() []store.Op {
	s := string(o.Buf)
	for _, r := range o.refs {
		if part := s[r.from:r.to]; r.value {
			o.ops[r.op].Value = part
		} else {
			o.ops[r.op].Key = part
		}
	}
	return o.ops
}
