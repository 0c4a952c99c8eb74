package nodeipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/claims"
	"github.com/ipalloc/ipalloc/internal/hook"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// Config configures an [Allocator]: it allocates from Slots or, with ByLabels, from the
// entries that [Allocator.AddEntry] adds.
type Config struct {
	// Slots has one element for each prefix of a node, in the order of its podCIDRs.
	Slots []Slot
	// ByLabels makes the allocator choose an entry by the labels of the node. Slots
	// must be empty.
	ByLabels bool
	// Families, with ByLabels, lists the families that every node needs, in the order of
	// the node's prefixes. An entry that lacks one is refused. Without Families an entry
	// may have either family or both, and IPv4 comes first.
	Families []Family
	// Reserved lists prefixes that no node can take or free, in all pools, pools added
	// later included. Service CIDRs are an example. They may overlap one another.
	Reserved []netip.Prefix
}

// Slot describes one prefix of every node, and the pools that it is allocated from.
type Slot struct {
	Bits  int            // prefix length of what a node gets
	Pools []netip.Prefix // at least one, all of one family, tried in this order
}

// Family is an address family.
type Family string

// The address families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Allocator gives each node its prefixes and remembers which node holds what. Make an
// Allocator with [New] or [Restore]; the zero value is unusable. It is safe for
// concurrent use and must not be copied.
type Allocator struct {
	changes *hook.Queue[Change] // nil without OnChange
	lowest  bool                // LowestFirst

	mu           sync.Mutex
	policy       policy
	spaces       [2]space // IPv4, IPv6: every claim and reservation
	kept         [2]space // the reservations alone
	owners       map[string]*owner
	idle         []*owner // released; used again for the next node
	terminating  int      // owners that are terminating
	reservations int
	loads        uint64 // calls of Load

	want  []netip.Prefix // scratch of a recording and of Allocate
	found []place        // scratch of a recording
}

// policy chooses the prefixes of a node and judges its record. The allocator's lock is
// held when its methods are called. There are two: slots and labels.
type policy interface {
	// choose appends to dst the free prefixes that n would get now, and returns their
	// entry. It changes nothing.
	choose(n Node, dst []netip.Prefix) (ps []netip.Prefix, entry string, err error)
	// advance moves the cursor of p's pool just after p.
	advance(entry string, p netip.Prefix)
	// origin returns the entry that the prefixes of the current node are from, if its
	// record names r.entry.
	origin(r *recording, want []netip.Prefix) string
	// judge reports problems with the prefixes at the given places of a record.
	judge(r *recording, places []place)
	// count adds delta to the number of owners recorded with an entry: 1 when an owner
	// begins to be recorded with it, -1 when it ceases to be.
	count(entry string, delta int)
	// sweep removes the entry if it was terminating and has lost its last node.
	sweep(entry string) (gone []string)
	// apply makes a change of the policy's own kinds, unless the state already shows it.
	// It changes nothing if it fails.
	apply(c *Change) *ipalloc.Error
	// foreign returns the error of a call that only the other policy has.
	foreign() *ipalloc.Error
	// forget removes entries, whether or not nodes are recorded with them.
	forget(entries []string)
	// stats fills in the counts of pools and entries.
	stats(st *Stats)
	// check returns the first contradiction in the policy's state.
	check() error
	// save writes the policy's part of a snapshot.
	save(w *wire.Coder)
}

// An Option changes how an [Allocator] chooses children or reports changes. Only [New]
// and [Restore] apply options; each may be given once.
type Option interface{ apply(*options) *ipalloc.Error }

// options are the combined options of one call.
type options struct {
	lowest   bool
	receiver func(Change)
}

type option func(*options) *ipalloc.Error

func (o option) apply(to *options) *ipalloc.Error { return o(to) }

// LowestFirst makes every pool allocate its lowest free child instead of the next free
// one after the cursor. A released prefix is then used again at once. The next prefix
// then depends only on the prefixes held, so an allocator rebuilt with [Allocator.Load]
// continues exactly as the original would have.
func LowestFirst() Option {
	return option(func(o *options) *ipalloc.Error {
		if o.lowest {
			return invalid("LowestFirst", "given twice")
		}
		o.lowest = true
		return nil
	})
}

// OnChange passes every change to f, in order. f runs outside the allocator's lock,
// before the method that made the change returns. One [Allocator.Load] is one change,
// preceded by the releases of nodes whose UID has changed. The receiver may read the
// allocator but must not modify it: a modifying call deadlocks. Calls of f do not
// overlap. If f panics, the change passed to it is not delivered again; later changes are
// still delivered.
func OnChange(f func(Change)) Option {
	return option(func(o *options) *ipalloc.Error {
		switch {
		case f == nil:
			return invalid("OnChange", "nil function")
		case o.receiver != nil:
			return invalid("OnChange", "given twice")
		}
		o.receiver = f
		return nil
	})
}

// New returns an allocator without nodes.
//
// It fails with an [*ipalloc.Error] whose Field names the wrong part of the
// configuration. It matches [ipalloc.ErrExists] for a pool that overlaps another pool of
// any slot, and [ipalloc.ErrInvalid] for any other mistake: neither Slots nor ByLabels,
// or both. A slot needs at least one pool, and pools of one family. A pool must be valid
// and masked, and must not overlap ::ffff:0:0/96. A prefix length must be possible, a
// family must be known and not repeated, a reservation must be valid, and no option may
// be nil.
func New(c Config, opts ...Option) (*Allocator, error) {
	a, err := newAllocator(opts)
	if err != nil {
		return nil, opError("new", err)
	}
	switch {
	case c.ByLabels && len(c.Slots) != 0:
		err = invalid("ByLabels", "Slots must be empty")
	case c.ByLabels:
		a.policy, err = newLabels(a, c.Families)
	case len(c.Families) != 0:
		err = invalid("Families", "needs ByLabels")
	default:
		a.policy, err = newSlots(a, c.Slots)
	}
	if err != nil {
		return nil, opError("new", err)
	}
	for i, p := range c.Reserved {
		if bad := addr.Check(p); bad != nil {
			return nil, opError("new", invalidPrefix(fmt.Sprintf("Reserved[%d]", i), p, bad.Error()))
		}
		a.reserve(p)
	}
	return a, nil
}

