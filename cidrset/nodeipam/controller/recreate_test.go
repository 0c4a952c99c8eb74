//go:build go1.25 || goexperiment.synctest

package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/synctest"
)

// A node that was deleted and created again between two looks gets prefixes of its own.
// It inherits nothing: not the prefix that another node has as well, not one from
// elsewhere.
func TestRecreatedNodeStartsAfresh(t *testing.T) {
	for _, had := range []string{"10.0.0.0/24", "172.16.0.0/24"} {
		synctest.Test(t, func(t *testing.T) {
			twin, n := nodeipam.ParseNode("twin", "10.0.0.0/24"), nodeipam.ParseNode("n", had)
			k := newCluster(t, twin, n)
			a := small(t, 4)
			_, stop := k.start(a)
			defer stop()
			sleep(time.Second)
			k.set("n", &nodeipam.Node{Name: "n", UID: "1"})
			sleep(time.Second)
			if got := k.prefixes("n"); !slices.Equal(got, pfxs("10.0.1.0/24")) || !slices.Equal(holds(a, "n"), got) {
				t.Fatalf("had %s, now has %v, holds %v", had, got, holds(a, "n"))
			}
			k.set("n", &nodeipam.Node{Name: "n", UID: "2", Terminating: true})
			sleep(time.Second)
			if got := holds(a, "n"); got != nil || free(a) != 3 {
				t.Fatalf("a terminating node inherits %v", got)
			}
		})
	}
}

// A node that was written while its view shows other prefixes, of an earlier node of
// that name for example, is settled by a live read: the view does not free what was
// written.
func TestOldViewOfAnUnsettledNode(t *testing.T) {
	for earlier, uid := range map[string]string{"10.0.3.0/24": "0", "10.0.0.0/24": "of an earlier node"} { // another prefix, and the same
		synctest.Test(t, func(t *testing.T) {
			k := newCluster(t, plain(1)...)
			k.lag = time.Hour
			a := small(t, 8)
			c, stop := k.start(a)
			defer stop()
			sleep(time.Second)
			k.locked(func() {
				n := nodeipam.ParseNode("n0000", earlier)
				n.UID = uid
				k.view["n0000"] = n
			})
			c.queue.add("n0000")
			sleep(time.Second)
			if got := holds(a, "n0000"); !slices.Equal(got, pfxs("10.0.0.0/24")) || c.Stats().Reads != 1 {
				t.Fatalf("holds %v after %d reads", got, c.Stats().Reads)
			}
		})
	}
}

// A live read may show a later node of that name than the view does. A write to the
// earlier one is refused, and that must not free what the later one has.
func TestLiveReadIsAheadOfTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Hour
		k.onWrite = func(string) (error, bool) { // created again, with prefixes, while the answer is lost
			k.change("n0000", &nodeipam.Node{Name: "n0000", UID: "1", Prefixes: pfxs("10.0.5.0/24")})
			return errTimeout, false
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		sleep(time.Second)
		for range 10 {
			if got := holds(a, "n0000"); !slices.Equal(got, pfxs("10.0.5.0/24")) {
				t.Fatalf("holds %v", got)
			}
			c.queue.add("n0000") // heartbeats of the earlier node
			sleep(time.Minute)
		}
		if st := c.Stats(); st.Unsettled != 1 || len(k.writes) != 3 {
			t.Fatalf("%+v, writes %v", st, k.writes)
		}
		sleep(time.Hour)
		if st := c.Stats(); st.Unsettled != 0 || free(a) != 7 {
			t.Fatalf("%+v", st)
		}
	})
}

// A live read that finds what the view shows already settles the node: no change of the view comes any more. The same prefixes on
// an earlier node of that name do not.
func TestLiveReadThatTheViewShows(t *testing.T) {
	for uid, unsettled := range map[string]int{"0": 0, "of an earlier node": 1} {
		synctest.Test(t, func(t *testing.T) {
			k := newCluster(t, plain(1)...)
			k.onWrite = func(string) (error, bool) { return errTimeout, true }
			k.onRead = func(string) error {
				n := k.nodes["n0000"]
				n.UID = uid
				k.view["n0000"] = n // without a call of changed, which came during the write
				return nil
			}
			k.lag = time.Hour
			a := small(t, 8)
			c, stop := k.start(a)
			defer stop()
			sleep(time.Second)
			if st := c.Stats(); st.Reads != 1 || st.Unsettled != unsettled || holds(a, "n0000") == nil {
				t.Fatalf("UID %q: %+v, holds %v", uid, st, holds(a, "n0000"))
			}
		})
	}
}
