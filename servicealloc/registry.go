package servicealloc

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
)

// Request says what one owner needs, all of it or nothing. An empty request is one of a
// service that needs nothing, such as a headless one.
type Request struct {
	// Addrs has at most one address of each family, in the order in which the answer
	// is wanted. An unspecified address (0.0.0.0 or ::) lets the engine choose.
	Addrs []netip.Addr
	// Ports has up to 1,024 entries, each one number. The number 0 lets the engine
	// choose. A service port that is served over TCP and UDP is one entry without a
	// protocol, so that both get the same number; so is a health-check node port.
	Ports []Port
	// Generation, if not 0, is that of the grant that this request replaces.
	Generation uint64
	// Deadline, if not zero, is when a transaction ends by itself, rolled back. Choose
	// it later than any write of the owner's record can still succeed. Only
	// [Registry.Begin] uses it.
	Deadline time.Time
	// DryRun makes [Registry.Allocate] return exactly what the call would return
	// without it, and change nothing.
	DryRun bool
}

// Grant is what an owner holds.
type Grant struct {
	Owner string
	// Generation tells this grant from every other one of the registry. It is 0 for an
	// owner that holds nothing.
	Generation uint64
	Addrs      []netip.Addr // in the order of the request
	Ports      []Port       // in the order of the request
	// Spilled: something that the engine chose, for this grant or for one that it
	// replaced, came from a static band.
	Spilled bool
}

// empty reports whether g has nothing.
func (g *Grant) empty() bool { return len(g.Addrs)+len(g.Ports) == 0 }

// add appends what g does not have.
func (g *Grant) add(addrs []netip.Addr, ports []Port) {
	for _, ip := range addrs {
		if !slices.Contains(g.Addrs, ip) {
			g.Addrs = append(g.Addrs, ip)
		}
	}
	for _, p := range ports {
		if !slices.Contains(g.Ports, p) {
			g.Ports = append(g.Ports, p)
		}
	}
}

func (g *Grant) clone() Grant {
	c := *g
	c.Addrs, c.Ports = slices.Clone(g.Addrs), slices.Clone(g.Ports)
	return c
}

// Registry hands out addresses of both families and ports to owners. Make one with
// [NewRegistry]; the zero value is not usable. An owner is any string but "", such as
// "namespace/name". All methods are safe for concurrent use.
type Registry struct {
	base
	ranges rangeSet
	ports  *portSet // without spaces: none
	clock  func() time.Time

	last      uint64 // the generation given last
	owners    map[string]*record
	holders   map[subject]*record
	contested map[subject][]*record // who else claims it, in the order of loading
	timed     []*pending            // open transactions that have a deadline
	hasTimed  atomic.Bool           // whether there are any, to be read without the lock
}

// A record is an owner: its grant and its open transaction, if it has one.
type record struct {
	Grant
	tx *pending
}

// A subject is an address or a port number that is held once. The protocol is counted
// from 1, and 0 where a number is taken for all of them.
type subject struct {
	addr   netip.Addr
	number uint16
	proto  uint8
}

// NewRegistry returns a registry without owners and without address ranges, which
// [Registry.SetRange] adds, that hands out the given ports, or none if ports is zero.
//
// It fails with [ipalloc.ErrInvalid] if ports or an option is impossible; and with the
// errors of [Restore].
func NewRegistry(ports PortRange, opts ...Option) (*Registry, error) {
	c, err := collect(opts)
	if err != nil {
		return nil, err
	}
	r := &Registry{clock: c.clock, ports: &portSet{}, owners: map[string]*record{},
		holders: map[subject]*record{}, contested: map[subject][]*record{}}
	if r.clock == nil {
		r.clock = time.Now
	}
	if ports != (PortRange{}) {
		p := c
		p.size = -1 // StaticBand is about addresses here
		if err := ports.refuse(&p); err != nil {
			return nil, err
		}
		r.ports = newPortSet(ports, p.shared())
	}
	const seed1, seed2 = 'r', 's' // any: the ranges are not known yet
	r.start(&c, seed1, seed2)
	r.ranges = rangeSet{set: r.set, strays: map[netip.Addr]bool{}}
	if err := r.restore(&c, registryMagic, ports.isSame, r.read); err != nil {
		return nil, err
	}
	return r, nil
}

// lock begins a call that may change something, and ends transactions that are overdue.
func (r *Registry) lock() {
	var now time.Time
	if r.hasTimed.Load() {
		now = r.clock()
	}
	r.mu.Lock()
	if !now.IsZero() {
		r.expire(now)
	}
}

