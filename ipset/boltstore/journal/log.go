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
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// A journal is a table of its own, named "journal/" and its name, with
//
//	kind                the type of the allocator
//	snapshot            the digests of the parts that make up the allocator's own form, 16 bytes each, in order
//	part<digest>        a part; one that the snapshot does not name is left over from a crash
//	log<number>         8 bytes, big endian, ascending by one: a batch of changes since the snapshot, as JSON
//	room<number>        2 bytes, big endian: zeros, the room in which a full file is compacted
//
// Every batch, and the kind, carry the version of the format. A journal of another version is refused.
const (
	keyKind     = "kind"
	keySnapshot = "snapshot"
	keyPart     = "part"
	keyLog      = "log"
	keyRoom     = "room"

	prefix  = "journal/"
	version = 1
	maxName = 1000
)

// A snapshot replaces the log when the log has logBatches batches, or is larger than both logBytes and twice the last snapshot.
const (
	logBatches = 4096
	logBytes   = 64 << 10
	// retryBatches is how many batches follow a snapshot for which there was no room, before the next one is tried.
	retryBatches = 256
)

// change is one change of an allocator of any kind, in the words of its package.
type change struct {
	Op       string         `json:"op"`
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	grant
	From *grant `json:"from,omitempty"`
	// whole: repeating it would not give back all that it did; it takes a snapshot.
	whole bool
}

// grant is a servicealloc.Grant.
type grant struct {
	Owner      text                `json:"owner,omitempty"`
	Generation uint64              `json:"generation,omitempty"`
	Addrs      []netip.Addr        `json:"addrs,omitempty"`
	Ports      []servicealloc.Port `json:"ports,omitempty"`
	Spilled    bool                `json:"spilled,omitempty"`
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
	retire  func(A)                 // ends an allocator that another one replaces
	replay  func(A, change) error   // repeats a change
	settle  func(A, batch) error    // after the changes of a batch have been repeated
	suits   func(A) (string, error) // says what the allocator is, and if that is not what was asked for
}

// journalLog is where the log of a journal stands.
type journalLog struct {
	next     uint64 // number of the next batch
	first    uint64 // of the oldest batch in the file
	bytes    int
	largest  int             // bytes of the largest batch since the journal was opened
	snapshot int             // bytes
	parts    map[string]bool // the keys of the parts of the snapshot
	stale    []string        // the keys of parts in the file that the snapshot does not name
	room     int             // how many records there are of that name
	cursor   netip.Prefix    // that the file has
	retry    uint64          // no snapshot before this batch, because there was no room for one
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
	case v != version:
		return j.otherVersion(v)
	case kind != j.kind.name:
		return j.matches("a "+kind, fmt.Errorf("asked for is a %s", j.kind.name))
	}
	return nil
}

// otherVersion returns the error of a journal of a version that this program does not read.
func (j *Journal[A]) otherVersion(v uint64) error {
	return &ipalloc.Error{Package: "journal", Op: "open", Name: j.name, Err: ipalloc.ErrVersion,
		Reason: fmt.Sprintf("version %d, this program reads version %d", v, version)}
}

// batchOf returns what a commit adds to the log, and whether that is anything.
func (j *Journal[A]) batchOf(a A, told []change) (b batch, some bool) {
	b = batch{Version: version, Changes: told}
	if j.kind.finish != nil {
		j.kind.finish(a, &b)
	}
	return b, len(told) > 0 || b.cursor() != j.log.cursor
}

// cursor returns the cursor after the changes, the zero Prefix for none.
func (b *batch) cursor() netip.Prefix {
	if b.Cursor == nil {
		return netip.Prefix{}
	}
	return *b.Cursor
}

// releases reports whether all changes of a batch give something back.
func (b *batch) releases() bool {
	return len(b.Changes) > 0 && !slices.ContainsFunc(b.Changes, func(c change) bool {
		return c.Op != string(servicealloc.OpRelease) && c.Op != cidrset.OpRelease.String()
	})
}

