package occ

import "github.com/ipalloc/ipalloc/ipset/store"

// text is a cell without a kind of its own. A put of the present content writes nothing.
type text struct {
	Var[content]
	was content // what the store has
}

type content struct {
	value string
	ok    bool // there is a record
	touch bool // write it even if it stays as it is
}

func parseText(key string) (string, bool) { return key, true }

func decodeText(_ string, r store.Record) (*text, error) {
	v := content{value: r.Value, ok: r.Rev != 0}
	return &text{NewVar(r, v), v}, nil
}

// Write implements [Entry].
func (x *text) Write(o *Ops) {
	switch {
	case x.now == x.was, !x.now.ok && !x.was.ok:
		o.Guard(&x.Cell)
	case x.now.ok:
		o.Put(&x.Cell)
		o.ops[len(o.ops)-1].Value = x.now.value
	default:
		o.Delete(&x.Cell)
	}
}

// Settle implements [Entry].
func (x *text) Settle() {
	x.now.touch = false
	x.was = x.now
}

// text returns the cell of a key, reading it if it is not known.
func (t *Txn) text(key string) (*text, error) {
	x := t.texts.Get(key)
	if x == nil {
		if err := t.Load(key); err != nil {
			return nil, err
		}
		x = t.texts.Get(key)
	}
	t.Guard(&x.Cell)
	return x, nil
}

// Get returns the content of a record, and false if there is none. It reads the record unless it is known.
func (t *Txn) Get(key string) (value string, ok bool, err error) {
	x, err := t.text(key)
	if err != nil {
		return "", false, err
	}
	return x.now.value, x.now.ok, nil
}

// Put writes a record. An unread record is assumed not to exist: if it does, the commit is in conflict, and the record is read
// then.
func (t *Txn) Put(key, value string) { x := t.known(key); Set(t, x, content{value, true, x.now.touch}) }

// Delete deletes a record, as Put writes one.
func (t *Txn) Delete(key string) { x := t.known(key); Set(t, x, content{touch: x.now.touch}) }

// Touch writes a record even if its content stays as it is, so that no other commit that names its present revision can be made.
// It does not make a missing record.
func (t *Txn) Touch(key string) {
	x := t.known(key)
	v := x.now
	v.touch = true
	Set(t, x, v)
}

// Assume returns the content of a record as Get does, but takes a record that is not known as missing.
func (t *Txn) Assume(key string) (value string, ok bool) {
	x := t.known(key)
	return x.now.value, x.now.ok
}

// known returns the cell of a key that is known or assumed not to exist.
func (t *Txn) known(key string) *text {
	x := t.texts.Get(key)
	if x == nil {
		x, _ = decodeText(key, store.Record{Key: key})
		t.texts.Put(key, x)
	}
	t.Guard(&x.Cell)
	return x
}
