package boltstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// history are the last commits, oldest first. The store's lock guards it.
type history struct {
	events []store.Event
	oldest uint64        // the lowest revision after which a watch can start
	wait   chan struct{} // closed at the next commit; nil when no watch waits
}

// add notes commits, keeping at most max.
func (h *history) add(evs []store.Event, max int) {
	h.events = append(h.events, evs...)
	if n := len(h.events) - max; n > 0 {
		h.oldest = h.events[n-1].Rev
		clear(h.events[:n])
		h.events = h.events[n:] // append moves them to the front when it needs room
	}
	h.wake()
}

// wake makes every waiting watch look again.
func (h *history) wake() {
	if h.wait != nil {
		close(h.wait)
		h.wait = nil
	}
}

// Watch implements store.Store for the commits made through this Store: only one process at a time can have the file. It
// remembers the last Options.History commits, and none from before it was opened. When the store is closed it yields
// ipalloc.ErrClosed.
func (s *Store) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		next := after
		for {
			ev, err := s.next(ctx, next)
			if err != nil {
				yield(store.Event{}, err)
				return
			}
			next = ev.Rev
			if ev.Changes = watched(ev.Changes, prefixes); len(ev.Changes) > 0 && !yield(ev, nil) {
				return
			}
		}
	}
}

// next waits for the first commit after a revision.
func (s *Store) next(ctx context.Context, after uint64) (store.Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return store.Event{}, failure("watch", s.path, err)
		}
		s.mu.Lock()
		h := &s.watches
		i, _ := slices.BinarySearchFunc(h.events, after+1, func(e store.Event, rev uint64) int {
			if e.Rev < rev {
				return -1
			}
			return 1
		})
		switch {
		case after < h.oldest:
			s.mu.Unlock()
			return store.Event{}, failure("watch", s.path, fmt.Errorf("%w: the store no longer has the commits after that revision", ipalloc.ErrOutOfRange))
		case i < len(h.events):
			ev := h.events[i]
			s.mu.Unlock()
			return ev, nil
		case s.lost != nil:
			err := s.lost
			s.mu.Unlock()
			return store.Event{}, failure("watch", s.path, err)
		case s.closed:
			s.mu.Unlock()
			return store.Event{}, failure("watch", s.path, ipalloc.ErrClosed)
		}
		if h.wait == nil {
			h.wait = make(chan struct{})
		}
		wait := h.wait
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
}

// watched returns a copy of the changes of keys with one of the prefixes.
func watched(changes []store.Record, prefixes []string) []store.Record {
	var mine []store.Record
	for _, r := range changes {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(r.Key, p) }) {
			mine = append(mine, r)
		}
	}
	return mine
}