// write commits a batch of changes, or a snapshot that has them. Where there is no room for a snapshot the log grows on; where there
// is none for the batch, the log is compacted.
func (j *Journal[A]) write(a A, b batch) error {
	l := &j.log
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	whole := slices.ContainsFunc(b.Changes, func(c change) bool { return c.whole })
	due := l.next-l.first >= logBatches || l.bytes+len(data) > max(logBytes, 2*l.snapshot)
	if due && !whole && l.next >= l.retry {
		if err := j.writeSnapshot(a); !errors.Is(err, boltstore.ErrNoSpace) {
			return err
		}
		l.retry = l.next + retryBatches
	}
	attempt := func() error {
		if !b.releases() && l.room < minRoom {
			if err := j.keepRoom(); err != nil {
				return err
			}
		}
		if whole {
			return j.writeSnapshot(a)
		}
		return j.append(b, data)
	}
	if err = attempt(); errors.Is(err, boltstore.ErrNoSpace) {
		j.makeRoom()
		err = attempt()
	}
	if errors.Is(err, boltstore.ErrNoSpace) && b.releases() && j.freeRoom() {
		err = attempt()
	}
	return err
}

// append adds a batch to the log.
func (j *Journal[A]) append(b batch, data []byte) error {
	l := &j.log
	if err := j.put([]store.Op{{Kind: store.Put, Key: logKey(l.next), Value: string(data), Expect: 0}}); err != nil {
		return err
	}
	l.next++
	l.bytes += len(data)
	l.largest = max(l.largest, len(data))
	l.cursor = b.cursor()
	return nil
}

// put commits to the table of the journal.
func (j *Journal[A]) put(ops []store.Op) error {
	_, err := j.table.Commit(context.Background(), ops)
	return err
}

// decode reads a batch of the log. Its version decides before its fields do.
func (j *Journal[A]) decode(value string) (batch, error) {
	var v struct {
		Version uint64 `json:"version"`
	}
	if err := json.Unmarshal([]byte(value), &v); err != nil || v.Version == 0 {
		return batch{}, j.damaged(fmt.Sprintf("a batch of the log: %.80q", value))
	}
	if v.Version != version {
		return batch{}, j.otherVersion(v.Version)
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

// build makes an allocator from a snapshot, nil for a new one, and what changed since.
func (j *Journal[A]) build(snapshot []byte, batches []batch, tell func(change)) (a A, err error) {
	if snapshot == nil {
		a, err = j.kind.create(tell)
	} else {
		a, err = j.kind.restore(snapshot, tell)
	}
	if err != nil {
		return a, j.fail("open", err)
	}
	for i, b := range batches {
		for _, c := range b.Changes {
			if err := j.kind.replay(a, c); errors.Is(err, errUnknownChange) {
				return a, j.fail("open", fmt.Errorf("%w: %w", ipalloc.ErrVersion, err))
			} else if err != nil {
				return a, j.damaged(fmt.Sprintf("batch %d of %d: %+v: %v", i+1, len(batches), c, err))
			}
		}
		if j.kind.settle != nil {
			if err := j.kind.settle(a, b); err != nil {
				return a, j.damaged(fmt.Sprintf("batch %d of %d: %v", i+1, len(batches), err))
			}
		}
	}
	return a, nil
}

// rebuild makes the allocator from what the file has.
func (j *Journal[A]) rebuild(f *records) error {
	live := new(atomic.Bool)
	a, err := j.build(f.snapshot, f.batches, func(c change) {
		if live.Load() {
			j.tell(c)
		}
	})
	if err != nil {
		return err
	}
	if j.kind.finish != nil {
		var b batch
		j.kind.finish(a, &b)
		f.log.cursor = b.cursor()
	}
	j.retire()
	j.mu.Lock()
	defer j.mu.Unlock()
	live.Store(true)
	j.alloc, j.live, j.log, j.told = a, live, f.log, nil
	return nil
}

// retire ends the allocator, if there is one: nothing that it does from now on gets into the file.
func (j *Journal[A]) retire() {
	j.mu.Lock()
	a, live := j.alloc, j.live
	j.mu.Unlock()
	if live == nil || !live.Swap(false) || j.kind.retire == nil {
		return
	}
	j.kind.retire(a)
}

// Names returns the names of the journals in the file, ascending.
func Names(ctx context.Context, s *boltstore.Store) ([]string, error) {
	if err := present("names", s); err != nil {
		return nil, err
	}
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

// Drop removes a journal and its content from the file. Dropping a journal that does not exist succeeds. ipalloc.ErrInUse: the journal
// is open; [Journal.Drop] drops an open one. Else the errors of [boltstore.Store.Commit].
//
// Drop also works in a full file, in more than one commit. If it fails there, or the process ends, the journal is as it was, is refused with
// ipalloc.ErrCorrupt, or is empty; Drop can try again.
func Drop(ctx context.Context, s *boltstore.Store, name string) error {
	if err := present("drop", s); err != nil {
		return err
	}
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
