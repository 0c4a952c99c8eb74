//go:build go1.25 || goexperiment.synctest

package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/synctest"
)

func TestControllerServesAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1000)...)
		k.latency, k.lag = 10*time.Millisecond, 3*time.Millisecond
		c, stop := k.start(mustNew(t, nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: pfxs("10.0.0.0/12")}, {Bits: 64, Pools: pfxs("fd00::/44")}}}))
		defer stop()
		sleep(time.Second)
		synctest.Wait()
		for name, n := range k.nodes {
			if len(n.Prefixes) != 2 {
				t.Errorf("%s has %v", name, n.Prefixes)
			}
		}
		st := c.Stats()
		if len(c.Begun()) > 0 || st.Added < 1000 {
			t.Errorf("%v are running, %+v", c.Begun(), st)
		}
		if k.most != 30 || len(k.writes) != 1000 || st.Assigned != 1000 || st.Unsettled != 0 || st.Waiting+st.Running+st.Delayed != 0 || !c.Synced() {
			t.Errorf("%d at once, %d writes, %+v, reports %v", k.most, len(k.writes), st, k.reports)
		}
		if st.WriterTime != 10*time.Second || st.OwnTime != 0 {
			t.Errorf("%v in the writer, %v elsewhere", st.WriterTime, st.OwnTime)
		}
	})
}

// Worked receives how long a node waited for a worker, not how long it paused, and how
// long the work took. Begun shows the work that goes on.
func TestWaitingAndWorkAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(3)...)
		k.latency = time.Second
		var mu sync.Mutex
		var all []string
		turns := func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
		c, stop := k.start(small(t, 2), func(c *Config) {
			c.Workers = 1
			c.Worked = func(waited, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, fmt.Sprint(waited, took))
			}
		})
		defer stop()
		begin := time.Now()
		sleep(1500 * time.Millisecond)
		if begun := c.Begun(); len(begun) != 1 || begun[0].Sub(begin) != time.Second {
			t.Errorf("the running work began at %v", begun)
		}
		sleep(1500 * time.Millisecond)
		if want := []string{"0s 1s", "1s 1s", "2s 0s"}; len(turns()) < 3 || !slices.Equal(turns()[:3], want) {
			t.Errorf("turns %v, want %v", turns(), want)
		}
		before := len(turns())
		sleep(time.Minute) // of pauses of the third node, which are no waiting for a worker
		for _, turn := range turns()[before:] {
			if turn != "0s 0s" {
				t.Errorf("turns %v", turns())
			}
		}
	})
}

func TestNothingIsAllocatedBeforeTheViewIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(3)...)
		k.synced = make(chan struct{})
		a := small(t, 4)
		c, stop := k.start(a)
		defer stop()
		synctest.Wait()
		k.set("n0000", &nodeipam.Node{Name: "n0000"}) // the watch brings nodes one after another
		sleep(time.Hour)
		if owners(a) != 0 || len(k.writes) != 0 || c.Synced() {
			t.Fatalf("%+v, writes %v", a.Stats(), k.writes)
		}
		k.set("old", &nodeipam.Node{Name: "old", Prefixes: pfxs("10.0.0.0/24")})
		sleep(time.Second)
		close(k.synced)
		synctest.Wait()
		// A node whose write does not show in the view yet may be written once more, the same.
		written := slices.Compact(slices.Sorted(slices.Values(k.writes)))
		if got := holds(a, "old"); !slices.Equal(got, pfxs("10.0.0.0/24")) || len(written) != 3 || owners(a) != 4 {
			t.Fatalf("old has %v, writes %v", got, k.writes)
		}
	})
}

func TestThreeAttemptsThenLongerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		begin := time.Now()
		var at []string
		k.onWrite = func(string) (error, bool) {
			at = append(at, time.Since(begin).String())
			return fmt.Errorf("forbidden: %w", ipalloc.ErrConflict), false
		}
		a := small(t, 8)
		c, stop := k.start(a, func(cfg *Config) { cfg.Base, cfg.Max = time.Second, 3*time.Second })
		defer stop()
		sleep(9*time.Second + time.Second/2)
		synctest.Wait()
		want := "0s 0s 0s 1s 1s 1s 3s 3s 3s 6s 6s 6s 9s 9s 9s"
		if got := strings.Join(at, " "); got != want {
			t.Fatalf("attempts at %s, want %s", got, want)
		}
		if st := c.Stats(); owners(a) != 0 || st.Reads != 0 || st.Rejected != 15 || st.Delayed != 1 || st.Retries != 5 {
			t.Fatalf("a definite failure keeps %v; %+v", holds(a, "n0000"), st)
		}
		// Each round takes another child, as the round robin goes.
		if !slices.Equal(k.writes[2:4], []string{"n0000[10.0.0.0/24]", "n0000[10.0.1.0/24]"}) {
			t.Fatal(k.writes)
		}
	})
}

// A prefix whose write had no answer is not given to another node, as the original does.
func TestLostAnswerDoesNotGiveThePrefixToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Minute // the watch is cut, too
		broken := true
		k.onWrite = func(name string) (error, bool) {
			if broken && name == "n0000" {
				return errTimeout, true
			}
			return nil, true
		}
		k.onRead = func(string) error {
			if broken {
				return errTimeout
			}
			return nil
		}
		a := small(t, 1)
		c, stop := k.start(a)
		defer stop()
		sleep(time.Second)
		k.set("n0001", &nodeipam.Node{Name: "n0001"})
		sleep(10 * time.Second)
		if holds(a, "n0000") == nil || holds(a, "n0001") != nil || c.Stats().Unsettled != 1 {
			t.Fatalf("n0000 holds %v, n0001 %v", holds(a, "n0000"), holds(a, "n0001"))
		}
		k.locked(func() { broken = false })
		sleep(time.Hour)
		synctest.Wait()
		if !slices.Equal(k.prefixes("n0000"), pfxs("10.0.0.0/24")) || k.prefixes("n0001") != nil {
			t.Fatal(k.nodes)
		}
		for _, w := range k.writes {
			if w != "n0000[10.0.0.0/24]" {
				t.Fatalf("written: %v", k.writes)
			}
		}
	})
}

// An unknown outcome stays one though the later attempts certainly fail.
func TestLaterRejectionsDoNotSettleAnUnknownOutcome(t *testing.T) {
	for _, landed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			k := newCluster(t, plain(1)...)
			k.lag = time.Hour
			tries := 0
			k.onWrite = func(string) (error, bool) {
				if tries++; tries == 1 {
					return errTimeout, landed
				}
				return fmt.Errorf("immutable: %w", ipalloc.ErrConflict), false
			}
			reads := 0
			k.onRead = func(string) error {
				if reads++; reads < 3 {
					return errTimeout
				}
				if tries%3 != 0 { // whole rounds
					t.Errorf("a read after %d attempts", tries)
				}
				return nil
			}
			a := small(t, 8)
			c, stop := k.start(a)
			defer stop()
			sleep(250 * time.Millisecond) // two rounds
			if !slices.Equal(holds(a, "n0000"), pfxs("10.0.0.0/24")) || c.Stats().Unsettled != 1 {
				t.Fatalf("holds %v", holds(a, "n0000"))
			}
			sleep(100 * time.Millisecond)
			synctest.Wait()
			if c.Stats().Unsettled != 1 || !slices.Equal(holds(a, "n0000"), pfxs("10.0.0.0/24")) {
				t.Fatalf("%+v, holds %v", c.Stats(), holds(a, "n0000"))
			}
			if landed {
				sleep(time.Minute)
				if tries != 9 {
					t.Fatalf("%d attempts", tries)
				}
				return
			}
			sleep(time.Minute) // not recorded, and the first request may still be carried out
			if c.Stats().Unsettled != 1 || !slices.Equal(holds(a, "n0000"), pfxs("10.0.0.0/24")) {
				t.Fatalf("%+v, holds %v", c.Stats(), holds(a, "n0000"))
			}
			sleep(5 * time.Minute) // now the rejections are the last word
			if last, want := k.writes[len(k.writes)-1], "n0000[10.0.0.0/24]"; owners(a) != 0 || last == want {
				t.Fatalf("holds %v, writes %v", holds(a, "n0000"), k.writes)
			}
		})
	}
}

