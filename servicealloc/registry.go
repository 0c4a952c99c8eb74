package servicealloc

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Request says what one owner needs, all of it or nothing.
type Request struct {
	// Addrs has at most one address of each family, in the order in which the answer
	// is wanted. An unspecified address (0.0.0.0 or ::) lets the engine choose.
	Addrs []netip.Addr
	// Ports has up to 1,024 ports. The number 0 lets the engine choose one; of one
	// protocol it chooses as [Ports.AllocateN] does.
	Ports []Port
}

// Grant is what an owner holds.
type Grant struct {
	Owner string
	// Generation tells this grant from every other one that the registry gave or will
	// give, to this owner or another.
	Generation uint64
	Addrs      []netip.Addr // in the order of the request
	Ports      []Port       // in the order of the request
	// Spilled: something that the engine chose, for this grant or for one that it
	// replaced, came from a static band.
	Spilled bool
}

func (g *Grant) clone() Grant {
	c := *g
	c.Addrs, c.Ports = slices.Clone(g.Addrs), slices.Clone(g.Ports)
	return c
}

// Registry hands out addresses of both families and ports to owners. Make one with
// [NewRegistry] or [RestoreRegistry]; the zero value is not usable. An owner is any
// string but "", such as "namespace/name". All methods are safe for concurrent use.
type Registry struct {
	mu     sync.Mutex
	ranges *rangeCore
	ports  *portCore // nil: none
	set    settings
	hook   *hook

	last   uint64 // the generation given last
	owners map[string]*Grant
	byAddr map[netip.Addr]*Grant
	byPort map[Port]*Grant
}

// NewRegistry returns a registry without owners and without address ranges, which
// [Registry.AddRange] adds, that hands out the given ports, or none if ports is zero.
//
// [ErrBadPort], [ErrBadOption], [ErrBadPrefix]: the port range or an option is
// impossible.
func NewRegistry(ports PortRange, opts ...Option) (*Registry, error) {
	c, err := collect("new", opts)
	if err != nil {
		return nil, err
	}
	r, err := newRegistry(ports, c)
	if err != nil {
		return nil, err
	}
	r.ranges = newRangeCore(c)
	return r, nil
}

