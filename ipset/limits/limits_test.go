package limits_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var bg = context.Background()

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func attributes(m map[string]string) alloc.Attributes { return must(alloc.NewAttributes(m)) }

// newEngine returns a store with a pool that indexes tenant, an engine on it, and its options.
func newEngine(t *testing.T) (*store.Memory, *ipset.Engine, ipset.Options, *clock) {
	t.Helper()
	db, c := store.NewMemory(), &clock{now: time.Unix(1e9, 0)}
	o := ipset.Options{Now: c.Now}
	e := must(ipset.New(db, o))
	if err := e.AddPool(bg, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/22"), BlockBits: 26, Index: []string{"tenant"}}); err != nil {
		t.Fatal(err)
	}
	return db, e, o, c
}

func of(host, handle, tenant string, ttl time.Duration) alloc.AssignArgs {
	return alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: 1, Handle: handle, TTL: ttl, Attributes: attributes(map[string]string{"tenant": tenant})}
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestLimitHolds: the callers of several engines never exceed a limit together, and reach it. What ended by itself counts no more,
// without a sweep.
func TestLimitHolds(t *testing.T) {
	db, e, o, c := newEngine(t)
	const most = 10
	limit := limits.Attribute("tenant", "t", most)
	for round := range 3 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		counts := map[string]int{}
		for i := range 4 {
			l := limits.New(db, o)
			wg.Add(1)
			go func() {
				defer wg.Done()
				for j := range 5 {
					_, err := l.AutoAssign(bg, limit, of(fmt.Sprint("n", i), fmt.Sprint(round, i, j), "t", time.Minute))
					mu.Lock()
					switch {
					case err == nil:
						counts["given"]++
					case errors.Is(err, ipalloc.ErrLimit):
						counts["refused"]++
					default:
						t.Error(err)
					}
					mu.Unlock()
				}
			}()
		}
		wg.Wait()
		if held := must(e.IPsByAttribute(bg, "tenant", "t")); counts["given"] != most || counts["refused"] != 10 || len(held) != most {
			t.Errorf("round %d: %v, %d held", round, counts, len(held))
		}
		c.add(time.Hour)
	}
}

// TestAtTheLimit: a handle that has its address gets it at a full limit; a repeated request too; nobody else gets one.
func TestAtTheLimit(t *testing.T) {
	db, e, o, _ := newEngine(t)
	l, limit := limits.New(db, o), limits.Attribute("tenant", "t", 2)
	a, b := of("h", "a", "t", 0), of("h", "b", "t", 0)
	a.Existing, b.Request = true, "request"
	first, second := must(l.AutoAssign(bg, limit, a)), must(l.AutoAssign(bg, limit, b))
	if again := must(l.AutoAssign(bg, limit, a)); again.V4[0] != first.V4[0] {
		t.Errorf("existing: %v, had %v", again.V4, first.V4)
	}
	if again := must(l.AutoAssign(bg, limit, b)); again.V4[0] != second.V4[0] {
		t.Errorf("repeated: %v, had %v", again.V4, second.V4)
	}
	_, err := l.AutoAssign(bg, limit, of("h", "c", "t", 0))
	is(t, "full", err, ipalloc.ErrLimit)
	if want := "limits: assign \"tenant=t\": limit reached: 2 of 2 in use, and 1 more asked for"; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	is(t, "another tenant", second2(l.AutoAssign(bg, limits.Attribute("tenant", "u", 1), of("h", "d", "u", 0))), nil)
	is(t, "another value", second2(l.AutoAssign(bg, limits.Attribute("tenant", "t", 3), of("h", "c", "t", 0))), ipalloc.ErrMismatch)
	is(t, "set", l.Set(bg, limits.Attribute("tenant", "t", 1)), nil)
	is(t, "existing above a lowered limit", second2(l.AutoAssign(bg, limits.Attribute("tenant", "t", 1), a)), nil)
	is(t, "a new one above it", second2(l.AutoAssign(bg, limits.Attribute("tenant", "t", 1), of("h", "c", "t", 0))), ipalloc.ErrLimit)
	released := must(limits.ReleaseAll(bg, e, "tenant", "t"))
	if len(released) != 2 || len(must(e.IPsByAttribute(bg, "tenant", "t"))) != 0 || len(must(e.IPsByAttribute(bg, "tenant", "u"))) != 1 {
		t.Errorf("released %v", released)
	}
}

