package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Past is a database that holds a store, and the events that can happen to it.
type Past struct {
	// Open opens the store as another process does. If only one process at a time can have the store, Open returns the same one.
	Open Open
	// Many opens the store for a process that shares its connections with many others. With Many the test opens 10,000 stores, or
	// 100 with -short; without it, 100 with Open.
	Many Open
	// Same lists events that lose no commit: every store must go on.
	Same map[string]func(t *testing.T)
	// Other lists events that change the past of the database or remove it: every process must notice and stop.
	Other map[string]func(t *testing.T)
}

// TestPast verifies that a store fails with ipalloc.ErrReplaced if a commit that the process saw is missing, and never for lack
// of a proof that it exists. The function open makes a new database. Cases that need their own server have their own tests. In
// sqlstore these are a promoted standby (TestFailover), savepoints (TestSavepoint) and a transaction with an old view
// (TestWithTxInAnOldView). In etcdstore and kubestore it is an etcd that was set back (TestSetBackUnderAnotherWriter), in
// kubestore also a stepping clock (TestCalm).
func TestPast(t *testing.T, open func(t *testing.T) Past) {
	for name, event := range map[string]func(*testing.T, Past){
		"removal of nothing": deed(del("nothing", store.AnyRevision)), "removal of what must not exist": deed(del("nothing", 0)),
		"removals of nothing": deed(del("nothing", store.AnyRevision), del("nor this", 0)), "guard alone": deed(guard("nothing", 0)),
		"empty value": deed(put("empty", "", store.AnyRevision)), "put and removal of nothing": deed(put("y", "", store.AnyRevision), del("nothing", 0)),
		"removal": func(t *testing.T, p Past) { commit(t, p.Open(t), del("removed", store.AnyRevision)) },
		"conflict": func(t *testing.T, p Past) {
			if _, err := p.Open(t).Commit(context.Background(), []store.Op{del("x", 0)}); !errors.Is(err, ipalloc.ErrConflict) {
				t.Error(err)
			}
		},
		"many processes": func(t *testing.T, p Past) {
			n, many := 100, p.Open
			if p.Many != nil && !testing.Short() {
				n, many = 10_000, p.Many
			}
			all := make([]store.Store, n)
			heap, routines := inUse()
			for i := range all {
				all[i] = many(t)
				commit(t, all[i], put(fmt.Sprint("of", i), "", 0))
			}
			h, r := inUse()
			t.Logf("%d processes in this one: %.1f kB and %.2f goroutines each", n, float64(h-heap)/float64(n)/1000, float64(r-routines)/float64(n))
			runtime.KeepAlive(all)
		},
	} {
		t.Run("same/"+name, func(t *testing.T) { p := open(t); same(t, p, func(t *testing.T) { event(t, p) }) })
	}
	p := open(t)
	for name := range p.Same {
		t.Run("same/"+name, func(t *testing.T) { p := open(t); same(t, p, p.Same[name]) })
	}
	for name := range p.Other {
		t.Run("other/"+name, func(t *testing.T) { p := open(t); other(t, p, p.Other[name]) })
	}
}

// inUse returns the memory and the goroutines that are in use.
func inUse() (heap, routines int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), runtime.NumGoroutine()
}

// deed returns an event in which three processes commit the same.
func deed(ops ...store.Op) func(*testing.T, Past) {
	return func(t *testing.T, p Past) {
		for range 3 {
			commit(t, p.Open(t), ops...)
		}
	}
}

// witness is a process that has seen the last commit.
type witness struct {
	store.Store
	rev   uint64     // of what it saw
	watch chan error // how its watch ends
}

// witnesses opens processes that have all seen the last commit: one made it, and one does nothing but watch.
func witnesses(t *testing.T, p Past) (all []*witness) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	first := p.Open(t)
	commit(t, first, put("removed", "", 0))
	commit(t, first, put("x", "1", 0))
	for i := range 3 {
		w := &witness{Store: first, watch: make(chan error, 1)}
		if i > 0 {
			w.Store = p.Open(t)
		}
		_, rev, err := w.List(ctx, store.Range{})
		if err != nil {
			t.Fatal(err)
		}
		w.rev = rev
		go func() { // as an engine does: a watch that may be repeated goes on where it ended
			w.watch <- again(func() (last error) {
				for ev, err := range w.Watch(ctx, rev, "") {
					if last = err; err == nil {
						rev = ev.Rev
					}
				}
				return last
			})
		}()
		all = append(all, w)
	}
	return all
}

// again repeats a call whose error says that this can help.
func again(f func() error) error {
	err := f()
	for begin := time.Now(); store.Retryable(err) && !errors.Is(err, ipalloc.ErrConflict) && time.Since(begin) < 30*time.Second; err = f() {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// same verifies that an event ends no process: at most, what it remembers is in conflict.
func same(t *testing.T, p Past, event func(t *testing.T)) {
	all := witnesses(t, p)
	event(t)
	for i, w := range all { // each sees it, and then what follows it
		if err := again(func() error { _, err := w.Get(context.Background(), nil, "x"); return err }); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	if err := again(func() error {
		_, err := p.Open(t).Commit(context.Background(), []store.Op{put("later", "", store.AnyRevision)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i, w := range all {
		var x store.Record
		if err := again(func() error {
			recs, err := w.Get(context.Background(), nil, "x")
			if err == nil {
				x = recs[0]
			}
			return err
		}); err != nil || x.Value != fmt.Sprint(i+1) {
			t.Errorf("process %d: %v, %v", i, x, err)
		}
		if err := again(func() error {
			_, err := w.Commit(context.Background(), []store.Op{put("x", fmt.Sprint(i+2), x.Rev)})
			return err
		}); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
		select {
		case err := <-w.watch:
			if !errors.Is(err, ipalloc.ErrOutOfRange) {
				t.Errorf("process %d: watch: %v", i, err)
			}
		default:
		}
	}
}

// other verifies that after an event the first call of each process fails, and so do all later calls and its watch.
func other(t *testing.T, p Past, event func(t *testing.T)) {
	all := witnesses(t, p)
	event(t)
	for i, w := range all {
		calls := []func() error{
			func() error { _, err := w.Get(context.Background(), nil, "x"); return err },
			func() error {
				_, err := w.Commit(context.Background(), []store.Op{put("y", "", store.AnyRevision)})
				return err
			},
			func() error { _, _, err := w.List(context.Background(), store.Range{}); return err },
			func() error { _, err := w.Commit(context.Background(), []store.Op{guard("none", 0)}); return err },
		}
		for n := range calls {
			if err := again(calls[(i+n)%len(calls)]); !errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
				t.Errorf("process %d, call %d: %v", i, (i+n)%len(calls), err)
			}
		}
		select {
		case err := <-w.watch:
			if !errors.Is(err, ipalloc.ErrReplaced) {
				t.Errorf("process %d: watch: %v", i, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("process %d: its watch goes on", i)
		}
	}
}
