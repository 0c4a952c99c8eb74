package main

import (
	"context"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// countingStore counts the calls of an engine.
type countingStore struct {
	store.Store
	calls int
	moved int // bytes of keys and values that were read or written
}

func (s *countingStore) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	s.calls++
	recs, err := s.Store.Get(ctx, dst, keys...)
	s.move(recs[min(len(dst), len(recs)):])
	return recs, err
}

func (s *countingStore) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	s.calls++
	recs, rev, err := s.Store.List(ctx, r)
	s.move(recs)
	return recs, rev, err
}

func (s *countingStore) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	s.calls++
	for _, op := range ops {
		s.moved += len(op.Key) + len(op.Value)
	}
	return s.Store.Commit(ctx, ops)
}

func (s *countingStore) move(recs []store.Record) {
	for _, r := range recs {
		s.moved += len(r.Key) + len(r.Value)
	}
}

// storeCalls counts the calls to the store, each a round trip where the store is a database.
func storeCalls() []frame.Fact {
	facts := []frame.Fact{
		fact("calls/assign", "calls to the store: AutoAssign, the host has a block with room", report.Whole),
		fact("calls/handle", "calls to the store: release by handle", report.Whole),
		fact("calls/release", "calls to the store: release", report.Whole),
		fact("calls/first", "calls to the store: first address of a new host, its process has just begun", report.Whole),
	}
	count := func(who string, e engine, calls func() int) {
		know(e, "host")
		know(e, "new")
		handle := handleName(0)
		must(e.assign("host", handleName(1), 0)) // its first
		before := 0
		for i, step := range []func(){
			func() { must(e.assign("host", handle, 0)) },
			func() { check(e.releaseHandle(handle)) },
			func() {
				l := must(e.assign("host", handle, 0))
				before = calls()
				check(e.release(l, handle))
			},
			func() {
				e.fresh()
				must(e.assign("new", handle, 0))
			},
		} {
			before = calls()
			step()
			facts[i].Values[who] = float64(calls() - before)
		}
	}
	db := &countingStore{Store: store.NewMemory()}
	count(ours, newOurs(db, wholeNet, alloc.Config{}), func() int { return db.calls })
	b := newBackend(coded)
	count(theirs, newCalicoEngine(b, wholeNet), func() int { return int(b.calls()) })
	return facts
}
