package oracle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Log has the calls to stores and their answers, with the times of one process. The zero Log is empty.
type Log struct {
	mu      sync.Mutex
	calls   []*Call
	watches []*Watch
}

// History returns copies of the calls and watches so far. Calls without an answer have the zero Outcome.
func (l *Log) History() (calls []Call, watches []Watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		calls = append(calls, *c)
	}
	for _, w := range l.watches {
		watches = append(watches, Watch{w.After, w.Prefixes, slices.Clone(w.Events)})
	}
	return calls, watches
}

// Recorded returns a store that enters each call of s in the log, and puts the mark of each commit beside it.
func (l *Log) Recorded(s store.Store) store.Store { return &recorder{s, l} }

type recorder struct {
	store.Store
	log *Log
}

// begin enters a call before it is made.
func (r *recorder) begin(c *Call) *Call {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	c.ID = fmt.Sprint(len(r.log.calls))
	if c.writes() {
		c.Ops = append(slices.Clone(c.Ops), store.Op{Kind: store.Put, Key: Mark(c.ID), Value: c.ID, Expect: store.AnyRevision})
	}
	r.log.calls = append(r.log.calls, c)
	c.Begin = time.Now().UnixNano()
	return &Call{ID: c.ID, Kind: c.Kind, Ops: c.Ops, Keys: c.Keys, Range: c.Range, Begin: c.Begin}
}

// end enters the answer.
func (r *recorder) end(c, answered *Call, err error) {
	answered.End = time.Now().UnixNano()
	switch key, conflict := store.ConflictKey(err); {
	case err == nil:
		answered.Outcome = Done
	case conflict:
		answered.Outcome, answered.Key = Conflict, key
	case errors.Is(err, ipalloc.ErrUnknownOutcome):
		answered.Outcome = Unknown
	case errors.Is(err, ipalloc.ErrReplaced):
		answered.Outcome, answered.Key = Replaced, err.Error()
	default:
		answered.Outcome = Refused
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	*c = *answered
}

func (r *recorder) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	c := &Call{Kind: Get, Keys: slices.Clone(keys)}
	a := r.begin(c)
	var err error
	a.Records, err = r.Store.Get(ctx, nil, a.Keys...)
	r.end(c, a, err)
	return append(dst, a.Records...), err
}

func (r *recorder) List(ctx context.Context, x store.Range) ([]store.Record, uint64, error) {
	c := &Call{Kind: List, Range: x}
	a := r.begin(c)
	var err error
	a.Records, a.Rev, err = r.Store.List(ctx, x)
	r.end(c, a, err)
	return slices.Clone(a.Records), a.Rev, err
}

func (r *recorder) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	c := &Call{Kind: Commit, Ops: slices.Clone(ops)}
	a := r.begin(c)
	var err error
	a.Rev, err = r.Store.Commit(ctx, a.Ops)
	r.end(c, a, err)
	return a.Rev, err
}

