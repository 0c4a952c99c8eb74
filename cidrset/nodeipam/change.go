package nodeipam

import (
	"net/netip"
	"sync"
)

// Op is the kind of a [Change].
type Op uint8

// The kinds of changes.
const (
	OpAllocate    Op = iota + 1 // the allocator chose the node's prefixes
	OpOccupy                    // the nodes have these prefixes now, instead of what they had
	OpRelease                   // the node gave these prefixes back
	OpTerminate                 // the node is about to go
	OpReserve                   // a reservation was added
	OpUnreserve                 // a reservation was taken back
	OpAddPool                   // a pool was added
	OpGrowPool                  // a pool grew
	OpDrainPool                 // a pool drains
	OpUndrainPool               // a pool drains no longer
	OpRemovePool                // a pool was removed
)

var opNames = [...]string{"unknown", "allocate", "occupy", "release", "terminate", "reserve", "unreserve",
	"add pool", "grow pool", "drain pool", "undrain pool", "remove pool"}

// String returns the words of the kind: "allocate", "add pool".
func (o Op) String() string {
	if int(o) >= len(opNames) {
		return opNames[0]
	}
	return opNames[o]
}

// Change is one change of an [Allocator], as told to the function given to
// [OnChange]. Giving each in order to [Allocator.Apply] of another allocator,
// which began with the same configuration, makes the same owners hold the same.
type Change struct {
	Op     Op
	Nodes  []Node       // with OpAllocate to OpTerminate; the receiver's to keep
	Slot   int          // with OpAddPool
	Prefix netip.Prefix // the pool or reservation, as it was
	Grown  netip.Prefix // with OpGrowPool: the pool as it is
}

// events carries changes from the methods that make them, which queue them under
// the allocator's lock, to the receiver, who must not be called under that lock.
// The order of the queue is the order of the changes, and one goroutine at a time
// empties it. A method returns when the queue was empty after its own change went
// in, so its change has been delivered by then, by whomever.
type events struct {
	f       func(Change)
	queue   []Change   // guarded by the allocator's lock
	receive sync.Mutex // held while f runs
}

func (e *events) add(c Change) { e.queue = append(e.queue, c) }

// deliver calls the receiver for everything queued. The lock is not held.
func (a *Allocator) deliver() {
	e := a.events
	if e == nil {
		return
	}
	e.receive.Lock()
	defer e.receive.Unlock()
	for {
		a.mu.Lock()
		queue := e.queue
		e.queue = nil
		a.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, c := range queue {
			e.f(c)
		}
	}
}

// tell queues a change if somebody listens. The lock is held.
func (a *Allocator) tell(c Change) {
	if a.events != nil {
		a.events.add(c)
	}
}

// Apply makes a change that another allocator told of. It fails as the method
// that made the change would, and then changes nothing.
func (a *Allocator) Apply(c Change) error {
	switch c.Op {
	case OpAllocate, OpOccupy:
		a.Load(c.Nodes)
	case OpRelease:
		for _, n := range c.Nodes {
			a.Release(n.Name)
		}
	case OpTerminate:
		for _, n := range c.Nodes {
			a.Terminate(n.Name)
		}
	case OpReserve:
		_, err := a.Reserve(c.Prefix)
		return err
	case OpUnreserve:
		return a.Unreserve(c.Prefix)
	case OpAddPool:
		return a.AddPool(c.Slot, c.Prefix)
	case OpGrowPool:
		return a.GrowPool(c.Prefix, c.Grown)
	case OpDrainPool:
		return a.DrainPool(c.Prefix)
	case OpUndrainPool:
		return a.UndrainPool(c.Prefix)
	case OpRemovePool:
		_, err := a.RemovePool(c.Prefix)
		return err
	}
	return nil
}
