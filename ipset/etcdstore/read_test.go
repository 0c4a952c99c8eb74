package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// fill puts n records, 100 in a commit, and returns their keys.
func fill(t testing.TB, s *Store, n int, value string, key func(i int) string) (keys []string) {
	t.Helper()
	var ops []store.Op
	for i := range n {
		keys = append(keys, key(i))
		ops = append(ops, store.Op{Kind: store.Put, Key: key(i), Value: value, Expect: store.AnyRevision})
		if len(ops) == 100 || i == n-1 || len(ops)*len(value) > s.limits.Bytes/2 {
			if _, err := s.Commit(limited(t), ops); err != nil {
				t.Fatal(err)
			}
			ops = ops[:0]
		}
	}
	return keys
}

// churn writes two records together again and again, and compacts all but the last few revisions, until the test stops it.
func churn(t *testing.T, s *Store, a, b string) (stop func()) {
	client := connect(t, sharedCluster(t).Endpoints())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			v := fmt.Sprint(i)
			rev, err := s.Commit(ctx, []store.Op{
				{Kind: store.Put, Key: a, Value: v, Expect: store.AnyRevision}, {Kind: store.Put, Key: b, Value: v, Expect: store.AnyRevision},
			})
			if err == nil && i%5 == 4 {
				_, err = client.Compact(ctx, int64(rev))
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// TestLongReads verifies that reads of many round trips show one state while others write and compact under them.
func TestLongReads(t *testing.T) {
	s := open(t)
	keys := fill(t, s, 2000, "v", func(i int) string { return fmt.Sprintf("k%05d", i) })
	if _, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "a"}, {Kind: store.Put, Key: "z"}}); err != nil {
		t.Fatal(err)
	}
	defer churn(t, s, "a", "z")()
	all := append([]string{"a"}, append(keys[:500], "z")...)
	for range 20 {
		recs, _, err := s.List(limited(t), store.Range{})
		if err != nil && !store.Retryable(err) {
			t.Fatal(err)
		}
		if err == nil && (len(recs) != 2002 || recs[0].Rev != recs[2001].Rev) {
			t.Errorf("List: %d records, %v and %v", len(recs), recs[0], recs[len(recs)-1])
		}
		got, err := s.Get(limited(t), nil, all...)
		if err != nil && !store.Retryable(err) {
			t.Fatal(err)
		}
		if err == nil && (len(got) != len(all) || got[0].Rev != got[len(got)-1].Rev || got[0].Rev == 0) {
			t.Errorf("Get: %d records, %v and %v", len(got), got[0], got[len(got)-1])
		}
		last, _, err := s.List(limited(t), store.Range{Reverse: true, Limit: 2})
		if err != nil && !store.Retryable(err) {
			t.Fatal(err)
		}
		if err == nil && (len(last) != 2 || last[0].Key != "z" || last[1].Key != keys[1999]) {
			t.Errorf("List in reverse: %v", last)
		}
	}
}

// TestRestarts verifies that a read that a compaction overtakes begins anew, and gives up after a while with an error that is
// no watch's.
func TestRestarts(t *testing.T) {
	compacted := wrap("list", &store.Cause{Kind: ipalloc.ErrOutOfRange, Err: errors.New("compacted")})
	calls := 0
	if err := restarts(func() error {
		if calls++; calls < listAttempts {
			return compacted
		}
		return nil
	}); err != nil || calls != listAttempts {
		t.Errorf("%v after %d calls", err, calls)
	}
	calls = 0
	err := restarts(func() error {
		calls++
		return compacted
	})
	if errors.Is(err, ipalloc.ErrOutOfRange) || !store.Retryable(err) || calls != listAttempts {
		t.Errorf("%v after %d calls", err, calls)
	}
	calls = 0
	if err := restarts(func() error { calls++; return ipalloc.ErrMismatch }); !errors.Is(err, ipalloc.ErrMismatch) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestLargeRecords reads more in one list than gRPC takes in one message unless it is told.
func TestLargeRecords(t *testing.T) {
	s := open(t)
	value := strings.Repeat("v", 400_000)
	keys := fill(t, s, 24, value, func(i int) string { return fmt.Sprintf("k%02d", i) })
	recs, _, err := s.List(limited(t), store.Range{})
	if err != nil || len(recs) != len(keys) || recs[23].Value != value {
		t.Errorf("List: %d records, %v", len(recs), err)
	}
	if recs, err = s.Get(limited(t), nil, keys...); err != nil || len(recs) != len(keys) || recs[23].Value != value {
		t.Errorf("Get: %d records, %v", len(recs), err)
	}
	if recs, _, err = s.List(limited(t), store.Range{Reverse: true, Limit: 20}); err != nil || len(recs) != 20 || recs[0].Key != keys[23] {
		t.Errorf("List in reverse: %d records, %v", len(recs), err)
	}
}

// TestReverse compares lists in reverse with the sorted keys, for keys of all shapes.
func TestReverse(t *testing.T) {
	s := open(t)
	random := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]bool)
	key := func(int) string {
		for {
			b := make([]byte, 1+random.IntN(24))
			for i := range b {
				b[i] = []byte{0, 1, 'a', 'b', 0xfe, 0xff}[random.IntN(6)]
			}
			if len(b) > 12 {
				copy(b, "long and common") // what is left differs at the end
			}
			if !seen[string(b)] {
				seen[string(b)] = true
				return string(b)
			}
		}
	}
	keys := fill(t, s, 400, "", func(i int) string { return key(i) })
	keys = keys[:0]
	for k := range seen {
		keys = append(keys, k)
	}
	recs, _, err := s.List(limited(t), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	keys = keys[:0]
	for _, r := range recs {
		keys = append(keys, r.Key)
	}
	if !slices.IsSorted(keys) {
		t.Fatal("not in order")
	}
	for range 300 {
		r := store.Range{From: key(0), To: key(0), Limit: random.IntN(5), Reverse: true}
		switch random.IntN(6) {
		case 0:
			r.From = ""
		case 1:
			r.To = ""
		case 2:
			r.To = keys[random.IntN(len(keys))]
		case 3:
			r.From = keys[random.IntN(len(keys))]
		}
		var want []string
		for _, k := range slices.Backward(keys) {
			if k >= r.From && (r.To == "" || k < r.To) && (r.Limit == 0 || len(want) < r.Limit) {
				want = append(want, k)
			}
		}
		recs, _, err := s.List(limited(t), r)
		var got []string
		for _, rec := range recs {
			got = append(got, rec.Key)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("List(%+v) = %q, %v, want %q", r, got, err, want)
		}
	}
}

// TestCuts verifies that the ranges of a reverse list cover the whole and nothing else.
func TestCuts(t *testing.T) {
	for _, tt := range []struct{ from, to string }{
		{"p/", "p0"}, {"p/b4", "p/b4\x0a\x00\x00\x01\x20\x00"}, {"p/b4\x0a\x00\x00\x01", "p/b4\x0a\x00\x00\x02"}, {"p/a", "p/a\x00"}, {"p/a\xff\xff", "p/b"},
	} {
		for _, n := range []int{2, 8, 128} {
			cuts := cutsBelow(tt.from, tt.to, n)
			end := tt.to
			for _, c := range cuts {
				if c >= end || c < tt.from {
					t.Errorf("%q to %q: %q", tt.from, tt.to, cuts)
				}
				end = c
			}
			if end != tt.from || len(cuts) > n {
				t.Errorf("%q to %q in %d: %q", tt.from, tt.to, n, cuts)
			}
		}
	}
}