// A request without an answer may be carried out after later ones were refused. Its prefix goes to no other node while that
// can be, unless a later write of the node succeeded or the node is gone.
func TestLateWriteKeepsItsPrefix(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(k *cluster) // after the refusals, before the request is carried out
		want string           // what the second node has a minute after that
	}{
		{"refused", func(*cluster) {}, ""},
		{"written", func(k *cluster) { k.locked(func() { k.onWrite = nil }) }, ""},
		{"gone", func(k *cluster) { k.set("n0000", nil) }, "10.0.0.0/24"},
		{"recreated", func(k *cluster) { k.set("n0000", &nodeipam.Node{Name: "n0000", UID: "1", Terminating: true}) }, "10.0.0.0/24"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCluster(t, plain(1)...)
				k.late = func() time.Duration { return 50 * time.Second }
				writes := 0
				k.onWrite = func(name string) (error, bool) {
					if writes++; name == "n0001" {
						return nil, true
					} else if writes == 1 {
						return errTimeout, false
					}
					return fmt.Errorf("forbidden: %w", ipalloc.ErrConflict), false
				}
				a := small(t, 1)
				c, stop := k.start(a)
				defer stop()
				sleep(10 * time.Second)
				k.set("n0001", &nodeipam.Node{Name: "n0001", UID: "0"})
				test.do(k)
				sleep(50 * time.Minute)
				if got := k.prefixes("n0001"); fmt.Sprint(got) != fmt.Sprint(pfxs(strings.Fields(test.want)...)) {
					t.Errorf("the second node has %v, want %q; writes %v", got, test.want, k.writes)
				}
				if c.Stats().Unsettled != 0 {
					t.Errorf("%+v", c.Stats())
				}
			})
		})
	}
}

// A rejection of what was written before does not free it either: the view is late.
func TestRejectedRewriteDoesNotFreeWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Minute
		reject := false
		k.onWrite = func(string) (error, bool) {
			if reject {
				return ipalloc.ErrConflict, false
			}
			return nil, true
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		sleep(time.Second)
		k.locked(func() { reject = true })
		c.queue.add("n0000") // a heartbeat that the server saw before the write
		sleep(time.Second)
		if !slices.Equal(holds(a, "n0000"), k.prefixes("n0000")) || c.Stats().Reads != 1 {
			t.Fatalf("holds %v, has %v", holds(a, "n0000"), k.prefixes("n0000"))
		}
	})
}

func TestGoneInTheViewIsNotEnoughForAnUnsettledNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		dark := true
		k.onWrite = func(string) (error, bool) { return errTimeout, false }
		k.onRead = func(string) error {
			if dark {
				return errTimeout
			}
			return nil
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		sleep(time.Second)
		k.set("n0000", nil)
		sleep(time.Second)
		writes := len(k.writes)
		sleep(time.Hour)
		if holds(a, "n0000") == nil || len(k.writes) != writes {
			t.Fatalf("holds %v after %d writes, %d with the node gone", holds(a, "n0000"), writes, len(k.writes))
		}
		k.locked(func() { dark = false })
		sleep(2 * time.Minute)
		if holds(a, "n0000") != nil || c.Stats().Unsettled != 0 || c.Stats().Delayed != 0 {
			t.Fatalf("holds %v, %+v", holds(a, "n0000"), c.Stats())
		}
	})
}

