package ipset

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// held returns the addresses that are held for a host, as text.
func (w *world) heldFor(host string) string {
	w.t.Helper()
	als, err := w.IPsByHost(bg, alloc.HostOwner(host))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, al := range als {
		if al.Host != alloc.HostOwner(host) || al.Cooling {
			w.t.Errorf("%+v is not held for %s", al, host)
		}
	}
	return lastBytes(als)
}

// TestRemovalOfAHostGoesInSteps: more addresses than one commit takes, each with a handle of its own, and an interruption at
// every commit.
func TestRemovalOfAHostGoesInSteps(t *testing.T) {
	const n = 100
	for interrupted := 1; ; interrupted++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/25", 26))
		for i := range n {
			w.assign(want("a", 1, fmt.Sprint("p", i)))
		}
		w.assign(want("b", 10, "q"))
		w.assign(want("b", 128, "r")) // of all that is left
		ctx, cancel := context.WithCancel(bg)
		commits := 0
		e := w.engine(onCommit(limited(w.store, 32), func(context.Context, []store.Op) faults.Outcome {
			if commits++; commits == interrupted {
				cancel()
			}
			return faults.Outcome{}
		}))
		as, blocks, err := e.RemoveHost(ctx, alloc.HostOwner("a"))
		cancel()
		w.check()
		if err == nil {
			if commits < n/16 || len(as) != n || len(blocks) != 2 {
				t.Fatalf("%d commits for %d addresses and blocks %v", commits, len(as), blocks)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		more, _, err := e.RemoveHost(bg, alloc.HostOwner("a"))
		if err != nil || len(as)+len(more) != n {
			t.Fatalf("interrupted at commit %d: %d and %d addresses, %v", interrupted, len(as), len(more), err)
		}
		if w.heldFor("a") != "" || len(w.blocksOf("a")) != 0 {
			t.Fatalf("interrupted at commit %d: left %q and %v", interrupted, w.heldFor("a"), w.blocksOf("a"))
		}
	}
}

// TestManyLeasesEndInSteps: the leases of a large block end at once, and one commit cannot take all their handles.
func TestManyLeasesEndInSteps(t *testing.T) {
	const n = 300
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 23))
	for i := range n {
		a := want("a", 1, fmt.Sprint("p", i))
		a.TTL = time.Minute
		w.assign(a)
	}
	w.clock.add(2 * time.Minute)
	e := w.engine(limited(w.store, 64))
	if got, err := e.AutoAssign(bg, want("a", 1, "new")); err != nil || len(got.V4) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	w.check()
	if _, err := e.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
		t.Fatal(err)
	}
	w.check()
	if h, d := w.records(record.KindHandle), w.records(record.KindDue); h != 1 || d != 0 {
		t.Errorf("%d handles are left, %d blocks due", h, d)
	}
}

// A block that comes back to its host while the host's addresses are looked for is in none of the lists that are read one after the
// other. Its addresses were held for the host all the while, so they are found.
func TestBlockComesBackToItsHost(t *testing.T) {
	calls := map[string]func(e *Engine, o alloc.Owner) (int, error){
		"IPsByHost": func(e *Engine, o alloc.Owner) (int, error) { als, err := e.IPsByHost(bg, o); return len(als), err },
		"ReleaseByHost": func(e *Engine, o alloc.Owner) (int, error) {
			as, err := e.ReleaseByHost(bg, o)
			return len(as), err
		},
		"RemoveHost": func(e *Engine, o alloc.Owner) (int, error) { as, _, err := e.RemoveHost(bg, o); return len(as), err },
	}
	for name, call := range calls {
		for nth := range 6 {
			for _, leaves := range []bool{false, true} {
				w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
				o := alloc.HostOwner("o")
				at := w.assign(want("o", 2, "pod")).V4[0].Block
				change := func() (err error) {
					if leaves {
						_, err = w.DisownBlocks(bg, alloc.DisownArgs{Owner: o})
					} else {
						_, _, err = w.ClaimAffinity(bg, at, o)
					}
					return err
				}
				if leaves = !leaves; change() != nil { // the other one first
					t.Fatal(name)
				}
				leaves = !leaves
				f := faults.NewFaulty(w.store)
				e := w.engine(f)
				f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
					if c.N == nth+1 {
						if err := change(); err != nil {
							t.Error(err)
						}
					}
					return faults.Outcome{}
				})
				if n, err := call(e, o); err != nil || n != 2 {
					t.Errorf("%s, before call %d, leaves %v: %d addresses, %v", name, nth+1, leaves, n, err)
				}
				f.Script(nil)
			}
		}
	}
}
