package journal

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// This file keeps a journal going in a file that has no room left. The log is folded into the snapshot a few batches at a
// time, so that a step takes room only for the parts that these change. The steps have room set aside for them, and releases may
// use it.

// The room is kept in records of roomBytes. Several of them fit into a page, so removing one needs few pages itself. The first minRoom
// records cover the runs of pages that a step writes: four parts, the records beside them, and pages of bbolt's own.
const (
	roomBytes = 1000
	minRoom   = 128
)

func roomKey(i int) string { return keyRoom + string([]byte{byte(i >> 8), byte(i)}) }

// keepRoom sets aside the room that a step of a compaction takes: for its parts, for the list of parts, and for what the largest
// batch adds, each also at its old place. Where the file has less, it takes what there is. The error says that this is too little
// for a step: allocations would use up what releases need.
func (j *Journal[A]) keepRoom() (err error) {
	l := &j.log
	want := min(minRoom+2*(len(l.parts)*digestSize+l.largest)/roomBytes, 1<<16)
	for more := want - l.room; more > 0; more /= 2 {
		ops := make([]store.Op, 0, more)
		for i := l.room; i < l.room+more; i++ {
			ops = append(ops, store.Op{Kind: store.Put, Key: roomKey(i), Value: string(make([]byte, roomBytes)), Expect: store.AnyRevision})
		}
		e := j.put(ops)
		if e == nil {
			l.room += more
			break
		}
		if err = e; !errors.Is(e, boltstore.ErrNoSpace) {
			break
		}
	}
	if l.room >= minRoom {
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
	left, _ := removeAll(context.Background(), j.table, keys)
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
func (j *Journal[A]) sweep() { j.log.stale, _ = removeAll(context.Background(), j.table, j.log.stale) }

// removeAll removes records, at once, or in parts where there is no room for that. It returns those that are left, and why.
func removeAll(ctx context.Context, table *boltstore.Table, keys []string) (left []string, err error) {
	middle := len(keys) / 2 // which shares no page with other records
	keys = slices.Concat(keys[middle:], keys[:middle])
	for step := len(keys); len(keys) > 0; {
		step = min(step, len(keys))
		e := remove(ctx, table, keys[:step])
		switch {
		case e == nil:
			keys, step = keys[step:], 2*step
		case !errors.Is(e, boltstore.ErrNoSpace):
			return append(left, keys...), e
		case step > 1:
			step /= 2
		default:
			left, keys, err = append(left, keys[0]), keys[1:], e
		}
	}
	return left, err
}

// remove deletes records in one commit.
func remove(ctx context.Context, table *boltstore.Table, keys []string) error {
	ops := make([]store.Op, len(keys))
	for i, key := range keys {
		ops[i] = store.Op{Kind: store.Delete, Key: key, Expect: store.AnyRevision}
	}
	_, err := table.Commit(ctx, ops)
	return err
}

// drop removes all records of a table, at once where there is room for that. Else it removes the room that was set aside first, and
// then what a journal is not opened without: at no time has the file the state of an earlier batch.
func drop(ctx context.Context, table *boltstore.Table) error {
	recs, _, err := table.List(ctx, store.Range{})
	if err != nil || len(recs) == 0 {
		return err
	}
	var keys, room, head []string
	for _, r := range recs {
		switch {
		case strings.HasPrefix(r.Key, keyRoom):
			room = append(room, r.Key)
		case r.Key == keyKind || r.Key == keySnapshot:
			head = append(head, r.Key)
		default:
			keys = append(keys, r.Key)
		}
	}
	if err = remove(ctx, table, slices.Concat(keys, room, head)); !errors.Is(err, boltstore.ErrNoSpace) {
		return err
	}
	room, _ = removeAll(ctx, table, room)
	if err = remove(ctx, table, head); err == nil {
		_, err = removeAll(ctx, table, append(keys, room...))
	}
	return err
}