// A node that is gone when the write comes does not leak its prefix.
func TestNodeGoneBeforeTheWriteDoesNotLeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Minute
		k.set("n0000", nil) // the view does not know yet
		a := small(t, 8)
		_, stop := k.start(a)
		defer stop()
		sleep(30 * time.Second)
		if owners(a) != 0 {
			t.Fatal(holds(a, "n0000"))
		}
		sleep(time.Hour)
		if len(k.writes) > 10 {
			t.Fatalf("%d writes to a node that is gone", len(k.writes))
		}
	})
}

func TestNodeWithOtherPrefixesGivesBackOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Hour
		k.onWrite = func(string) (error, bool) { // somebody else was quicker
			k.change("n0000", &nodeipam.Node{Name: "n0000", UID: "0", Prefixes: pfxs("10.0.5.0/24")})
			return errTimeout, false
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		sleep(time.Second)
		if got := holds(a, "n0000"); !slices.Equal(got, pfxs("10.0.5.0/24")) || c.Stats().Reads != 1 {
			t.Fatalf("holds %v", got)
		}
		if free := free(a); free != 7 {
			t.Fatalf("%d free", free)
		}
	})
}

// A node that is being deleted keeps its prefixes until it is gone, and does not
// get any.
func TestTerminatingNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving := nodeipam.Node{Name: "leaving", Terminating: true}
		k := newCluster(t, leaving, nodeipam.Node{Name: "old", Prefixes: pfxs("10.0.0.0/24")})
		a := small(t, 1)
		_, stop := k.start(a)
		defer stop()
		k.set("old", &nodeipam.Node{Name: "old", Prefixes: pfxs("10.0.0.0/24"), Terminating: true})
		k.set("leaving", &leaving)
		k.set("new", &nodeipam.Node{Name: "new"})
		sleep(time.Minute)
		if len(k.writes) != 0 || a.Stats().Terminating != 1 || strings.Contains(strings.Join(k.reports, "\n"), "leaving") {
			t.Fatal(k.writes, a.Stats(), k.reports)
		}
		gone := time.Now()
		k.set("old", nil)
		for k.prefixes("new") == nil {
			sleep(time.Millisecond)
		}
		if time.Since(gone) > 5*time.Millisecond { // not after its wait of a minute
			t.Fatalf("served %v after there was space", time.Since(gone))
		}
	})
}

func TestRetryAfterAPoolWasAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(9)...)
		a := small(t, 1)
		c, stop := k.start(a)
		defer stop()
		sleep(time.Hour)
		if st := c.Stats(); st.Delayed != 8 || st.Assigned != 1 || !strings.Contains(strings.Join(k.reports, "\n"), ": full") {
			t.Fatal(st, k.reports)
		}
		if err := a.AddPool(0, pfx("10.1.0.0/16")); err != nil {
			t.Fatal(err)
		}
		c.Retry()
		synctest.Wait()
		if st := c.Stats(); st.Delayed != 0 || st.Assigned != 9 {
			t.Fatal(st)
		}
	})
}

func TestReportsOfARecordComeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := nodeipam.ParseNode("n1", "10.0.0.0/33")
		k := newCluster(t, nodeipam.ParseNode("n0", "10.0.0.0/24"), bad, nodeipam.ParseNode("n2", "10.0.0.0/24"), nodeipam.ParseNode("n3", "10.9.0.0/24"))
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		sleep(time.Second)
		// n0 or n2 is the second, as the list has it.
		if len(k.reports) != 3 {
			t.Fatal(k.reports)
		}
		for _, n := range k.List() {
			c.queue.add(n.Name)
		}
		sleep(time.Second)
		if len(k.reports) > 4 { // now the other one is told too
			t.Fatal(k.reports)
		}
		later := nodeipam.ParseNode("n4", "x")
		k.set("n4", &later)
		sleep(time.Second)
		if last := k.reports[len(k.reports)-1]; !strings.Contains(last, `"x" for "n4"`) {
			t.Fatal(last)
		}
	})
}
