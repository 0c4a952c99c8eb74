// Package repair compares a service registry with the services' records, and repairs it.
// It replaces the repair loops of Kubernetes for cluster addresses and node ports.
//
//	findings = repair.Diff(reg, desired, findings, time.Now()) // every few minutes
//	for _, problem := range repair.Apply(reg, repair.Plan(findings, 3, time.Minute)) {
//		log.Print(problem)
//	}
//
// Diff changes nothing. A finding that the last Diff also made grows older. Plan selects
// the ripe findings; print them to see the repairs in advance. Apply makes the repairs.
// It skips every owner whose grant has changed since the finding was made.
//
// The package has no state and uses only exported methods of the registry. Each call
// locks the registry on its own. A service that changes during a comparison is found in
// its old or its new state.
package repair

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// Kind is the kind of a [Finding].
type Kind string

// Kind values.
const (
	// Missing means that the address or port is desired, but not held.
	Missing Kind = "missing"
	// Leaked means that it is held, but not desired.
	Leaked Kind = "leaked"
	// Duplicate means that two owners desire it. Holder is the owner with precedence: the
	// owner that holds it or, if neither does, the owner that is listed first.
	Duplicate Kind = "duplicate"
	// OutOfRange means that it is desired, but not usable in any range, or reserved.
	OutOfRange Kind = "out of range"
	// WrongOwner means that the owner desires it, and that Holder holds it and does not
	// desire it.
	WrongOwner Kind = "wrong owner"
)

// Finding is one difference between the held and the desired grants. It concerns an
// address or a port number; exactly one is set.
type Finding struct {
	Kind  Kind
	Owner string // that desires it; of Leaked, that holds it
	Addr  netip.Addr
	Port  servicealloc.Port
	// For Duplicate and WrongOwner, Holder is the other owner.
	Holder string
	// Generation is the generation of the grant that holds the address or port; for
	// Missing, of the owner's grant.
	Generation uint64
	// Seen is the number of consecutive comparisons that made the finding. Since is the time
	// of the first of them, and Age the time from the first to the last.
	Seen  int
	Since time.Time
	Age   time.Duration

	repaired bool // by Apply: if it is made again, it is another one
}

// String describes the repair that [Apply] makes: "release 10.96.0.7 of default/web
// (leaked, seen 3 times in 2m0s)".
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

// An item is an address or a port number that can be held once.
type item struct {
	addr netip.Addr
	port servicealloc.Port
}

// items returns the parts of g, as a registry of that port range holds them.
func items(r servicealloc.PortRange, g *servicealloc.Grant) (out []item) {
	for _, ip := range g.Addrs {
		if ip = ip.Unmap().WithZone(""); ip.IsValid() {
			out = append(out, item{addr: ip})
		}
	}
	for _, p := range g.Ports {
		switch {
		case p.Number == 0:
		case !r.PerProtocol:
			out = append(out, item{port: servicealloc.Port{Number: p.Number}})
		case p.Protocol != "":
			out = append(out, item{port: p})
		default:
			for _, proto := range []servicealloc.Protocol{servicealloc.TCP, servicealloc.UDP, servicealloc.SCTP} {
				out = append(out, item{port: servicealloc.Port{Protocol: proto, Number: p.Number}})
			}
		}
	}
	return out
}

// holder returns the owner that holds the item, and the generation of its grant.
func (i item) holder(reg *servicealloc.Registry) (owner string, generation uint64, held bool) {
	if i.addr.IsValid() {
		return reg.OwnerOf(i.addr)
	}
	return reg.OwnerOfPort(i.port)
}

func (i item) usable(reg *servicealloc.Registry) bool {
	if i.addr.IsValid() {
		return reg.Usable(i.addr)
	}
	return reg.UsablePort(i.port)
}

// Diff compares the held grants with desired, which lists grants as
// [servicealloc.Registry.Load] takes them. It returns the differences, ordered by address
// and port. previous is the result of the last call, nil at first, and now is the time of
// this call. A finding that is also in previous grows older, even if other parts of its
// owners' grants changed. A finding that was absent once, was repaired by [Apply], or has
// another owner or holder by now, starts over.
//
// An address or port taken by an open transaction is neither missing nor leaked.
// Repairing a leak the first time it is seen races with a caller that is about to record
// its owner, so let [Plan] select the ripe findings. Diff takes O(n log n).
func Diff(reg *servicealloc.Registry, desired []servicealloc.Grant, previous []*Finding, now time.Time) []*Finding {
	ports := reg.Ports()
	first := map[item]string{} // the owner that goes first
	var each []Finding         // what is desired, once for each owner
	seen := map[Finding]bool{}
	for i := range desired {
		for _, it := range items(ports, &desired[i]) {
			f := Finding{Owner: desired[i].Owner, Addr: it.addr, Port: it.port}
			if seen[f] {
				continue
			}
			seen[f] = true
			each = append(each, f)
			h, _, held := it.holder(reg)
			if _, ok := first[it]; !ok || held && h == f.Owner {
				first[it] = f.Owner
			}
		}
	}
	var out []*Finding
	generations := map[string]uint64{}
	for g := range reg.All() {
		generations[g.Owner] = g.Generation
		for _, it := range items(ports, &g) {
			h, generation, held := it.holder(reg)
			if _, ok := first[it]; !ok && held && h == g.Owner && generation == g.Generation {
				first[it] = g.Owner
				out = append(out, &Finding{Kind: Leaked, Owner: g.Owner, Addr: it.addr, Port: it.port, Generation: g.Generation})
			}
		}
	}
	for i := range each {
		f := &each[i]
		if it := (item{f.Addr, f.Port}); f.judge(reg, it, first[it], generations[f.Owner]) {
			out = append(out, f)
		}
	}
	return grown(out, previous, now)
}

