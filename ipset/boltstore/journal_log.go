package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// A journal is a table of its own, with
//
//	kind                the type of the allocator
//	snapshot            the allocator, in its own form
//	log<number>         8 bytes, big endian, ascending by one: a batch of changes since the snapshot, as JSON
const (
	keyKind     = "kind"
	keySnapshot = "snapshot"
	keyLog      = "log"
)

// A snapshot takes the place of the log when that has this many batches, or is larger than both this and twice the last snapshot.
const (
	logBatches = 4096
	logBytes   = 64 << 10
)

// change is one change of an allocator of any kind, in the words of its package.
type change struct {
	Op         string              `json:"op"`
	Prefixes   []netip.Prefix      `json:"prefixes,omitempty"`
	Owner      string              `json:"owner,omitempty"`
	Generation uint64              `json:"generation,omitempty"`
	Addrs      []netip.Addr        `json:"addrs,omitempty"`
	Ports      []servicealloc.Port `json:"ports,omitempty"`
	// whole: repeating it would not give back all that it did; it takes a snapshot.
	whole bool
}

// batch is what one commit of a journal adds to its log.
type batch struct {
	Changes []change      `json:"changes"`
	Cursor  *netip.Prefix `json:"cursor,omitempty"` // of a cidrset.Set, after them
}

// kind is what a journal has to know of a type of allocator.
type kind[A any] struct {
	name    string
	create  func(tell func(change)) (A, error)
	restore func(data []byte, tell func(change)) (A, error)
	marshal func(A) ([]byte, error)
	finish  func(A, *batch)         // completes a batch before it is written
	replay  func(A, change) error   // repeats a change
	settle  func(A, batch) error    // after the changes of a batch have been repeated
	suits   func(A) (string, error) // says what the allocator is, and if that is not what was asked for
}

// journalLog is where the log of a journal stands.
type journalLog struct {
	next     uint64 // number of the next batch
	first    uint64 // of the oldest batch in the file
	bytes    int
	snapshot int // bytes
}

func logKey(n uint64) string { return string(binary.BigEndian.AppendUint64([]byte(keyLog), n)) }

func (j *Journal[A]) table() string { return journalPrefix + j.name }

// write commits a batch of changes, or a snapshot that has them.
func (j *Journal[A]) write(a A, told []change) error {
	b := batch{Changes: told}
	if j.kind.finish != nil {
		j.kind.finish(a, &b)
	}
	l := &j.log
	if l.next-l.first >= logBatches || slices.ContainsFunc(b.Changes, func(c change) bool { return c.whole }) {
		return j.writeSnapshot(a)
	}
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if l.bytes+len(data) > max(logBytes, 2*l.snapshot) {
		return j.writeSnapshot(a)
	}
	op := store.Op{Kind: store.Put, Key: logKey(l.next), Value: string(data), Expect: 0}
	if err := j.put([]store.Op{op}); err != nil {
		return err
	}
	l.next++
	l.bytes += len(data)
	return nil
}

// writeSnapshot writes a snapshot in place of the log.
func (j *Journal[A]) writeSnapshot(a A) error {
	data, err := j.kind.marshal(a)
	if err != nil {
		return err
	}
	l := &j.log
	ops := []store.Op{
		{Kind: store.Put, Key: keyKind, Value: j.kind.name, Expect: store.AnyRevision},
		{Kind: store.Put, Key: keySnapshot, Value: string(data), Expect: store.AnyRevision},
	}
	for n := l.first; n < l.next; n++ {
		ops = append(ops, store.Op{Kind: store.Delete, Key: logKey(n), Expect: store.AnyRevision})
	}
	if err := j.put(ops); err != nil {
		return err
	}
	l.first, l.bytes, l.snapshot = l.next, 0, len(data)
	return nil
}

// put commits to the table of the journal.
func (j *Journal[A]) put(ops []store.Op) error {
	if err := store.CheckOps("boltstore", ops, limits); err != nil {
		return err
	}
	_, err := j.store.commit(context.Background(), &request{table: j.table(), ops: ops})
	return err
}

