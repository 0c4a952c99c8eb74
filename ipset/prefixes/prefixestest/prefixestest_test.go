package prefixestest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/fails"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func TestMemory(t *testing.T) {
	Test(t, func(*testing.T) store.Store { return store.NewMemory() })
}

// The limits are etcd's, and lower ones that still hold a call.
func TestLimited(t *testing.T) {
	for _, ops := range []int{128, 12} {
		Test(t, func(*testing.T) store.Store {
			return faults.NewLimited(store.NewMemory(), store.Limits{Ops: ops, Bytes: 1 << 20})
		})
	}
}

// A space of a store serves allocators.
func TestSpace(t *testing.T) {
	Test(t, storetest.InSpace(func(*testing.T) store.Store { return store.NewMemory() }))
}

// refusing returns a store that refuses every call that spares does not.
func refusing(spares ...faults.Kind) store.Store {
	f := faults.NewFaulty(store.NewMemory())
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if slices.Contains(spares, c.Kind) {
			return faults.Outcome{}
		}
		return faults.Fail(faults.ErrInjected)
	})
	return f
}

// Every test of the suite fails for a store that makes no commit.
func TestNoCommits(t *testing.T) {
	fails.Want(t, ".", func(t *testing.T) {
		Test(t, func(*testing.T) store.Store { return refusing(faults.Get, faults.List) })
	})
}

// The suite ends contexts: it fails for a store that does not say so.
func TestSilentStore(t *testing.T) {
	fails.Want(t, "^ContextEndsAtEveryCall$", func(t *testing.T) {
		Test(t, func(*testing.T) store.Store { return faults.Silent{Store: store.NewMemory()} })
	})
}

// Every step of the history says when the store has failed.
func TestStepsReturnErrors(t *testing.T) {
	for _, s := range history() {
		if err := s.Do(t.Context(), newAllocator(t, refusing())); !errors.Is(err, faults.ErrInjected) {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}
