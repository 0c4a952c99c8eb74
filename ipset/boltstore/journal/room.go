package journal

import (
	"context"
	"errors"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// This file keeps a journal going in a file that has no room left. The log is folded into the snapshot a few batches at a
// time, so that a step takes room only for the parts that these change. The steps have room set aside for them, and releases may
// use it.

// The room is kept in records of roomBytes, several of which fit into a page, because removing one then takes few pages itself. The
// first minRoom of them are for the runs of pages that a step writes: four parts, the records beside them, and pages of bbolt's own.
const (
	roomBytes = 1000
	minRoom   = 128
)

func roomKey(i int) string { return keyRoom + string([]byte{byte(i >> 8), byte(i)}) }

// keepRoom sets aside the room that a step of a compaction takes: for its parts, for the list of parts, and for what the largest
// batch adds, each also at its old place. Where the file has less, it takes what there is. The error says that there is none.
func (j *Journal[A]) keepRoom() (err error) {
	l := &j.log
	want := min(minRoom+2*(len(l.parts)*digestSize+l.largest)/roomBytes, 1<<16)
	for more := want - l.room; more > 0; more /= 2 {
		ops := make([]store.Op, 0, more)
		for i := l.room; i < l.room+more; i++ {
			ops = append(ops, store.Op{Kind: store.Put, Key: roomKey(i), Value: string(make([]byte, roomBytes)), Expect: store.AnyRevision})
		}
		if err = j.put(ops); err == nil {
			l.room += more
		}
		if !errors.Is(err, boltstore.ErrNoSpace) {
			break
		}
	}
	if l.room > 0 {
		return nil
	}
	return err
}

// makeRoom compacts the log because the file is full, if need be in the room that was set aside.
func (j *Journal[A]) makeRoom() {
	j.sweep()
	if !j.compact() && j.freeRoom() {
		j.compact()
	}
	_ = j.keepRoom() // or less of it, or none
}

// freeRoom gives up the room that was set aside. It reports whether that was any.
func (j *Journal[A]) freeRoom() bool {
	before := j.log.room
	keys := make([]string, before)
	for i := range keys {
		keys[i] = roomKey(i)
	}
	left := j.removeAll(keys)
	j.log.room = 0 // what is left is written again
	return len(left) < before
}

// compact folds the log into the snapshot, in as few steps as the room allows, and reports whether all of it is folded.
func (j *Journal[A]) compact() bool {
	l := &j.log
	for step := l.next - l.first; l.first < l.next; step = min(step, l.next-l.first) {
		err := j.fold(int(step))
		if err == nil {
			continue
		}
		if !errors.Is(err, boltstore.ErrNoSpace) || step == 1 {
			return false
		}
		step /= 2
	}
	return true
}

// fold writes a snapshot that has the oldest n batches of the log in place of these.
func (j *Journal[A]) fold(n int) error {
	f, err := j.fetch(context.Background())
	if err != nil {
		return err
	}
	a, err := j.build(f.snapshot, f.batches[:n], func(change) {})
	if err != nil {
		return err
	}
	if j.kind.retire != nil {
		defer j.kind.retire(a)
	}
	data, err := j.kind.marshal(a)
	if err != nil {
		return err
	}
	if err := j.replace(data, j.log.first+uint64(n)); err != nil {
		return err
	}
	for _, size := range f.sizes[:n] {
		if j.log.bytes > 0 {
			j.log.bytes -= size
		}
	}
	return nil
}

// discard removes parts of a snapshot that was not finished, and returns why it was not. If the snapshot may be in the file, they stay.
func (j *Journal[A]) discard(keys []string, cause error) error {
	if !errors.Is(cause, ipalloc.ErrUnknownOutcome) {
		j.log.stale = append(j.log.stale, keys...)
		j.sweep()
	}
	return cause
}

// sweep removes stale parts. What is left is tried again.
func (j *Journal[A]) sweep() { j.log.stale = j.removeAll(j.log.stale) }

// removeAll removes records, at once, or one after the other where there is no room for that, and returns those that are left.
func (j *Journal[A]) removeAll(keys []string) (left []string) {
	if len(keys) == 0 || j.remove(keys...) == nil {
		return nil
	}
	middle := len(keys) / 2 // which shares no page with other records
	for _, key := range slices.Concat(keys[middle:], keys[:middle]) {
		if j.remove(key) != nil {
			left = append(left, key)
		}
	}
	return left
}

// remove deletes records.
func (j *Journal[A]) remove(keys ...string) error {
	ops := make([]store.Op, len(keys))
	for i, key := range keys {
		ops[i] = store.Op{Kind: store.Delete, Key: key, Expect: store.AnyRevision}
	}
	return j.put(ops)
}
