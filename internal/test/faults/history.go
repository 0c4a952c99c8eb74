package faults

import (
	"context"
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Step is one operation of a [History]. It may be repeated after an error and has the same
// effect then.
type Step[A any] struct {
	Name string
	Do   func(context.Context, A) error
}

// History is a sequence of steps on a store of which one call goes wrong, each call in turn.
type History[A any] struct {
	Open    func(*testing.T) store.Store
	Begin   func(*testing.T, store.Store) A    // what the steps are done with
	Crash   func(*testing.T, store.Store, A) A // the same with nothing cached
	Steps   func() []Step[A]
	Between func(A) // called after every step that succeeds, if not nil
	Verify  func(*testing.T, store.Store, A)
	Notices bool // whether every step fails if the outcome of its commit is unknown
}

// FailsAtEveryCall breaks every call once, so that it leaves no trace.
func (h *History[A]) FailsAtEveryCall(t *testing.T) {
	for k := 1; h.replay(t, k, Fail(ErrInjected), false); k++ {
	}
}

// UnknownAtEveryCommit loses the answer of every commit once when it was made, and once
// when it was not.
func (h *History[A]) UnknownAtEveryCommit(t *testing.T) {
	for _, made := range []bool{true, false} {
		for k := 1; h.replay(t, k, Unknown(made), false); k++ {
		}
	}
}

// ContextEndsAtEveryCall ends the caller's context at every call once. The call returns the
// context's error, and the step can be repeated without a crash.
func (h *History[A]) ContextEndsAtEveryCall(t *testing.T) {
	for k := 1; h.replay(t, k, Outcome{}, true); k++ {
	}
}

// replay runs the history with a fault at call k, commit k for an unknown outcome, or the end
// of the context there. It repeats the step that fails, and reports whether it met the call.
func (h *History[A]) replay(t *testing.T, k int, fault Outcome, ends bool) bool {
	t.Helper()
	f := NewFaulty(h.Open(t))
	a := h.Begin(t, f)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	met, n, want := false, 0, ErrInjected
	if ends {
		want = context.Canceled
	}
	f.Script(func(_ context.Context, c Call) Outcome {
		if fault.Unknown && c.Kind != Commit || met {
			return Outcome{}
		}
		if n++; n < k {
			return Outcome{}
		}
		if met = true; ends {
			cancel()
		}
		return fault
	})
	for _, s := range h.Steps() {
		before := met
		err := s.Do(ctx, a)
		switch {
		case err == nil && h.Notices && fault.Unknown && met != before:
			t.Fatalf("fault %d: %s did not notice", k, s.Name)
		case err == nil:
		case !errors.Is(err, want) || !met || before && !ends || fault.Unknown && !errors.Is(err, ipalloc.ErrUnknownOutcome):
			t.Fatalf("fault %d: %s: %v", k, s.Name, err)
		default:
			if ctx = context.Background(); !ends {
				a = h.Crash(t, f, a)
			}
			if err := s.Do(ctx, a); err != nil {
				t.Fatalf("fault %d: %s again: %v", k, s.Name, err)
			}
		}
		if h.Between != nil {
			h.Between(a)
		}
	}
	f.Script(nil)
	h.Verify(t, f, a)
	return met
}
