// Package prefixestest runs an allocator of package prefixes on a store, to show that the store fulfils the
// allocator's needs:
//
//	func Test(t *testing.T) {
//		prefixestest.Test(t, func(t *testing.T) store.Store { return open(t) })
//	}
//
// The tests fail every call of the store once, make the outcome of every commit unknown,
// and delay lost commits. They run several allocators at once, and count commits and
// round trips.
package prefixestest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

var (
	pool4  = netip.MustParsePrefix("10.0.0.0/16")
	pool6  = netip.MustParsePrefix("2001:db8::/48")
	sizes4 = prefixes.Sizes{Shortest: 18, Longest: 28}
	sizes6 = prefixes.Sizes{Shortest: 56, Longest: 64}
)

// readings counts the readings of the clock of all allocators. It ticks each time.
var readings atomic.Int64

func clock() time.Time { return time.Unix(1e9, readings.Add(1)) }

// newAllocator returns an allocator that makes many attempts.
func newAllocator(t *testing.T, s store.Store) *prefixes.Allocator {
	t.Helper()
	a, err := prefixes.New(s, prefixes.Options{Attempts: 1000, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Test runs allocators on the store.
func Test(t *testing.T, open storetest.Open) {
	h := faults.History[*prefixes.Allocator]{Open: open, Begin: newAllocator, Steps: history}
	h.Crash = func(t *testing.T, s store.Store, _ *prefixes.Allocator) *prefixes.Allocator {
		return newAllocator(t, s)
	}
	h.Verify = func(t *testing.T, s store.Store, _ *prefixes.Allocator) {
		if got := verify(t, s); !slices.Equal(got, held) {
			t.Errorf("held %v, want %v", got, held)
		}
	}
	t.Run("FailsAtEveryCall", h.FailsAtEveryCall)
	t.Run("UnknownAtEveryCommit", h.UnknownAtEveryCommit)
	t.Run("ContextEndsAtEveryCall", h.ContextEndsAtEveryCall)
	for _, tt := range []struct {
		name string
		test func(*testing.T, storetest.Open)
	}{
		{"LateCommits", testLateCommits}, {"ManyAllocators", testManyAllocators}, {"SameOwner", testSameOwner},
		{"RoundTrips", testRoundTrips}, {"AddressesOrChildren", testAddressesOrChildren},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open) })
	}
}

type step = faults.Step[*prefixes.Allocator]

func assign(pool, owner string, bits int, children prefixes.Sizes) step {
	return step{Name: "assign " + owner, Do: func(ctx context.Context, a *prefixes.Allocator) error {
		_, err := a.Assign(ctx, prefixes.Request{Pool: netip.MustParsePrefix(pool), Owner: owner, Bits: bits, Children: children})
		return err
	}}
}

// lease assigns a /64 as a lease. With a ttl of 1 it expires before the next call.
func lease(owner string, ttl time.Duration) step {
	return step{Name: "lease for " + owner, Do: func(ctx context.Context, a *prefixes.Allocator) error {
		_, err := a.Assign(ctx, prefixes.Request{Pool: pool6, Owner: owner, Bits: 64, TTL: ttl})
		return err
	}}
}

// renew extends the lease of a client.
func renew(ttl time.Duration) step {
	return step{Name: "renew", Do: func(ctx context.Context, a *prefixes.Allocator) error {
		_, err := a.Renew(ctx, netip.MustParsePrefix("2001:db8:0:2::/64"), "client", prefixes.RenewArgs{TTL: ttl})
		return err
	}}
}

// released accepts the error of a repeated release.
func released(err error) error {
	if errors.Is(err, ipalloc.ErrNotHeld) || errors.Is(err, ipalloc.ErrNotFound) {
		return nil
	}
	return err
}

