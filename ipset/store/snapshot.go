package store

import (
	"bytes"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/snap"
)

// The body of a snapshot of a memory store, in the frame of package snap:
//
//	revision, records      numbers
//	per record             key, value, revision; keys ascend
const (
	snapshotMagic   = "ipalloc store\n"
	snapshotVersion = 1
)

// MarshalBinary returns a snapshot of the whole store. It holds the lock while it
// copies. It returns no error.
func (m *Memory) MarshalBinary() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := snap.NewWriter(nil, snapshotMagic, snapshotVersion)
	w.Uvarint(m.rev)
	w.Count(m.table.n)
	m.table.all(func(b *packer) {
		for i := range b.recs {
			v := &b.recs[i]
			w.Bytes(b.keyOf(v))
			w.Bytes(b.valueOf(v))
			w.Uvarint(v.rev)
		}
	})
	return w.Finish()
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
	r := snap.NewReader(data, snapshotMagic, snapshotVersion)
	if r.Err() != nil {
		return nil, r.Err()
	}
	m := &Memory{rev: r.Uvarint()}
	last, t := []byte(nil), &m.table
	for range r.Count(4) { // key and its length, length of the value, revision
		key, value, rev := r.Bytes(), r.Bytes(), r.Uvarint()
		if r.Err() == nil && (bytes.Compare(key, last) <= 0 || rev == 0 || rev > m.rev) {
			r.Fail("record %q at revision %d of %d after %q", key, rev, m.rev, last)
		}
		if r.Err() != nil {
			return nil, r.Err()
		}
		last = key
		if add(&t.pk, key, value, rev); len(t.pk.recs) == pageFill {
			t.appendPage()
		}
	}
	t.appendPage()
	m.oldest = m.rev
	return m, r.Close()
}