// TestSharedAddressCountsOnce: a limit counts addresses, not holders.
func TestSharedAddressCountsOnce(t *testing.T) {
	db, e, o, _ := newEngine(t)
	l, limit := limits.New(db, o), limits.Attribute("tenant", "t", 2)
	shared := of("h", "a", "t", 0)
	shared.Share = alloc.Share{Key: "web", Max: 3}
	at := must(l.AutoAssign(bg, limit, shared)).V4[0].Address
	for _, handle := range []string{"b", "c"} {
		is(t, handle, l.Under(bg, limit, func(_ store.Store, e *ipset.Engine) error {
			_, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: at, Owner: shared.Owner, Handle: handle, Attributes: shared.Attributes, Share: shared.Share})
			return err
		}), nil)
	}
	if held := must(e.IPsByAttribute(bg, "tenant", "t")); len(held) != 3 {
		t.Fatalf("%v", held)
	}
	is(t, "a second address", second2(l.AutoAssign(bg, limit, of("h", "d", "t", 0))), nil)
	is(t, "a third address", second2(l.AutoAssign(bg, limit, of("h", "e", "t", 0))), ipalloc.ErrLimit)
}

func second2[T any](_ T, err error) error { return err }

// TestIndexSetLater: a pool without the index is refused, and Set counts what it has by then.
func TestIndexSetLater(t *testing.T) {
	db, e, o, _ := newEngine(t)
	l, limit := limits.New(db, o), limits.Attribute("vpc", "v", 2)
	args := func(h string) alloc.AssignArgs {
		return alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: h, Attributes: attributes(map[string]string{"vpc": "v"})}
	}
	must(e.AutoAssign(bg, args("before")))
	is(t, "no index", second2(l.AutoAssign(bg, limit, args("a"))), ipalloc.ErrInvalid)
	p := must(e.Pools(bg))[0]
	p.Index = append(p.Index, "vpc")
	is(t, "update", e.UpdatePool(bg, p), nil)
	is(t, "set", l.Set(bg, limit), nil)
	is(t, "second", second2(l.AutoAssign(bg, limit, args("a"))), nil)
	is(t, "third", second2(l.AutoAssign(bg, limit, args("b"))), ipalloc.ErrLimit)
}

// TestPorts: services share an address if their ports differ, a release frees them, and a service changes its own in place.
func TestPorts(t *testing.T) {
	db, e, o, _ := newEngine(t)
	l := limits.New(db, o)
	vip := netip.MustParseAddr("10.0.3.7")
	ports := func(handle string, ports ...string) error {
		m := map[string]string{"tenant": "t"}
		for _, p := range ports {
			m["port/"+p] = ""
		}
		al, err := l.Ports(bg, alloc.AssignIPArgs{Address: vip, Owner: alloc.VirtualOwner("lb"), Handle: handle, Attributes: attributes(m), Share: alloc.Share{Max: 9, Key: "web"}})
		if err == nil && al.Attributes != attributes(m) {
			t.Errorf("%s has %v", handle, al.Attributes)
		}
		return err
	}
	is(t, "a", ports("a", "TCP/80"), nil)
	is(t, "the same port", ports("b", "TCP/81", "TCP/80"), ipalloc.ErrOccupied)
	is(t, "another", ports("b", "UDP/80"), nil)
	is(t, "changed in place", ports("a", "TCP/443"), nil)
	is(t, "freed by the change", ports("c", "TCP/80"), nil)
	is(t, "taken by the change", ports("b", "TCP/443"), ipalloc.ErrOccupied)
	must(e.ReleaseByHandle(bg, "a"))
	is(t, "freed by the release", ports("b", "TCP/443", "UDP/80"), nil)
	if r := must(e.Operator().Check(bg, nil)); len(r.Problems) > 0 {
		t.Error(r.Problems)
	}
}

// TestPortsAtTheSameTime: services that take, change and release ports of one address at the same time never share a port. In the end no
// record is left.
func TestPortsAtTheSameTime(t *testing.T) {
	db, e, o, _ := newEngine(t)
	vip := netip.MustParseAddr("10.0.3.7")
	keys := func() (keys []string) {
		for _, r := range second(db.List(bg, store.Range{})) {
			keys = append(keys, r.Key)
		}
		return keys
	}
	must(e.AssignIP(bg, alloc.AssignIPArgs{Address: netip.MustParseAddr("10.0.3.8"), Owner: alloc.VirtualOwner("lb"), Handle: "other"}))
	before := keys()
	var wg sync.WaitGroup
	var mu sync.Mutex
	users := map[int]string{} // of each port, by the answers
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			l, handle := limits.New(db, o), fmt.Sprint("svc", i)
			for n := range 40 {
				port := rand.IntN(3)
				a := alloc.AssignIPArgs{Address: vip, Owner: alloc.VirtualOwner("lb"), Handle: handle, Share: alloc.Share{Max: 9, Key: "web"},
					Attributes: attributes(map[string]string{fmt.Sprint("port/", port): ""})}
				mu.Lock()
				maps.DeleteFunc(users, func(_ int, user string) bool { return user == handle }) // from here on others may take it
				mu.Unlock()
				_, err := l.Ports(bg, a)
				if err != nil && !errors.Is(err, ipalloc.ErrOccupied) {
					t.Error(err)
				}
				if err != nil || n%5 == 4 {
					if _, err := e.ReleaseByHandle(bg, handle); err != nil {
						t.Error(err)
					}
					continue
				}
				mu.Lock()
				if user := users[port]; user != "" {
					t.Errorf("port %d of %s was given to %s", port, user, handle)
				}
				users[port] = handle
				mu.Unlock()
			}
			if _, err := e.ReleaseByHandle(bg, handle); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if after := keys(); !slices.Equal(after, before) {
		t.Errorf("%q are left of %q", after, before)
	}
}

