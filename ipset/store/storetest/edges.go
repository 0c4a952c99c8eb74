package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// testGetEdges verifies a get of nothing, of one key several times, of many keys, and that the slice given is kept.
func testGetEdges(t *testing.T, s store.Store) {
	rev := commit(t, s, put("a", "1", 0))
	a, absent := store.Record{Key: "a", Value: "1", Rev: rev}, store.Record{Key: "x"}
	first := store.Record{Key: "kept", Value: "kept", Rev: 7}
	for _, tt := range []struct {
		keys []string
		want []store.Record
	}{
		{nil, nil},
		{[]string{"a", "a"}, []store.Record{a, a}},
		{[]string{"x", "a", "x", "a"}, []store.Record{absent, a, absent, a}},
		{slices.Repeat([]string{"x", "a"}, 150), slices.Repeat([]store.Record{absent, a}, 150)},
	} {
		got, err := s.Get(context.Background(), []store.Record{first}, tt.keys...)
		if err != nil || got[0] != first || !slices.Equal(got[1:], tt.want) {
			t.Errorf("Get of %d keys: %v, %v", len(tt.keys), got, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, err := s.Get(ctx, []store.Record{first}, "a"); err == nil || len(got) != 1 || got[0] != first {
		t.Errorf("a get that fails returns %v, %v", got, err)
	}
}

// largest is the size of a value up to which testLimits writes one of exactly the limit.
const largest = 2 << 20

// testLimits verifies that a commit at each limit is made and one beyond it is refused and leaves no trace.
func testLimits(t *testing.T, s store.Store) {
	l := s.Limits()
	refused := func(what string, ops ...store.Op) {
		t.Helper()
		if _, err := s.Commit(context.Background(), ops); !errors.Is(err, ipalloc.ErrLimit) {
			t.Errorf("%s: %v", what, err)
		}
		if recs, _, err := s.List(context.Background(), store.Range{Limit: 1}); err != nil || len(recs) > 0 {
			t.Errorf("%s left %v, %v", what, recs, err)
		}
	}
	many := func(n int, op func(key string) store.Op) []store.Op {
		ops := make([]store.Op, n)
		for i := range ops {
			ops[i] = op(fmt.Sprintf("k%06d", i))
		}
		return ops
	}
	if l.Ops > 0 {
		refused("too many puts", many(l.Ops+1, func(k string) store.Op { return put(k, "", store.AnyRevision) })...)
		refused("too many guards", append(many(l.Ops, func(k string) store.Op { return guard(k, 0) }), put("a", "", 0))...)
		refused("too many deletes", many(l.Ops+1, func(k string) store.Op { return del(k, store.AnyRevision) })...)
	}
	if l.Key > 0 {
		refused("a key too long", put(strings.Repeat("k", l.Key+1), "", 0))
	}
	if l.Value > 0 {
		refused("a value too long", put("a", strings.Repeat("v", l.Value+1), 0))
	}
	if l.Bytes > 0 && l.Value > 0 && l.Bytes <= largest {
		refused("too many bytes", put("a", strings.Repeat("v", l.Bytes-2), 0), put("bc", "", 0))
	}
	if l.Ops > 0 {
		commit(t, s, append(many(l.Ops, func(k string) store.Op { return put(k, "", store.AnyRevision) }),
			guard("a", 0), guard("b", 0))...)
		commit(t, s, append(many(l.Ops-1, func(k string) store.Op { return guard("x"+k, 0) }), put("a", "", 0))...)
	}
	if l.Key > 0 {
		key := strings.Repeat("k", l.Key)
		commit(t, s, put(key, "v", 0))
		get(t, s, key)
	}
	if size := min(l.Value, l.Bytes-1); l.Value > 0 && size <= largest {
		commit(t, s, put("v", strings.Repeat("v", size), 0))
		if r := get(t, s, "v"); len(r.Value) != size {
			t.Errorf("a value of %d bytes came back with %d", size, len(r.Value))
		}
	}
}

// testErrors verifies that every error is, or wraps, an *ipalloc.Error, and names what it is about.
func testErrors(t *testing.T, s store.Store) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	commit(t, s, put("a", "", 0))
	all := make(map[string]error)
	_, all["conflict"] = s.Commit(context.Background(), []store.Op{put("a", "", 0)})
	_, all["malformed"] = s.Commit(context.Background(), []store.Op{put("", "", 0)})
	_, all["context, commit"] = s.Commit(ended, []store.Op{put("b", "", 0)})
	_, all["context, get"] = s.Get(ended, nil, "a")
	_, _, all["context, list"] = s.List(ended, store.Range{})
	for _, err := range s.Watch(ended, 0, "a") {
		all["context, watch"] = err
	}
	if l := s.Limits(); l.Value > 0 {
		_, all["limit"] = s.Commit(context.Background(), []store.Op{put("b", strings.Repeat("v", l.Value+1), 0)})
	}
	for what, err := range all {
		var e *ipalloc.Error
		if !errors.As(err, &e) || e.Package == "" || e.Op == "" || e.Err == nil {
			t.Errorf("%s: %#v", what, err)
		}
		if strings.HasPrefix(what, "context") && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if key, ok := store.ConflictKey(all["conflict"]); !ok || key != "a" {
		t.Errorf("conflict: %v", all["conflict"])
	}
}

// testWatchOverlap verifies that a change under several of the prefixes is yielded once.
func testWatchOverlap(t *testing.T, s store.Store) {
	_, before, err := s.List(context.Background(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, put("abc", "", 0), put("ab", "", 0), put("b", "", 0), put("x", "", 0))
	commit(t, s, put("y", "", 0))
	commit(t, s, del("abc", store.AnyRevision))
	evs := watched(t, s, before, 2, "abc", "a", "ab", "a", "b")
	var got []string
	for _, r := range evs[0].Changes {
		got = append(got, r.Key)
	}
	if !slices.Equal(got, []string{"ab", "abc", "b"}) || len(evs[1].Changes) != 1 || evs[1].Changes[0].Key != "abc" || evs[1].Changes[0].Rev != 0 {
		t.Errorf("%+v", evs)
	}
}

// testWatchForgets verifies that a watch from long ago either yields every commit since or ends with ipalloc.ErrOutOfRange: never
// a gap.
func testWatchForgets(t *testing.T, s store.Store) {
	const writers, each = 48, 25 // more commits than the stores here remember
	_, before, err := s.List(context.Background(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				if _, err := s.Commit(context.Background(), []store.Op{put(fmt.Sprintf("w%d-%d", w, i), "", 0)}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, last := 0, before
	for ev, err := range s.Watch(ctx, before, "w") {
		if err != nil {
			if !errors.Is(err, ipalloc.ErrOutOfRange) || n > 0 {
				t.Errorf("after %d events: %v", n, err)
			}
			return
		}
		if ev.Rev <= last || len(ev.Changes) != 1 {
			t.Errorf("%+v after revision %d", ev, last)
		}
		last = ev.Rev
		if n++; n == writers*each {
			return
		}
	}
}

// testContextDuringCommit ends the contexts of commits while they are in flight: a commit that reports no unknown outcome was
// made if it returned no error, and was not made, and is not made later, if it returned one.
func testContextDuringCommit(t *testing.T, s store.Store) {
	const n = 60
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*i)*2*time.Microsecond)
			defer cancel()
			_, errs[i] = s.Commit(ctx, []store.Op{put(fmt.Sprintf("c%03d", i), "", 0)})
		}()
	}
	wg.Wait()
	commit(t, s, put("last", "", 0))
	for i, err := range errs {
		made := get(t, s, fmt.Sprintf("c%03d", i)).Rev != 0
		if errors.Is(err, ipalloc.ErrUnknownOutcome) {
			continue
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("commit %d: %v", i, err)
		}
		if made != (err == nil) {
			t.Errorf("commit %d: %v, and made is %v", i, err, made)
		}
	}
}

// testCurrent verifies that reads show a commit that has returned to another goroutine.
func testCurrent(t *testing.T, s store.Store) {
	revs := make(chan uint64)
	failed := make(chan error, 1)
	go func() {
		defer close(revs)
		for i := range 50 {
			rev, err := s.Commit(context.Background(), []store.Op{put("a", fmt.Sprint(i), store.AnyRevision)})
			if err != nil {
				failed <- err
				return
			}
			revs <- rev
		}
	}()
	for rev := range revs {
		if got := get(t, s, "a").Rev; got < rev {
			t.Errorf("a get shows revision %d after commit %d", got, rev)
		}
		if _, at, err := s.List(context.Background(), store.Range{Limit: 1}); err != nil || at < rev {
			t.Errorf("a list shows revision %d after commit %d, %v", at, rev, err)
		}
	}
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}
