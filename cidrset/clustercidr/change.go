package clustercidr

import (
	"fmt"
	"net/netip"
	"sync"
)

// Op is the kind of a [Change].
type Op uint8

// The kinds of changes.
const (
	OpAdd       Op = iota + 1 // an entry was added
	OpDelete                  // an entry is terminating, or gone
	OpAllocate                // the allocator chose the node's prefixes
	OpOccupy                  // the nodes have these prefixes now, instead of what they had
	OpRelease                 // the node gave these prefixes back
	OpReserve                 // a reservation was added
	OpUnreserve               // a reservation was taken back
)

var opNames = [...]string{"unknown", "add", "delete", "allocate", "occupy", "release", "reserve", "unreserve"}

// String returns the word of the kind: "allocate".
func (o Op) String() string {
	if int(o) >= len(opNames) {
		return opNames[0]
	}
	return opNames[o]
}

// Change is one change of an [Allocator], as told to the function given to
// [OnChange]. Giving each in order to [Allocator.Apply] of another allocator, which
// began with the same configuration, makes the same nodes hold the same. All of it
// is the receiver's to keep.
type Change struct {
	Op     Op
	Entry  string       // with OpAdd and OpDelete
	Added  ClusterCIDR  // with OpAdd
	Nodes  []Node       // with OpAllocate, OpOccupy, OpRelease; with OpAdd those recorded with it
	Prefix netip.Prefix // with OpReserve and OpUnreserve
	Gone   []string     // the terminating entries that went with this change, ascending
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

// tell queues a change if somebody listens. The lock is held.
func (a *Allocator) tell(c Change) {
	if a.events != nil {
		a.events.queue = append(a.events.queue, c)
	}
}

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

// Apply makes a change that another allocator told of. It fails as the method that
// made the change would, and then changes nothing; [ErrBadChange] is for a kind
// that there is not. The cursors of the entries move with OpAllocate as they did
// there. A listener of this allocator hears of OpAllocate as OpOccupy.
func (a *Allocator) Apply(c Change) error {
	switch c.Op {
	case OpAdd:
		return a.Add(c.Added)
	case OpDelete:
		_, err := a.Delete(c.Entry)
		return err
	case OpAllocate:
		a.mu.Lock()
		l := a.load(c.Nodes)
		l.tell()
		a.advance(c.Nodes)
		a.mu.Unlock()
		a.deliver()
	case OpOccupy:
		a.Load(c.Nodes)
	case OpRelease:
		for _, n := range c.Nodes {
			a.Release(n.Name)
		}
	case OpReserve:
		_, err := a.Reserve(c.Prefix)
		return err
	case OpUnreserve:
		a.Unreserve(c.Prefix)
	default:
		return &Error{Op: "apply", Err: fmt.Errorf("%w: %d", ErrBadChange, c.Op)}
	}
	return nil
}

// advance moves the cursors of the entries behind what the nodes were given.
func (a *Allocator) advance(nodes []Node) {
	for _, n := range nodes {
		e := a.lookup(n.Entry)
		for _, p := range n.Prefixes {
			if e != nil && !a.lowest && p.IsValid() && e.fits(p) == nil {
				e.pools[familyOf(p)-1].moveBehind(blockOf(p))
			}
		}
	}
}
