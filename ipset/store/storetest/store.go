package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Open returns an empty store for a test, and registers what must be closed with t.Cleanup.
type Open func(t *testing.T) store.Store

// InSpace opens a space of a store that open returns, because the contract must hold there too, among records of other
// spaces.
func InSpace(open Open) Open {
	return func(t *testing.T) store.Store {
		t.Helper()
		db := open(t)
		var others []store.Op
		for _, key := range []string{"c", "w", "xspac\x00k", "xspace", "xspace\x01k", "xspace2\x00k", "y"} {
			others = append(others, put(key, "of another", 0))
		}
		commit(t, db, others...)
		in, err := store.Space(db, "space")
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
}

// TestStore verifies the contract of store.Store.
func TestStore(t *testing.T, open Open) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Get", testGet}, {"Expectations", testExpectations}, {"AllOrNothing", testAllOrNothing}, {"Guards", testGuards},
		{"BadCommits", testBadCommits}, {"List", testList}, {"Binary", testBinary}, {"Watch", testWatch}, {"WatchOrder", testWatchOrder},
		{"Contexts", testContexts}, {"OneWinner", testOneWinner}, {"Snapshots", testSnapshots},
		{"GetEdges", testGetEdges}, {"Limits", testLimits}, {"Errors", testErrors}, {"WatchOverlap", testWatchOverlap},
		{"WatchForgets", testWatchForgets}, {"ContextDuringCommit", testContextDuringCommit}, {"Current", testCurrent},
		{"OpsAreTheCallers", testOpsAreTheCallers}, {"Sizes", testSizes}, {"OneView", testOneView}, {"Model", testModel},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

func put(key, value string, expect uint64) store.Op {
	return store.Op{Kind: store.Put, Key: key, Value: value, Expect: expect}
}

func del(key string, expect uint64) store.Op {
	return store.Op{Kind: store.Delete, Key: key, Expect: expect}
}

func guard(key string, expect uint64) store.Op {
	return store.Op{Kind: store.Guard, Key: key, Expect: expect}
}

// commit commits and fails the test on an error.
func commit(t *testing.T, s store.Store, ops ...store.Op) uint64 {
	t.Helper()
	rev, err := s.Commit(context.Background(), ops)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// get returns one record.
func get(t *testing.T, s store.Store, key string) store.Record {
	t.Helper()
	recs, err := s.Get(context.Background(), nil, key)
	if err != nil || len(recs) != 1 || recs[0].Key != key {
		t.Fatalf("Get(%q) = %v, %v", key, recs, err)
	}
	return recs[0]
}

// conflict verifies that a commit is in conflict about key and changes nothing.
func conflict(t *testing.T, s store.Store, key string, ops ...store.Op) {
	t.Helper()
	before, rev, _ := s.List(context.Background(), store.Range{})
	_, err := s.Commit(context.Background(), ops)
	if named, ok := store.ConflictKey(err); !ok || named != key {
		t.Errorf("Commit(%v) = %v, want a conflict about %q", ops, err, key)
	}
	after, rev2, _ := s.List(context.Background(), store.Range{})
	if !slices.Equal(before, after) || rev != rev2 {
		t.Errorf("a commit in conflict changed the store: %v at %d, was %v at %d", after, rev2, before, rev)
	}
}

func testGet(t *testing.T, s store.Store) {
	r1 := commit(t, s, put("a", "1", 0), put("b", "", 0))
	r2 := commit(t, s, put("c", "3", 0))
	if r1 == 0 || r2 <= r1 {
		t.Fatalf("revisions %d, %d", r1, r2)
	}
	recs, err := s.Get(context.Background(), []store.Record{{Key: "kept"}}, "c", "x", "a", "b")
	want := []store.Record{{Key: "kept"}, {Key: "c", Value: "3", Rev: r2}, {Key: "x"}, {Key: "a", Value: "1", Rev: r1}, {Key: "b", Rev: r1}}
	if err != nil || !slices.Equal(recs, want) {
		t.Errorf("Get = %v, %v, want %v", recs, err, want)
	}
	r3 := commit(t, s, put("a", "2", r1))
	if got := get(t, s, "a"); got.Rev != r3 || got.Value != "2" {
		t.Errorf("after the second write: %v", got)
	}
	if recs, err := s.Get(context.Background(), nil); err != nil || len(recs) != 0 {
		t.Errorf("Get of nothing = %v, %v", recs, err)
	}
}

func testExpectations(t *testing.T, s store.Store) {
	conflict(t, s, "a", put("a", "", 7))
	conflict(t, s, "a", del("a", 7))
	commit(t, s, del("a", 0))
	commit(t, s, del("a", store.AnyRevision))
	r := commit(t, s, put("a", "1", 0))
	conflict(t, s, "a", put("a", "2", 0))
	conflict(t, s, "a", put("a", "2", r+1))
	conflict(t, s, "a", put("a", "2", r-1))
	conflict(t, s, "a", del("a", 0))
	commit(t, s, put("a", "3", store.AnyRevision))
	conflict(t, s, "a", put("a", "2", r))
	commit(t, s, del("a", get(t, s, "a").Rev))
	if got := get(t, s, "a"); got.Rev != 0 || got.Value != "" {
		t.Errorf("removed record: %v", got)
	}
	if again := commit(t, s, put("a", "4", 0)); again <= r {
		t.Errorf("a record made again has revision %d, the first had %d", again, r)
	}
}

func testAllOrNothing(t *testing.T, s store.Store) {
	r := commit(t, s, put("b", "1", 0))
	conflict(t, s, "b", put("a", "1", 0), put("b", "2", r+1), put("c", "1", store.AnyRevision))
	conflict(t, s, "b", put("a", "1", store.AnyRevision), del("x", store.AnyRevision), del("b", r-1))
	r2 := commit(t, s, put("a", "1", 0), put("b", "2", r), put("c", "1", store.AnyRevision), del("d", store.AnyRevision))
	for _, k := range []string{"a", "b", "c"} {
		if get(t, s, k).Rev != r2 {
			t.Errorf("%s is at %d, the commit at %d", k, get(t, s, k).Rev, r2)
		}
	}
}

func testGuards(t *testing.T, s store.Store) {
	r := commit(t, s, put("g", "1", 0))
	r2 := commit(t, s, put("a", "1", 0), guard("g", r), guard("absent", 0))
	if get(t, s, "g").Rev != r || get(t, s, "absent").Rev != 0 {
		t.Error("a guard wrote")
	}
	conflict(t, s, "g", put("a", "2", r2), guard("g", r+100))
	conflict(t, s, "absent", put("a", "2", r2), guard("absent", r))
	conflict(t, s, "g", guard("g", 0))
	if got, err := s.Commit(context.Background(), []store.Op{guard("g", r), guard("absent", 0)}); err != nil || got < r2 {
		t.Errorf("guards alone: %d, %v", got, err)
	}
	commit(t, s, put("g", "1", r))
	conflict(t, s, "g", put("a", "2", r2), guard("g", r))
}

func testBadCommits(t *testing.T, s store.Store) {
	for name, ops := range map[string][]store.Op{
		"twice":         {put("a", "1", 0), put("a", "2", 0)},
		"write, guard":  {put("a", "1", 0), guard("a", 0)},
		"no key":        {put("", "1", 0)},
		"unknown kind":  {{Kind: 9, Key: "a"}},
		"guard for any": {guard("a", store.AnyRevision)},
	} {
		if _, err := s.Commit(context.Background(), ops); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if limits := s.Limits(); limits.Ops > 0 {
		var ops []store.Op
		for i := range limits.Ops + 1 {
			ops = append(ops, put(fmt.Sprint("k", i), "", 0))
		}
		if _, err := s.Commit(context.Background(), ops); !errors.Is(err, ipalloc.ErrLimit) {
			t.Errorf("%d records: %v", len(ops), err)
		}
		commit(t, s, ops[1:]...)
	}
	if get(t, s, "a").Rev != 0 {
		t.Error("a refused commit wrote")
	}
}

func testList(t *testing.T, s store.Store) {
	recs, empty, err := s.List(context.Background(), store.Range{})
	if err != nil || len(recs) != 0 {
		t.Fatalf("empty store: %v, %v", recs, err)
	}
	last := empty // a watch after it sees the first commit
	for i := range 300 {
		last = commit(t, s, put(fmt.Sprintf("k%03d", i*2), fmt.Sprint(i), 0))
		if i == 0 {
			if evs := watched(t, s, empty, 1, "k"); evs[0].Rev != last {
				t.Fatalf("a watch after the revision %d of the empty store begins at %d, not %d", empty, evs[0].Rev, last)
			}
		}
	}
	commit(t, s, put("j", "", 0), put("l", "", 0))
	for _, tt := range []struct {
		r           store.Range
		n           int
		first, last string
	}{
		{store.Range{}, 302, "j", "l"},
		{store.Range{From: "k", To: "l"}, 300, "k000", "k598"},
		{store.Range{From: "k100", To: "k110"}, 5, "k100", "k108"},
		{store.Range{From: "k101", To: "k111"}, 5, "k102", "k110"},
		{store.Range{From: "k101", Limit: 3}, 3, "k102", "k106"},
		{store.Range{From: "k598\x00"}, 1, "l", "l"},
		{store.Range{From: "k", To: "l", Reverse: true}, 300, "k598", "k000"},
		{store.Range{From: "k", To: "k101", Limit: 1, Reverse: true}, 1, "k100", "k100"},
		{store.Range{From: "k", To: "k100", Limit: 1, Reverse: true}, 1, "k098", "k098"},
		{store.Range{To: "k", Reverse: true}, 1, "j", "j"},
		{store.Range{Reverse: true, Limit: 2}, 2, "l", "k598"},
		{store.Range{From: "m"}, 0, "", ""},
		{store.Range{From: "k200", To: "k100"}, 0, "", ""},
	} {
		recs, rev, err := s.List(context.Background(), tt.r)
		if err != nil || len(recs) != tt.n || rev <= last {
			t.Errorf("List(%+v): %d records at %d, %v; want %d", tt.r, len(recs), rev, err, tt.n)
			continue
		}
		if tt.n > 0 && (recs[0].Key != tt.first || recs[tt.n-1].Key != tt.last || recs[0].Rev == 0) {
			t.Errorf("List(%+v): %v to %v", tt.r, recs[0], recs[tt.n-1])
		}
	}
}

// testBinary verifies that keys and values are any bytes, in the order of bytes.
func testBinary(t *testing.T, s store.Store) {
	keys := []string{"\x00", "\x00\x00", "\x00\xff", "a", "a\x00", "a\x00b", "a\x01", "aa", "é", "\xff", "\xff\x00", "\xff\xff"}
	for _, k := range slices.Backward(keys) {
		commit(t, s, put(k, k+"\x00\xff"+k, 0))
	}
	recs, _, err := s.List(context.Background(), store.Range{})
	if err != nil || len(recs) != len(keys) {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	for i, k := range keys {
		if recs[i].Key != k || recs[i].Value != k+"\x00\xff"+k {
			t.Errorf("record %d: %q, want %q", i, recs[i], k)
		}
	}
}

// watched collects n events from a watch.
func watched(t *testing.T, s store.Store, after uint64, n int, prefixes ...string) []store.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var evs []store.Event
	for ev, err := range s.Watch(ctx, after, prefixes...) {
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(evs), n, err)
		}
		if evs = append(evs, ev); len(evs) == n {
			break
		}
	}
	return evs
}

func testWatch(t *testing.T, s store.Store) {
	r0 := commit(t, s, put("z", "", 0))
	done := make(chan []store.Event)
	go func() { done <- watched(t, s, r0, 3, "a", "b") }()
	r1 := commit(t, s, put("a1", "x", 0), put("c", "no", 0), put("b1", "y", 0))
	commit(t, s, put("c", "no", store.AnyRevision))
	r3 := commit(t, s, del("a1", r1), put("a2", "", 0))
	r4 := commit(t, s, put("b1", "z", r1))
	want := []store.Event{
		{Rev: r1, Changes: []store.Record{{Key: "a1", Value: "x", Rev: r1}, {Key: "b1", Value: "y", Rev: r1}}},
		{Rev: r3, Changes: []store.Record{{Key: "a1"}, {Key: "a2", Rev: r3}}},
		{Rev: r4, Changes: []store.Record{{Key: "b1", Value: "z", Rev: r4}}},
	}
	for i, got := range [][]store.Event{<-done, watched(t, s, r0, 3, "a", "b")} {
		same := slices.EqualFunc(got, want, func(a, b store.Event) bool { return a.Rev == b.Rev && slices.Equal(a.Changes, b.Changes) })
		if !same {
			t.Errorf("watch %d: %+v, want %+v", i, got, want)
		}
	}
	if got := watched(t, s, r3, 1, "a", "b"); got[0].Rev != r4 {
		t.Errorf("resumed after %d: %+v", r3, got)
	}
}

// testWatchOrder verifies that a watch sees the commits of many writers in the order of their revisions, and all of them.
func testWatchOrder(t *testing.T, s store.Store) {
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				if _, err := s.Commit(context.Background(), []store.Op{put(fmt.Sprintf("w%d-%d", w, i), "", 0), put("w", "", store.AnyRevision)}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	evs := watched(t, s, 0, writers*each, "w")
	wg.Wait()
	for i, ev := range evs {
		if len(ev.Changes) != 2 || i > 0 && ev.Rev <= evs[i-1].Rev {
			t.Fatalf("event %d: %+v", i, ev)
		}
	}
}

func testContexts(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Get(ctx, nil, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get: %v", err)
	}
	if _, _, err := s.List(ctx, store.Range{}); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v", err)
	}
	if _, err := s.Commit(ctx, []store.Op{put("a", "", 0)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit: %v", err)
	}
	for _, err := range s.Watch(ctx, 0, "a") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	}
	ctx, cancel = context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		var last error
		for _, err := range s.Watch(ctx, 0, "a") {
			last = err
		}
		ended <- last
	}()
	time.AfterFunc(20*time.Millisecond, cancel) // when it waits
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a watch that waits: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a watch outlives its context")
	}
	if get(t, s, "a").Rev != 0 {
		t.Error("a cancelled commit wrote")
	}
}

