package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// newEngine returns an engine on a store, with a pool of /26 blocks if there is none yet.
func newEngine(t testing.TB, s store.Store, pool string) *ipset.Engine {
	t.Helper()
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = e.AddPool(limited(t), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix(pool), BlockBits: 26})
	if err != nil && !errors.Is(err, ipalloc.ErrExists) {
		t.Fatal(err)
	}
	return e
}

// auto gives a host one address.
func auto(t testing.TB, e *ipset.Engine, host, handle, request string) netip.Addr {
	t.Helper()
	got, err := e.AutoAssign(limited(t), alloc.AssignArgs{
		Owner: alloc.HostOwner(host), Num4: 1, Use: alloc.Workload, Handle: handle, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.V4[0].Address
}

// TestRoundTrips counts what goes over the wire: one call for an assignment and one for a release in steady state, two for
// the first block of a host, and no list.
func TestRoundTrips(t *testing.T) {
	prefix := newPrefix()
	endpoints := sharedCluster(t).Endpoints()
	newEngine(t, openIn(t, connect(t, endpoints), prefix, Options{}), "10.0.0.0/16")
	var tap tap
	s := openIn(t, connect(t, endpoints, tap.into), prefix, Options{})
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, want []string, f func()) {
		t.Helper()
		tap.reset()
		f()
		if got, messages := tap.counted(); !slices.Equal(got, want) || messages != 0 {
			t.Errorf("%s: %v and %d messages of streams, want %v", what, got, messages, want)
		}
	}
	once := []string{"commit"}
	var a netip.Addr
	expect("first address of a host, nothing cached", []string{"get", "get", "commit"}, func() { auto(t, e, "a", "a1", "") })
	for i := range 30 {
		expect("next address", once, func() { a = auto(t, e, "a", fmt.Sprint("p", i), "") })
		expect("next address, with a request key", once, func() { auto(t, e, "a", fmt.Sprint("q", i), fmt.Sprint("r", i)) })
		expect("release", once, func() {
			if _, err := e.ReleaseIPs(limited(t), alloc.Release{Address: a}); err != nil {
				t.Fatal(err)
			}
		})
	}
	tap.reset()
	auto(t, e, "b", "b1", "")
	if got, _ := tap.counted(); len(got) > 2 || slices.Contains(got, "list") {
		t.Errorf("first block of another host: %v", got)
	}
	expect("its next address", once, func() { auto(t, e, "b", "b2", "") })
}

// TestConflictIsOneRoundTrip verifies that a conflict names its record without asking again.
func TestConflictIsOneRoundTrip(t *testing.T) {
	var tap tap
	s := openIn(t, connect(t, sharedCluster(t).Endpoints(), tap.into), newPrefix(), Options{})
	rev := mustCommit(t, s, "a", "1")
	mustCommit(t, s, "b", "1")
	tap.reset()
	_, err := s.Commit(limited(t), []store.Op{
		{Kind: store.Put, Key: "a", Expect: rev}, {Kind: store.Put, Key: "x", Expect: store.AnyRevision}, {Kind: store.Put, Key: "b", Expect: rev}, {Kind: store.Guard, Key: "c", Expect: 0},
	})
	key, _ := store.ConflictKey(err)
	if got, _ := tap.counted(); key != "b" || !store.Retryable(err) || len(got) != 1 {
		t.Errorf("%v, %v", err, got)
	}
}

// TestRestart serves the first allocations of an engine on a store with many blocks: what it reads does not depend on
// how many there are.
func TestRestart(t *testing.T) {
	blocks := 100_000
	if testing.Short() || invariant.Enabled { // with assertions, what makes the blocks takes minutes
		blocks = 5_000
	}
	prefix := newPrefix()
	endpoints := sharedCluster(t).Endpoints()
	fillBlocks(t, openIn(t, connect(t, endpoints), prefix, Options{}), blocks)

	for _, host := range []string{"host 7", "a new host"} {
		var tap tap
		client := connect(t, endpoints, tap.into)
		begin := time.Now()
		s := openIn(t, client, prefix, Options{NoCreate: true})
		e, err := ipset.New(s, ipset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		auto(t, e, host, "first", "")
		took := time.Since(begin)
		calls, _ := tap.counted()
		t.Logf("%d blocks: %s has its first address %v after Open began, with %v", blocks, host, took, calls)
		if len(calls) > 6 || slices.Contains(calls, "list") { // the first two are Open's
			t.Errorf("%s: %v", host, calls)
		}
	}
}

// fillBlocks makes a store of a pool with as many blocks as hosts, each with one address in it.
func fillBlocks(t testing.TB, s *Store, blocks int) {
	t.Helper()
	m := store.NewMemory()
	e := newEngine(t, m, "10.0.0.0/8")
	for i := range blocks {
		auto(t, e, fmt.Sprint("host ", i), fmt.Sprint("pod ", i), "")
	}
	recs, _, err := m.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	work := make(chan []store.Record)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for part := range work {
				var ops []store.Op
				for _, r := range part {
					ops = append(ops, store.Op{Kind: store.Put, Key: r.Key, Value: r.Value, Expect: 0})
				}
				if _, err := s.Commit(t.Context(), ops); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for part := range slices.Chunk(recs, s.Limits().Ops) {
		work <- part
	}
	close(work)
	wg.Wait()
	t.Logf("%d records", len(recs))
}

// TestWatchTraffic verifies that what an engine that follows its host is sent does not grow with what other hosts do.
func TestWatchTraffic(t *testing.T) {
	prefix := newPrefix()
	endpoints := sharedCluster(t).Endpoints()
	newEngine(t, openIn(t, connect(t, endpoints), prefix, Options{}), "10.0.0.0/16")
	var tap tap
	ready := make(chan struct{}, 1)
	seen := make(chan string, 1000)
	tap.each = func(r *pb.WatchResponse) {
		for _, ev := range r.Events {
			seen <- string(ev.Kv.Key[len(prefix+spaceName):])
		}
		if r.Created && strings.Contains(fmt.Sprint(r.WatchId), "3") {
			ready <- struct{}{} // the catalog, the owner's list and its block
		}
	}
	s := openIn(t, connect(t, endpoints, tap.into), prefix, Options{})
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	auto(t, e, "a", "a1", "")
	ctx, cancel := context.WithCancel(limited(t))
	ended := make(chan error)
	go func() { ended <- e.Follow(ctx, alloc.HostOwner("a")) }()
	<-ready
	for _, hosts := range []int{1, 10, 100} {
		tap.reset()
		others := newEngine(t, openIn(t, connect(t, endpoints), prefix, Options{}), "10.0.0.0/16")
		for i := range hosts {
			for k := range 3 {
				auto(t, others, fmt.Sprint("b", hosts, "-", i), fmt.Sprint("p", k), "")
			}
		}
		// One change of what is followed, by another engine, ends the round: all that came before it has been sent.
		auto(t, others, "a", fmt.Sprint("by another, ", hosts), "")
		if key := <-seen; key[0] != 'b' {
			t.Errorf("%d other hosts: record %q came", hosts, key)
		}
		if _, messages := tap.counted(); messages > 4 {
			t.Errorf("%d other hosts: %d messages", hosts, messages)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(seen) > 0 {
		t.Errorf("%d records more", len(seen))
	}
}
