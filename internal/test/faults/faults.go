// Package faults breaks stores for tests: [Faulty] wraps a [store.Store], counts its calls
// and fails at a chosen one.
package faults

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ErrInjected is the cause of the errors that [Faulty] makes up.
var ErrInjected = errors.New("injected failure")

// Kind is a method of a store.
type Kind int

// The methods that a [Faulty] counts and passes to its script.
const (
	Get Kind = iota
	List
	Commit
	Watch
	kinds
)

// Call is one call of a [Faulty] as its script sees it.
type Call struct {
	Kind  Kind
	N     int         // counts all calls since the last Reset, from 1
	Nth   int         // counts the calls of this kind, from 1
	Keys  []string    // of a Get; the prefixes of a Watch
	Range store.Range // of a List
	Ops   []store.Op  // of a Commit
}

// Outcome is the outcome of a call. The zero Outcome passes it on.
type Outcome struct {
	// Err is returned to the caller, wrapped in an *ipalloc.Error. If the context has ended
	// meanwhile, its error is returned instead, as by every store.
	Err error
	// Unknown makes a Commit match ipalloc.ErrUnknownOutcome as well.
	Unknown bool
	// Made passes a Commit on before Err is returned. A Commit that fails on its own,
	// as with a conflict, returns that failure.
	Made bool
	// Late passes a Commit on when this channel is closed, after Err was returned. Its
	// own error is dropped. [Faulty.Settle] waits for it.
	Late <-chan struct{}
	// Lie answers a Commit with the current revision and no error, without making it.
	Lie bool
	// Ops takes the place of the ops of a Commit, if not nil.
	Ops []store.Op
	// Cut makes a List end after that number of records, as if the range had no more; 0 does
	// not cut. -1 returns none.
	Cut int
}

// Fail returns the outcome of a call that fails with err and leaves no trace.
func Fail(err error) Outcome { return Outcome{Err: err} }

// Conflict returns the outcome of a commit that is in conflict about key, although the
// record may be as expected.
func Conflict(key string) Outcome { return Outcome{Err: store.Conflict("faults", key)} }

// Unknown returns the outcome of a commit whose answer was lost; made says whether the
// commit was made.
func Unknown(made bool) Outcome { return Outcome{Err: ErrInjected, Unknown: true, Made: made} }

// Late returns the outcome of a commit whose answer was lost and which is made when
// until is closed.
func Late(until <-chan struct{}) Outcome {
	return Outcome{Err: ErrInjected, Unknown: true, Late: until}
}

// Script decides the outcome of a call. It runs in the caller's goroutine without a lock
// held, so it may use the wrapped store, and may wait, for instance for ctx.
type Script func(ctx context.Context, c Call) Outcome

// At returns a script with one outcome for the nth call and none for all others.
func At(n int, o Outcome) Script {
	return func(_ context.Context, c Call) Outcome {
		if c.N == n {
			return o
		}
		return Outcome{}
	}
}

// AtCommit returns a script with one outcome for the nth commit.
func AtCommit(n int, o Outcome) Script {
	return func(_ context.Context, c Call) Outcome {
		if c.Kind == Commit && c.Nth == n {
			return o
		}
		return Outcome{}
	}
}

// From returns a script with one outcome for the nth call and every later one.
func From(n int, o Outcome) Script {
	return func(_ context.Context, c Call) Outcome {
		if c.N >= n {
			return o
		}
		return Outcome{}
	}
}

// Counts are the calls of a [Faulty] since the last Reset, including failed ones.
type Counts struct {
	Gets, Lists, Commits, Watches int

	Read    int // records that gets and lists returned
	Written int // puts and deletes of commits that were passed on
	Guards  int // guards of those
	Keys    int // bytes of keys in those ops
	Values  int // bytes of values in those puts
	Changes int // changes that watches yielded
}

// Calls returns the number of gets, lists and commits; each is a round trip.
func (c Counts) Calls() int { return c.Gets + c.Lists + c.Commits }

// Faulty is a store that counts its calls and fails where a script wants it to. It is
// safe for concurrent use. [NewFaulty] returns one.
type Faulty struct {
	inner  store.Store
	limits *store.Limits
	late   sync.WaitGroup

	mu     sync.Mutex
	script Script
	calls  int
	nth    [kinds]int
	counts Counts
}

// NewFaulty returns a store that passes every call on to s, until [Faulty.Script].
func NewFaulty(s store.Store) *Faulty { return &Faulty{inner: s} }

// NewLimited is [NewFaulty] with limits of its own, which it enforces.
func NewLimited(s store.Store, l store.Limits) *Faulty { return &Faulty{inner: s, limits: &l} }

// Script sets the outcomes of the next calls, and resets the counts. nil passes all calls
// on.
func (f *Faulty) Script(s Script) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = s
	f.reset()
}

