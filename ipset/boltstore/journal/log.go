package journal

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// A journal is a table of its own, named "journal/" and its name, with
//
//	kind                the type of the allocator
//	snapshot            the allocator, in its own form
//	log<number>         8 bytes, big endian, ascending by one: a batch of changes since the snapshot, as JSON
//
// Every batch, and the kind, carry the version of the format. A journal of a newer version is refused.
const (
	keyKind     = "kind"
	keySnapshot = "snapshot"
	keyLog      = "log"

	prefix  = "journal/"
	version = 1
	maxName = 1000
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
	Spilled    bool                `json:"spilled,omitempty"`
	// whole: repeating it would not give back all that it did; it takes a snapshot.
	whole bool
}

// batch is what one commit of a journal adds to its log.
type batch struct {
	Version int           `json:"version"`
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

// kindRecord returns what a journal says of itself.
func kindRecord(kind string) string { return fmt.Sprintf("%d %s", version, kind) }

// checkKind returns what stands against reading a journal that says value of itself.
func (j *Journal[A]) checkKind(value string) error {
	number, kind, ok := strings.Cut(value, " ")
	v, err := strconv.ParseUint(number, 10, 32)
	switch {
	case !ok || err != nil || v == 0:
		return j.damaged(fmt.Sprintf("kind %q", value))
	case v > version:
		return j.newer(v)
	case kind != j.kind.name:
		return j.matches("a "+kind, fmt.Errorf("asked for is a %s", j.kind.name))
	}
	return nil
}

// newer returns the error of a journal of a version that this program does not know.
func (j *Journal[A]) newer(v uint64) error {
	return &ipalloc.Error{Package: "journal", Op: "open", Name: j.name, Err: ipalloc.ErrMismatch,
		Reason: fmt.Sprintf("version %d, this program knows up to %d", v, version)}
}

// write commits a batch of changes, or a snapshot that has them.
func (j *Journal[A]) write(a A, told []change) error {
	b := batch{Version: version, Changes: told}
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
		{Kind: store.Put, Key: keyKind, Value: kindRecord(j.kind.name), Expect: store.AnyRevision},
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
	_, err := j.table.Commit(context.Background(), ops)
	return err
}

// load makes the allocator from what the file has, from nothing if that is nothing.
func (j *Journal[A]) load(ctx context.Context) error {
	recs, _, err := j.table.List(ctx, store.Range{})
	if err != nil {
		return err
	}
	var snapshot []byte
	var batches []batch
	l := journalLog{}
	found := false
	for _, r := range recs {
		switch {
		case r.Key == keyKind:
			if err := j.checkKind(r.Value); err != nil {
				return err
			}
			found = true
		case r.Key == keySnapshot:
			snapshot = []byte(r.Value)
			l.snapshot = len(r.Value)
		case strings.HasPrefix(r.Key, keyLog) && len(r.Key) == len(keyLog)+8:
			n := binary.BigEndian.Uint64([]byte(r.Key[len(keyLog):]))
			if len(batches) == 0 {
				l.first, l.next = n, n
			}
			b, err := j.decode(r.Value)
			if err != nil {
				return err
			}
			if n != l.next {
				return j.damaged(fmt.Sprintf("batch %d, expected %d", n, l.next))
			}
			batches = append(batches, b)
			l.next++
			l.bytes += len(r.Value)
		default:
			return j.damaged(fmt.Sprintf("record %q", r.Key))
		}
	}
	if found != (snapshot != nil) || !found && len(batches) > 0 {
		return j.damaged("the snapshot is missing")
	}
	return j.rebuild(l, snapshot, batches)
}

// decode reads a batch of the log. Its version decides before its fields do.
func (j *Journal[A]) decode(value string) (batch, error) {
	var v struct {
		Version uint64 `json:"version"`
	}
	if err := json.Unmarshal([]byte(value), &v); err != nil || v.Version == 0 {
		return batch{}, j.damaged(fmt.Sprintf("a batch of the log: %.80q", value))
	}
	if v.Version > version {
		return batch{}, j.newer(v.Version)
	}
	var b batch
	d := json.NewDecoder(strings.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return batch{}, j.damaged(fmt.Sprintf("a batch of the log: %v", err))
	}
	return b, nil
}

func (j *Journal[A]) damaged(what string) error {
	return &ipalloc.Error{Package: "journal", Op: "open", Name: j.name, Reason: "damaged: " + what, Err: ipalloc.ErrCorrupt}
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
		return j.fail("open", err)
	}
	for i, b := range batches {
		for _, c := range b.Changes {
			if err := j.kind.replay(a, c); errors.Is(err, errUnknownChange) {
				return j.fail("open", fmt.Errorf("%w: %w", ipalloc.ErrMismatch, err))
			} else if err != nil {
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

// Names returns the names of the journals in the file, ascending.
func Names(ctx context.Context, s *boltstore.Store) ([]string, error) {
	tables, err := s.Tables(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range tables {
		if name, ok := strings.CutPrefix(t, prefix); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// Drop removes a journal from the file, with all that it holds. Dropping a journal that does not exist succeeds.
// ipalloc.ErrInUse: the journal is open; [Journal.Drop] drops that. Else the errors of [boltstore.Store.Commit].
func Drop(ctx context.Context, s *boltstore.Store, name string) error {
	table, err := s.OpenTable(prefix + name)
	if err != nil {
		return &ipalloc.Error{Package: "journal", Op: "drop", Name: name, Err: err}
	}
	defer table.Close()
	if err := drop(ctx, table); err != nil {
		return &ipalloc.Error{Package: "journal", Op: "drop", Name: name, Err: err}
	}
	return nil
}

// drop removes all records of a table.
func drop(ctx context.Context, table *boltstore.Table) error {
	recs, _, err := table.List(ctx, store.Range{})
	if err != nil || len(recs) == 0 {
		return err
	}
	ops := make([]store.Op, len(recs))
	for i, r := range recs {
		ops[i] = store.Op{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision}
	}
	_, err = table.Commit(ctx, ops)
	return err
}