func second[T, U any](v T, _ U, err error) T { return must(v, err) }

// TestPrefixes: an owner's prefixes are limited in the same way.
func TestPrefixes(t *testing.T) {
	db := store.NewMemory()
	pool := netip.MustParsePrefix("10.1.0.0/16")
	if err := must(prefixes.New(db, prefixes.Options{})).AddPool(bg, prefixes.Pool{Prefix: pool, Sizes: prefixes.Sizes{Shortest: 20, Longest: 28}}); err != nil {
		t.Fatal(err)
	}
	l := limits.New(db, ipset.Options{})
	take := func() error {
		return l.Under(bg, limits.Prefixes("o", 2, prefixes.Options{}), func(tx store.Store, _ *ipset.Engine) error {
			_, err := must(prefixes.New(tx, prefixes.Options{})).Allocate(bg, prefixes.Request{Pool: pool, Owner: "o", Bits: 24})
			return err
		})
	}
	is(t, "one", take(), nil)
	is(t, "two", take(), nil)
	is(t, "three", take(), ipalloc.ErrLimit)
}

// TestUnknownOutcomes: a call whose answer is lost, before or after its commit, is repeated by its request and takes one address; the
// limit holds.
func TestUnknownOutcomes(t *testing.T) {
	for _, after := range []bool{false, true} {
		db, e, o, _ := newEngine(t)
		flaky := faults.NewFaulty(db)
		l, limit := limits.New(flaky, o), limits.Attribute("tenant", "t", 3)
		for i := range 5 {
			a := of("h", fmt.Sprint("p", i), "t", 0)
			a.Request = a.Handle
			lost := false
			flaky.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if c.Kind != faults.Commit || lost {
					return faults.Outcome{}
				}
				lost = true
				return faults.Unknown(after)
			})
			_, err := l.AutoAssign(bg, limit, a)
			if errors.Is(err, ipalloc.ErrUnknownOutcome) {
				_, err = l.AutoAssign(bg, limit, a)
			}
			if want := map[bool]error{false: nil, true: ipalloc.ErrLimit}[i >= 3]; !errors.Is(err, want) {
				t.Errorf("after %v, %d: %v", after, i, err)
			}
		}
		if n := len(must(e.IPsByAttribute(bg, "tenant", "t"))); n != 3 {
			t.Errorf("after %v: %d held", after, n)
		}
	}
}

// TestRemembered: each limit is listed with its use until it is forgotten.
func TestRemembered(t *testing.T) {
	db, _, o, _ := newEngine(t)
	l := limits.New(db, o)
	for i := range 2 {
		must(l.AutoAssign(bg, limits.Attribute("tenant", "a=b", 5), of("h", fmt.Sprint("vm", i), "a=b", 0)))
	}
	if err := l.Set(bg, limits.Prefixes("acme", 3, prefixes.Options{})); err != nil {
		t.Fatal(err)
	}
	all := func() (all []limits.Remembered) {
		for m, err := range l.All(bg) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		return all
	}
	if got := fmt.Sprint(all()); got != "[{prefixes/acme 3 0} {tenant=a=b 5 2}]" {
		t.Errorf("%s", got)
	}
	is(t, "forget", l.Forget(bg, "prefixes/acme"), nil)
	is(t, "forget again", l.Forget(bg, "prefixes/acme"), ipalloc.ErrNotFound)
	if got := fmt.Sprint(all()); got != "[{tenant=a=b 5 2}]" {
		t.Errorf("%s", got)
	}
	must(db.Commit(bg, []store.Op{{Kind: store.Put, Key: "Qlimit/x", Value: "many"}}))
	var failed error
	for _, err := range l.All(bg) {
		failed = err
	}
	is(t, "a damaged record", failed, ipalloc.ErrCorrupt)
	f := faults.NewFaulty(db)
	f.Script(faults.From(1, faults.Fail(faults.ErrInjected)))
	for _, err := range limits.New(f, o).All(bg) {
		failed = err
	}
	is(t, "a store that fails", failed, faults.ErrInjected)
}
