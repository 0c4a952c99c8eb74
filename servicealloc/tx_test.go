package servicealloc

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// What a service is asked to be, in the words of Kubernetes.
var serviceTypes = map[string]Request{
	"ExternalName": {},
	"ClusterIP":    {Addrs: anyBoth[:1]},
	"DualStack":    {Addrs: anyBoth},
	"NodePort":     {Addrs: anyBoth[:1], Ports: []Port{{}, {}}},
	"LoadBalancer": {Addrs: anyBoth, Ports: []Port{{}, {"", 30001}}}, // the last for health checks
}

// Create, every change of type, and delete are one transaction each. Rolled back it
// leaves everything as it was; committed it leaves what was granted. In between no
// other owner gets the old or the new.
func TestTransactionsOfEveryType(t *testing.T) {
	for from, old := range serviceTypes {
		for to, next := range serviceTypes {
			r := newRegistryT(t, "10.0.0.0/28 fd00::/124", LowestFirst())
			g, err := r.Allocate("svc", old)
			wantErr(t, err, nil)
			before := heldBy(r)
			for _, commit := range []bool{false, true} {
				tx, n, err := r.Begin("svc", next)
				wantErr(t, err, nil)
				check(t, r)
				for _, ip := range append(slices.Clone(g.Addrs), n.Addrs...) {
					wantErr(t, errOf(r.Allocate("thief", Request{Addrs: []netip.Addr{ip}})), ipalloc.ErrOccupied)
				}
				for _, p := range append(slices.Clone(g.Ports), n.Ports...) {
					wantErr(t, errOf(r.Allocate("thief", Request{Ports: []Port{p}})), ipalloc.ErrOccupied)
				}
				if got := heldBy(r); !slices.Equal(got, before) {
					t.Fatalf("%s to %s: in between %q, want %q", from, to, got, before)
				}
				for _, err := range []error{errOf(r.Allocate("svc", old)), errOf(r.Release("svc", 0))} {
					if len(old.Addrs) > 0 {
						wantErr(t, err, ipalloc.ErrInUse)
					}
				}
				_, _, err = r.Begin("svc", next)
				wantErr(t, err, ipalloc.ErrInUse)
				if commit {
					wantErr(t, tx.Commit(), nil)
				} else {
					wantErr(t, tx.Rollback(), nil)
				}
				wantErr(t, tx.Commit(), ipalloc.ErrClosed)
				wantErr(t, tx.Rollback(), ipalloc.ErrClosed)
				check(t, r)
				now, held := r.Get("svc")
				if !commit && (now.Generation != g.Generation || !slices.Equal(heldBy(r), before)) {
					t.Fatalf("%s to %s, rolled back: %+v", from, to, now)
				}
				if commit && (now.Generation != n.Generation || held && textOf(now) != textOf(n)) {
					t.Fatalf("%s to %s: %+v, want %+v", from, to, now, n)
				}
			}
		}
	}
}

