package store

import (
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

// AppendBinary appends a snapshot of the whole store to b. It holds the lock while it
// copies. It returns no error.
func (m *Memory) AppendBinary(b []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := snap.NewWriter(b, snapshotMagic, snapshotVersion)
	w.Uvarint(m.rev)
	w.Count(m.table.n)
	for _, chunk := range m.table.chunks {
		for i := range chunk {
			r := &chunk[i]
			w.String(r.Key)
			w.String(r.Value)
			w.Uvarint(r.Rev)
		}
	}
	return w.Finish()
}

// MarshalBinary returns a snapshot of the whole store. It returns no error.
func (m *Memory) MarshalBinary() ([]byte, error) { return m.AppendBinary(nil) }

// RestoreMemory returns a store with the records of a snapshot, revisions included.
//
// Anything that AppendBinary did not write is ipalloc.ErrCorrupt; a snapshot of a newer
// version is ipalloc.ErrMismatch. Keys and values share one copy of data, which avoids
// an allocation per record. That copy stays in memory until the last of them is
// overwritten.
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
	text := string(data)
	tail := len(text) - len(snapshotMagic) - 1 - r.Len() // the checksum
	next := func() string {
		n := len(r.Bytes())
		end := len(text) - tail - r.Len()
		return text[end-n : end]
	}
	m := &Memory{rev: r.Uvarint()}
	last := ""
	for range r.Count(4) { // key and its length, length of the value, revision
		rec := Record{Key: next(), Value: next(), Rev: r.Uvarint()}
		if r.Err() == nil && (rec.Key <= last || rec.Rev == 0 || rec.Rev > m.rev) {
			r.Fail("record %q at revision %d of %d after %q", rec.Key, rec.Rev, m.rev, last)
		}
		if r.Err() != nil {
			return nil, r.Err()
		}
		last = rec.Key
		m.table.appendLast(rec)
	}
	m.oldest = m.rev
	return m, r.Close()
}