// Reset sets the counts to 0 and returns the former counts.
func (f *Faulty) Reset() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts
	f.reset()
	return c
}

func (f *Faulty) reset() { f.calls, f.nth, f.counts = 0, [kinds]int{}, Counts{} }

// Counts returns the counts since the last Reset or Script.
func (f *Faulty) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Settle waits until every [Late] commit whose channel is closed has been passed on.
func (f *Faulty) Settle() { f.late.Wait() }

// begin counts a call and returns its outcome.
func (f *Faulty) begin(ctx context.Context, c Call) Outcome {
	f.mu.Lock()
	f.calls++
	f.nth[c.Kind]++
	c.N, c.Nth = f.calls, f.nth[c.Kind]
	switch c.Kind {
	case Get:
		f.counts.Gets++
	case List:
		f.counts.Lists++
	case Commit:
		f.counts.Commits++
	case Watch:
		f.counts.Watches++
	}
	script := f.script
	f.mu.Unlock()
	if script == nil {
		return Outcome{}
	}
	return script(ctx, c)
}

// count changes the counts.
func (f *Faulty) count(change func(*Counts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.counts)
}

// failure returns the error of an outcome.
func failure(ctx context.Context, op string, o Outcome) error {
	err := o.Err
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if o.Unknown {
		err = fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, err)
	}
	if _, ok := err.(*ipalloc.Error); ok {
		return err
	}
	return &ipalloc.Error{Package: "faults", Op: op, Err: err}
}

// Get implements [store.Store].
func (f *Faulty) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if o := f.begin(ctx, Call{Kind: Get, Keys: keys}); o.Err != nil {
		return dst, failure(ctx, "get", Fail(o.Err))
	}
	dst, err := f.inner.Get(ctx, dst, keys...)
	if err == nil {
		f.count(func(c *Counts) { c.Read += len(keys) })
	}
	return dst, err
}

// List implements [store.Store].
func (f *Faulty) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	o := f.begin(ctx, Call{Kind: List, Range: r})
	if o.Err != nil {
		return nil, 0, failure(ctx, "list", Fail(o.Err))
	}
	recs, rev, err := f.inner.List(ctx, r)
	if o.Cut != 0 {
		recs = recs[:min(len(recs), max(o.Cut, 0))]
	}
	f.count(func(c *Counts) { c.Read += len(recs) })
	return recs, rev, err
}

// Commit implements [store.Store].
func (f *Faulty) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if f.limits != nil {
		if err := store.CheckOps("faults", ops, *f.limits); err != nil {
			return 0, err
		}
	}
	o := f.begin(ctx, Call{Kind: Commit, Ops: ops})
	if o.Ops != nil {
		ops = o.Ops
	}
	switch {
	case o.Lie:
		_, rev, err := f.inner.List(ctx, store.Range{Limit: 1})
		return rev, err
	case o.Late != nil:
		f.commitLate(o.Late, ops)
		return 0, failure(ctx, "commit", o)
	case o.Made:
		if _, err := f.pass(context.WithoutCancel(ctx), ops); err != nil {
			return 0, err
		}
		return 0, failure(ctx, "commit", o)
	case o.Err != nil:
		return 0, failure(ctx, "commit", o)
	}
	return f.pass(ctx, ops)
}

// commitLate makes a commit when until is closed. The caller may reuse ops meanwhile.
func (f *Faulty) commitLate(until <-chan struct{}, ops []store.Op) {
	ops = append([]store.Op(nil), ops...)
	f.late.Add(1)
	go func() {
		defer f.late.Done()
		<-until
		_, _ = f.pass(context.Background(), ops)
	}()
}

// pass makes a commit and counts what it wrote.
func (f *Faulty) pass(ctx context.Context, ops []store.Op) (uint64, error) {
	rev, err := f.inner.Commit(ctx, ops)
	f.count(func(c *Counts) {
		for i := range ops {
			c.Keys += len(ops[i].Key)
			switch ops[i].Kind {
			case store.Guard:
				c.Guards++
			case store.Put:
				c.Values += len(ops[i].Value)
				c.Written++
			default:
				c.Written++
			}
		}
	})
	return rev, err
}

// Watch implements [store.Store].
func (f *Faulty) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if o := f.begin(ctx, Call{Kind: Watch, Keys: prefixes}); o.Err != nil {
			yield(store.Event{}, failure(ctx, "watch", Fail(o.Err)))
			return
		}
		for ev, err := range f.inner.Watch(ctx, after, prefixes...) {
			f.count(func(c *Counts) { c.Changes += len(ev.Changes) })
			if !yield(ev, err) {
				return
			}
		}
	}
}

// Limits implements [store.Store].
func (f *Faulty) Limits() store.Limits {
	if f.limits != nil {
		return *f.limits
	}
	return f.inner.Limits()
}
