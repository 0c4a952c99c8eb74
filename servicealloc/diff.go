package servicealloc

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Claim says that an owner has an address or a port. One of Addr and Port is set.
type Claim struct {
	Owner string
	Addr  netip.Addr
	Port  Port
	// Generation is that of the owner's grant, for what is held; 0 for what is desired.
	Generation uint64
}

// subject is what a claim is about.
type subject struct {
	addr netip.Addr
	port Port
}

func (c *Claim) subject() subject { return subject{c.Addr, c.Port} }

func (s subject) compare(o subject) int {
	return cmp.Or(s.addr.Compare(o.addr), cmp.Compare(s.port.Protocol, o.port.Protocol), cmp.Compare(s.port.Number, o.port.Number))
}

// State is what [Diff] compares with what is desired: [Registry.State] gives it.
type State struct {
	Held []Claim
	// Usable reports whether the subject of a claim is one that may be held. Nil means
	// that anything may.
	Usable func(Claim) bool
}

// Kind says what a [Finding] is about.
type Kind uint8

const (
	// Missing: desired, but not held by anybody.
	Missing Kind = iota + 1
	// Leaked: held, but desired by nobody.
	Leaked
	// Duplicate: desired by an owner beside another, the Holder, who goes first: the
	// one that holds it or, if neither does, the one that comes first in what is desired.
	Duplicate
	// OutOfRange: desired, but not usable in any range.
	OutOfRange
	// WrongOwner: desired by one owner, held by another, the Holder, who does not
	// desire it.
	WrongOwner
)

// String returns the kind in words.
func (k Kind) String() string {
	words := [...]string{"none", "missing", "leaked", "duplicate", "out of range", "wrong owner"}
	return words[min(int(k), len(words)-1)]
}

// Finding is one difference.
type Finding struct {
	Kind   Kind
	Claim  Claim  // what is desired; for Leaked what is held
	Holder string // the other owner, of Duplicate and WrongOwner
	// Of Leaked, filled in by [LeakWatch.Observe]: how many times in a row and for how
	// long it has been seen.
	Seen int
	Age  time.Duration
}

// Diff compares what is held with what is desired and returns what differs, in the
// order of addresses and ports. It changes nothing and reads no clock, and the answer
// depends on the order of desired only where [Duplicate] says so. Acting on a leak the
// first time it is seen races with whoever is about to record its owner: pass the
// findings to a [LeakWatch] first. Cost: O(n log n).
func Diff(state State, desired []Claim) []Finding {
	held := make(map[subject]*Claim, len(state.Held))
	for i := range state.Held {
		held[state.Held[i].subject()] = &state.Held[i]
	}
	first := rightful(held, desired)
	var out []Finding
	seen := make(map[Claim]bool, len(desired)) // the same claim twice is one claim
	for _, d := range desired {
		d.Generation = 0
		if seen[d] {
			continue
		}
		seen[d] = true
		h, winner := held[d.subject()], first[d.subject()]
		switch {
		case winner != d.Owner:
			out = append(out, Finding{Kind: Duplicate, Claim: d, Holder: winner})
		case state.Usable != nil && !state.Usable(d):
			out = append(out, Finding{Kind: OutOfRange, Claim: d})
		case h == nil:
			out = append(out, Finding{Kind: Missing, Claim: d})
		case h.Owner != d.Owner:
			out = append(out, Finding{Kind: WrongOwner, Claim: d, Holder: h.Owner})
		}
	}
	for s, h := range held {
		if _, ok := first[s]; !ok {
			out = append(out, Finding{Kind: Leaked, Claim: *h})
		}
	}
	slices.SortFunc(out, func(x, y Finding) int {
		return cmp.Or(x.Claim.subject().compare(y.Claim.subject()), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Claim.Owner, y.Claim.Owner))
	})
	return out
}

// rightful returns for each subject that is desired the owner that goes first.
func rightful(held map[subject]*Claim, desired []Claim) map[subject]string {
	first := make(map[subject]string, len(desired))
	for _, d := range desired {
		h := held[d.subject()]
		if _, ok := first[d.subject()]; !ok || h != nil && h.Owner == d.Owner {
			first[d.subject()] = d.Owner
		}
	}
	return first
}

// State returns what the registry's owners hold, for [Diff]. It stays as it is when the
// registry changes.
func (r *Registry) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s State
	for _, g := range r.owners {
		for _, ip := range g.Addrs {
			s.Held = append(s.Held, Claim{Owner: g.Owner, Addr: ip, Generation: g.Generation})
		}
		for _, p := range g.Ports {
			s.Held = append(s.Held, Claim{Owner: g.Owner, Port: p, Generation: g.Generation})
		}
	}
	slices.SortFunc(s.Held, func(x, y Claim) int { return x.subject().compare(y.subject()) })
	var prefixes []netip.Prefix
	for _, e := range r.ranges.entries {
		prefixes = append(prefixes, e.Prefixes...)
	}
	set, ports := r.set, r.ports
	s.Usable = func(c Claim) bool {
		if c.Addr.IsValid() {
			return set.hasAny(prefixes, c.Addr) && !set.isReserved(c.Addr)
		}
		if ports == nil {
			return false
		}
		sp, x, err := ports.locate(c.Port) // reads nothing that changes
		return err == nil && sp.bandOf(x) != Closed
	}
	return s
}

// LeakWatch tells leaks from what is only being recorded: a leak is ripe when it has
// been seen a number of times in a row and for some time. It is not safe for concurrent
// use.
type LeakWatch struct {
	count int
	age   time.Duration
	now   func() time.Time
	since map[Claim]sighting
}

type sighting struct {
	first time.Time
	n     int
}

// NewLeakWatch returns a watch that lets a leak ripen after count sightings in a row,
// the first of which is at least age ago on the clock now. Kubernetes waits for 3
// sightings of bits and for 60 seconds of objects.
//
// [ErrBadOption]: count is less than 1, age is negative, or now is nil.
func NewLeakWatch(count int, age time.Duration, now func() time.Time) (*LeakWatch, error) {
	if count < 1 || age < 0 || now == nil {
		return nil, &Error{Op: "new", Err: ErrBadOption, Detail: "a leak watch needs a count from 1, an age from 0 and a clock"}
	}
	return &LeakWatch{count: count, age: age, now: now, since: map[Claim]sighting{}}, nil
}

// Observe takes the findings of one [Diff], writes into those that are leaks how often
// and how long they have been seen, and returns the ripe ones. A leak that is not among
// the findings, or belongs to another grant now, begins anew when it comes back.
func (w *LeakWatch) Observe(findings []Finding) (ripe []Finding) {
	now := w.now()
	next := make(map[Claim]sighting, len(w.since))
	for i := range findings {
		f := &findings[i]
		if f.Kind != Leaked {
			continue
		}
		s, ok := w.since[f.Claim]
		if !ok {
			s.first = now
		}
		s.n++
		next[f.Claim] = s
		f.Seen, f.Age = s.n, now.Sub(s.first)
		if f.Seen >= w.count && f.Age >= w.age {
			ripe = append(ripe, *f)
		}
	}
	w.since = next
	return ripe
}
