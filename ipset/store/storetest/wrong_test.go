package storetest

import (
	"context"
	"iter"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/fails"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// wrong is a store that changes the events of a watch.
type wrong struct {
	store.Store
	event func(*store.Event)
}

func (w wrong) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for ev, err := range w.Store.Watch(ctx, after, prefixes...) {
			w.event(&ev)
			if !yield(ev, err) {
				return
			}
		}
	}
}

// forgetful is a store whose watches end after an event.
type forgetful struct{ store.Store }

func (forgetful) Watch(_ context.Context, after uint64, _ ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if yield(store.Event{Rev: after + 1, Changes: make([]store.Record, 1)}, nil) {
			yield(store.Event{}, ipalloc.ErrOutOfRange)
		}
	}
}

// The suite fails for a store that breaks the contract.
func TestWrongStores(t *testing.T) {
	for name, tt := range map[string]struct {
		test string // which of the suite has to fail
		open Open
	}{
		"two events of one revision": {"^WatchOrder$", func(t *testing.T) store.Store {
			return wrong{memory(t), func(ev *store.Event) { ev.Rev |= 1 }}
		}},
		"a watch that ends in between": {"^WatchForgets$", func(t *testing.T) store.Store { return forgetful{memory(t)} }},
		"no commits": {"^(Get|Expectations|AllOrNothing|Guards|BadCommits|Binary|OneWinner|Snapshots|GetEdges|Errors|Current|OpsAreTheCallers)$", func(t *testing.T) store.Store {
			f := faults.NewFaulty(memory(t))
			f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if c.Kind == faults.Commit {
					return faults.Fail(faults.ErrInjected)
				}
				return faults.Outcome{}
			})
			return f
		}},
	} {
		t.Run(name, func(t *testing.T) { fails.Want(t, tt.test, func(t *testing.T) { TestStore(t, tt.open) }) })
	}
}