func (r *recorder) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		w := &Watch{After: after, Prefixes: slices.Clone(prefixes)}
		r.log.mu.Lock()
		r.log.watches = append(r.log.watches, w)
		r.log.mu.Unlock()
		for ev, err := range r.Store.Watch(ctx, after, prefixes...) {
			if err == nil {
				r.log.mu.Lock()
				w.Events = append(w.Events, ev)
				r.log.mu.Unlock()
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// Limits leaves room for a mark.
func (r *recorder) Limits() store.Limits {
	l := r.Store.Limits()
	for bound, mark := range map[*int]int{&l.Ops: 1, &l.Bytes: 64} {
		if *bound > 0 {
			*bound -= mark
		}
	}
	return l
}

const (
	// area begins the keys that the callers contend for, and of the marks. No engine has records there.
	area = "~"
	keys = 6
	// pause lets a caller that fails at once do so less often.
	pause = 5 * time.Millisecond
)

// Follow keeps two watches open until ctx ends, a watch of everything and a watch of some keys. A watch begins again from the
// present revision when the store no longer has the next change.
func Follow(ctx context.Context, s store.Store) {
	var group sync.WaitGroup
	for _, prefixes := range [][]string{{""}, {area + "a1", area + "b2", area + "b3"}} {
		group.Go(func() {
			for ctx.Err() == nil {
				if _, rev, err := s.List(ctx, store.Range{From: area + "~"}); err == nil {
					for _, err := range s.Watch(ctx, rev, prefixes...) {
						if err != nil {
							break
						}
					}
				}
				time.Sleep(pause)
			}
		})
	}
	group.Wait()
}

// Torment makes one call after the other until stop is closed: reads, and commits of all kinds on the revisions that it knows.
func Torment(s store.Store, seed, id uint64, stop <-chan struct{}) {
	c := caller{store: s, random: rand.New(rand.NewPCG(seed, id)), known: make(map[string]uint64)}
	for {
		select {
		case <-stop:
			return
		default:
			c.next()
		}
	}
}

// caller makes one call after the other.
type caller struct {
	store  store.Store
	random *rand.Rand
	n      int
	known  map[string]uint64
}

func (c *caller) key() string {
	return area + string("ab"[c.random.IntN(2)]) + fmt.Sprint(c.random.IntN(keys))
}

// next makes a call of a random kind; one in ten has hardly any time.
func (c *caller) next() {
	limit := 5 * time.Second
	if c.random.IntN(10) == 0 {
		limit = time.Duration(c.random.IntN(20_000)) * time.Microsecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var recs []store.Record
	var ops []store.Op
	var rev uint64
	var err error
	switch c.random.IntN(6) {
	case 0:
		var names []string
		for range 1 + c.random.IntN(4) {
			names = append(names, c.key())
		}
		recs, err = c.store.Get(ctx, nil, names...)
	case 1:
		recs, _, err = c.store.List(ctx, store.Range{From: c.key(), To: area + "b9", Reverse: c.random.IntN(2) == 0, Limit: c.random.IntN(4)})
	default:
		ops = c.ops()
		rev, err = c.store.Commit(ctx, ops)
	}
	c.learn(recs, ops, rev, err)
}

// ops returns a commit of several records on the revisions that the caller knows: puts, some of an empty value, removals, also of
// nothing, and guards, also alone.
func (c *caller) ops() (ops []store.Op) {
	used := make(map[string]bool)
	for range 1 + c.random.IntN(4) {
		op := store.Op{Key: c.key(), Kind: store.Kind(c.random.IntN(3))}
		if op.Expect = c.known[op.Key]; op.Kind != store.Guard && c.random.IntN(4) == 0 {
			op.Expect = store.AnyRevision
		}
		if op.Kind == store.Delete && op.Expect == 0 {
			op.Expect = store.AnyRevision
		}
		if op.Kind == store.Put && c.random.IntN(8) > 0 {
			c.n++
			op.Value = fmt.Sprint("value ", c.n)
		}
		if !used[op.Key] {
			used[op.Key] = true
			ops = append(ops, op)
		}
	}
	return ops
}

// learn remembers the revisions that an answer tells.
func (c *caller) learn(recs []store.Record, ops []store.Op, rev uint64, err error) {
	for _, r := range recs {
		c.known[r.Key] = r.Rev
	}
	switch key, conflict := store.ConflictKey(err); {
	case conflict:
		delete(c.known, key) // as if it did not exist; a read tells
	case err != nil:
		time.Sleep(pause)
	default:
		for _, op := range ops {
			if op.Kind == store.Put {
				c.known[op.Key] = rev
			} else if op.Kind == store.Delete {
				c.known[op.Key] = 0
			}
		}
	}
}

// Rest returns a store without the records of callers and marks, as an engine's check wants it.
func Rest(s store.Store) store.Store { return rest{s} }

type rest struct{ store.Store }

func (r rest) List(ctx context.Context, x store.Range) ([]store.Record, uint64, error) {
	if x.To == "" || x.To > area {
		x.To = area
	}
	return r.Store.List(ctx, x)
}