// history has each kind of change, in pools of both families and three levels.
func history() []step {
	p := netip.MustParsePrefix
	return []step{
		{Name: "add pool 4", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			return a.AddPool(ctx, prefixes.Pool{Prefix: pool4, Sizes: sizes4})
		}},
		{Name: "add pool 6", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			return a.AddPool(ctx, prefixes.Pool{Prefix: pool6, Sizes: sizes6})
		}},
		assign("10.0.0.0/16", "region", 20, prefixes.Sizes{Shortest: 24, Longest: 27}),
		assign("10.0.0.0/16", "other", 28, prefixes.Sizes{}),
		assign("10.0.0.0/20", "cluster", 24, prefixes.Sizes{Shortest: 26, Longest: 32}),
		assign("10.0.0.0/24", "node", 27, prefixes.Sizes{}),
		assign("10.0.0.0/24", "node", 32, prefixes.Sizes{}),
		{Name: "occupy", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.Occupy(ctx, p("2001:db8:0:1::/64"), prefixes.Request{Pool: pool6, Owner: "node", Attributes: "fixed"})
			return err
		}},
		assign("2001:db8::/48", "other", 64, prefixes.Sizes{}),
		lease("gone", 1), lease("client", time.Hour), renew(0), renew(2 * time.Hour), lease("late", 1),
		{Name: "sweep", Do: func(ctx context.Context, a *prefixes.Allocator) error { _, err := a.Sweep(ctx); return err }},
		{Name: "release the lease", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.ReleaseByOwner(ctx, "client")
			return err
		}},
		{Name: "set sizes", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			return a.SetSizes(ctx, pool4, prefixes.Sizes{Shortest: 16, Longest: 30})
		}},
		{Name: "set children", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.SetChildren(ctx, p("10.0.0.0/24"), "cluster", prefixes.Sizes{Shortest: 25, Longest: 32})
			return err
		}},
		assign("10.0.0.0/16", "tree", 22, prefixes.Sizes{Shortest: 24, Longest: 32}),
		assign("10.0.20.0/22", "leaf", 32, prefixes.Sizes{}),
		{Name: "release tree", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.ReleaseTree(ctx, p("10.0.20.0/22"), "tree")
			return released(err)
		}},
		{Name: "transfer", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.Transfer(ctx, p("10.0.0.0/20"), "region", "region-2")
			var e *ipalloc.Error
			if errors.As(err, &e) && e.Holder == "region-2" {
				return nil
			}
			return err
		}},
		{Name: "attributes", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.SetAttributes(ctx, p("10.0.0.0/24"), "cluster", "blue")
			return err
		}},
		{Name: "release in use", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			if err := a.Release(ctx, p("10.0.0.0/24"), "cluster"); !errors.Is(err, ipalloc.ErrInUse) {
				return fmt.Errorf("not in use: %w", err)
			}
			return nil
		}},
		{Name: "release", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			return released(a.Release(ctx, p("10.0.16.0/28"), "other"))
		}},
		{Name: "release by owner", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.ReleaseByOwner(ctx, "node")
			return err
		}},
		{Name: "release pool", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			return released(a.Release(ctx, p("10.0.0.0/24"), "cluster"))
		}},
		assign("10.0.0.0/20", "cluster-2", 25, prefixes.Sizes{}),
		{Name: "release 6", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			_, err := a.ReleaseByOwner(ctx, "other")
			return err
		}},
		{Name: "remove pool 6", Do: func(ctx context.Context, a *prefixes.Allocator) error {
			return released(a.RemovePool(ctx, pool6))
		}},
	}
}

// held is the expected state after the history.
var held = []prefixes.Holding{
	{Prefix: netip.MustParsePrefix("10.0.0.0/20"), Owner: "region-2", Pool: netip.MustParsePrefix("10.0.0.0/16"), Level: 1, Children: prefixes.Sizes{Shortest: 24, Longest: 27}},
	{Prefix: netip.MustParsePrefix("10.0.0.0/25"), Owner: "cluster-2", Pool: netip.MustParsePrefix("10.0.0.0/20"), Level: 2},
}