// A random sequence of transactions, rolled back after every single step of it in a copy
// of the registry, gives back the state before it.
func TestRollbackAtEveryStep(t *testing.T) {
	types := slices.Sorted(func(yield func(string) bool) {
		for name := range serviceTypes {
			if !yield(name) {
				return
			}
		}
	})
	for seed := range seeds.Each(t, 20, 20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRegistryT(t, "10.0.0.0/28 fd00::/124")
		type open struct {
			tx *Tx
			g  Grant
		}
		committed, pending := map[string]Grant{}, map[string]open{}
		for range 300 {
			owner := string(rune('a' + rng.IntN(6)))
			if p, ok := pending[owner]; ok {
				delete(pending, owner)
				if rng.IntN(2) == 0 {
					wantErr(t, p.tx.Rollback(), nil)
				} else if wantErr(t, p.tx.Commit(), nil); p.g.Generation == 0 {
					delete(committed, owner)
				} else {
					committed[owner] = p.g
				}
			} else if tx, g, err := r.Begin(owner, serviceTypes[types[rng.IntN(len(types))]]); err == nil {
				pending[owner] = open{tx, g}
			}
			check(t, r)
			if got := slices.Collect(r.All()); len(got) != len(committed) || slices.ContainsFunc(got, func(g Grant) bool { return textOf(g) != textOf(committed[g.Owner]) }) {
				t.Fatalf("%v, want %v", got, committed)
			}
			// Whatever is open now would leave exactly what is committed.
			c := copyOf(t, r)
			for owner := range pending {
				want := committed[owner]
				c.Release(owner, 0)
				c.Load([]Grant{want})
			}
			check(t, c)
			if got, want := heldBy(c), heldBy(r); !slices.Equal(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		for _, p := range pending {
			wantErr(t, p.tx.Rollback(), nil)
		}
		for owner := range committed {
			r.Release(owner, 0)
		}
		st := r.Stats()
		if v4, v6, ports := st.V4, st.V6, st.Ports; v4.Dynamic.Used+v4.Static.Used+v6.Dynamic.Used+v6.Static.Used+ports.Dynamic.Used+ports.Static.Used != 0 {
			t.Error("something leaked")
		}
	}
}

func copyOf(t *testing.T, r *Registry) *Registry {
	t.Helper()
	c, err := NewRegistry(r.Ports(), Restore([]byte(stateOf(t, r))), StaticBand(r.set.size))
	wantErr(t, err, nil)
	return c
}

// A deadline ends a transaction at the next call that may change something.
func TestDeadline(t *testing.T) {
	var mu sync.Mutex
	clock := time.Unix(1000, 0)
	now := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return clock
	}
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst(), Clock(now))
	must(r.Allocate("svc", Request{Addrs: []netip.Addr{ip("10.0.0.5")}}))
	tx, _, err := r.Begin("svc", Request{Addrs: []netip.Addr{ip("10.0.0.6")}, Deadline: clock.Add(time.Minute)})
	wantErr(t, err, nil)
	other, _, err := r.Begin("new", Request{Addrs: anyBoth[:1], Deadline: clock.Add(time.Hour)})
	wantErr(t, err, nil)
	clock = clock.Add(59 * time.Second)
	wantErr(t, errOf(r.Allocate("thief", Request{Addrs: []netip.Addr{ip("10.0.0.6")}})), ipalloc.ErrOccupied)
	clock = clock.Add(time.Second)
	must(r.Allocate("thief", Request{Addrs: []netip.Addr{ip("10.0.0.6")}}))
	err = tx.Commit()
	wantErr(t, err, ipalloc.ErrClosed)
	if got := err.Error(); got != `servicealloc: commit for "svc": the deadline of the transaction has passed; it was rolled back` {
		t.Error(got)
	}
	clock = clock.Add(time.Hour)
	wantErr(t, other.Commit(), ipalloc.ErrClosed)
	wantHeld(t, r, "svc: 10.0.0.5", "thief: 10.0.0.6")
}

