package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// This file reads and writes the records of a journal as a whole: the snapshot, in one record or in parts, and the log.

// partKey returns the key of part i of the snapshot of that number.
func partKey(number uint64, i int) string {
	return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte(keyPart), number), uint64(i)))
}

// writeSnapshot writes a snapshot in place of the log.
func (j *Journal[A]) writeSnapshot(a A) error {
	data, err := j.kind.marshal(a)
	if err != nil {
		return err
	}
	l := &j.log
	ops := []store.Op{{Kind: store.Put, Key: keyKind, Value: kindRecord(j.kind.name), Expect: store.AnyRevision}}
	replaced, parts := l.parts, []string(nil)
	if len(data) <= partBytes {
		ops = append(ops, store.Op{Kind: store.Put, Key: keySnapshot, Value: string(data), Expect: store.AnyRevision},
			store.Op{Kind: store.Delete, Key: keyParts, Expect: store.AnyRevision})
	} else {
		l.number++
		for i := 0; i*partBytes < len(data); i++ {
			key := partKey(l.number, i)
			l.parts = append(l.parts, key) // to be removed by the next snapshot, whatever becomes of this one
			parts = append(parts, key)
			part := data[i*partBytes : min((i+1)*partBytes, len(data))]
			if err := j.put([]store.Op{{Kind: store.Put, Key: key, Value: string(part), Expect: store.AnyRevision}}); err != nil {
				return err
			}
		}
		ops = append(ops, store.Op{Kind: store.Put, Key: keyParts, Value: fmt.Sprint(l.number, len(parts)), Expect: store.AnyRevision},
			store.Op{Kind: store.Delete, Key: keySnapshot, Expect: store.AnyRevision})
	}
	for n := l.first; n < l.next; n++ {
		ops = append(ops, store.Op{Kind: store.Delete, Key: logKey(n), Expect: store.AnyRevision})
	}
	for _, key := range replaced {
		ops = append(ops, store.Op{Kind: store.Delete, Key: key, Expect: store.AnyRevision})
	}
	if err := j.put(ops); err != nil {
		return err
	}
	l.first, l.bytes, l.snapshot, l.parts = l.next, 0, len(data), parts
	b, _ := j.batchOf(a, nil)
	l.cursor = b.cursor()
	return nil
}

// records is what the file has of a journal.
type records struct {
	log      journalLog
	kind     bool
	snapshot []byte // nil for none
	batches  []batch
	parts    map[string]string
	index    string // of the parts, "" for none
}

// load makes the allocator from what the file has, from nothing if that is nothing.
func (j *Journal[A]) load(ctx context.Context) error {
	recs, _, err := j.table.List(ctx, store.Range{})
	if err != nil {
		return err
	}
	f := records{parts: map[string]string{}}
	for _, r := range recs {
		if err := j.read(&f, r); err != nil {
			return err
		}
	}
	if f.index != "" {
		if err := j.join(&f); err != nil {
			return err
		}
	}
	f.log.snapshot = len(f.snapshot)
	if f.kind != (f.snapshot != nil) || !f.kind && len(f.batches) > 0 {
		return j.damaged("the snapshot is missing")
	}
	return j.rebuild(f.log, f.snapshot, f.batches)
}

// read takes one record over. They come in the order of their keys.
func (j *Journal[A]) read(f *records, r store.Record) error {
	l := &f.log
	switch {
	case r.Key == keyKind:
		f.kind = true
		return j.checkKind(r.Value)
	case r.Key == keySnapshot:
		f.snapshot = []byte(r.Value)
	case r.Key == keyParts:
		f.index = r.Value
	case strings.HasPrefix(r.Key, keyPart) && len(r.Key) == len(keyPart)+16:
		f.parts[r.Key] = r.Value
		l.parts = append(l.parts, r.Key)
		l.number = max(l.number, binary.BigEndian.Uint64([]byte(r.Key[len(keyPart):])))
	case strings.HasPrefix(r.Key, keyLog) && len(r.Key) == len(keyLog)+8:
		n := binary.BigEndian.Uint64([]byte(r.Key[len(keyLog):]))
		if len(f.batches) == 0 {
			l.first, l.next = n, n
		}
		b, err := j.decode(r.Value)
		if err != nil {
			return err
		}
		if n != l.next {
			return j.damaged(fmt.Sprintf("batch %d, expected %d", n, l.next))
		}
		f.batches = append(f.batches, b)
		l.next++
		l.bytes += len(r.Value)
	default:
		return j.damaged(fmt.Sprintf("record %q", r.Key))
	}
	return nil
}

// join puts the parts of a snapshot together.
func (j *Journal[A]) join(f *records) error {
	var number uint64
	var n int
	if _, err := fmt.Sscanf(f.index, "%d %d", &number, &n); err != nil || f.snapshot != nil || n > len(f.parts) || f.index != fmt.Sprint(number, n) {
		return j.damaged(fmt.Sprintf("the parts of the snapshot are %q", f.index))
	}
	for i := range n {
		part, ok := f.parts[partKey(number, i)]
		if !ok {
			return j.damaged(fmt.Sprintf("part %d of the snapshot is missing", i))
		}
		f.snapshot = append(f.snapshot, part...)
	}
	return nil
}
