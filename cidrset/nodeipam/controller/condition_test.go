//go:build go1.25 || goexperiment.synctest

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/synctest"
	"github.com/ipalloc/ipalloc/selector"
)

// retryAfterError is the answer of a server under load.
type retryAfterError time.Duration

func (e retryAfterError) Error() string             { return "too many requests" }
func (e retryAfterError) Unwrap() error             { return ipalloc.ErrConflict }
func (e retryAfterError) RetryAfter() time.Duration { return time.Duration(e) }

// A thousand nodes that no entry matches are a thousand reports in an hour, not one per
// retry. They wait without being tried, until an entry comes or their labels change.
func TestUnmatchedNodesWaitForAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1000)...)
		a := labelled(t, "10.0.0.0/12", selector.Term{Labels: []selector.Requirement{{Key: "match", Op: selector.Exists}}})
		c, stop := k.start(a)
		defer stop()
		sleep(time.Hour)
		if st := c.Stats(); len(k.reports) != 1000 || k.gets != 1000 || st.Unmatched != 1000 || st.Delayed != 0 {
			t.Fatalf("%d reports, %d looks, %+v", len(k.reports), k.gets, st)
		}
		k.set("n0007", &nodeipam.Node{Name: "n0007", UID: "0", Labels: map[string]string{"match": "x"}})
		sleep(time.Second)
		if len(k.prefixes("n0007")) != 1 || k.gets > 1003 || k.reports[1000] != "n0007: fine" {
			t.Fatalf("has %v, %d looks", k.prefixes("n0007"), k.gets)
		}
		if err := a.AddEntry(nodeipam.Entry{Name: "default", IPv4: pfx("11.0.0.0/12"), MaskIPv4: 24}); err != nil {
			t.Fatal(err)
		}
		c.Retry()
		sleep(time.Minute)
		if st := c.Stats(); st.Assigned < 1000 || st.Assigned > 1100 || st.Unmatched != 0 || len(k.reports) != 2000 {
			t.Fatalf("%d reports, %+v", len(k.reports), st)
		}
	})
}

// A Retry while the allocator says that no entry matches is not missed.
func TestRetryDuringAllocate(t *testing.T) {
	c, err := New(Config{Allocator: small(t, 1), Source: newRecords(), Writer: newRecords()})
	if err != nil {
		t.Fatal(err)
	}
	before := c.retried
	if v := c.setAside("n", before); v.kind != finished || len(c.aside) != 1 {
		t.Fatal(v)
	}
	c.Retry()
	if it := c.queue.get(); it.name != "n" || len(c.aside) != 0 {
		t.Fatal(it)
	}
	if v := c.setAside("n", before); v.kind != atOnce || len(c.aside) != 0 {
		t.Fatal(v)
	}
}

// Space that is given back is offered to all nodes that wait for space, at once, and to
// no others.
func TestSpaceWakesAllFullNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []nodeipam.Node
		for i := range 4 {
			nodes = append(nodes, nodeipam.ParseNode(fmt.Sprint("old", i), fmt.Sprintf("10.0.%d.0/24", i)))
		}
		k := newCluster(t, append(nodes, plain(9)...)...)
		a := labelled(t, "10.0.0.0/22", selector.Term{Fields: []selector.Requirement{{Key: "metadata.name", Op: selector.NotIn, Values: []string{"n0000"}}}})
		c, stop := k.start(a)
		defer stop()
		sleep(time.Hour)
		if st := c.Stats(); st.Full != 8 || st.Unmatched != 1 || len(k.reports) != 9 {
			t.Fatalf("%+v, %v", st, k.reports)
		}
		k.locked(func() { k.gets = 0 })
		for i := range 3 {
			k.set(fmt.Sprint("old", i), nil)
		}
		sleep(time.Millisecond)
		if st := c.Stats(); st.Assigned != 3 || st.Full != 5 || st.Unmatched != 1 || k.gets > 3+8+7+6+3 {
			t.Fatalf("%+v, %d looks", st, k.gets)
		}
		k.set("old3", &nodeipam.Node{Name: "old3", UID: "new"}) // created again: its prefix is space, too
		sleep(time.Millisecond)
		if st := c.Stats(); st.Assigned != 4 || owners(a) != 4 {
			t.Fatalf("%+v", st)
		}
	})
}

