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

// testOpsAreTheCallers verifies that the caller may reuse its slice of ops as soon as Commit has returned: after success, after
// a conflict, and after a context that ended during the commit, which the store may still make. A read or a write of the
// slice after that is a data race as well.
func testOpsAreTheCallers(t *testing.T, s store.Store) {
	scribble := func(ops []store.Op) {
		for i := range ops {
			ops[i] = store.Op{Kind: store.Put, Key: fmt.Sprint("scribbled", i), Value: "scribbled", Expect: store.AnyRevision}
		}
	}
	ops := make([]store.Op, 0, 3)
	_, before, err := s.List(context.Background(), store.Range{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	const commits = 8
	for i := range commits {
		ops = append(ops[:0], put(fmt.Sprint("a", i), fmt.Sprint("v", i), 0), put("both", fmt.Sprint(i), store.AnyRevision))
		commit(t, s, ops...)
		scribble(ops)
		ops = append(ops[:0], put(fmt.Sprint("a", i), "", 0), put("conflict", "", 0))
		if _, err := s.Commit(context.Background(), ops); !errors.Is(err, ipalloc.ErrConflict) {
			t.Errorf("expected a conflict: %v", err)
		}
		scribble(ops)
	}
	for i, ev := range watched(t, s, before, commits, "") {
		want := []store.Record{{Key: fmt.Sprint("a", i), Value: fmt.Sprint("v", i), Rev: ev.Rev}, {Key: "both", Value: fmt.Sprint(i), Rev: ev.Rev}}
		if !slices.Equal(ev.Changes, want) {
			t.Errorf("event %d: %v, want %v", i, ev.Changes, want)
		}
	}

	const n = 60
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*i)*2*time.Microsecond)
			defer cancel()
			ops := []store.Op{put(fmt.Sprintf("c%03d", i), fmt.Sprint(i), 0), put(fmt.Sprintf("d%03d", i), fmt.Sprint(i), 0)}
			_, _ = s.Commit(ctx, ops)
			scribble(ops)
		}()
	}
	wg.Wait()
	time.Sleep(50 * time.Millisecond) // for commits that are still in flight
	commit(t, s, put("last", "", 0))
	for i := range n {
		c, d := get(t, s, fmt.Sprintf("c%03d", i)), get(t, s, fmt.Sprintf("d%03d", i))
		if c.Rev != d.Rev || c.Rev != 0 && (c.Value != fmt.Sprint(i) || d.Value != c.Value) {
			t.Errorf("commit %d made %v and %v", i, c, d)
		}
	}
	recs, _, err := s.List(context.Background(), store.Range{From: "conflict", To: "d"})
	if err != nil || len(recs) > 0 {
		t.Errorf("a commit in conflict left %v, %v", recs, err)
	}
	if recs, _, err = s.List(context.Background(), store.Range{From: "scribbled", To: "t"}); err != nil || len(recs) > 0 {
		t.Errorf("the store wrote what the caller did with its slice: %v, %v", recs, err)
	}
}
