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
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// watched is what the tests of order watch.
var watched = []string{"c", "o1", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"}

// scribble has writers commit to keys in and beside the watched prefixes, n commits each, and returns what a watch must
// yield, in order. between is called after each commit.
func scribble(t *testing.T, s *Store, writers, n int, between func(i int)) []store.Event {
	t.Helper()
	var mu sync.Mutex
	var all []store.Event
	var wg sync.WaitGroup
	keys := []string{"c", "o1", "b1x", "b1y", "b2", "b3", "b4", "b5", "b6", "b7", "b8z", "b9", "a", "o2", "z"}
	for w := range writers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range n {
				var ops []store.Op
				for _, k := range random.Perm(len(keys))[:1+random.IntN(5)] {
					op := store.Op{Kind: store.Put, Key: keys[k], Value: fmt.Sprint(w, ",", i), Expect: store.AnyRevision}
					if random.IntN(4) == 0 {
						op = store.Op{Kind: store.Put, Key: fmt.Sprintf("b5-%d-%d", w, i), Expect: 0}
						ops = append(ops, store.Op{Kind: store.Delete, Key: fmt.Sprintf("b5-%d-%d", w, i-1), Expect: store.AnyRevision})
					}
					if !slices.ContainsFunc(ops, func(o store.Op) bool { return o.Key == op.Key }) {
						ops = append(ops, op)
					}
				}
				ops = dedupe(ops)
				exists := make(map[string]bool) // only this writer makes and removes these
				if recs, err := s.Get(t.Context(), nil, fmt.Sprintf("b5-%d-%d", w, i-1)); err != nil {
					t.Error(err)
				} else {
					exists[recs[0].Key] = recs[0].Rev != 0
				}
				rev, err := s.Commit(t.Context(), ops)
				if err != nil {
					t.Error(err)
					return
				}
				ev := store.Event{Rev: rev}
				for _, op := range ops {
					if !slices.ContainsFunc(watched, func(p string) bool { return strings.HasPrefix(op.Key, p) }) || op.Kind == store.Delete && !exists[op.Key] {
						continue
					}
					r := store.Record{Key: op.Key, Value: op.Value, Rev: rev}
					if op.Kind == store.Delete {
						r = store.Record{Key: op.Key}
					}
					ev.Changes = append(ev.Changes, r)
				}
				slices.SortFunc(ev.Changes, func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) })
				mu.Lock()
				if len(ev.Changes) > 0 {
					all = append(all, ev)
				}
				mu.Unlock()
				between(i)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b store.Event) int { return int(a.Rev) - int(b.Rev) })
	return all
}

// dedupe drops later operations on a key.
func dedupe(ops []store.Op) (once []store.Op) {
	for _, op := range ops {
		if !slices.ContainsFunc(once, func(o store.Op) bool { return o.Key == op.Key }) {
			once = append(once, op)
		}
	}
	return once
}

// collect watches until the record "c" has the value "end", which comes after all others.
func collect(ctx context.Context, s *Store, after uint64, prefixes ...string) ([]store.Event, error) {
	var evs []store.Event
	for ev, err := range s.Watch(ctx, after, prefixes...) {
		if err != nil {
			return evs, err
		}
		if len(ev.Changes) == 1 && ev.Changes[0].Key == "c" && ev.Changes[0].Value == "end" {
			return evs, nil
		}
		evs = append(evs, ev)
	}
	return evs, nil
}

// wantEvents compares what a watch yielded with what was committed.
func wantEvents(t *testing.T, what string, got, want []store.Event) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got) || i >= len(want):
			t.Fatalf("%s: %d events, want %d", what, len(got), len(want))
		case got[i].Rev != want[i].Rev || !slices.Equal(got[i].Changes, want[i].Changes):
			t.Fatalf("%s: event %d is %+v, want %+v", what, i, got[i], want[i])
		}
	}
}

