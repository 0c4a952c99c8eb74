package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ErrInjected is the error that [Faulty] makes up.
var ErrInjected = errors.New("storetest: injected failure")

// Fault is what becomes of a call.
type Fault int

const (
	// None: the call goes through.
	None Fault = iota
	// Before: the call fails and leaves no trace.
	Before
	// After: the call is made, and its outcome is unknown to the caller.
	After
)

// Faulty is a Store that fails where a test wants it to.
type Faulty struct {
	store.Store

	mu      sync.Mutex
	calls   int
	commits int
	gets    int
	lists   int
	fault   func(call int, commit bool) Fault
}

// NewFaulty returns a store that passes everything on to s until [Faulty.Set] is called.
func NewFaulty(s store.Store) *Faulty { return &Faulty{Store: s} }

// Set has fault asked about each call from now on: call counts all of them from 1, commits and reads. A read that should
// fail After fails Before. nil stops it. The counters start anew.
func (f *Faulty) Set(fault func(call int, commit bool) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.calls, f.commits, f.gets, f.lists = fault, 0, 0, 0, 0
}

// Calls returns the number of calls since Set: all of them, and of each kind.
func (f *Faulty) Calls() (all, commits, gets, lists int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.commits, f.gets, f.lists
}

// next counts a call and says what becomes of it.
func (f *Faulty) next(kind *int, commit bool) Fault {
	f.mu.Lock()
	f.calls++
	*kind++
	n, fault := f.calls, f.fault
	f.mu.Unlock()
	if fault == nil {
		return None
	}
	return fault(n, commit)
}

// Get implements store.Store.
func (f *Faulty) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if f.next(&f.gets, false) != None {
		return dst, injected(ctx)
	}
	return f.Store.Get(ctx, dst, keys...)
}

// List implements store.Store.
func (f *Faulty) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	if f.next(&f.lists, false) != None {
		return nil, 0, injected(ctx)
	}
	return f.Store.List(ctx, r)
}

// Commit implements store.Store.
func (f *Faulty) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	switch f.next(&f.commits, true) {
	case Before:
		return 0, injected(ctx)
	case After:
		if _, err := f.Store.Commit(context.WithoutCancel(ctx), ops); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, injected(ctx))
	}
	return f.Store.Commit(ctx, ops)
}

// Watch implements store.Store.
func (f *Faulty) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return f.Store.Watch(ctx, after, prefixes...)
}

// injected is the error of the context if the fault ended it.
func injected(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrInjected
}
