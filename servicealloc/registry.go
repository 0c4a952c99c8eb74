package servicealloc

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Request lists the addresses and ports that one owner needs, all of them or nothing. An
// empty request is for a service that needs nothing, such as a headless one.
type Request struct {
	// Addrs has at most one address of each family, in the order of the answer. An unspecified address (0.0.0.0 or ::) lets the
	// engine choose.
	Addrs []netip.Addr
	// Ports has up to 1,024 entries, each one number. The number 0 lets the engine
	// choose. A service port that is served over TCP and UDP is one entry without a
	// protocol, and both get the same number. A health-check node port is such an entry
	// too.
	Ports []Port
	// Generation, if not 0, must be the generation of the grant that this request
	// replaces.
	Generation uint64
	// Deadline, if not zero, is when a transaction that is still open is rolled back.
	// Choose it later than the last moment when your write of the owner's record could
	// still succeed. Only [Registry.Begin] uses it.
	Deadline time.Time
	// DryRun makes [Registry.Allocate] return exactly the answer of the same call without
	// DryRun, and change nothing.
	DryRun bool
}

// Grant is the set of addresses and ports that an owner holds.
type Grant struct {
	Owner string
	// Generation distinguishes this grant from every other grant of the registry. It is 0
	// for an owner that holds nothing.
	Generation uint64
	Addrs      []netip.Addr // in the order of the request
	Ports      []Port       // in the order of the request
	// Spilled reports whether the engine chose any part of this grant, or of a grant that
	// it replaced, from a static band.
	Spilled bool
}

// Registry allocates addresses of both families and ports to owners. Make a Registry with
// [NewRegistry]; the zero value is not usable. An owner is any string but "", such as
// "namespace/name". All methods are safe for concurrent use.
type Registry struct {
	base
	ranges *rangeSet
	clock  func() time.Time

	last     uint64 // the generation given last
	owners   map[string]*record
	claims   claims
	timed    timedTxs    // open transactions that have a deadline
	began    uint64      // transactions with a deadline so far
	hasTimed atomic.Bool // whether there are any, to be read without the lock
	closed   bool
}

// NewRegistry returns a registry without owners that allocates the given ports, or none
// if ports is zero. It has no address ranges until [Registry.SetRange] adds them.
//
// It fails with [ipalloc.ErrInvalid] if ports or an option is impossible, and with the
// errors of [Restore].
func NewRegistry(ports PortRange, opts ...Option) (*Registry, error) {
	c, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if c.between[0].IsValid() {
		return nil, invalid("new", "Between", "only a Range has it")
	}
	portSet := &defaults
	if ports != (PortRange{}) {
		p := c
		p.static = nil // addresses
		if why := ports.check(); why != "" {
			return nil, invalid("new", "PortRange", ports.String()+" "+why)
		}
		portSet = p.shared()
	}
	const seed1, seed2 = 'r', 's' // any: the ranges are not known yet
	r := &Registry{clock: c.clock, owners: map[string]*record{}, claims: newClaims(0)}
	if r.clock == nil {
		r.clock = time.Now
	}
	r.start(&c, registryMagic, seed1, seed2)
	r.ranges = newRangeSet(r.set, ports, portSet)
	if err := r.restore(&c, r.what(), r.read); err != nil {
		return nil, err
	}
	return r, nil
}

// lockRanges begins a call that may change something, and rolls back overdue
// transactions.
func (r *Registry) lockRanges() {
	var now time.Time
	if r.hasTimed.Load() {
		now = r.clock()
	}
	r.mu.Lock()
	if !now.IsZero() && !r.closed {
		r.expire(now)
	}
}

// lock is lockRanges for a call that reads the bands of the ranges.
func (r *Registry) lock() {
	r.lockRanges()
	r.ranges.refresh()
}

