package store

import (
	"context"
	"fmt"
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
// One mutex guards the table; a list holds it for as long as it takes to copy what it returns.
type Memory struct {
	mu     sync.Mutex
	table  sorted
	rev    uint64
	ring   [history]Event // the commit of revision v is at v % history; its Changes slice is reused
	oldest uint64         // the lowest revision after which a watch can start
	wait   chan struct{}  // closed at the next commit; nil when no watch waits
	found  []*Record      // what a commit finds under its keys; reused
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
	for _, k := range keys {
		if r := m.table.get(k); r != nil {
			dst = append(dst, *r)
		} else {
			dst = append(dst, Record{Key: k})
		}
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
	m.found = m.found[:0]
	for i := range ops {
		op := &ops[i]
		writes = writes || op.Kind != Guard
		r := m.table.get(op.Key)
		m.found = append(m.found, r)
		have := uint64(0)
		if r != nil {
			have = r.Rev
		}
		if op.Expect != AnyRevision && have != op.Expect {
			return 0, Conflict("store", op.Key)
		}
	}
	if !writes {
		return m.rev, nil
	}
	m.apply(ops)
	return m.rev, nil
}

// apply makes the changes, notes them for watches and wakes those that wait. m.found has the records of ops. They are
// overwritten first, because inserting and removing moves records.
func (m *Memory) apply(ops []Op) {
	m.rev++
	ev := &m.ring[m.rev%history]
	ev.Rev, ev.Changes = m.rev, ev.Changes[:0]
	if m.rev-m.oldest > history {
		m.oldest = m.rev - history
	}
	for i := range ops {
		if op := &ops[i]; op.Kind == Put && m.found[i] != nil {
			*m.found[i] = Record{Key: m.found[i].Key, Value: op.Value, Rev: m.rev}
			ev.Changes = append(ev.Changes, *m.found[i])
		}
	}
	for i := range ops {
		switch op := &ops[i]; {
		case op.Kind == Put && m.found[i] == nil:
			r := Record{Key: op.Key, Value: op.Value, Rev: m.rev}
			m.table.put(r)
			ev.Changes = append(ev.Changes, r)
		case op.Kind == Delete && m.found[i] != nil:
			m.table.delete(op.Key)
			ev.Changes = append(ev.Changes, Record{Key: op.Key})
		}
	}
	if m.wait != nil {
		close(m.wait)
		m.wait = nil
	}
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

// next waits for the commit of revision rev and returns a copy of its changes to keys with one of the prefixes.
func (m *Memory) next(ctx context.Context, rev uint64, prefixes []string) (Event, error) {
	for {
		if err := ended(ctx, "watch"); err != nil {
			return Event{}, err
		}
		m.mu.Lock()
		if rev <= m.oldest {
			m.mu.Unlock()
			return Event{}, &ipalloc.Error{Package: "store", Op: "watch", Err: ErrCompacted}
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

// Check verifies the order of the table and its count. A violation is ipalloc.ErrCorrupt.
func (m *Memory) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	bad := func(format string, args ...any) error {
		return &ipalloc.Error{Package: "store", Op: "check", Reason: fmt.Sprintf(format, args...), Err: ipalloc.ErrCorrupt}
	}
	n, last := 0, ""
	for c, chunk := range m.table.chunks {
		if len(chunk) == 0 || len(chunk) > chunkMax || m.table.firsts[c] != chunk[0].Key {
			return bad("chunk %d of %d records", c, len(chunk))
		}
		for _, r := range chunk {
			if r.Key <= last || r.Rev == 0 || r.Rev > m.rev {
				return bad("record %q at revision %d after %q", r.Key, r.Rev, last)
			}
			last = r.Key
			n++
		}
	}
	if n != m.table.n {
		return bad("%d records, counted as %d", n, m.table.n)
	}
	return nil
}
