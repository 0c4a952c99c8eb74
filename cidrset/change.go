package cidrset

import (
	"net/netip"
	"sync"
)

// Op is the kind of a [Change].
type Op uint8

// The kinds of changes.
const (
	OpAllocate Op = iota + 1 // the set chose the prefixes
	OpOccupy                 // the caller named them
	OpRelease                // the caller gave them back
)

// String returns "allocate", "occupy" or "release".
func (o Op) String() string {
	switch o {
	case OpAllocate:
		return "allocate"
	case OpOccupy:
		return "occupy"
	case OpRelease:
		return "release"
	}
	return "unknown"
}

// Change is one change of a [Set], as told to the function given to [OnChange].
// Occupying the prefixes of OpAllocate and OpOccupy in another set and releasing
// those of OpRelease, in order, gives the same children taken.
type Change struct {
	Op       Op
	Prefixes []netip.Prefix // the receiver's to keep
}

// events carries changes from the methods that make them, which queue them under
// the set's lock, to the receiver, who must not be called under that lock. The
// order of the queue is the order of the changes, and one goroutine at a time
// empties it. A method that has queued a change takes what is queued and delivers it,
// or waits until another has, so its change is delivered when it returns.
type events struct {
	f       func(Change)
	queue   []Change   // guarded by the set's lock
	receive sync.Mutex // held while f runs
}

func (e *events) add(c Change) { e.queue = append(e.queue, c) }

// deliver calls the receiver, of which there is one, for everything queued. The
// lock is not held.
func (s *Set) deliver() {
	e := s.events
	e.receive.Lock()
	defer e.receive.Unlock()
	s.mu.Lock()
	queue := e.queue
	e.queue = nil
	s.mu.Unlock()
	defer func() {
		if len(queue) != 0 { // the receiver panicked: what it has not seen stays queued
			s.mu.Lock()
			e.queue = append(queue, e.queue...)
			s.mu.Unlock()
		}
	}()
	for len(queue) != 0 {
		c := queue[0]
		queue = queue[1:]
		e.f(c)
	}
}
