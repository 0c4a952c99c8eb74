package ipset

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// watchCounter counts the prefixes that are watched, and the changes that arrive.
type watchCounter struct {
	store.Store
	mu       sync.Mutex
	prefixes int
	changes  int
	begun    chan struct{}
}

func (s *watchCounter) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	s.mu.Lock()
	s.prefixes = len(prefixes)
	s.mu.Unlock()
	s.begun <- struct{}{}
	return func(yield func(store.Event, error) bool) {
		for ev, err := range s.Store.Watch(ctx, after, prefixes...) {
			s.mu.Lock()
			s.changes += len(ev.Changes)
			s.mu.Unlock()
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestFollowDoesNotGrowWithTheCluster: other hosts, also those whose names begin with that of the followed one, neither add to
// what is watched nor to what arrives; a new block of its own does.
func TestFollowDoesNotGrowWithTheCluster(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/16", 28))
	w.assign(want("h1", 20, "p")) // two blocks
	for i := range 50 {
		w.assign(want(fmt.Sprint("h1", i), 1, "q"))
	}
	s := &watchCounter{Store: w.store, begun: make(chan struct{}, 8)}
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan error)
	go func() { ended <- w.engine(s).Follow(ctx, HostOwner("h1")) }()
	<-s.begun
	if s.prefixes != 4 {
		t.Errorf("%d prefixes are watched for the catalog, a list and two blocks", s.prefixes)
	}
	for i := range 50 {
		w.assign(want(fmt.Sprint("h1", i), 20, "r")) // others claim and assign
	}
	w.assign(want("h1", 20, "s")) // claims
	<-s.begun
	s.mu.Lock()
	if s.prefixes != 5 || s.changes > 3 {
		t.Errorf("%d prefixes are watched, %d changes have arrived", s.prefixes, s.changes)
	}
	s.mu.Unlock()
	cancel()
	<-ended
}