// Allocate assigns owner everything that req asks for, or nothing, and a new generation.
// If the owner's grant already meets req, Allocate returns that grant again. If the grant
// does not meet req and req names its generation, req replaces it. The owner then keeps
// the parts that meet req, named or left open, and the others are released. After an
// empty request the owner holds nothing.
//
// It fails with [ipalloc.ErrMismatch] if the owner has a different grant whose generation
// req does not name. It fails with [ipalloc.ErrNotHeld] if req names a generation and the
// owner holds nothing. It fails with [ipalloc.ErrInUse] if a transaction of the owner is
// open or a range is draining. It fails with [ipalloc.ErrFull], [ipalloc.ErrOccupied]
// (the error names the holder), [ipalloc.ErrReserved] or [ipalloc.ErrOutOfRange] if a
// part of req is unavailable. It fails with [ipalloc.ErrInvalid] if req contradicts
// itself. It fails with [ipalloc.ErrLimit] after generation 2^62, which counting never
// reaches. On error nothing changes. It takes O(log n) for each part, and a step for each
// disjoint range if the engine chooses the part. The answer allocates memory.
func (r *Registry) Allocate(owner string, req Request) (Grant, error) {
	r.lock()
	if req.DryRun {
		defer r.unlockQuestion()
	} else {
		defer r.unlock()
	}
	rec, g, err := r.take(owner, req, false)
	if err != nil {
		return Grant{}, err
	}
	if !req.DryRun {
		r.become(rec, holdingOf(&g), nil)
	}
	return g.clone(), nil
}

// Release releases all that owner holds and returns it. A generation other than 0 must be
// the generation of the owner's grant.
//
// It fails with [ipalloc.ErrNotHeld] if the owner holds nothing, and with
// [ipalloc.ErrMismatch] if its grant has another generation. It fails with
// [ipalloc.ErrInUse] if a transaction of the owner is open. On error nothing changes.
func (r *Registry) Release(owner string, generation uint64) (Grant, error) {
	r.lock()
	defer r.unlock()
	rec, err := r.find("release", owner, generation)
	if err != nil {
		return Grant{}, err
	}
	had := rec.grant(owner)
	if had.Generation == 0 {
		return Grant{}, ownerError("release", owner, "", ipalloc.ErrNotHeld)
	}
	r.become(rec, holding{}, nil)
	return had, nil
}

// Close closes the registry, for example when another one replaces it. Every later call
// that would change it fails with [ipalloc.ErrClosed], including the end of an open
// transaction. Reads still work. Closing it again does nothing.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Get returns the grant of owner, without the additions of an open transaction.
func (r *Registry) Get(owner string) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.owners[owner]; rec != nil && rec.generation != 0 {
		return rec.grant(owner), true
	}
	return Grant{}, false
}

// OwnerOf returns the owner that holds ip and the generation of the grant that contains
// ip; in an open transaction, the generation of the new grant. It takes O(1) and does not
// allocate; [Registry.Get] returns the grant.
func (r *Registry) OwnerOf(ip netip.Addr) (owner string, generation uint64, held bool) {
	if addr.CheckAddr(ip) != nil {
		return "", 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ownerOf(subjectOf(ip))
}

// OwnerOfPort is [Registry.OwnerOf] for a port. If port has no protocol, OwnerOfPort
// returns the holder under the first protocol that has one.
func (r *Registry) OwnerOfPort(p Port) (owner string, generation uint64, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.keys(p) {
		if owner, generation, held = r.ownerOf(s); held {
			break
		}
	}
	return owner, generation, held
}

func (r *Registry) ownerOf(s subject) (owner string, generation uint64, held bool) {
	rec := r.holder(s)
	switch {
	case rec == nil:
		return "", 0, false
	case rec.tx != nil && !r.covers(&rec.holding, s):
		return rec.owner, rec.tx.next.generation, true
	}
	return rec.owner, rec.generation, true
}

// String returns the counts: "3 owners, 2 ranges".
func (r *Registry) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d owners, %d ranges", len(r.owners), len(r.ranges.entries))
}

// All yields the grants, by owner. It does not hold the lock while the body of the loop
// runs. Owners added meanwhile are not seen; removed ones are skipped.
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