// Space given back while the allocator said that it is full is not missed either.
func TestSpaceFreedWhileANodeRuns(t *testing.T) {
	q := newQueue(Config{Base: time.Second, Max: time.Second, Clock: systemClock{}})
	q.add("a")
	a := q.get()
	q.spaceFreed()
	q.done(a, verdict{kind: whenFree})
	if again := q.get(); again != a {
		t.Fatal(again)
	}
	q.done(a, verdict{kind: whenFree})
	if len(q.delayed) != 1 || len(q.waiting) != 0 {
		t.Fatal(q.delayed)
	}
	q.add("a")
	if len(q.delayed) != 0 || q.get() != a {
		t.Fatal(q.delayed)
	}
}

// All that wait for space run in the order in which they are due; what is delayed for
// another reason keeps its place.
func TestSpaceFreedKeepsTheOrder(t *testing.T) {
	q := newQueue(Config{Base: time.Second, Max: time.Hour, Clock: systemClock{}})
	var want []string
	for i := range 5000 {
		q.add(fmt.Sprintf("n%04d", i*37%5000))
		it := q.get()
		it.failures = i % 7
		kind := whenFree
		if i%3 == 0 {
			kind = later
		}
		q.done(it, verdict{kind: kind})
	}
	for _, it := range q.delayed {
		if it.full {
			want = append(want, it.name)
		}
	}
	q.spaceFreed()
	var got []string
	for range len(want) {
		got = append(got, q.get().name)
	}
	if len(want) < 3000 || !slices.Equal(got, want) || len(q.waiting) != 0 {
		t.Fatal("another order")
	}
	if !slices.IsSortedFunc(q.delayed, compareDue) || slices.ContainsFunc(q.delayed, func(it *item) bool { return it.full }) {
		t.Fatal("not in order, or full")
	}
}

// A condition is reported when it begins, when it changes and when it ends.
func TestConditionsOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		begin := time.Now()
		tries := 0
		k.onWrite = func(string) (error, bool) {
			tries++
			switch d := time.Since(begin); {
			case d < 10*time.Minute:
				return fmt.Errorf("forbidden: %w", ipalloc.ErrConflict), false
			case d < 20*time.Minute:
				return fmt.Errorf("admission: %w", ipalloc.ErrConflict), false
			case d < 30*time.Minute:
				return fmt.Errorf("dial %d: refused", tries), false // another text each time
			case d < 40*time.Minute:
				return retryAfterError(time.Second), false
			}
			return nil, true
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		for _, want := range []string{
			`n0000: controller: write 10.0.0.0/24 for "n0000": forbidden: conflict`,
			`for "n0000": admission: conflict`,
			`for "n0000": unknown outcome: dial `,
			`for "n0000": limit exceeded: too many requests`,
			"n0000: fine",
		} {
			sleep(time.Minute)
			if n := len(k.reports); n == 0 || !strings.Contains(k.reports[n-1], want) {
				t.Fatalf("reports %v, want %s", k.reports, want)
			}
			if st := c.Stats(); (st.Unwritten == 1) != (want != "n0000: fine") {
				t.Errorf("%+v", st)
			}
			sleep(9*time.Minute + 500*time.Millisecond)
		}
		if len(k.reports) != 5 {
			t.Error(k.reports)
		}
	})
}

// A delay that the server names is kept to: no attempt before, not even for a node that
// changes, and the prefixes stay.
func TestNamedDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		begin := time.Now()
		var at []string
		var c *Controller
		k.onWrite = func(string) (error, bool) {
			at = append(at, time.Since(begin).String())
			if len(at) < 4 {
				c.queue.add("n0000")
				return fmt.Errorf("write: %w", retryAfterError(100*time.Second)), false
			}
			return nil, true
		}
		a := small(t, 8)
		k.synced = make(chan struct{})
		c, stop := k.start(a)
		defer stop()
		close(k.synced)
		for range 20 {
			sleep(10*time.Second + 10*time.Millisecond)
			c.queue.add("n0000")
			if got := holds(a, "n0000"); !slices.Equal(got, pfxs("10.0.0.0/24")) {
				t.Fatalf("holds %v", got)
			}
		}
		sleep(time.Hour)
		if got := strings.Join(at, " "); got != "0s 1m40s 3m20s 5m0s" || len(k.reports) != 2 || c.Stats().Reads != 0 {
			t.Errorf("attempts at %s, reports %v", got, k.reports)
		}
		if w := slices.Compact(k.writes); len(w) != 1 || c.Stats().Rejected != 3 {
			t.Error(w)
		}
	})
}

