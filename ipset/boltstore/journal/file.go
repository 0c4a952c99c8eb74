package journal

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// This file reads and writes the records of a journal as a whole: the snapshot, in parts, and the log.

// The bytes of a snapshot decide where its parts end, and a part is kept under its digest. A snapshot therefore shares with the one
// before it all parts but those that changed, and takes room for these alone. A part ends where the hash of the bytes before has
// its top 10 bits clear, which is after 1 KiB on average, but not before partMin and at the latest at partMax. bbolt writes up to
// four records in one run of pages, so small parts need short runs, which a full file still has.
const (
	partMin    = 256
	partMax    = 2 << 10
	digestSize = 16
)

// commitBytes is how many bytes of parts one commit has, far below the 256 MiB that it may have, so that the snapshot may be
// larger than a commit. A variable for the tests.
var commitBytes = 16 << 20

// split returns the length of the part that data begins with.
func split(data []byte) int {
	n := min(len(data), partMax)
	var hash uint64
	for i := range n {
		hash = hash<<1 + (uint64(data[i])+1)*0x9e3779b97f4a7c15
		if i >= partMin && hash>>54 == 0 {
			return i + 1
		}
	}
	return n
}

// writeSnapshot writes a snapshot in place of the log.
func (j *Journal[A]) writeSnapshot(a A) error {
	data, err := j.kind.marshal(a)
	if err != nil {
		return err
	}
	if err := j.replace(data, j.log.next); err != nil {
		return err
	}
	b, _ := j.batchOf(a, nil)
	j.log.cursor = b.cursor()
	if err := j.keepRoom(); err != nil && !errors.Is(err, boltstore.ErrNoSpace) {
		return err
	}
	return nil
}

// replace writes data in place of the snapshot and of the batches before the one of number upto. If it fails, it leaves no part of
// data in the file, or knows the part as stale.
func (j *Journal[A]) replace(data []byte, upto uint64) error {
	l := &j.log
	j.sweep()
	var ops []store.Op
	var index strings.Builder
	var written []string // keys that commits before the last put
	parts, size := map[string]bool{}, 0
	for rest := data; len(rest) > 0; {
		n := split(rest)
		sum := sha256.Sum256(rest[:n])
		key := keyPart + string(sum[:digestSize])
		index.Write(sum[:digestSize])
		if !parts[key] && !l.parts[key] {
			ops = append(ops, store.Op{Kind: store.Put, Key: key, Value: string(rest[:n]), Expect: store.AnyRevision})
			size += n
		}
		parts[key] = true
		rest = rest[n:]
		if size < commitBytes {
			continue
		}
		if err := j.put(ops); err != nil {
			return j.discard(written, err)
		}
		for _, op := range ops {
			written = append(written, op.Key)
		}
		ops, size = nil, 0
	}
	ops = append(ops, store.Op{Kind: store.Put, Key: keyKind, Value: kindRecord(j.kind.name), Expect: store.AnyRevision},
		store.Op{Kind: store.Put, Key: keySnapshot, Value: index.String(), Expect: store.AnyRevision})
	for n := l.first; n < upto; n++ {
		ops = append(ops, store.Op{Kind: store.Delete, Key: logKey(n), Expect: store.AnyRevision})
	}
	for key := range l.parts {
		if !parts[key] {
			ops = append(ops, store.Op{Kind: store.Delete, Key: key, Expect: store.AnyRevision})
		}
	}
	if err := j.put(ops); err != nil {
		return j.discard(written, err)
	}
	l.first, l.snapshot, l.parts = upto, len(data), parts
	l.stale = slices.DeleteFunc(l.stale, func(key string) bool { return parts[key] })
	if upto == l.next {
		l.bytes = 0
	}
	return nil
}

// records is what the file has of a journal.
type records struct {
	log      journalLog
	kind     bool
	index    *string // nil for none
	snapshot []byte  // nil for none
	batches  []batch
	sizes    []int // of the batches, in bytes
	parts    map[string]string
}

// fetch returns what the file has.
func (j *Journal[A]) fetch(ctx context.Context) (*records, error) {
	recs, _, err := j.table.List(ctx, store.Range{})
	if err != nil {
		return nil, err
	}
	f := &records{parts: map[string]string{}, log: journalLog{parts: map[string]bool{}}}
	for _, r := range recs {
		if err := j.read(f, r); err != nil {
			return nil, err
		}
	}
	if f.kind != (f.index != nil) || !f.kind && len(f.batches) > 0 {
		return nil, j.damaged("the snapshot is missing")
	}
	if err := j.join(f); err != nil {
		return nil, err
	}
	f.log.snapshot = len(f.snapshot)
	return f, nil
}

// load makes the allocator from what the file has, from nothing if that is nothing.
func (j *Journal[A]) load(ctx context.Context) error {
	f, err := j.fetch(ctx)
	if err != nil {
		return err
	}
	return j.rebuild(f)
}

// read takes one record over. They come in the order of their keys.
func (j *Journal[A]) read(f *records, r store.Record) error {
	l := &f.log
	switch {
	case r.Key == keyKind:
		f.kind = true
		return j.checkKind(r.Value)
	case r.Key == keySnapshot:
		f.index = &r.Value
	case strings.HasPrefix(r.Key, keyRoom) && len(r.Key) == len(keyRoom)+2:
		l.room = max(l.room, int(r.Key[len(keyRoom)])<<8+int(r.Key[len(keyRoom)+1])+1)
	case strings.HasPrefix(r.Key, keyPart) && len(r.Key) == len(keyPart)+digestSize:
		f.parts[r.Key] = r.Value
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
		f.sizes = append(f.sizes, len(r.Value))
		l.next++
		l.bytes += len(r.Value)
		l.largest = max(l.largest, len(r.Value))
	default:
		return j.damaged(fmt.Sprintf("record %q", r.Key))
	}
	return nil
}

// join puts the parts of the snapshot together, and notes those that it does not name as stale.
func (j *Journal[A]) join(f *records) error {
	if f.index != nil {
		if len(*f.index) == 0 || len(*f.index)%digestSize != 0 {
			return j.damaged(fmt.Sprintf("the list of parts has %d bytes", len(*f.index)))
		}
		for i := 0; i < len(*f.index); i += digestSize {
			key := keyPart + (*f.index)[i:i+digestSize]
			part, ok := f.parts[key]
			if !ok {
				return j.damaged(fmt.Sprintf("part %d of the snapshot is missing", i/digestSize))
			}
			f.snapshot = append(f.snapshot, part...)
			f.log.parts[key] = true
		}
	}
	for key := range f.parts {
		if !f.log.parts[key] {
			f.log.stale = append(f.log.stale, key)
		}
	}
	return nil
}