// TestWatchWholeCommits verifies that a watch of several prefixes yields every commit, whole and in order, live and from the past.
func TestWatchWholeCommits(t *testing.T) {
	s := open(t)
	type result struct {
		evs []store.Event
		err error
	}
	live := make(chan result)
	for range 2 {
		go func() {
			evs, err := collect(limited(t), s, 0, watched...)
			live <- result{evs, err}
		}()
	}
	want := scribble(t, s, 4, 100, func(int) {})
	mustCommit(t, s, "c", "end")
	for range 2 {
		r := <-live
		if r.err != nil {
			t.Fatal(r.err)
		}
		wantEvents(t, "live", r.evs, want)
	}
	for _, after := range []int{0, len(want) / 2, len(want) - 1} {
		evs, err := collect(limited(t), s, want[after].Rev, watched...)
		if err != nil {
			t.Fatal(err)
		}
		wantEvents(t, "past", evs, want[after+1:])
	}
}

// TestWatchResumes breaks the connection of a watch again and again: it yields every commit once all the same.
func TestWatchResumes(t *testing.T) {
	endpoint := sharedCluster(t).Endpoints()[0]
	writer := connect(t, []string{endpoint})
	for _, prefixes := range [][]string{watched, {""}} {
		prefix := newPrefix()
		s := openIn(t, writer, prefix, Options{})
		p := newProxy(t, endpoint)
		var tap tap
		seen := openIn(t, connect(t, []string{p.endpoint()}, tap.into), prefix, Options{})
		streams, messages := 0, 0
		opened := make(chan struct{}, 1)
		tap.each = func(r *pb.WatchResponse) {
			if r.Created && r.WatchId == 1 {
				streams++
				select {
				case opened <- struct{}{}:
				default:
				}
			}
			if messages++; messages%17 == 0 { // before the message is looked at, and in the middle of all that follow it
				p.cut(false)
			}
		}
		var evs []store.Event
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			evs, err = collect(limited(t), seen, 0, prefixes...)
		}()
		var one sync.Mutex
		want := scribble(t, s, 2, 150, func(i int) {
			if i%30 != 29 {
				return
			}
			one.Lock()
			defer one.Unlock()
			select {
			case <-opened:
			default:
			}
			p.cut(false)
			<-opened
		})
		mustCommit(t, s, "c", "end")
		<-done
		if err != nil {
			t.Fatal(err)
		}
		if prefixes[0] == "" { // what is not in want was watched, too
			for i := range evs {
				evs[i].Changes = slices.DeleteFunc(evs[i].Changes, func(r store.Record) bool {
					return !slices.ContainsFunc(watched, func(p string) bool { return strings.HasPrefix(r.Key, p) })
				})
			}
			evs = slices.DeleteFunc(evs, func(ev store.Event) bool { return len(ev.Changes) == 0 })
		}
		wantEvents(t, "resumed", evs, want)
		if streams < 5 {
			t.Errorf("%d streams: nothing was broken", streams)
		}
		t.Logf("%d streams, %d events", streams, len(evs))
	}
}

// TestWatchOverRestart kills the member under a watch and starts it again.
func TestWatchOverRestart(t *testing.T) {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	s := openIn(t, connect(t, c.Endpoints()), newPrefix(), Options{})
	first := make(chan struct{})
	var evs []store.Event
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, e := range s.Watch(limited(t), 0, "a", "b") {
			if err = e; err != nil {
				return
			}
			if evs = append(evs, ev); len(evs) == 1 {
				close(first)
			}
			if len(evs) == 4 {
				return
			}
		}
	}()
	revs := []uint64{mustCommit(t, s, "a", "1")}
	<-first
	revs = append(revs, mustCommit(t, s, "b", "2"))
	c.Members()[0].Kill()
	if err := c.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
	revs = append(revs, mustRetry(t, s, "a", "3"), mustRetry(t, s, "b", "4"))
	<-done
	if err != nil || len(evs) != 4 {
		t.Fatalf("%v, %v", evs, err)
	}
	for i, ev := range evs {
		if ev.Rev != revs[i] || ev.Changes[0].Value != fmt.Sprint(i+1) {
			t.Errorf("event %d: %+v, want revision %d", i, ev, revs[i])
		}
	}
}