// publish enters rec, or removes it if it holds nothing any more, and queues the change
// from what the owner had.
func (r *Registry) publish(rec *record, had *Grant) {
	if rec.Generation == 0 && rec.tx == nil {
		delete(r.owners, rec.Owner)
		if had.Generation != 0 && r.changes != nil {
			r.changes.Add(Change{Kind: Released, Grant: had.clone()})
		}
		return
	}
	r.owners[rec.Owner] = rec
	if r.changes == nil {
		return
	}
	c := Change{Kind: Replaced, Grant: rec.union()}
	if had.Generation == 0 {
		c.Kind = Allocated
	}
	r.changes.Add(c)
}

// subjects returns what g is made of, each once.
func (r *Registry) subjects(g *Grant) []subject {
	out := make([]subject, 0, len(g.Addrs)+len(g.Ports))
	for _, ip := range g.Addrs {
		out = append(out, subject{addr: ip})
	}
	for _, p := range g.Ports {
		out = append(out, r.keys(p)...)
	}
	if len(out) <= 16 {
		for i := len(out) - 1; i > 0; i-- {
			if slices.Contains(out[:i], out[i]) {
				out = slices.Delete(out, i, i+1)
			}
		}
		return out
	}
	seen := make(map[subject]bool, len(out))
	return slices.DeleteFunc(out, func(s subject) bool {
		twice := seen[s]
		seen[s] = true
		return twice
	})
}

// keys returns the subjects of a port.
func (r *Registry) keys(p Port) []subject {
	if !r.ports.PerProtocol {
		return []subject{{number: p.Number}}
	}
	var out []subject
	for i, q := range protocols {
		if p.Protocol == "" || p.Protocol == q {
			out = append(out, subject{number: p.Number, proto: uint8(i + 1)})
		}
	}
	return out
}

// port returns the port of a subject that is none of an address.
func (s subject) port() Port {
	if s.proto == 0 {
		return Port{Number: s.number}
	}
	return Port{protocols[s.proto-1], s.number}
}

// claim makes rec the holder of s, or a further claimant if another one holds it.
func (r *Registry) claim(s subject, rec *record) (holder *record) {
	if h := r.holders[s]; h != nil {
		if h != rec && !slices.Contains(r.contested[s], rec) {
			r.contested[s] = append(r.contested[s], rec)
		}
		return h
	}
	r.holders[s] = rec
	if s.addr.IsValid() {
		r.ranges.set1(s.addr)
	} else {
		x, in, _ := r.ports.locate(s.port())
		take(in, x)
	}
	return rec
}

// unclaim ends what rec has of s. What another one claims too goes to that one.
func (r *Registry) unclaim(s subject, rec *record) {
	rest := r.contested[s]
	if r.holders[s] != rec {
		rest = slices.DeleteFunc(rest, func(o *record) bool { return o == rec })
	} else if len(rest) > 0 {
		r.holders[s], rest = rest[0], rest[1:]
	} else {
		delete(r.holders, s)
		if s.addr.IsValid() {
			r.ranges.drop(s.addr)
		} else {
			x, in, _ := r.ports.locate(s.port())
			drop(in, x)
		}
	}
	if len(rest) > 0 {
		r.contested[s] = rest
	} else {
		delete(r.contested, s)
	}
}

// Allocate gives owner what req asks for, all of it or nothing, and a new generation.
// An owner that holds something gets the same answer again if that is what req asks
// for, named or left open. If it holds something else and req names its generation,
// req replaces it: what the owner holds and req names, or leaves open, it keeps, and the
// rest is released. Nothing is held for an empty request.
//
// It fails with [ipalloc.ErrMismatch] if the owner holds something else and req does
// not name its generation, with [ipalloc.ErrNotHeld] if req names one and the owner
// holds nothing, with [ipalloc.ErrInUse] if a transaction of the owner is open or a
// range is draining, and with [ipalloc.ErrFull], [ipalloc.ErrOccupied] (the error names
// the holder), [ipalloc.ErrReserved] or [ipalloc.ErrOutOfRange] if a part of req cannot
// be had. A request that contradicts itself is [ipalloc.ErrInvalid]. Nothing is changed
// then. It takes O(log n) for each part, and for an address that the engine chooses also
// a step for each of the disjoint ranges; the answer allocates.
func (r *Registry) Allocate(owner string, req Request) (Grant, error) {
	r.lock()
	defer r.unlock()
	if owner == "" {
		return Grant{}, ownerError("allocate", owner, "no owner", ipalloc.ErrInvalid)
	}
	rec, err := r.find("allocate", owner, req.Generation)
	if err != nil {
		return Grant{}, err
	}
	if rec.answers(req) {
		return rec.clone(), nil
	}
	if req.Generation != rec.Generation {
		return Grant{}, ownerError("allocate", owner, "the owner holds something else", ipalloc.ErrMismatch)
	}
	g, err := r.take(rec, &rec.Grant, req)
	if err != nil || req.DryRun {
		return g, err
	}
	r.settle(rec, &g)
	return g.clone(), nil
}