// newRegistry returns a registry that has its ranges yet to get.
func newRegistry(ports PortRange, c config) (*Registry, error) {
	r := &Registry{set: c.settings, hook: newHook(c.onChange), owners: map[string]*Grant{},
		byAddr: map[netip.Addr]*Grant{}, byPort: map[Port]*Grant{}}
	if ports == (PortRange{}) {
		if err := c.noPorts("new"); err != nil {
			return nil, err
		}
	} else {
		p := c
		p.sized = false // that option is about addresses here
		var err error
		if r.ports, err = newPortCore(ports, p); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Allocate gives owner what req asks for, all of it or nothing, and a new generation.
// An owner that holds something gets the same answer again if that is what req asks
// for, whoever chose it then.
//
// [ErrMismatch]: the owner holds something else; see [Registry.Replace]. [ErrFull],
// [ErrOccupied] (the error names the holder), [ErrReserved], [ErrDraining],
// [ErrOutOfRange]: a part of req can't be had. [ErrBadRequest], [ErrBadPort]: req
// contradicts itself. Whatever the error, nothing is taken. Cost: O(log n) for each
// part; the answer allocates.
func (r *Registry) Allocate(owner string, req Request) (Grant, error) {
	r.mu.Lock()
	if g := r.owners[owner]; g != nil {
		defer r.mu.Unlock()
		if !g.answers(req) {
			return Grant{}, &Error{Op: "allocate", Owner: owner, Err: ErrMismatch}
		}
		return g.clone(), nil
	}
	if err := r.feasible(owner, req); err != nil {
		r.mu.Unlock()
		return Grant{}, err
	}
	g := &Grant{Owner: owner}
	r.apply(g, req)
	r.draw(req)
	r.enter(g)
	out := g.clone()
	r.unlock(changeOf(OpAllocate, &out))
	return out, nil
}

// enter gives g a generation and puts it into the indexes.
func (r *Registry) enter(g *Grant) {
	r.last++
	g.Generation = r.last
	r.index(g)
}

func (r *Registry) index(g *Grant) {
	r.owners[g.Owner] = g
	for _, ip := range g.Addrs {
		r.byAddr[ip] = g
	}
	for _, p := range g.Ports {
		r.byPort[p] = g
	}
}

func changeOf(op Op, g *Grant) Change {
	return Change{Op: op, Owner: g.Owner, Generation: g.Generation, Addrs: slices.Clone(g.Addrs), Ports: slices.Clone(g.Ports)}
}

// unlock ends a change.
func (r *Registry) unlock(c Change) {
	ticket := r.hook.ticket()
	r.mu.Unlock()
	if ticket != 0 {
		r.hook.deliver(ticket, c)
	}
}

// answers reports whether g is an answer to req.
func (g *Grant) answers(req Request) bool {
	return slices.EqualFunc(g.Addrs, req.Addrs, func(have, want netip.Addr) bool {
		return have == want || want.IsUnspecified() && familyOf(have) == familyOf(want)
	}) && slices.EqualFunc(g.Ports, req.Ports, func(have, want Port) bool {
		return have == want || want.Number == 0 && have.Protocol == want.Protocol
	})
}

// DryRun returns exactly what [Registry.Allocate] is going to answer if nothing
// changes in between, and changes nothing.
func (r *Registry) DryRun(owner string, req Request) (Grant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.owners[owner]; g != nil {
		if !g.answers(req) {
			return Grant{}, &Error{Op: "allocate", Owner: owner, Err: ErrMismatch}
		}
		return g.clone(), nil
	}
	if err := r.feasible(owner, req); err != nil {
		return Grant{}, err
	}
	back := r.ranges.windows()
	g := Grant{Owner: owner, Generation: r.last + 1}
	r.apply(&g, req)
	back()
	r.giveBack(g.Addrs, g.Ports)
	return g, nil
}

// Replace gives owner what req asks for in place of what it holds, all of it or
// nothing: what it holds and req asks for, or leaves open, it keeps; what is new is
// taken before the rest is released. The grant gets a new generation if it changes.
//
// [ErrNoOwner]: the owner holds nothing. [ErrGeneration]: its grant is not of that
// generation. Else the errors of [Registry.Allocate]; nothing is changed then.
func (r *Registry) Replace(owner string, generation uint64, req Request) (Grant, error) {
	r.mu.Lock()
	old, err := r.current("replace", owner, generation)
	if err != nil {
		r.mu.Unlock()
		return Grant{}, err
	}
	if old.answers(req) {
		defer r.mu.Unlock()
		return old.clone(), nil
	}
	if err := wellFormed(owner, req); err != nil {
		r.mu.Unlock()
		return Grant{}, err
	}
	s := split(old, req)
	if err := r.available(owner, s.fresh); err != nil {
		r.mu.Unlock()
		return Grant{}, err
	}
	fresh := Grant{Owner: owner}
	r.apply(&fresh, s.fresh)
	r.draw(s.fresh)
	g := &Grant{Owner: owner, Spilled: old.Spilled || fresh.Spilled}
	g.Addrs = weave(req.Addrs, s.keepAddrs, fresh.Addrs)
	g.Ports = weave(req.Ports, s.keepPorts, fresh.Ports)
	r.forget(old)
	r.giveBack(without(old.Addrs, g.Addrs), without(old.Ports, g.Ports))
	r.enter(g)
	out := g.clone()
	r.unlock(changeOf(OpReplace, &out))
	return out, nil
}

// Release gives back all that owner holds and returns it. ok is false, and nothing is
// changed, if it holds nothing.
func (r *Registry) Release(owner string) (released Grant, ok bool) {
	r.mu.Lock()
	g := r.owners[owner]
	if g == nil {
		r.mu.Unlock()
		return Grant{}, false
	}
	r.drop(g)
	return *g, true
}

// ReleaseIf gives back all that owner holds if its grant is of that generation still.
//
// [ErrNoOwner]: it holds nothing. [ErrGeneration]: its grant is another one by now.
func (r *Registry) ReleaseIf(owner string, generation uint64) error {
	r.mu.Lock()
	g, err := r.current("release", owner, generation)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	r.drop(g)
	return nil
}

// drop releases g and unlocks.
func (r *Registry) drop(g *Grant) {
	r.forget(g)
	r.giveBack(g.Addrs, g.Ports)
	r.unlock(changeOf(OpRelease, g))
}

func (r *Registry) current(op, owner string, generation uint64) (*Grant, error) {
	g := r.owners[owner]
	switch {
	case g == nil:
		return nil, &Error{Op: op, Owner: owner, Err: ErrNoOwner}
	case g.Generation != generation:
		return nil, &Error{Op: op, Owner: owner, Err: ErrGeneration}
	}
	return g, nil
}

// forget takes g out of the indexes.
func (r *Registry) forget(g *Grant) {
	delete(r.owners, g.Owner)
	for _, ip := range g.Addrs {
		delete(r.byAddr, ip)
	}
	for _, p := range g.Ports {
		delete(r.byPort, p)
	}
}

// giveBack frees addresses and ports.
func (r *Registry) giveBack(ips []netip.Addr, ports []Port) {
	for _, ip := range ips {
		r.ranges.drop(ip)
	}
	for _, p := range ports {
		r.ports.drop(p)
	}
}

// Get returns what owner holds.
func (r *Registry) Get(owner string) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return found(r.owners[owner])
}

// OwnerOf returns the grant that ip is part of.
func (r *Registry) OwnerOf(ip netip.Addr) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return found(r.byAddr[ip])
}

// OwnerOfPort returns the grant that p is part of.
func (r *Registry) OwnerOfPort(p Port) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return found(r.byPort[p])
}

func found(g *Grant) (Grant, bool) {
	if g == nil {
		return Grant{}, false
	}
	return g.clone(), true
}

// All yields what each owner holds, by owner. No lock is held while the loop's body
// runs; owners that come meanwhile are not seen, those that go are left out.
func (r *Registry) All() iter.Seq[Grant] {
	return func(yield func(Grant) bool) {
		r.mu.Lock()
		names := slices.Sorted(maps.Keys(r.owners))
		r.mu.Unlock()
		for _, name := range names {
			if g, ok := r.Get(name); ok && !yield(g) {
				return
			}
		}
	}
}

// Len returns how many owners hold something. Cost: O(1).
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owners)
}
