package servicealloc

import (
	"net/netip"
	"sync"
)

// Op says what a [Change] did.
type Op uint8

const (
	// OpAllocate: the addresses and ports were taken, whoever chose them.
	OpAllocate Op = iota + 1
	// OpRelease: the addresses and ports were given back.
	OpRelease
	// OpAddRange, OpDrainRange and OpRemoveRange: the range of that name was.
	OpAddRange
	OpDrainRange
	OpRemoveRange
	// OpReplace: what the owner holds, or with no owner what is held at all (of the
	// protocol, for ports), is now what the change says.
	OpReplace
)

// String returns the operation as a word.
func (o Op) String() string {
	words := [...]string{OpAllocate: "allocate", OpRelease: "release", OpAddRange: "add range",
		OpDrainRange: "drain range", OpRemoveRange: "remove range", OpReplace: "replace"}
	if int(o) >= len(words) || words[o] == "" {
		return "none"
	}
	return words[o]
}

// Change is one change of an allocator, as [OnChange] delivers it. Its slices belong
// to the receiver. Applied in order to an allocator of the same ranges, by naming what
// was allocated, changes rebuild what is held.
type Change struct {
	Op         Op
	Owner      string         // of a [Registry]: whose
	Generation uint64         // of a [Registry]: the generation of the owner's grant
	Addrs      []netip.Addr   // in the order of the answer
	Ports      []Port         // in the order of the answer
	Name       string         // of the range that was added, drained or removed
	Prefixes   []netip.Prefix // of the range that was added
}

// A hook delivers changes in the order in which their tickets were drawn. The ticket
// is drawn under the allocator's lock, the delivery happens outside it.
type hook struct {
	fn     func(Change)
	issued uint64 // guarded by the allocator's lock

	mu   sync.Mutex
	turn sync.Cond
	done uint64
}

func newHook(fn func(Change)) *hook {
	if fn == nil {
		return nil
	}
	h := &hook{fn: fn}
	h.turn.L = &h.mu
	return h
}

// ticket reserves the next place in the order. A ticket that is drawn must be delivered.
func (h *hook) ticket() uint64 {
	if h == nil {
		return 0
	}
	h.issued++
	return h.issued
}

// deliver waits until it is t's turn and calls the hook. A hook that panics still
// passes the turn on.
func (h *hook) deliver(t uint64, c Change) {
	h.mu.Lock()
	for h.done != t-1 {
		h.turn.Wait()
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.done = t
		h.mu.Unlock()
		h.turn.Broadcast()
	}()
	h.fn(c)
}