// find returns the record of an owner, or makes one that is not entered yet. It fails if
// a transaction is open, or if generation, which is 0 for any, is not that of the grant.
func (r *Registry) find(op, owner string, generation uint64) (*record, error) {
	rec := r.owners[owner]
	if rec == nil {
		rec = &record{Grant: Grant{Owner: owner}}
	}
	r.adopt(rec)
	switch {
	case rec.tx != nil:
		return nil, ownerError(op, owner, "the owner has an open transaction", ipalloc.ErrInUse)
	case generation != 0 && rec.Generation == 0:
		return nil, ownerError(op, owner, "", ipalloc.ErrNotHeld)
	case generation != 0 && rec.Generation != generation:
		return nil, ownerError(op, owner, "the owner's grant is of another generation", ipalloc.ErrMismatch)
	}
	return rec, nil
}

func ownerError(op, owner, why string, err error) error {
	return &ipalloc.Error{Package: "servicealloc", Op: op, Owner: owner, Reason: why, Err: err}
}

// settle makes g the grant of rec: what it does not list is given back.
func (r *Registry) settle(rec *record, g *Grant) {
	had := rec.Grant
	rec.Grant = *g
	r.giveBack(rec, r.subjects(&had), r.subjects(g))
	r.publish(rec, &had)
}

// giveBack ends what rec has of have and not of keep.
func (r *Registry) giveBack(rec *record, have, keep []subject) {
	kept := make(map[subject]bool, len(keep))
	for _, s := range keep {
		kept[s] = true
	}
	for _, s := range have {
		if !kept[s] {
			r.unclaim(s, rec)
		}
	}
}

// answers reports whether g is an answer to req.
func (g *Grant) answers(req Request) bool {
	return slices.EqualFunc(g.Addrs, req.Addrs, addrMeets) && slices.EqualFunc(g.Ports, req.Ports, portMeets)
}

// addrMeets and portMeets report whether have is what want names or leaves open.
func addrMeets(have, want netip.Addr) bool {
	return have == want || want.IsUnspecified() && have.Is4() == want.Is4()
}

func portMeets(have, want Port) bool {
	return have == want || want.Number == 0 && have.Protocol == want.Protocol
}

// Release gives back all that owner holds and returns it. A generation other than 0 must
// be that of its grant.
//
// It fails with [ipalloc.ErrNotHeld] if the owner holds nothing, with
// [ipalloc.ErrMismatch] if its grant is of another generation, and with
// [ipalloc.ErrInUse] if a transaction of the owner is open. Nothing is changed then.
func (r *Registry) Release(owner string, generation uint64) (Grant, error) {
	r.lock()
	defer r.unlock()
	rec, err := r.find("release", owner, generation)
	if err != nil {
		return Grant{}, err
	}
	had := rec.Grant
	if had.Generation == 0 {
		return Grant{}, ownerError("release", owner, "", ipalloc.ErrNotHeld)
	}
	r.settle(rec, &Grant{Owner: owner})
	return had, nil
}

// Get returns what owner holds, without what an open transaction has added.
func (r *Registry) Get(owner string) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.owners[owner]; rec != nil && rec.Generation != 0 {
		return rec.clone(), true
	}
	return Grant{}, false
}

// OwnerOf returns the grant that ip is part of; in an open transaction, the new one.
func (r *Registry) OwnerOf(ip netip.Addr) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder(subject{addr: ip})
}

// OwnerOfPort returns the grant that p is part of; in an open transaction, the new one.
func (r *Registry) OwnerOfPort(p Port) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.keys(p) {
		if g, ok := r.holder(s); ok {
			return g, true
		}
	}
	return Grant{}, false
}

func (r *Registry) holder(s subject) (Grant, bool) {
	rec := r.holders[s]
	switch {
	case rec == nil:
		return Grant{}, false
	case rec.tx != nil && !slices.Contains(r.subjects(&rec.Grant), s):
		return rec.tx.grant.clone(), true
	}
	return rec.clone(), true
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
