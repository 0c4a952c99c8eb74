package ipset

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestFollowDoesNotGrowWithTheCluster: other hosts, also those whose names begin with that of the followed one, neither add to
// what is watched nor to what arrives; a new block of its own does.
func TestFollowDoesNotGrowWithTheCluster(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/16", 28))
	w.assign(want("h1", 20, "p")) // two blocks
	for i := range 50 {
		w.assign(want(fmt.Sprint("h1", i), 1, "q"))
	}
	begun := make(chan int, 8) // the number of prefixes
	s := scripted(w.store, func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Watch {
			begun <- len(c.Keys)
		}
		return faults.Outcome{}
	})
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan error)
	go func() { ended <- w.engine(s).Follow(ctx, alloc.HostOwner("h1")) }()
	if prefixes := <-begun; prefixes != 4 {
		t.Errorf("%d prefixes are watched for the catalog, a list and two blocks", prefixes)
	}
	for i := range 50 {
		w.assign(want(fmt.Sprint("h1", i), 20, "r")) // others claim and assign
	}
	w.assign(want("h1", 20, "s")) // claims
	if prefixes, changes := <-begun, s.Counts().Changes; prefixes != 5 || changes > 3 {
		t.Errorf("%d prefixes are watched, %d changes have arrived", prefixes, changes)
	}
	cancel()
	<-ended
}

// watchSteps says when the body of a watch has dealt with an event.
type watchSteps struct {
	store.Store
	begun, done chan struct{}
}

func (s *watchSteps) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	s.begun <- struct{}{}
	return func(yield func(store.Event, error) bool) {
		for ev, err := range s.Store.Watch(ctx, after, prefixes...) {
			more := yield(ev, err)
			if err == nil {
				s.done <- struct{}{}
			}
			if !more {
				return
			}
		}
	}
}

// TestFollowUsesWhatArrives: after another engine has changed a block of a followed owner, or the catalog, a call reads nothing and
// meets no conflict.
func TestFollowUsesWhatArrives(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/16", 26))
	w.assign(want("h", 1, "p"))
	f := faults.NewFaulty(w.store)
	s := &watchSteps{Store: f, begun: make(chan struct{}, 8), done: make(chan struct{}, 8)}
	e := w.engine(s)
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan error)
	go func() { ended <- e.Follow(ctx, alloc.HostOwner("h")) }()
	<-s.begun
	if _, err := e.AutoAssign(bg, want("h", 1, "q")); err != nil {
		t.Fatal(err)
	}
	<-s.done
	for i, change := range []func(){
		func() { w.assign(want("h", 1, "r")) },
		func() { w.releaseHandle("r") },
		func() {
			if err := w.AddPool(bg, poolOf("b", "10.1.0.0/16", 26)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		<-s.done
		f.Reset()
		if _, err := e.AutoAssign(bg, want("h", 1, "s")); err != nil {
			t.Fatal(err)
		}
		if n := f.Counts(); n.Gets+n.Lists != 0 || n.Commits != 1 {
			t.Errorf("after change %d: %+v", i, n)
		}
		<-s.done
		if _, err := w.AutoAssign(bg, want("other", 1, "t")); err != nil { // the world's engine is not behind either
			t.Fatal(err)
		}
	}
	w.check()
	cancel()
	<-ended
}