// testOneWinner has many writers increment one counter.
func testOneWinner(t *testing.T, s store.Store) {
	const writers, each = 8, 10
	var wg sync.WaitGroup
	commit(t, s, put("n", "", 0))
	for range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; i < each; {
				recs, err := s.Get(context.Background(), nil, "n")
				if err != nil {
					t.Error(err)
					return
				}
				_, err = s.Commit(context.Background(), []store.Op{put("n", recs[0].Value+"x", recs[0].Rev)})
				switch {
				case err == nil:
					i++
				case !errors.Is(err, ipalloc.ErrConflict):
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	if n := len(get(t, s, "n").Value); n != writers*each {
		t.Errorf("counted to %d, want %d", n, writers*each)
	}
}

// testSnapshots verifies that a list and a get show one state: two records are always written together.
func testSnapshots(t *testing.T, s store.Store) {
	commit(t, s, put("a", "0", 0), put("z", "0", 0))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			v := fmt.Sprint(i)
			if _, err := s.Commit(context.Background(), []store.Op{put("a", v, store.AnyRevision), put("m"+v, v, 0), put("z", v, store.AnyRevision)}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 20 {
		recs, _, err := s.List(context.Background(), store.Range{})
		if err != nil || recs[0].Value != recs[len(recs)-1].Value {
			t.Errorf("list: %v and %v, %v", recs[0], recs[len(recs)-1], err)
		}
		recs, err = s.Get(context.Background(), nil, "a", "z")
		if err != nil || recs[0].Rev != recs[1].Rev {
			t.Errorf("get: %v, %v", recs, err)
		}
	}
	close(stop)
	wg.Wait()
}