// verify checks the store and returns all holdings.
func verify(t *testing.T, s store.Store) []prefixes.Holding {
	t.Helper()
	a := newAllocator(t, s)
	rep, err := a.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rep.Problems {
		t.Error(p)
	}
	var all []prefixes.Holding
	for h, err := range a.All(context.Background(), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

// testLateCommits loses the answer of every commit once and makes it only after the owner
// has released by owner, as the documentation advises. Nothing is held at the end.
func testLateCommits(t *testing.T, open storetest.Open) {
	ctx := context.Background()
	lost := 0
	for k, met := 1, true; met; k++ {
		f := faults.NewFaulty(open(t))
		a := newAllocator(t, f)
		if err := a.AddPool(ctx, prefixes.Pool{Prefix: pool4, Sizes: sizes4}); err != nil {
			t.Fatal(err)
		}
		land := make(chan struct{})
		f.Script(faults.AtCommit(k, faults.Late(land)))
		met = false
		for i := range 4 {
			owner := fmt.Sprint("owner", i)
			h, err := a.Allocate(ctx, prefixes.Request{Pool: pool4, Owner: owner, Bits: 24 + i})
			if err == nil {
				err = a.Release(ctx, h.Prefix, owner)
			}
			if err == nil {
				continue
			}
			met = true
			lost++
			if !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatalf("commit %d: %v", k, err)
			}
			if _, err := a.ReleaseByOwner(ctx, owner); err != nil {
				t.Fatalf("commit %d: release: %v", k, err)
			}
			close(land)
			f.Settle()
		}
		f.Script(nil)
		if all := verify(t, f); len(all) > 0 {
			t.Errorf("commit %d: held %v", k, all)
		}
	}
	if lost < 8 {
		t.Errorf("%d commits were lost", lost)
	}
}

// testManyAllocators allocates and releases for many owners through several allocators at
// once. No prefix is allocated twice, and every holding was allocated.
func testManyAllocators(t *testing.T, open storetest.Open) {
	ctx := context.Background()
	s := open(t)
	var as []*prefixes.Allocator
	for range 3 {
		as = append(as, newAllocator(t, s))
	}
	if err := as[0].AddPool(ctx, prefixes.Pool{Prefix: pool4, Sizes: sizes4}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	want := map[netip.Prefix]string{}
	var wg sync.WaitGroup
	for w := range 9 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a, owner := as[w%len(as)], fmt.Sprint("owner", w)
			for i := range 8 {
				h, err := a.Allocate(ctx, prefixes.Request{Pool: pool4, Owner: owner, Bits: 22 + (w+i)%7})
				if err == nil && i%2 == 0 {
					err = a.Release(ctx, h.Prefix, owner)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 1 {
					mu.Lock()
					want[h.Prefix] = owner
					mu.Unlock()
				}
			}
		}()
	}
	wg.Wait()
	all := verify(t, s)
	for _, h := range all {
		if want[h.Prefix] != h.Owner {
			t.Errorf("%v is held by %s, was given to %q", h.Prefix, h.Owner, want[h.Prefix])
		}
	}
	if len(all) != 9*4 || len(want) != len(all) {
		t.Errorf("%d held, %d given, want %d", len(all), len(want), 9*4)
	}
}

// testSameOwner assigns for one owner by several allocators at once; all get the same
// prefix.
func testSameOwner(t *testing.T, open storetest.Open) {
	ctx := context.Background()
	s := open(t)
	first := newAllocator(t, s)
	if err := first.AddPool(ctx, prefixes.Pool{Prefix: pool4, Sizes: sizes4}); err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		owner := fmt.Sprint("owner", round)
		var wg sync.WaitGroup
		got := make([]netip.Prefix, 6)
		for i := range got {
			a := first
			if i >= 2 { // two share an allocator, and with it a commit
				a = newAllocator(t, s)
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				h, err := a.Assign(ctx, prefixes.Request{Pool: pool4, Owner: owner, Bits: 24})
				if err != nil {
					t.Error(err)
				}
				got[i] = h.Prefix
			}()
		}
		wg.Wait()
		if slices.ContainsFunc(got, func(p netip.Prefix) bool { return p != got[0] }) {
			t.Errorf("%s got %v", owner, got)
		}
	}
	if all := verify(t, s); len(all) != 6 {
		t.Errorf("held %v", all)
	}
}

