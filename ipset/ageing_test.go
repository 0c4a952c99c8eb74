package ipset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ageing is a cluster at constant load over simulated days: its pods and its hosts are replaced, and the counts of a late day are
// compared with those of an early one. held is the oracle: who was told that an address is his.
type ageing struct {
	*world
	s      *faults.Faulty
	e      *Engine
	rng    *rand.Rand
	hosts  []int // by place: the number of the host there
	serial int
	load   map[int]int // pods by host
	live   []agedPod
	held   map[netip.Addr]string
	pods   int
	most   int // pods of one host
}

type agedPod struct {
	name      string
	host      int
	addresses []netip.Addr
}

// agedDay is what is counted of a day.
type agedDay struct {
	borrowed, orphans, records int
	former                     int // names of former owners
	kinds                      map[string]int
	lists                      int // for all assignments and releases of the day
}

// add sums the counts of days.
func (d *agedDay) add(o agedDay) {
	d.borrowed, d.orphans, d.records, d.lists = d.borrowed+o.borrowed, d.orphans+o.orphans, d.records+o.records, d.lists+o.lists
	d.former += o.former
	if d.kinds == nil {
		d.kinds = make(map[string]int)
	}
	for k, n := range o.kinds {
		d.kinds[k] += n
	}
}

func newAgeing(t *testing.T, hosts, podsPerHost int, pools ...alloc.Pool) *ageing {
	w := newWorld(t, alloc.Config{}, pools...)
	s := faults.NewFaulty(w.store)
	a := &ageing{world: w, s: s, e: w.engine(s), rng: rand.New(rand.NewPCG(1, 2)), load: make(map[int]int), held: make(map[netip.Addr]string), most: podsPerHost * 3 / 2}
	for range hosts {
		a.hosts = append(a.hosts, a.serial)
		a.serial++
	}
	return a
}

func (a *ageing) owner(host int) alloc.Owner { return alloc.HostOwner(fmt.Sprint("h", host)) }

// start gives a new pod an address of each family that a pool serves.
func (a *ageing) start(n4, n6 int) {
	a.t.Helper()
	host := a.hosts[a.rng.IntN(len(a.hosts))]
	for a.load[host] >= a.most {
		host = a.hosts[a.rng.IntN(len(a.hosts))]
	}
	a.pods++
	p := agedPod{name: fmt.Sprint("p", a.pods), host: host}
	got, err := a.e.AutoAssign(bg, alloc.AssignArgs{Owner: a.owner(host), Num4: n4, Num6: n6, Handle: p.name})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, al := range append(got.V4, got.V6...) {
		if by, twice := a.held[al.Address]; twice {
			a.t.Fatalf("%v is given to %s and held by %s", al.Address, p.name, by)
		}
		a.held[al.Address] = p.name
		p.addresses = append(p.addresses, al.Address)
	}
	a.load[host]++
	a.live = append(a.live, p)
}

// ended notes that the i-th pod has lost these addresses.
func (a *ageing) ended(i int, released []netip.Addr) {
	a.t.Helper()
	p := a.live[i]
	if released != nil && len(released) != len(p.addresses) {
		a.t.Fatalf("%s held %v, released are %v", p.name, p.addresses, released)
	}
	for _, x := range p.addresses {
		delete(a.held, x)
	}
	a.load[p.host]--
	a.live[i] = a.live[len(a.live)-1]
	a.live = a.live[:len(a.live)-1]
}

func (a *ageing) stop(i int) {
	a.t.Helper()
	released, err := a.e.ReleaseByHandle(bg, a.live[i].name)
	if err != nil {
		a.t.Fatal(err)
	}
	a.ended(i, released)
}

// replaceHost removes a host with its pods and has a new one in its place.
func (a *ageing) replaceHost() {
	a.t.Helper()
	at := a.rng.IntN(len(a.hosts))
	old, want := a.hosts[at], 0
	for i := 0; i < len(a.live); i++ {
		if a.live[i].host == old {
			want += len(a.live[i].addresses)
			a.ended(i, nil)
			i--
		}
	}
	released, _, err := a.e.RemoveHost(bg, a.owner(old))
	if err != nil || len(released) != want {
		a.t.Fatalf("removing a host released %d addresses of %d: %v", len(released), want, err)
	}
	delete(a.load, old)
	a.hosts[at] = a.serial
	a.serial++
}

