package servicealloc

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/ipalloc/ipalloc"
)

// The kinds of findings.
const (
	// Missing means desired, but not held.
	Missing Kind = "missing"
	// Leaked means held, but not desired.
	Leaked Kind = "leaked"
	// Duplicate means desired by the owner and by another, the Holder, that goes first:
	// the one that holds it or, if neither does, the one that is listed first.
	Duplicate Kind = "duplicate"
	// OutOfRange means desired, but not usable in any range, or reserved.
	OutOfRange Kind = "out of range"
	// WrongOwner means desired by the owner, held by another, the Holder, that does
	// not desire it.
	WrongOwner Kind = "wrong owner"
)

// Finding is one difference between what is held and what is desired. It is about an
// address or a port number, of which one is set.
type Finding struct {
	Kind  Kind
	Owner string // that desires it; of Leaked, that holds it
	Addr  netip.Addr
	Port  Port
	// Holder is the other owner, of Duplicate and WrongOwner.
	Holder string
	// Generation is that of the grant that holds it; of Missing, of the owner's grant.
	Generation uint64
	// Seen is in how many comparisons in a row the finding was made, Since when the
	// first of them was made, and Age how long ago that was at the last.
	Seen  int
	Since time.Time
	Age   time.Duration
}

// String returns what [Registry.Apply] does about the finding: "release 10.96.0.7 of
// default/web (leaked, seen 3 times in 2m0s)".
func (f Finding) String() string {
	what := f.Addr.String()
	if !f.Addr.IsValid() {
		what = "port " + strconv.Itoa(int(f.Port.Number))
		if f.Port.Protocol != "" {
			what += "/" + string(f.Port.Protocol)
		}
	}
	times := "s"
	if f.Seen == 1 {
		times = ""
	}
	seen := fmt.Sprintf("(%s, seen %d time%s in %v)", f.Kind, f.Seen, times, f.Age)
	switch f.Kind {
	case Missing:
		return fmt.Sprintf("take %s for %q %s", what, f.Owner, seen)
	case Leaked:
		return fmt.Sprintf("release %s of %q %s", what, f.Owner, seen)
	case WrongOwner:
		return fmt.Sprintf("transfer %s from %q to %q %s", what, f.Holder, f.Owner, seen)
	case Duplicate:
		return fmt.Sprintf("leave %s to %q, not %q %s", what, f.Holder, f.Owner, seen)
	}
	return fmt.Sprintf("leave %s of %q %s", what, f.Owner, seen)
}

func (f *Finding) compare(o *Finding) int {
	return cmp.Or(f.Addr.Compare(o.Addr), cmp.Compare(f.Port.Number, o.Port.Number), cmp.Compare(f.Port.Protocol, o.Port.Protocol),
		cmp.Compare(f.Kind, o.Kind), cmp.Compare(f.Owner, o.Owner))
}

// Diff compares what is held with what is desired, which has the form of [Registry.Load],
// and returns what differs, in the order of addresses and ports. What an open transaction
// holds is neither missing nor leaked. previous is the result of the last call, nil at
// first: a finding that is in it too grows older. A finding that was absent once, or is
// about another grant by now, begins anew.
//
// Diff changes nothing. To act on a leak the first time it is seen races with whatever
// is about to record its owner: let [Plan] select what is ripe. It takes O(n log n).
func (r *Registry) Diff(desired []Grant, previous []Finding) []Finding {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := map[subject]string{} // the owner that goes first
	var each []Finding            // what is desired, once for each owner
	seen := map[Finding]bool{}
	for i := range desired {
		for _, s := range r.desires(&desired[i]) {
			f := Finding{Owner: desired[i].Owner, Addr: s.addr, Port: s.port()}
			if seen[f] {
				continue
			}
			seen[f] = true
			each = append(each, f)
			h := r.holders[s]
			if _, ok := first[s]; !ok || h != nil && h.Owner == f.Owner {
				first[s] = f.Owner
			}
		}
	}
	var out []Finding
	for _, f := range each {
		s := f.subject(r)
		if f.Kind = r.judge(s, &f, first[s]); f.Kind != "" {
			out = append(out, f)
		}
	}
	for s, rec := range r.holders {
		if _, ok := first[s]; !ok && rec.tx == nil {
			out = append(out, Finding{Kind: Leaked, Owner: rec.Owner, Addr: s.addr, Port: s.port(), Generation: rec.Generation})
		}
	}
	return grown(out, previous, now)
}

