package nodeipam

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Op is the kind of a [Change]. The numbers are stable, so a journal may store them.
type Op uint8

// Op values.
const (
	OpAllocate    Op = iota + 1 // the allocator chose the node's prefixes
	OpOccupy                    // the nodes have these prefixes now, instead of what they had
	OpRelease                   // the node gave these prefixes back
	OpTerminate                 // the node is being deleted
	OpReserve                   // a reservation was added
	OpUnreserve                 // a reservation was removed
	OpAddPool                   // a pool was added
	OpGrowPool                  // a pool grew
	OpDrainPool                 // a pool drains
	OpUndrainPool               // a pool drains no longer
	OpRemovePool                // a pool was removed
	OpAddEntry                  // an entry was added
	OpDeleteEntry               // an entry is terminating, or gone
)

var opNames = [...]string{"unknown", "allocate", "occupy", "release", "terminate", "reserve", "unreserve",
	"add pool", "grow pool", "drain pool", "undrain pool", "remove pool", "add entry", "delete entry"}

// String returns the kind in words: "allocate", "add pool".
func (o Op) String() string {
	if int(o) >= len(opNames) {
		return opNames[0]
	}
	return opNames[o]
}

// Change is one change of an [Allocator], as passed to the receiver of [OnChange],
// which owns it. [Allocator.Apply] repeats it on another allocator.
type Change struct {
	Op     Op
	Nodes  []Node       // OpAllocate to OpTerminate: as they are now; OpRelease: as they were; OpAddEntry: nodes now recorded with the entry
	Slot   int          // OpAddPool
	Prefix netip.Prefix // the pool or reservation, as it was
	Grown  netip.Prefix // OpGrowPool: the pool as it is now
	Pools  []PoolState  // OpAddPool to OpRemovePool: all pools, as they are now
	Entry  string       // OpAddEntry, OpDeleteEntry
	Added  Entry        // OpAddEntry
	Gone   []string     // the terminating entries that went with this change, ascending
}

// PoolState describes a pool in a [Change]. Allocate tries the pools of a slot in this
// order.
type PoolState struct {
	Slot     int
	Prefix   netip.Prefix
	Draining bool
	Cursor   netip.Addr // where the search for a free child goes on
}

// Apply repeats a change of another allocator that began with the same configuration.
// Replaying a journal in order gives the same nodes the same prefixes and moves the
// cursors to the same places. Apply is idempotent for every kind of change: it makes only
// the parts of c that are missing. A journal may therefore overlap the snapshot on which
// it is replayed; the state is correct again at the end of the overlap. This allocator's
// own receiver gets c itself.
//
// It fails with [ipalloc.ErrVersion] for an unknown kind of change, and with
// [ipalloc.ErrMismatch] for a kind of the other policy. It fails with
// [ipalloc.ErrCorrupt] or [ipalloc.ErrInvalid] for a change that no allocator makes. On
// error nothing changes.
func (a *Allocator) Apply(c Change) error {
	if err := c.check(); err != nil {
		return opError("apply", err)
	}
	a.mu.Lock()
	defer a.unlock()
	if c.Op >= OpAddPool {
		if err := a.policy.apply(&c); err != nil {
			return opError("apply", err)
		}
	}
	for i := range c.Nodes {
		a.put(c.Op, &c.Nodes[i])
	}
	switch c.Op {
	case OpReserve:
		a.reserve(c.Prefix)
	case OpUnreserve:
		a.unreserve(c.Prefix)
	}
	a.policy.forget(c.Gone)
	a.changes.Add(c)
	return nil
}

// put sets the state of one node to the state after a change of the given kind.
func (a *Allocator) put(op Op, n *Node) {
	o := a.owners[n.Name]
	switch op {
	case OpRelease:
		if o != nil {
			a.drop(o)
		}
		return
	case OpTerminate:
		if o != nil {
			a.setTerminating(o, true)
		}
		return
	case OpAllocate:
		for _, p := range n.Prefixes {
			a.policy.advance(n.Entry, p)
		}
	}
	if o == nil {
		o = a.newOwner(n.Name)
	}
	a.hold(o, n.Entry, n.Prefixes)
	o.uid = n.UID
	a.setTerminating(o, n.Terminating)
}

// check returns an error for a change that no allocator makes.
func (c *Change) check() *ipalloc.Error {
	switch c.Op {
	case OpAllocate, OpOccupy, OpAddEntry:
		for i := range c.Nodes {
			if reason := badPrefixes(c.Nodes[i].Prefixes); reason != "" {
				return &ipalloc.Error{Owner: c.Nodes[i].Name, Field: fmt.Sprintf("Nodes[%d]", i), Err: ipalloc.ErrCorrupt, Reason: reason}
			}
		}
	case OpRelease, OpTerminate, OpDeleteEntry:
	case OpReserve, OpUnreserve, OpAddPool, OpGrowPool, OpDrainPool, OpUndrainPool, OpRemovePool:
		if err := addr.Check(c.Prefix); err != nil {
			return &ipalloc.Error{Prefix: c.Prefix, Err: ipalloc.ErrCorrupt, Reason: err.Error()}
		}
	default:
		return &ipalloc.Error{Err: ipalloc.ErrVersion, Reason: fmt.Sprintf("unknown kind of change: %d", c.Op)}
	}
	return nil
}

// badPrefixes returns why no node can hold exactly the prefixes, "" if a node can. It
// takes linear time.
func badPrefixes(ps []netip.Prefix) string {
	if len(ps) == 0 {
		return "a node that holds nothing"
	}
	seen := make(map[netip.Prefix]struct{}, len(ps))
	for _, p := range ps {
		if err := addr.Check(p); err != nil {
			return p.String() + ": " + err.Error()
		}
		if _, ok := seen[p]; ok {
			return p.String() + " twice"
		}
		seen[p] = struct{}{}
	}
	return ""
}