// day replaces as many pods as there are, and a part of the hosts, and counts.
func (a *ageing) day(hosts, n4, n6 int, sweep alloc.SweepArgs) (d agedDay) {
	a.t.Helper()
	target := a.most * 2 / 3 * len(a.hosts)
	const steps = 24
	for step := range steps {
		a.clock.add(24 * time.Hour / steps)
		for range (step+1)*hosts/steps - step*hosts/steps {
			a.replaceHost()
		}
		before := a.s.Counts().Lists
		for range min(len(a.live), target/steps) {
			a.stop(a.rng.IntN(len(a.live)))
		}
		for len(a.live) < target {
			a.start(n4, n6)
		}
		d.lists += a.s.Counts().Lists - before
		if _, err := a.e.Operator().Sweep(bg, sweep); err != nil {
			a.t.Fatal(err)
		}
	}
	a.compare()
	d.kinds = make(map[string]int)
	for _, r := range a.list(store.Range{}) {
		d.kinds[r.Key[:1]]++
		d.records++
	}
	d.former = a.former()
	d.borrowed, d.orphans = d.kinds[record.KindHost], len(a.list(record.CodeRange(record.KindOwnRoom, alloc.Owner{})))
	return d
}

// compare holds what the store has against the oracle.
func (a *ageing) compare() {
	a.t.Helper()
	n := 0
	for al, err := range a.Allocations(bg, netip.Prefix{}) {
		if err != nil {
			a.t.Fatal(err)
		}
		if al.Cooling {
			continue
		}
		if n++; a.held[al.Address] != al.Handle {
			a.t.Fatalf("%v is held by %q, was given to %q", al.Address, al.Handle, a.held[al.Address])
		}
	}
	if n != len(a.held) {
		a.t.Fatalf("%d addresses are held, %d were given", n, len(a.held))
	}
	a.check()
}

// TestAffinityDoesNotDecay: where hosts come and go at constant load, the share of borrowed addresses, the lists that calls make
// and the records of the store stay what they were. A block that a host leaves in use gets an owner again.
func TestAffinityDoesNotDecay(t *testing.T) {
	hosts, perHost := 40, 20
	pools := []alloc.Pool{poolOf("a", "10.0.0.0/22", 28), poolOf("b", "10.0.4.0/27", 28)} // 66 blocks of 16: 76 % full
	if !testing.Short() {
		hosts, perHost = 200, 80
		pools = []alloc.Pool{poolOf("a", "10.0.0.0/18", 26), poolOf("b", "10.0.64.0/20", 26), poolOf("c", "10.0.80.0/23", 26)}
	}
	for i := range pools {
		pools[i].Cooldown = 5 * time.Minute
	}
	a := newAgeing(t, hosts, perHost, pools...)
	var early, late agedDay
	const days, span = 31, 5
	for day := range days {
		switch d := a.day(hosts/10, 1, 0, alloc.SweepArgs{IdleAfter: 30 * time.Minute}); {
		case 0 < day && day <= span: // day 0 fills the pools
			early.add(d)
		case day >= days-span:
			late.add(d)
		}
	}
	t.Logf("of %d addresses, over %d days each: %+v, then %+v", len(a.held), span, early, late)
	for _, c := range []struct {
		what      string
		was, is   int
		tolerance int
	}{
		{"borrowed addresses", early.borrowed, late.borrowed, 0},
		{"lists", early.lists, late.lists, 0},
		{"records", early.records, late.records, 0},
		{"blocks without owner", early.orphans, late.orphans, span},
		{"names of former owners", early.former, late.former, span},
	} {
		if c.is > c.was*6/5+c.tolerance {
			t.Errorf("%d %s over the last %d days, %d over the first", c.is, c.what, span, c.was)
		}
	}
}