// A transaction that is dropped is found by Check. Nobody else gets what it took until
// its owner is worked on again, which then has both.
func TestDroppedTransaction(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	must(r.Allocate("svc", Request{Addrs: []netip.Addr{ip("10.0.0.5")}}))
	func() {
		_, _, err := r.Begin("svc", Request{Addrs: []netip.Addr{ip("10.0.0.6")}})
		wantErr(t, err, nil)
	}()
	err := r.Check()
	for range 1000 {
		if err != nil {
			break
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
		err = r.Check()
	}
	wantErr(t, err, ipalloc.ErrCorrupt)
	wantErr(t, errOf(r.Allocate("thief", Request{Addrs: []netip.Addr{ip("10.0.0.6")}})), ipalloc.ErrOccupied)
	tx, g, err := r.Begin("svc", Request{Addrs: []netip.Addr{ip("10.0.0.7")}})
	wantErr(t, err, nil)
	if now, _ := r.Get("svc"); textOf(now) != "10.0.0.5 10.0.0.6" || textOf(g) != "10.0.0.7" {
		t.Error(now, g)
	}
	check(t, r)
	wantErr(t, tx.Commit(), nil)
	wantHeld(t, r, "svc: 10.0.0.7")
}

// A receiver that follows, and a snapshot, have the old and the new while a transaction
// is open: a crash leaves too much held rather than too little.
func TestTransactionsAreJournaled(t *testing.T) {
	f := newRegistryT(t, "")
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst(), OnChange(func(c Change) {
		if err := f.Apply(c); err != nil {
			t.Error(err)
		}
	}))
	must(r.Allocate("svc", Request{Addrs: []netip.Addr{ip("10.0.0.5")}}))
	for _, commit := range []bool{false, true} {
		tx, _, err := r.Begin("svc", Request{Addrs: []netip.Addr{ip("10.0.0.6")}, Ports: []Port{{}}})
		wantErr(t, err, nil)
		wantHeld(t, f, "svc: 10.0.0.5 10.0.0.6 30016")
		wantHeld(t, must(NewRegistry(testPorts, LowestFirst(), Restore([]byte(stateOf(t, r))))), "svc: 10.0.0.5 10.0.0.6 30016")
		if commit {
			wantErr(t, tx.Commit(), nil)
		} else {
			wantErr(t, tx.Rollback(), nil)
		}
		if got, want := heldBy(f), heldBy(r); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	tx, _, err := r.Begin("svc", Request{})
	wantErr(t, err, nil)
	wantErr(t, tx.Commit(), nil)
	wantHeld(t, f)
}

// 32 goroutines change services in transactions of which some are rolled back. In the
// end exactly what was committed is held, and nothing was ever held twice.
func TestStorm(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/26 fd00::/122")
	types := []string{"ClusterIP", "DualStack", "NodePort", "LoadBalancer", "ExternalName"}
	var mu sync.Mutex
	committed := map[string]Grant{}
	using := map[string]string{} // subject -> owner
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(worker), 7))
			me := fmt.Sprint("svc-", worker)
			for range 60 {
				tx, g, err := r.Begin(me, serviceTypes[types[rng.IntN(len(types))]])
				if err != nil {
					continue // full
				}
				mu.Lock()
				old := committed[me]
				for _, s := range r.subjects(&g) {
					if by := using[fmt.Sprint(s)]; by != "" && by != me {
						t.Errorf("%v is of %s and %s", s, by, me)
					}
					using[fmt.Sprint(s)] = me
				}
				mu.Unlock()
				runtime.Gosched()
				keep, end := g, tx.Commit
				if rng.IntN(3) == 0 {
					keep, end = old, tx.Rollback
				}
				mu.Lock()
				for _, s := range append(r.subjects(&g), r.subjects(&old)...) {
					if !slices.Contains(r.subjects(&keep), s) {
						delete(using, fmt.Sprint(s))
					}
				}
				committed[me] = keep
				err = end()
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	check(t, r)
	for owner, want := range committed {
		if g, _ := r.Get(owner); textOf(g) != textOf(want) || g.Generation != want.Generation {
			t.Errorf("%s: %+v, want %+v", owner, g, want)
		}
	}
	n := 0
	for range r.All() {
		n++
	}
	for _, g := range committed {
		if g.Generation != 0 {
			n--
		}
	}
	if n != 0 {
		t.Errorf("%d owners too many", n)
	}
}

// Everything at once, for the race detector.
func TestConcurrentMix(t *testing.T) {
	g := newRegistryT(t, "10.0.0.0/24 fd00::/64", OnChange(func(Change) {}))
	r := newRangeT(t, "fd00::/64")
	p := newPortsT(t, 1, 300)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			me := string(rune('a' + worker))
			for i := range 60 {
				got, err := g.Allocate(me, Request{Addrs: anyBoth, Ports: []Port{{}}})
				if err == nil {
					g.Allocate(me, Request{Addrs: anyBoth[:1], Generation: got.Generation})
				}
				if tx, _, err := g.Begin(me, Request{Addrs: anyBoth, Deadline: time.Now().Add(time.Hour)}); err == nil && i%2 == 0 {
					tx.Commit()
				} else if err == nil {
					tx.Rollback()
				}
				g.OwnerOf(ip("10.0.0.20"))
				for range g.All() {
					break
				}
				g.Stats()
				g.Usable(ip("10.0.0.20"))
				g.Move(Grant{}, Grant{Owner: me + "2", Addrs: []netip.Addr{ip("10.0.0.21")}})
				g.Release(me+"2", 0)
				g.Release(me, 0)
				name := me + "range"
				g.SetRange(rangeOf(name, "10.1.0.0/24"))
				g.SetRange(draining(rangeOf(name, "10.1.0.0/24")))
				g.RemoveRange(name)
				a, _, _ := r.AllocateNext()
				r.Lookup(a)
				r.Allocate(ip("fd00::1"))
				r.Release(ip("fd00::1"))
				for range r.All() {
					break
				}
				r.MarshalBinary()
				n, _, _ := p.AllocateNext()
				p.Release(n)
			}
		}()
	}
	wg.Wait()
	check(t, g, r, p)
}