// mustRetry commits until it is certain that the record was written, once.
func mustRetry(t *testing.T, s *Store, key, value string) uint64 {
	t.Helper()
	for {
		recs, err := s.Get(limited(t), nil, key)
		if err == nil && recs[0].Value == value {
			return recs[0].Rev
		}
		if err == nil {
			_, err = s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: recs[0].Rev}})
		}
		if err != nil && !store.Retryable(err) {
			t.Fatal(err)
		}
	}
}

// TestWatchCompacted verifies that a watch that can no longer be told everything says so: at its start, and when it comes back.
func TestWatchCompacted(t *testing.T) {
	endpoint := sharedCluster(t).Endpoints()[0]
	client := connect(t, []string{endpoint})
	for _, prefixes := range [][]string{{"a"}, {"a", "b", "c"}} {
		prefix := newPrefix()
		s := openIn(t, client, prefix, Options{})
		first := mustCommit(t, s, "a", "1")
		p := newProxy(t, endpoint)
		away := openIn(t, connect(t, []string{p.endpoint()}), prefix, Options{})
		ended := make(chan error)
		arrived := make(chan struct{})
		go func() {
			var last error
			for _, err := range away.Watch(limited(t), 0, prefixes...) {
				if last = err; err == nil {
					close(arrived)
				}
			}
			ended <- last
		}()
		<-arrived
		p.cut(true)
		last := uint64(0)
		for i := range 10 {
			last = mustCommit(t, s, "a", fmt.Sprint(i))
		}
		if _, err := client.Compact(limited(t), int64(last)); err != nil {
			t.Fatal(err)
		}
		p.cut(false)
		if err := <-ended; !errors.Is(err, ipalloc.ErrOutOfRange) || store.Retryable(err) {
			t.Errorf("a watch that was away: %v", err)
		}
		n := 0
		for _, err := range s.Watch(limited(t), first, prefixes...) {
			if n++; !errors.Is(err, ipalloc.ErrOutOfRange) || store.Retryable(err) {
				t.Errorf("a watch from the past: %v", err)
			}
		}
		if n != 1 {
			t.Errorf("%d errors", n)
		}
		for ev, err := range s.Watch(limited(t), last-1, prefixes...) {
			if err != nil || ev.Rev != last {
				t.Errorf("what is kept: %+v, %v", ev, err)
			}
			break
		}
	}
}

// TestQuietWatchOutlivesCompaction verifies that a watch to which nothing happens resumes after a compaction: the server
// has told it how far it is.
func TestQuietWatchOutlivesCompaction(t *testing.T) {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true, Flags: []string{"--watch-progress-notify-interval=100ms"}})
	client := connect(t, c.Endpoints())
	for _, prefixes := range [][]string{{"c"}, {"b", "c"}} {
		prefix := newPrefix()
		s := openIn(t, client, prefix, Options{})
		p := newProxy(t, c.Endpoints()[0])
		var tap tap
		told := make(chan uint64, 1000)
		tap.each = func(r *pb.WatchResponse) {
			// Of several prefixes, only the answer to a question is about all.
			if !r.Created && len(r.Events) == 0 && (len(prefixes) == 1 || r.WatchId == clientv3.InvalidWatchID) {
				told <- uint64(r.Header.Revision)
			}
		}
		quiet := openIn(t, connect(t, []string{p.endpoint()}, tap.into), prefix, Options{})
		ended := make(chan error)
		go func() {
			_, err := collect(limited(t), quiet, mustList(t, s), prefixes...)
			ended <- err
		}()
		last := uint64(0)
		for i := range 10 {
			last = mustCommit(t, s, "elsewhere", fmt.Sprint(i))
		}
		for rev := range told {
			if rev >= last {
				break
			}
		}
		<-told // by now the one before has been worked on
		p.cut(true)
		if _, err := client.Compact(limited(t), int64(last)); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, s, "c", "end")
		p.cut(false)
		if err := <-ended; err != nil {
			t.Errorf("%q: %v", prefixes, err)
		}
	}
}