// judge compares the item that f.Owner desires, whose grant has the given generation,
// with the registry. It completes f and reports whether there is a difference.
func (f *Finding) judge(reg *servicealloc.Registry, it item, first string, generation uint64) bool {
	h, of, held := it.holder(reg)
	switch {
	case first != f.Owner:
		f.Kind, f.Holder = Duplicate, first
	case !it.usable(reg):
		f.Kind = OutOfRange
	case !held:
		f.Kind, f.Generation = Missing, generation
	case h != f.Owner:
		f.Kind, f.Holder, f.Generation = WrongOwner, h, of
	}
	return f.Kind != ""
}

// grown sorts findings and adds up their ages.
func grown(out, previous []*Finding, now time.Time) []*Finding {
	type about struct {
		kind          Kind
		owner, holder string
		item
	}
	of := func(f *Finding) about { return about{f.Kind, f.Owner, f.Holder, item{f.Addr, f.Port}} }
	before := make(map[about]*Finding, len(previous))
	for _, f := range previous {
		if f != nil && !f.repaired {
			before[of(f)] = f
		}
	}
	for _, f := range out {
		f.Seen, f.Since = 1, now
		if old := before[of(f)]; old != nil {
			f.Seen, f.Since, f.Age = old.Seen+1, old.Since, max(0, now.Sub(old.Since))
		}
	}
	slices.SortFunc(out, (*Finding).compare)
	return out
}

// Plan selects the findings that [Apply] can and should repair. Missing ones are ripe at
// once; leaked ones and wrong owners are ripe when Seen is at least seen and Age at least
// age. An operator must resolve duplicates and addresses out of range. Kubernetes frees a
// leaked bit when it has seen it 3 times, and a leaked IPAddress object after 60 seconds.
func Plan(findings []*Finding, seen int, age time.Duration) (plan []*Finding) {
	for _, f := range findings {
		if f == nil {
			continue
		}
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

// Apply carries out a plan: it takes missing items, releases leaked items and transfers
// items with a wrong owner. Each repair is one [servicealloc.Registry.Move]. It returns
// an error for each finding that it could not repair. That is the error of Move, with the
// owner and the address or port of the finding, or [ipalloc.ErrInvalid] if the finding
// has no repair. A failed repair changes nothing; the others are carried out. Pass the
// findings of Diff themselves, because Apply marks the repaired ones for the next Diff.
func Apply(reg *servicealloc.Registry, plan []*Finding) (problems []*ipalloc.Error) {
	a := applying{}
	for _, f := range plan {
		if f == nil {
			problems = append(problems, &ipalloc.Error{Package: "repair", Op: "apply", Field: "plan", Reason: "a finding that is nil", Err: ipalloc.ErrInvalid})
			continue
		}
		var from, to servicealloc.Grant
		switch f.Kind {
		case Missing:
			to = a.party(f, f.Owner, f.Generation)
		case Leaked:
			from = a.party(f, f.Owner, f.Generation)
		case WrongOwner:
			from, to = a.party(f, f.Holder, f.Generation), a.now(reg, f)
		default:
			problems = append(problems, &ipalloc.Error{Package: "repair", Op: "apply", Field: "Kind", Owner: f.Owner, Addr: f.Addr, Port: f.Port.Number,
				Text: string(f.Kind), Reason: "no repair", Err: ipalloc.ErrInvalid})
			continue
		}
		left, got, err := reg.Move(from, to)
		if err != nil {
			e := ipalloc.Error{Err: err}
			if because := (*ipalloc.Error)(nil); errors.As(err, &because) {
				e = *because
			}
			e.Package, e.Op, e.Owner, e.Addr, e.Port = "repair", "apply", f.Owner, f.Addr, f.Port.Number
			problems = append(problems, &e)
			continue
		}
		f.repaired = true
		a.moved(from, left)
		a.moved(to, got)
	}
	return problems
}

// applying has, for each owner changed by one call of Apply, the generation of its grant
// before, which the findings name, and the generation now.
type applying map[string]struct{ before, now uint64 }

// party returns the item of f as a part of an owner's grant.
func (a applying) party(f *Finding, owner string, generation uint64) servicealloc.Grant {
	if n, ok := a[owner]; ok && n.before == generation {
		generation = n.now
	}
	g := servicealloc.Grant{Owner: owner, Generation: generation}
	if f.Addr.IsValid() {
		g.Addrs = []netip.Addr{f.Addr}
	} else {
		g.Ports = []servicealloc.Port{f.Port}
	}
	return g
}

// now returns the item of f as a part of its owner's present grant.
func (a applying) now(reg *servicealloc.Registry, f *Finding) servicealloc.Grant {
	n, ok := a[f.Owner]
	if !ok {
		g, _ := reg.Get(f.Owner)
		n.before, n.now = g.Generation, g.Generation
		a[f.Owner] = n
	}
	return a.party(f, f.Owner, n.before)
}

// moved records the new generation of a party's grant, if there was a party.
func (a applying) moved(g servicealloc.Grant, generation uint64) {
	if len(g.Addrs)+len(g.Ports) == 0 {
		return
	}
	n, ok := a[g.Owner]
	if !ok || n.now != g.Generation {
		n.before = g.Generation
	}
	n.now = generation
	a[g.Owner] = n
}