// load makes the allocator from what the file has, from nothing if that is nothing.
func (j *Journal[A]) load(ctx context.Context) error {
	var snapshot []byte
	var batches []batch
	l := journalLog{}
	found := false
	err := j.store.view(ctx, func(tx *bbolt.Tx) error {
		t := tx.Bucket([]byte(j.table()))
		if t == nil {
			return nil
		}
		return t.ForEach(func(k, raw []byte) error {
			_, value, err := j.store.record(j.table(), k, raw)
			if err != nil {
				return err
			}
			switch key := string(k); {
			case key == keyKind && string(value) != j.kind.name:
				return fmt.Errorf("%w %q is of a %s, not of a %s", ErrJournal, j.name, value, j.kind.name)
			case key == keyKind:
				found = true
			case key == keySnapshot:
				snapshot = bytes.Clone(value)
				l.snapshot = len(value)
			case strings.HasPrefix(key, keyLog) && len(key) == len(keyLog)+8:
				n := binary.BigEndian.Uint64(k[len(keyLog):])
				if len(batches) == 0 {
					l.first, l.next = n, n
				}
				var b batch
				if err := json.Unmarshal(value, &b); err != nil || n != l.next {
					return j.damaged(fmt.Sprintf("batch %d, expected %d: %v", n, l.next, err))
				}
				batches = append(batches, b)
				l.next++
				l.bytes += len(value)
			default:
				return j.damaged(fmt.Sprintf("record %q", key))
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return err
	case found != (snapshot != nil) || !found && len(batches) > 0:
		return j.damaged("the snapshot is missing")
	}
	return j.rebuild(l, snapshot, batches)
}

func (j *Journal[A]) damaged(what string) error {
	return &DamagedError{Path: j.store.path, Page: -1, What: fmt.Sprintf("journal %q: %s", j.name, what)}
}

// rebuild makes the allocator from a snapshot, nil for a new one, and what changed since.
func (j *Journal[A]) rebuild(l journalLog, snapshot []byte, batches []batch) error {
	var a A
	var err error
	live := new(atomic.Bool)
	tell := func(c change) {
		if live.Load() {
			j.tell(c)
		}
	}
	if snapshot == nil {
		a, err = j.kind.create(tell)
	} else {
		a, err = j.kind.restore(snapshot, tell)
	}
	if err != nil {
		return fmt.Errorf("boltstore: journal %q: %w", j.name, err)
	}
	for i, b := range batches {
		for _, c := range b.Changes {
			if err := j.kind.replay(a, c); err != nil {
				return j.damaged(fmt.Sprintf("batch %d of %d: %+v: %v", i+1, len(batches), c, err))
			}
		}
		if j.kind.settle != nil {
			if err := j.kind.settle(a, b); err != nil {
				return j.damaged(fmt.Sprintf("batch %d of %d: %v", i+1, len(batches), err))
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.live != nil {
		j.live.Store(false)
	}
	live.Store(true)
	j.alloc, j.live, j.log, j.told = a, live, l, nil
	return nil
}

// Journals returns the names of the journals in the file, ascending.
func (s *Store) Journals(ctx context.Context) ([]string, error) {
	var names []string
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if n, ok := strings.CutPrefix(string(name), journalPrefix); ok && b.Get([]byte(keyKind)) != nil {
				names = append(names, n)
			}
			return nil
		})
	})
	return names, err
}

// DropJournal removes a journal from the file, with all that it holds; one that is not there is no error. [ErrJournal]: it is
// open. Else the errors of [Store.Commit].
func (s *Store) DropJournal(ctx context.Context, name string) error {
	if err := s.claim(name); err != nil {
		return err
	}
	defer s.unclaim(name)
	table := journalPrefix + name
	var ops []store.Op
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(table))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, _ []byte) error {
			ops = append(ops, store.Op{Kind: store.Delete, Key: string(k), Expect: store.AnyRevision})
			return nil
		})
	})
	if err != nil || len(ops) == 0 {
		return err
	}
	_, err = s.commit(ctx, &request{table: table, ops: ops})
	return err
}