// newAllocator returns an allocator without a policy.
func newAllocator(opts []Option) (*Allocator, *ipalloc.Error) {
	var o options
	for i, opt := range opts {
		if opt == nil {
			return nil, invalid(fmt.Sprintf("opts[%d]", i), "nil")
		}
		if err := opt.apply(&o); err != nil {
			return nil, err
		}
	}
	a := &Allocator{lowest: o.lowest, owners: map[string]*owner{}}
	if o.receiver != nil {
		a.changes = hook.New(&a.mu, o.receiver)
	}
	return a, nil
}

// opError completes err and returns it as an error.
func opError(op string, err *ipalloc.Error) error {
	err.Package, err.Op = "nodeipam", op
	return err
}

// update makes a change under the lock, queues it for the receiver, and returns after its
// delivery. The policy must be a P; f receives it and returns nil if nothing changed.
func update[P policy](a *Allocator, op Op, f func(P) (*Change, *ipalloc.Error)) error {
	a.mu.Lock()
	defer a.unlock()
	p, ok := a.policy.(P)
	if !ok {
		return opError(op.String(), a.policy.foreign())
	}
	c, err := f(p)
	if err != nil {
		return opError(op.String(), err)
	}
	if c != nil {
		c.Op = op
		a.changes.Add(*c)
	}
	return nil
}

// unlock releases the lock and then delivers the changes made under it.
func (a *Allocator) unlock() {
	a.mu.Unlock()
	a.changes.Deliver()
}

// invalid returns the error of a field with an impossible value.
func invalid(field, reason string) *ipalloc.Error {
	return invalidPrefix(field, netip.Prefix{}, reason)
}

func invalidPrefix(field string, p netip.Prefix, reason string) *ipalloc.Error {
	return &ipalloc.Error{Field: field, Prefix: p, Err: ipalloc.ErrInvalid, Reason: reason}
}

// spaceOf returns the space that p belongs to.
func (a *Allocator) spaceOf(p netip.Prefix) *space {
	return &a.spaces[familyOf(p)]
}

// ownerOf returns the owner for n, nil if n holds nothing. It releases another node of
// that name with a different UID.
func (a *Allocator) ownerOf(n *Node) *owner {
	o := a.owners[n.Name]
	if o.isOther(n.UID) {
		a.release(o)
		return nil
	}
	return o
}

// newOwner returns an owner that holds nothing yet.
func (a *Allocator) newOwner(name string) *owner {
	var o *owner
	if n := len(a.idle); n > 0 {
		o, a.idle = a.idle[n-1], a.idle[:n-1]
	} else {
		o = &owner{}
	}
	o.name, o.prefixes = name, o.pair[:0]
	a.owners[name] = o
	return o
}

// hold makes o hold the prefixes, from the entry of that name, instead of its present
// ones. alone reports whether nothing overlaps them.
func (a *Allocator) hold(o *owner, entry string, prefixes []netip.Prefix) (alone bool) {
	if len(o.prefixes) > 0 {
		a.unclaim(o)
	}
	o.entry = entry
	a.policy.count(entry, 1)
	o.prefixes = append(o.prefixes, prefixes...)
	if n := len(prefixes) - len(o.two); n > 0 {
		more := make([]claim, n)
		o.more = &more
	}
	alone = true
	for i, p := range o.prefixes {
		*o.claim(i) = claim{Owner: o}
		alone = a.spaceOf(p).Put(claims.BlockOf(p), o.claim(i)) && alone
	}
	return alone
}

// unclaim removes all claims of o.
func (a *Allocator) unclaim(o *owner) {
	for i, p := range o.prefixes {
		a.spaceOf(p).Remove(claims.BlockOf(p), o.claim(i))
	}
	a.policy.count(o.entry, -1)
	o.prefixes, o.more = o.prefixes[:0], nil
}

func (a *Allocator) setTerminating(o *owner, on bool) {
	if o.terminating != on {
		o.terminating = on
		if on {
			a.terminating++
		} else {
			a.terminating--
		}
	}
}

// drop removes o and all its claims.
func (a *Allocator) drop(o *owner) (entry string) {
	entry = o.entry
	a.unclaim(o)
	a.setTerminating(o, false)
	delete(a.owners, o.name)
	*o = owner{}
	a.idle = append(a.idle, o)
	return entry
}

// release drops o, and the terminating entry if o was its last node, and queues the
// change.
func (a *Allocator) release(o *owner) {
	var n Node
	if a.changes != nil {
		n = o.node()
	}
	gone := a.policy.sweep(a.drop(o))
	if a.changes != nil {
		a.changes.Add(Change{Op: OpRelease, Nodes: []Node{n}, Gone: gone})
	}
}

// sorted returns the owners by name.
func (a *Allocator) sorted() []*owner {
	return slices.SortedFunc(maps.Values(a.owners), func(x, y *owner) int { return strings.Compare(x.name, y.name) })
}