// testAddressesOrChildren runs two processes, one that uses each prefix for addresses and
// one that uses it for children. The caller's record in the same commit lets only one
// process succeed.
func testAddressesOrChildren(t *testing.T, open storetest.Open) {
	ctx := context.Background()
	s := open(t)
	a, other := newAllocator(t, s), newAllocator(t, s)
	err := a.AddPool(ctx, prefixes.Pool{Prefix: pool4, Sizes: sizes4})
	for i := range 20 {
		at := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		if err == nil {
			_, err = a.Occupy(ctx, at, prefixes.Request{Pool: pool4, Owner: "o"})
		}
		if err != nil {
			t.Fatal(err)
		}
		use := func(what string) store.Op { return store.Op{Kind: store.Put, Key: "Use/" + at.String(), Value: what} }
		var wg sync.WaitGroup
		var errs [2]error
		wg.Add(2)
		go func() {
			defer wg.Done()
			_, errs[0] = a.SetChildren(ctx, at, "o", prefixes.Sizes{Shortest: 26, Longest: 28}, use("children"))
		}()
		go func() {
			defer wg.Done()
			_, errs[1] = other.SetAttributes(ctx, at, "o", "addresses", use("addresses"))
		}()
		wg.Wait()
		h, err := a.Get(ctx, at)
		if err != nil || (errs[0] == nil) == (errs[1] == nil) || (h.Children != prefixes.Sizes{}) == (h.Attributes != "") {
			t.Fatalf("%v: %v; %v, %v", at, errs, h, err)
		}
		for _, err := range errs {
			if key, _ := store.ConflictKey(err); err != nil && (!errors.Is(err, ipalloc.ErrConflict) || key != "Use/"+at.String()) {
				t.Errorf("%v: %v", at, err)
			}
		}
	}
	verify(t, s)
}

// testRoundTrips counts the calls of the store.
func testRoundTrips(t *testing.T, open storetest.Open) {
	ctx := context.Background()
	f := faults.NewFaulty(open(t))
	a := newAllocator(t, f)
	var h prefixes.Holding
	request := func(owner string) prefixes.Request { return prefixes.Request{Pool: pool4, Owner: owner, Bits: 28} }
	for _, tt := range []struct {
		what           string
		commits, calls int
		do             func() error
	}{
		// The record of pools is first written empty, in its own commit, so that each
		// later commit expects a revision.
		{"first pool", 2, 4, func() error { return a.AddPool(ctx, prefixes.Pool{Prefix: pool4, Sizes: sizes4}) }},
		{"add pool", 1, 1, func() error { return a.AddPool(ctx, prefixes.Pool{Prefix: pool6, Sizes: sizes6}) }},
		{"first allocate", 1, 2, func() (err error) { _, err = a.Allocate(ctx, request("a")); return err }},
		{"allocate", 1, 1, func() (err error) { h, err = a.Allocate(ctx, request("b")); return err }},
		{"release", 1, 1, func() error { return a.Release(ctx, h.Prefix, "b") }},
		{"assign", 1, 2, func() (err error) { h, err = a.Assign(ctx, request("c")); return err }},
		{"assign again", 1, 2, func() (err error) { h, err = a.Assign(ctx, request("c")); return err }},
		{"transfer", 1, 1, func() (err error) { _, err = a.Transfer(ctx, h.Prefix, "c", "d"); return err }},
		{"fits", 1, 1, func() (err error) { _, err = a.Fits(ctx, pool4, 20); return err }},
		{"path", 0, 2, func() (err error) { _, err = a.Path(ctx, h.Prefix); return err }},
		{"release by owner", 1, 2, func() (err error) { _, err = a.ReleaseByOwner(ctx, "d"); return err }},
		{"release, anew", 1, 3, func() (err error) {
			a = newAllocator(t, f)
			return a.Release(ctx, netip.MustParsePrefix("10.0.0.0/28"), "a")
		}},
		{"occupy, anew", 1, 3, func() error {
			a = newAllocator(t, f)
			_, err := a.Occupy(ctx, netip.MustParsePrefix("10.0.255.0/28"), request("e"))
			return err
		}},
		{"first lease", 1, 3, func() error { return lease("client", time.Hour).Do(ctx, a) }},
		{"lease", 1, 3, func() error { return lease("next", time.Hour).Do(ctx, a) }},
		{"renew", 1, 1, func() (err error) {
			_, err = a.Renew(ctx, netip.MustParsePrefix("2001:db8:0:1::/64"), "next", prefixes.RenewArgs{TTL: 1})
			return err
		}},
		{"allocate beside a lease that has ended", 3, 6, func() error { _, err := a.Allocate(ctx, request("f")); return err }},
		{"sweep", 0, 1, func() error { _, err := a.Sweep(ctx); return err }},
	} {
		f.Reset()
		if err := tt.do(); err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		if n := f.Counts(); n.Commits != tt.commits || n.Calls() > tt.calls {
			t.Errorf("%s: %d commits and %d calls, want %d and at most %d", tt.what, n.Commits, n.Calls(), tt.commits, tt.calls)
		}
	}
	verify(t, f)
}
