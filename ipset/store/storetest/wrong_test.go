package storetest

import (
	"context"
	"iter"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// wrong is a store that breaks the contract, by what it does to the events of a watch.
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

// TestWrongStores verifies that the suite fails for a store that breaks the contract. A test that fails is run in a process of its own.
func TestWrongStores(t *testing.T) {
	const inside = "STORETEST_INSIDE"
	for _, tt := range []struct {
		name, test string // which test of the suite has to fail
		store      wrong
	}{
		{"two events of one revision", "WatchOrder", wrong{event: func(ev *store.Event) { ev.Rev |= 1 }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if os.Getenv(inside) != "" {
				TestStore(t, func(t *testing.T) store.Store { tt.store.Store = memory(t); return tt.store })
				return
			}
			cmd := exec.Command(os.Args[0], "-test.run", "^TestWrongStores$/^"+strings.ReplaceAll(tt.name, " ", "_")+"$/^"+tt.test+"$")
			cmd.Env = append(os.Environ(), inside+"=1")
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "/"+tt.test+" (") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
