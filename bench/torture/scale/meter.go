package main

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
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
	utilization
	hosts
	check
	allocations
	kinds
)

var kindNames = [kinds]string{
	"AutoAssign", "ReleaseByHandle", "Renew", "RemoveHost", "Sweep", "Collect", "Utilization", "Hosts", "Check", "Allocations",
}

// usage is what the calls of one kind did to the store.
type usage struct {
	Calls     int
	Trips     int // calls of the store
	Commits   int // of these
	Conflicts int // of the commits
	Bytes     int // of keys and values that were read or written
}

// Add adds the sums of o.
func (u *usage) Add(o usage) {
	u.Calls, u.Trips, u.Commits = u.Calls+o.Calls, u.Trips+o.Trips, u.Commits+o.Commits
	u.Conflicts, u.Bytes = u.Conflicts+o.Conflicts, u.Bytes+o.Bytes
}

// meter is a store that counts for the kind of call that is under way. One call is under way at a time.
type meter struct {
	store.Store
	today [kinds]usage
	now   *usage
}

// call makes a call of an engine.
func (m *meter) call(kind int, f func() error) error {
	m.now = &m.today[kind]
	m.now.Calls++
	return f()
}

func (m *meter) read(recs []store.Record) {
	m.now.Trips++
	for _, r := range recs {
		m.now.Bytes += len(r.Key) + len(r.Value)
	}
}

// Get implements store.Store.
func (m *meter) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	had := len(dst)
	recs, err := m.Store.Get(ctx, dst, keys...)
	m.read(recs[min(had, len(recs)):])
	return recs, err
}

// List implements store.Store.
func (m *meter) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	recs, rev, err := m.Store.List(ctx, r)
	m.read(recs)
	return recs, rev, err
}

// Commit implements store.Store.
func (m *meter) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	m.now.Trips++
	m.now.Commits++
	for _, op := range ops {
		m.now.Bytes += len(op.Key) + len(op.Value)
	}
	rev, err := m.Store.Commit(ctx, ops)
	if errors.Is(err, ipalloc.ErrConflict) {
		m.now.Conflicts++
	}
	return rev, err
}