// A delay after an unknown outcome is kept to as well, and the node stays unsettled.
func TestNamedDelayAfterAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Hour
		k.onWrite = func(string) (error, bool) {
			if len(k.writes) == 1 {
				return unknownDelay{errTimeout}, true
			}
			return fmt.Errorf("immutable: %w", ipalloc.ErrConflict), false
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		sleep(59 * time.Second)
		writes := 0
		k.locked(func() { writes = len(k.writes) })
		if st := c.Stats(); writes != 1 || st.Unsettled != 1 || st.Unknown != 1 {
			t.Fatalf("%d writes, %+v", writes, st)
		}
		sleep(time.Minute)
		if got := holds(a, "n0000"); !slices.Equal(got, k.prefixes("n0000")) || c.Stats().Reads != 1 {
			t.Fatalf("holds %v", got)
		}
	})
}

type unknownDelay struct{ error }

func (unknownDelay) RetryAfter() time.Duration { return time.Minute }

// The same for a live read.
func TestNamedDelayOfARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Hour
		k.onWrite = func(string) (error, bool) { return errTimeout, true }
		begin := time.Now()
		var at []string
		k.onRead = func(string) error {
			if at = append(at, time.Since(begin).String()); len(at) < 3 {
				return retryAfterError(2 * time.Minute)
			}
			return nil
		}
		a := small(t, 8)
		_, stop := k.start(a)
		defer stop()
		sleep(10 * time.Minute)
		if got := strings.Join(at, " "); got != "0s 2m0s 4m0s" || holds(a, "n0000") == nil {
			t.Errorf("read at %s", got)
		}
	})
}

// A condition ends with its node.
func TestConditionsEndWithTheirNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(50)...)
		k.latency = time.Millisecond
		a := labelled(t, "10.0.0.0/24", selector.Term{Fields: []selector.Requirement{{Key: "metadata.name", Op: selector.NotIn, Values: []string{"n0030", "n0031", "n0040"}}}})
		c, stop := k.start(a, func(cfg *Config) { cfg.Workers = 1 })
		defer stop()
		sleep(time.Hour)
		for _, n := range k.List() {
			k.set(n.Name, nil)
		}
		sleep(time.Hour)
		if st := c.Stats(); st.Full+st.Unmatched+st.Unwritten != 0 || len(c.conditions) != 0 || len(c.aside) != 0 {
			t.Fatalf("%+v", st)
		}
	})
}

// Nodes that only lack a family are counted among the bad records and on their own, so that a
// cluster half way to dual stack does not hide other bad records.
func TestMissingFamilyIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: pfxs("10.0.0.0/16")}, {Bits: 64, Pools: pfxs("fd00::/48")}}})
		if err != nil {
			t.Fatal(err)
		}
		k := newCluster(t, nodeipam.ParseNode("old", "10.0.0.0/24"), nodeipam.ParseNode("older", "10.0.1.0/24"),
			nodeipam.ParseNode("foreign", "172.16.0.0/24"), nodeipam.ParseNode("whole", "10.0.2.0/24", "fd00::/64"))
		c, stop := k.start(a)
		defer stop()
		sleep(time.Second)
		if st := c.Stats(); st.BadRecords != 3 || st.MissingFamily != 2 || len(k.reports) != 3 {
			t.Errorf("%+v, %q", st, k.reports)
		}
		k.set("old", nil)
		k.set("foreign", nil)
		sleep(time.Second)
		if st := c.Stats(); st.BadRecords != 1 || st.MissingFamily != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestErrorsOfReports(t *testing.T) {
	var c *Controller
	var got error
	c, err := New(Config{Allocator: small(t, 1), Source: newRecords(), Writer: newRecords(), Report: func(_ string, err error) { got = err }})
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("why")
	cause := fmt.Errorf("%w: %w", ipalloc.ErrConflict, why)
	for _, sentinel := range []error{ipalloc.ErrConflict, ipalloc.ErrUnknownOutcome, ipalloc.ErrLimit} {
		c.unwritten("n", "write", nodeipam.Assignment{}, sentinel, cause)
		var e *ipalloc.Error
		if !errors.As(got, &e) || e.Owner != "n" || e.Op != "write" || !errors.Is(got, sentinel) || !errors.Is(got, why) {
			t.Errorf("%v", got)
		}
	}
	var told []bool
	for _, field := range []string{"IPv4", "IPv4", "IPv6"} {
		got = nil
		c.unserved("full", &ipalloc.Error{Field: field, Err: ipalloc.ErrFull})
		told = append(told, got != nil)
	}
	if !slices.Equal(told, []bool{true, false, true}) {
		t.Errorf("a node that is full in IPv4, still, and then in IPv6 is reported: %v", told)
	}
}