// desires returns the subjects of a desired grant that can be held.
func (r *Registry) desires(g *Grant) []subject {
	p := Grant{Addrs: make([]netip.Addr, len(g.Addrs)), Ports: g.Ports}
	for i, ip := range g.Addrs {
		p.Addrs[i] = plain(ip)
	}
	return slices.DeleteFunc(r.subjects(&p), func(s subject) bool { return s == subject{proto: s.proto} })
}

// subject returns what f is about.
func (f *Finding) subject(r *Registry) subject {
	if f.Addr.IsValid() {
		return subject{addr: f.Addr}
	}
	return r.keys(f.Port)[0]
}

// judge returns what is wrong with s, which f.Owner desires, "" if nothing is.
func (r *Registry) judge(s subject, f *Finding, first string) Kind {
	h := r.holders[s]
	switch {
	case first != f.Owner:
		f.Holder = first
		return Duplicate
	case !r.usable(s):
		return OutOfRange
	case h == nil:
		if rec := r.owners[f.Owner]; rec != nil {
			f.Generation = rec.Generation
		}
		return Missing
	case h.Owner != f.Owner:
		f.Holder, f.Generation = h.Owner, h.Generation
		return WrongOwner
	}
	return ""
}

// grown sorts findings and adds up their ages.
func grown(out, previous []Finding, now time.Time) []Finding {
	young := func(f Finding) Finding {
		f.Seen, f.Since, f.Age = 0, time.Time{}, 0
		return f
	}
	before := make(map[Finding]Finding, len(previous))
	for _, f := range previous {
		before[young(f)] = f
	}
	for i := range out {
		f, old := &out[i], before[out[i]]
		f.Seen, f.Since = old.Seen+1, old.Since
		if old.Seen == 0 {
			f.Since = now
		}
		f.Age = now.Sub(f.Since)
	}
	slices.SortFunc(out, func(x, y Finding) int { return x.compare(&y) })
	return out
}

// Plan selects the findings that [Registry.Apply] can and should repair: what is missing
// at once, and what is leaked or with the wrong owner once it has been seen that many
// times in a row and is that old. A duplicate and an address out of range are for people
// to solve. Kubernetes frees a leaked bit when it has seen it 3 times, and a leaked
// IPAddress object after 60 seconds.
func Plan(findings []Finding, seen int, age time.Duration) (plan []Finding) {
	for _, f := range findings {
		switch f.Kind {
		case Missing:
			plan = append(plan, f)
		case Leaked, WrongOwner:
			if f.Seen >= seen && f.Age >= age {
				plan = append(plan, f)
			}
		}
	}
	return plan
}

// Apply carries out a plan: it takes what is missing, releases what is leaked and
// transfers what has the wrong owner. Each owner whose holding changes gets a new
// generation. It returns the steps that could not be taken, which change nothing:
// [ipalloc.ErrMismatch] if the grant is of another generation than when the finding was
// made, [ipalloc.ErrInUse] if a transaction of an owner is open, [ipalloc.ErrInvalid]
// for a finding that has no repair, and the errors of [Registry.Allocate].
func (r *Registry) Apply(plan []Finding) (problems []*ipalloc.Error) {
	r.lock()
	defer r.unlock()
	a := repair{r: r, before: map[*record]Grant{}}
	for i := range plan {
		if e := a.step(&plan[i]); e != nil {
			e.Package, e.Op, e.Owner, e.Addr, e.Port = "servicealloc", "repair", plan[i].Owner, plan[i].Addr, plan[i].Port.Number
			problems = append(problems, e)
		}
	}
	a.finish()
	return problems
}

// A repair is one call of Apply.
type repair struct {
	r      *Registry
	before map[*record]Grant // what the owners that changed had, with its generation
	order  []*record
}

