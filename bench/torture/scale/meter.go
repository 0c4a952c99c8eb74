package main

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/internal/thread"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The kinds of calls.
const (
	assign = iota
	release
	renew
	removeHost
	sweep
	collect
	split
	merge
	drain
	removePool
	addPool
	utilization
	hosts
	check
	allocations
	kinds
)

var kindNames = [kinds]string{
	"AutoAssign", "ReleaseByHandle", "Renew", "RemoveHost", "Sweep", "Collect", "SplitPool", "MergePools", "Drain", "RemovePool", "AddPool",
	"Utilization", "Hosts", "Check", "Allocations",
}

// usage is what the calls of one kind did to the store.
type usage struct {
	Calls                  int
	Gets, Lists, Commits   int // round trips
	Conflicts              int // of the commits
	Read, Written, Guarded int // records
	BytesRead              int
	BytesWritten           int
	CPU                    time.Duration
}

// Trips returns the number of round trips.
func (u usage) Trips() int { return u.Gets + u.Lists + u.Commits }

// Add adds the sums of o.
func (u *usage) Add(o usage) {
	u.Calls, u.Gets, u.Lists, u.Commits = u.Calls+o.Calls, u.Gets+o.Gets, u.Lists+o.Lists, u.Commits+o.Commits
	u.Conflicts, u.Read, u.Written, u.Guarded = u.Conflicts+o.Conflicts, u.Read+o.Read, u.Written+o.Written, u.Guarded+o.Guarded
	u.BytesRead, u.BytesWritten, u.CPU = u.BytesRead+o.BytesRead, u.BytesWritten+o.BytesWritten, u.CPU+o.CPU
}

// meter is a store that counts for the kind of call that is under way. One call is under way at a time.
type meter struct {
	below store.Store
	today [kinds]usage
	now   *usage
}

// call makes a call of an engine. Its goroutine is locked to its thread.
func (m *meter) call(kind int, f func() error) error {
	m.now = &m.today[kind]
	m.now.Calls++
	begin := thread.Time()
	err := f()
	m.now.CPU += thread.Time() - begin
	return err
}

func (m *meter) read(recs []store.Record) {
	m.now.Read += len(recs)
	for _, r := range recs {
		m.now.BytesRead += len(r.Key) + len(r.Value)
	}
}

// Get implements store.Store.
func (m *meter) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	had := len(dst)
	recs, err := m.below.Get(ctx, dst, keys...)
	m.now.Gets++
	m.read(recs[min(had, len(recs)):])
	return recs, err
}

// List implements store.Store.
func (m *meter) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	recs, rev, err := m.below.List(ctx, r)
	m.now.Lists++
	m.read(recs)
	return recs, rev, err
}

// Commit implements store.Store.
func (m *meter) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	m.now.Commits++
	for _, op := range ops {
		m.now.BytesWritten += len(op.Key) + len(op.Value)
		if op.Kind == store.Guard {
			m.now.Guarded++
		} else {
			m.now.Written++
		}
	}
	rev, err := m.below.Commit(ctx, ops)
	if errors.Is(err, ipalloc.ErrConflict) {
		m.now.Conflicts++
	}
	return rev, err
}

// Watch implements store.Store.
func (m *meter) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return m.below.Watch(ctx, after, prefixes...)
}

// Limits implements store.Store.
func (m *meter) Limits() store.Limits { return m.below.Limits() }
