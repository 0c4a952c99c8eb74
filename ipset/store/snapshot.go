package store

import (
	"bytes"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// The body of a snapshot of a memory store, in the frame of package wire:
//
//	revision, records      numbers
//	per record             key, value, revision; keys ascend
const (
	snapshotMagic   = "ipalloc store\n"
	snapshotVersion = 1

	// The fewest bytes that a record takes: a key and its length, the length of the value, a revision.
	minRecord = 4
)

// MarshalBinary returns a snapshot of the whole store. It holds the lock while it
// copies. It returns no error.
func (m *Memory) MarshalBinary() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := wire.Frame(nil, snapshotMagic, snapshotVersion)
	wire.Uint(w, &m.rev)
	w.Count(&m.table.n, minRecord)
	m.table.all(func(b *packer) {
		for i := range b.recs {
			v := &b.recs[i]
			key, value := b.keyOf(v), b.valueOf(v)
			codeRecord(w, &key, &value, &v.rev)
		}
	})
	return w.Finish()
}

func codeRecord(c *wire.Coder, key, value *[]byte, rev *uint64) {
	wire.Blob(c, key)
	wire.Blob(c, value)
	wire.Uint(c, rev)
}

// RestoreMemory returns a store with the records of a snapshot, revisions included.
//
// Anything that MarshalBinary did not write is ipalloc.ErrCorrupt; a snapshot of a newer
// version is ipalloc.ErrVersion. The store does not keep data.
func RestoreMemory(data []byte) (*Memory, error) {
	m, err := restore(data)
	if err != nil {
		return nil, &ipalloc.Error{Package: "store", Op: "restore", Err: err}
	}
	return m, nil
}

func restore(data []byte) (*Memory, error) {
	r := wire.Open(data, snapshotMagic, snapshotVersion)
	m, n := &Memory{rev: r.Uvarint()}, 0
	last, t := []byte(nil), &m.table
	var key, value []byte
	var rev uint64
	for r.Count(&n, minRecord); n > 0; n-- {
		if codeRecord(r, &key, &value, &rev); r.Err == nil && (bytes.Compare(key, last) <= 0 || rev == 0 || rev > m.rev) {
			r.Fail("record %q at revision %d of %d after %q", key, rev, m.rev, last)
		}
		if r.Err != nil {
			return nil, r.Err
		}
		last = key
		if add(&t.pk, key, value, rev); len(t.pk.recs) == pageFill {
			t.appendPage()
		}
	}
	t.appendPage()
	m.oldest = m.rev
	return m, r.End()
}