// Goroutines that drain a range get all of it, each address once.
func TestConcurrentDrain(t *testing.T) {
	r, p := newRangeT(t, "10.0.0.0/24"), newPortsT(t, 30000, 30253)
	var mu sync.Mutex
	addrs, ports := map[netip.Addr]int{}, map[uint16]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				a, _, err := r.AllocateNext()
				n, _, err2 := p.AllocateNext()
				if err != nil || err2 != nil {
					return
				}
				mu.Lock()
				addrs[a]++
				ports[n]++
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if len(addrs) < 247 || len(ports) < 247 { // each goroutine may lose one of a pair at the end
		t.Error(len(addrs), len(ports))
	}
	for a, n := range addrs {
		if n != 1 {
			t.Errorf("%v %d times", a, n)
		}
	}
	for n, k := range ports {
		if k != 1 {
			t.Errorf("%v %d times", n, k)
		}
	}
	check(t, r, p)
}

// While a transaction is open, what it has taken is of its new grant, and what the owner
// held before of the old one.
func TestOwnerOfInATransaction(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	old := must(r.Allocate("svc", Request{Addrs: []netip.Addr{ip("10.0.0.5")}, Ports: []Port{{"", 30001}}}))
	tx, next, err := r.Begin("svc", Request{Addrs: []netip.Addr{ip("10.0.0.6")}, Ports: []Port{{"", 30002}}})
	wantErr(t, err, nil)
	for i, want := range []Grant{old, next} {
		owner, g, ok := r.OwnerOf(want.Addrs[0])
		owner2, g2, ok2 := r.OwnerOfPort(want.Ports[0])
		if !ok || !ok2 || owner != "svc" || owner2 != "svc" || g != want.Generation || g2 != g {
			t.Errorf("%d: %q %d, %q %d, want %+v", i, owner, g, owner2, g2, want)
		}
	}
	wantErr(t, tx.Rollback(), nil)
}

// What a request names is kept before what it leaves open, whatever the order.
func TestNamedIsKeptFirst(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	g := must(r.Allocate("svc", Request{Ports: []Port{{"", 30020}, {"", 30021}}}))
	g = must(r.Allocate("svc", Request{Ports: []Port{{}, {"", 30020}, {}}, Generation: g.Generation}))
	if textOf(g) != "30021 30020 30016" {
		t.Error(g)
	}
	check(t, r)
}

// A call takes no more memory beside a thousand transactions with a deadline than beside none. Those that are due end in the order
// in which they began.
func TestManyDeadlines(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := newRegistryT(t, "10.0.0.0/16", LowestFirst(), Clock(func() time.Time { return now }))
	call := func() {
		must(r.Allocate("a", Request{Addrs: anyBoth[:1]}))
		must(r.Release("a", 0))
	}
	bytes := func() uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 500 {
			call()
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / 500
	}
	alone := bytes()
	var txs []*Tx
	for i := range 1000 {
		tx, _, err := r.Begin(fmt.Sprint("t", i), Request{Addrs: anyBoth[:1], Deadline: now.Add(time.Duration(2000-i) * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		txs = append(txs, tx)
	}
	if beside := bytes(); beside > alone+500 {
		t.Errorf("%d bytes a call, %d without transactions", beside, alone)
	}
	now = now.Add(1500 * time.Second)
	call()
	for i, tx := range txs {
		if err := tx.Commit(); (err == nil) != (i < 500) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	check(t, r)
}
