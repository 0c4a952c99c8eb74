package boltstore

import (
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// batchWriter writes the commits of one transaction.
type batchWriter struct {
	s      *Store
	tx     *bbolt.Tx
	id     int // of the transaction
	next   state
	wrote  bool
	steps  int // lookups and changes so far
	events []store.Event
}

// newBatchWriter returns the writer of a transaction. It has bbolt read the root page into memory at once: bbolt reads it again when it
// commits, and older bytes that came over the file meanwhile could keep it from ever returning.
func newBatchWriter(s *Store, tx *bbolt.Tx) (*batchWriter, error) {
	root := tx.Cursor().Bucket()
	return &batchWriter{s: s, tx: tx, id: tx.ID(), next: s.state}, root.SetSequence(root.Sequence())
}

// lookEvery is after how many lookups and changes a transaction verifies the meta pages again. A page tree that refers back to itself,
// which older bytes over parts of the file can leave, ends the process in bbolt's cursor.
const lookEvery = 64

// step counts a lookup or a change.
func (b *batchWriter) step() error {
	if b.steps++; b.steps%lookEvery != 0 {
		return nil
	}
	return b.s.untouched()
}

// present is what a commit finds under a key.
type present struct {
	sum  uint32
	here bool
}

// commit checks one caller's expectations and makes its changes. An error that is no conflict ends the transaction.
func (b *batchWriter) commit(table string, ops []store.Op) (uint64, error) {
	bucket, err := b.tx.CreateBucketIfNotExists([]byte(table))
	if err != nil {
		return 0, err
	}
	have, writes, err := b.expect(bucket, table, ops)
	if err != nil || !writes {
		return b.next.rev, err
	}
	b.wrote = true
	b.next.rev++
	ev := store.Event{Rev: b.next.rev}
	for i := range ops {
		op, key := &ops[i], []byte(ops[i].Key)
		if op.Kind == store.Guard {
			continue
		}
		if err := b.step(); err != nil {
			return 0, err
		}
		if have[i].here {
			b.next.count--
			b.next.sum -= uint64(have[i].sum)
		}
		switch {
		case op.Kind == store.Put:
			raw, sum := encodeRecord(table, key, b.next.rev, op.Value)
			if err := bucket.Put(key, raw); err != nil {
				return 0, err
			}
			b.next.count++
			b.next.sum += uint64(sum)
			ev.Changes = append(ev.Changes, store.Record{Key: op.Key, Value: op.Value, Rev: b.next.rev})
		case have[i].here:
			if err := bucket.Delete(key); err != nil {
				return 0, err
			}
			ev.Changes = append(ev.Changes, store.Record{Key: op.Key})
		}
	}
	if table == recordsBucket {
		slices.SortFunc(ev.Changes, func(x, y store.Record) int { return strings.Compare(x.Key, y.Key) })
		b.events = append(b.events, ev)
	}
	return b.next.rev, nil
}

// expect checks the expectations of one caller's commit, and returns what is there now.
func (b *batchWriter) expect(bucket *bbolt.Bucket, table string, ops []store.Op) (have []present, writes bool, err error) {
	have = make([]present, len(ops))
	for i := range ops {
		op, key := &ops[i], []byte(ops[i].Key)
		rev := uint64(0)
		if err := b.step(); err != nil {
			return nil, false, err
		}
		raw, err := b.s.lookup(bucket, table, key)
		if err != nil {
			return nil, false, err
		}
		if raw != nil {
			have[i].here = true
			if rev, have[i].sum, _, err = decodeRecord(table, key, raw); err != nil {
				return nil, false, damaged(b.s.path, -1, err.Error())
			}
		}
		if op.Expect != store.AnyRevision && op.Expect != rev {
			return nil, false, store.Conflict("boltstore", op.Key)
		}
		writes = writes || op.Kind != store.Guard
	}
	return have, writes, nil
}

// end writes the state and commits.
func (b *batchWriter) end() error {
	b.next.boot = b.s.opts.boot()
	raw := b.next.append(make([]byte, 0, 128))
	if err := b.tx.Bucket([]byte(stateBucket)).Put([]byte(stateKey), raw); err != nil {
		return err
	}
	b.s.mu.Lock()
	b.s.coming = version{b.id, raw}
	b.s.mu.Unlock()
	return b.tx.Commit()
}