func (a *repair) step(f *Finding) *ipalloc.Error {
	r, s := a.r, f.subject(a.r)
	switch f.Kind {
	case Missing:
		to := a.record(f.Owner)
		if e := a.guard(to, f.Generation); e != nil {
			return e
		}
		if h := r.holderName(s); h != "" || r.holders[s] != nil {
			return &ipalloc.Error{Holder: h, Err: ipalloc.ErrOccupied}
		}
		if !r.usable(s) {
			return &ipalloc.Error{Err: ipalloc.ErrOutOfRange}
		}
		a.gain(to, f, s)
	case Leaked, WrongOwner:
		from := r.holders[s]
		owner := f.Owner
		if f.Kind == WrongOwner {
			owner = f.Holder
		}
		if from == nil || from.Owner != owner {
			return &ipalloc.Error{Holder: r.holderName(s), Reason: "held by another owner by now", Err: ipalloc.ErrMismatch}
		}
		if e := a.guard(from, f.Generation); e != nil {
			return e
		}
		to := a.record(f.Owner)
		if f.Kind == WrongOwner && to.tx != nil {
			return &ipalloc.Error{Reason: "the owner has an open transaction", Err: ipalloc.ErrInUse}
		}
		a.lose(from, f, s)
		if f.Kind == WrongOwner {
			a.gain(to, f, s)
		}
	default:
		return &ipalloc.Error{Field: "Kind", Text: string(f.Kind), Reason: "no repair", Err: ipalloc.ErrInvalid}
	}
	return nil
}

// record returns the record of an owner, a new one if it holds nothing.
func (a *repair) record(owner string) *record {
	if rec := a.r.owners[owner]; rec != nil {
		return rec
	}
	rec := &record{Grant: Grant{Owner: owner}}
	a.r.owners[owner] = rec
	a.touch(rec)
	return rec
}

// touch notes what rec had before this call changed it.
func (a *repair) touch(rec *record) {
	if _, ok := a.before[rec]; !ok {
		a.before[rec] = rec.clone()
		a.order = append(a.order, rec)
	}
}

// guard refuses a grant that has changed since the finding, but for what this call did.
func (a *repair) guard(rec *record, generation uint64) *ipalloc.Error {
	is := rec.Generation
	if b, ok := a.before[rec]; ok {
		is = b.Generation
	}
	switch {
	case rec.tx != nil:
		return &ipalloc.Error{Reason: "the owner has an open transaction", Err: ipalloc.ErrInUse}
	case is != generation:
		return &ipalloc.Error{Reason: "the grant is of another generation by now", Err: ipalloc.ErrMismatch}
	}
	return nil
}

func (a *repair) gain(rec *record, f *Finding, s subject) {
	a.touch(rec)
	if f.Addr.IsValid() {
		rec.Addrs = append(rec.Addrs, f.Addr)
	} else if !slices.Contains(rec.Ports, f.Port) {
		rec.Ports = append(rec.Ports, f.Port)
	}
	a.r.claim(s, rec)
}

// lose takes s from rec. A port entry of several protocols leaves those that stay.
func (a *repair) lose(rec *record, f *Finding, s subject) {
	a.touch(rec)
	rec.Addrs = slices.DeleteFunc(slices.Clone(rec.Addrs), func(ip netip.Addr) bool { return ip == f.Addr })
	var ports []Port
	for _, p := range rec.Ports {
		keys := a.r.keys(p)
		if !slices.Contains(keys, s) {
			ports = append(ports, p)
			continue
		}
		for _, k := range keys {
			if k != s {
				ports = append(ports, k.port())
			}
		}
	}
	rec.Ports = ports
	a.r.unclaim(s, rec)
}

// finish gives each owner that changed its generation, and tells the receiver.
func (a *repair) finish() {
	for _, rec := range a.order {
		had := a.before[rec]
		if rec.Generation != 0 && slices.Equal(had.Addrs, rec.Addrs) && slices.Equal(had.Ports, rec.Ports) {
			continue
		}
		rec.Generation = 0
		if !rec.empty() {
			a.r.last++
			rec.Generation = a.r.last
		}
		a.r.publish(rec, &had)
	}
}
