package store

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc"
)

// history is how many commits a memory store remembers for its watches.
const history = 1024

// Memory is a [Store] in memory. The zero value is not usable; [NewMemory] makes one.
//
// Records are packed: similar neighbours cost little more than their differing bytes. With handles of 40 bytes, 10 million
// addresses of package ipset take 0.4 GB when loaded from a snapshot and 0.6 GB when written by commits. The garbage collector
// has nothing to scan in them. Get allocates each value that it returns. List allocates one string for up to 128 records; all of
// their keys and values are parts of it. One mutex guards the table; List holds it while it copies its result.
type Memory struct {
	mu     sync.Mutex
	table  sorted
	rev    uint64
	ring   [history]Event // the commit of revision v is at v % history; its Changes slice is reused
	oldest uint64         // the lowest revision after which a watch can start
	wait   chan struct{}  // closed at the next commit; nil when no watch waits
	found  []place        // where a commit finds its keys; the next one begins to look there
	writes int            // since the table was last tidied
}

// NewMemory returns an empty store at revision 0.
func NewMemory() *Memory { return &Memory{} }

// ended returns the error of a call whose context has ended.
func ended(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return &ipalloc.Error{Package: "store", Op: op, Err: err}
	}
	return nil
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, dst []Record, keys ...string) ([]Record, error) {
	if err := ended(ctx, "get"); err != nil {
		return dst, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dst = slices.Grow(dst, len(keys))
	for _, k := range keys {
		r, _ := m.table.record(k)
		dst = append(dst, r)
	}
	return dst, nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, r Range) ([]Record, uint64, error) {
	if err := ended(ctx, "list"); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table.scan(nil, r), m.rev, nil
}

// Commit implements [Store].
func (m *Memory) Commit(ctx context.Context, ops []Op) (uint64, error) {
	if err := ended(ctx, "commit"); err != nil {
		return 0, err
	}
	if err := CheckOps("store", ops, Limits{}); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := false
	if len(m.found) < len(ops) {
		m.found = append(m.found, make([]place, len(ops)-len(m.found))...)
	}
	for i := range ops {
		op := &ops[i]
		writes = writes || op.Kind != Guard
		w := &m.found[i]
		m.table.get(w, op.Key)
		if op.Expect == AnyRevision {
			continue
		}
		if have := w.found; have != (op.Expect != 0) || have && w.p.rev(w.i) != op.Expect {
			return 0, Conflict("store", op.Key)
		}
	}
	if !writes {
		return m.rev, nil
	}
	m.apply(ops)
	return m.rev, nil
}

// apply makes the changes, notes them for watches and wakes the watches that wait. m.found has the records of ops.
// They are overwritten first, because inserting and removing moves records.
func (m *Memory) apply(ops []Op) {
	m.rev++
	ev := &m.ring[m.rev%history]
	ev.Rev, ev.Changes = m.rev, emptied(ev.Changes, len(ops))
	if m.rev-m.oldest > history {
		m.oldest = m.rev - history
	}
	for i := range ops {
		if op, w := &ops[i], &m.found[i]; op.Kind == Put && w.found {
			ev.Changes = append(ev.Changes, Record{Key: op.Key, Value: op.Value, Rev: m.rev})
			m.table.put(w, &ev.Changes[len(ev.Changes)-1])
		}
	}
	for i := range ops {
		// The last one first, because that leaves no gaps in a page if they were put in the order of ops.
		if op, w := &ops[len(ops)-1-i], &m.found[len(ops)-1-i]; op.Kind == Delete && w.found {
			m.table.again(w, op.Key)
			m.table.delete(w)
			ev.Changes = append(ev.Changes, Record{Key: op.Key})
		}
	}
	for i := range ops {
		if op, w := &ops[i], &m.found[i]; op.Kind == Put && !w.found {
			ev.Changes = append(ev.Changes, Record{Key: op.Key, Value: op.Value, Rev: m.rev})
			m.table.again(w, op.Key)
			m.table.put(w, &ev.Changes[len(ev.Changes)-1])
		}
	}
	for m.writes += len(ops); m.writes >= tidyEvery; m.writes -= tidyEvery {
		m.table.tidy(m.rev)
	}
	if m.wait != nil {
		close(m.wait)
		m.wait = nil
	}
}

// spare is how many changes a remembered commit keeps room for, however few the commit in its place has.
const spare = 32

// emptied returns a slice for up to n changes, the old one if it is not much too large: else each place of the ring would come to
// be as large as the largest commit that ever had it. No old record stays behind its end, because it would keep the strings of
// its commit alive.
func emptied(old []Record, n int) []Record {
	if cap(old) > max(spare, 4*n) {
		return nil
	}
	clear(old)
	return old[:0]
}

// Watch implements [Store]. It remembers the last 1,024 commits.
func (m *Memory) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for next := after + 1; ; next++ {
			ev, err := m.next(ctx, next, prefixes)
			if err != nil {
				yield(Event{}, err)
				return
			}
			if len(ev.Changes) > 0 && !yield(ev, nil) {
				return
			}
		}
	}
}

// next waits for the commit of revision rev and returns a copy of its changes to keys with any of the prefixes.
func (m *Memory) next(ctx context.Context, rev uint64, prefixes []string) (Event, error) {
	for {
		if err := ended(ctx, "watch"); err != nil {
			return Event{}, err
		}
		m.mu.Lock()
		if rev <= m.oldest {
			m.mu.Unlock()
			return Event{}, &ipalloc.Error{Package: "store", Op: "watch", Reason: "the store no longer has the commits after that revision", Err: ipalloc.ErrOutOfRange}
		}
		if rev <= m.rev {
			ev := Event{Rev: rev}
			for _, r := range m.ring[rev%history].Changes {
				if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(r.Key, p) }) {
					ev.Changes = append(ev.Changes, r)
				}
			}
			m.mu.Unlock()
			slices.SortFunc(ev.Changes, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
			return ev, nil
		}
		if m.wait == nil {
			m.wait = make(chan struct{})
		}
		wait := m.wait
		m.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
}

// Limits implements [Store]: memory has none.
func (m *Memory) Limits() Limits { return Limits{} }

// Check verifies the order of the table, its pages and its count. A violation is ipalloc.ErrCorrupt.
func (m *Memory) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.table.check(m.rev); err != nil {
		return &ipalloc.Error{Package: "store", Op: "check", Reason: err.Error(), Err: ipalloc.ErrCorrupt}
	}
	return nil
}