// TestWatchLargePast catches up with more than one message holds.
func TestWatchLargePast(t *testing.T) {
	s := open(t)
	var tap tap
	fragments := 0
	tap.each = func(r *pb.WatchResponse) {
		if r.Fragment {
			fragments++
		}
	}
	seen := openIn(t, connect(t, sharedCluster(t).Endpoints(), tap.into), strings.TrimSuffix(s.format, formatName), Options{})
	var want []store.Event
	for i := range 12 {
		rev, err := s.Commit(limited(t), []store.Op{
			{Kind: store.Put, Key: "a", Value: strings.Repeat("v", 200_000+i), Expect: store.AnyRevision},
			{Kind: store.Put, Key: "b", Value: strings.Repeat("w", 200_000+i), Expect: store.AnyRevision},
			{Kind: store.Put, Key: "c", Value: fmt.Sprint(i), Expect: store.AnyRevision},
		})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, store.Event{Rev: rev, Changes: []store.Record{
			{Key: "a", Value: strings.Repeat("v", 200_000+i), Rev: rev}, {Key: "b", Value: strings.Repeat("w", 200_000+i), Rev: rev}, {Key: "c", Value: fmt.Sprint(i), Rev: rev},
		}})
	}
	mustCommit(t, s, "c", "end")
	for _, prefixes := range [][]string{{""}, {"a", "b", "c"}} {
		evs, err := collect(limited(t), seen, 0, prefixes...)
		if err != nil {
			t.Fatal(err)
		}
		wantEvents(t, fmt.Sprintf("%q", prefixes), evs, want)
	}
	if fragments == 0 {
		t.Error("nothing came in parts")
	}
}

// TestWatchManyPrefixes watches more prefixes than are asked for at once, some of them twice and some in others.
func TestWatchManyPrefixes(t *testing.T) {
	s := open(t)
	prefixes := []string{"k1", "k10", "k1", "k199"}
	for i := range 300 {
		prefixes = append(prefixes, fmt.Sprintf("k%03d", i))
	}
	var want []store.Event
	for i := range 300 {
		k := fmt.Sprintf("k%03d", i)
		rev := mustCommit(t, s, k, "v")
		want = append(want, store.Event{Rev: rev, Changes: []store.Record{{Key: k, Value: "v", Rev: rev}}})
	}
	mustCommit(t, s, "c", "end")
	evs, err := collect(limited(t), s, 0, append(prefixes, "c")...)
	if err != nil {
		t.Fatal(err)
	}
	wantEvents(t, "many", evs, want)
}

// TestWatchEnds verifies that a watch ends with the loop or with its context, and leaves nothing behind.
func TestWatchEnds(t *testing.T) {
	s := open(t)
	mustCommit(t, s, "a", "1")
	mustCommit(t, s, "b", "1")
	ignore := goleak.IgnoreCurrent()
	for _, prefixes := range [][]string{{}, {"a"}, {"a", "b"}, {"x", "y"}} {
		n := 0
		ctx, cancel := context.WithCancel(limited(t))
		if len(prefixes) > 0 && prefixes[0] == "a" {
			for _, err := range s.Watch(ctx, 0, prefixes...) {
				if n++; err != nil {
					t.Errorf("%q: %v", prefixes, err)
				}
				break
			}
		}
		ended := make(chan error)
		go func() {
			var last error
			for _, err := range s.Watch(ctx, s.high.Load(), prefixes...) {
				last = err
			}
			ended <- last
		}()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || store.Retryable(err) {
			t.Errorf("%q: %v", prefixes, err)
		}
		ctx, cancel = context.WithDeadline(context.Background(), time.Now().Add(20*time.Millisecond))
		for _, err := range s.Watch(ctx, 0, "nothing") {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%q: %v", prefixes, err)
			}
		}
		cancel()
	}
	goleak.VerifyNone(t, ignore)
}
