//go:build go1.25 || goexperiment.synctest

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/internal/test/synctest"
)

func TestJitterShortensWaitsByUpToHalf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	q := newQueue(Config{Base: time.Second, Max: time.Minute, Jitter: rng.Int64N})
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 100: time.Minute} {
		for range 100 {
			if d := q.backoff(failures); d < want/2 || d > want {
				t.Fatalf("wait %v after %d failures, want up to %v", d, failures, want)
			}
		}
	}
}

// A server that names a delay to every node is asked for no node before its delay is over, although nodes change and space is given
// back. Each is asked for again, and served when the server is well.
func TestNamedDelaysAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(20)...)
		const delay = 50 * time.Second
		begin, last, asked := time.Now(), map[string]time.Time{}, map[string]int{}
		k.onWrite = func(name string) (error, bool) {
			if time.Since(begin) > 10*time.Minute {
				return nil, true
			}
			if at, ok := last[name]; ok && time.Since(at) < delay {
				t.Errorf("%s: asked again after %v", name, time.Since(at))
			}
			last[name] = time.Now()
			asked[name]++
			return fmt.Errorf("write: %w", retryAfterError(delay)), false
		}
		c, stop := k.start(small(t, 32), func(cfg *Config) { cfg.Workers = 1 })
		defer stop()
		for i := range 600 {
			sleep(time.Second)
			c.queue.add(fmt.Sprintf("n%04d", i%20))
			c.queue.spaceFreed()
		}
		for name, n := range asked {
			if n < 3 {
				t.Errorf("%s was asked for %d times in ten minutes", name, n)
			}
		}
		sleep(time.Hour)
		if st := c.Stats(); len(asked) != 20 || st.Assigned != 20 || st.Unwritten != 0 {
			t.Errorf("%d nodes were asked for, %+v", len(asked), st)
		}
	})
}

func TestFailingNodesDoNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(200)...)
		k.onWrite = func(name string) (error, bool) {
			if name < "n0100" {
				return ipalloc.ErrConflict, false
			}
			return nil, true
		}
		c, stop := k.start(small(t, 256), func(cfg *Config) { cfg.Workers = 4 })
		defer stop()
		sleep(time.Hour)
		synctest.Wait()
		st := c.Stats()
		if st.Assigned != 100 || st.Waiting+st.Running+st.Delayed != 100 {
			t.Fatalf("%+v", st)
		}
		before := st.Rejected
		sleep(time.Hour)
		if n := c.Stats().Rejected - before; n == 0 || n > 200*3*70 {
			t.Fatalf("%d attempts in an hour in which nothing succeeds", n)
		}
	})
}

// A write that the end of Run cuts off is the last call of its worker: nothing is read, taken back or reported.
func TestShutdownDuringAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.latency = time.Minute
		a := small(t, 4)
		c, stop := k.start(a)
		sleep(time.Second)
		stop()
		if st := c.Stats(); st.Unknown != 1 || st.Reads != 0 || len(k.reports) != 0 || holds(a, "n0000") == nil {
			t.Errorf("%+v, reports %q, holds %v", st, k.reports, holds(a, "n0000"))
		}
	})
}

func TestShutdownWaitsForWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 1, time.Millisecond, 5 * time.Millisecond, time.Second} {
			k := newCluster(t, plain(100)...)
			k.latency = 2 * time.Millisecond
			c, stop := k.start(small(t, 64))
			sleep(after)
			stop()
			if st := c.Stats(); st.Running != 0 {
				t.Fatalf("%+v", st)
			}
			if err := c.Run(t.Context()); !errors.Is(err, ipalloc.ErrClosed) {
				t.Fatal(err)
			}
		}
		k := newCluster(t)
		k.synced = make(chan struct{}) // never in sync
		_, stop := k.start(small(t, 1))
		sleep(time.Second)
		cfg := Config{Allocator: small(t, 1), Source: badSource{}, Writer: k}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, errTimeout) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c, _ = New(Config{Allocator: small(t, 1), Source: k, Writer: k})
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, stop) // while Start waits
		sleep(2 * time.Second)
	})
}

func TestQueueKeepsANodeThatChangesWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Base: time.Second, Max: time.Second, Clock: systemClock{}})
		q.add("a")
		q.add("b")
		q.add("a")
		a := q.get()
		q.add("a")
		b := q.get()
		if a.name != "a" || b.name != "b" || len(q.waiting) != 0 {
			t.Fatal(a, b, q.waiting)
		}
		q.done(b, verdict{})
		q.done(a, verdict{kind: later})
		if again := q.get(); again != a || a.failures != 1 { // at once: it has changed
			t.Fatal(again)
		}
		q.done(a, verdict{kind: later})
		if len(q.waiting) != 0 || len(q.delayed) != 1 {
			t.Fatal("not delayed")
		}
		q.close()
		if q.add("e"); q.get() != nil || q.items["e"] != nil {
			t.Fatal("closed")
		}
	})
}

// A storm: nodes come, go and come again while writes and reads fail in every way
// and controllers are stopped and started. No prefix is ever recorded for two nodes
// that exist at a time (land reports it), nothing is reassigned, and once the
// trouble is over every node has its prefixes and nothing is leaked.
func TestStorm(t *testing.T) {
	for seed := range seeds.Each(t, 8, 40) {
		synctest.Test(t, func(t *testing.T) { storm(t, rand.New(rand.NewPCG(seed, 3)), false) })
	}
}

// A view at the start that lacks the writes of the controller before makes prefixes
// twofold: what Source.Start demands is needed.
func TestStormOverAStaleStartHandsOutDuplicates(t *testing.T) {
	twice := 0
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { twice += storm(t, rand.New(rand.NewPCG(seed, 3)), true) })
	}
	if twice == 0 {
		t.Error("no duplicate")
	}
}

// fail makes writes and reads fail in every way, as often as draw says.
func (k *cluster) fail(draw func(int) int) {
	k.onWrite = func(string) (error, bool) {
		switch draw(10) {
		case 0, 1:
			return ipalloc.ErrConflict, false
		case 2, 3:
			return errTimeout, true
		case 4, 5:
			return errTimeout, false
		}
		return nil, true
	}
	k.onRead = func(string) error {
		if draw(3) == 0 {
			return errTimeout
		}
		return nil
	}
	k.late = func() time.Duration { return time.Duration(draw(int(requestLife/time.Millisecond))) * time.Millisecond }
}

// requestLife is how long a write without an answer may take to happen in a storm.
const requestLife = 400 * time.Millisecond

// storm returns how many prefixes were recorded for two nodes. If stale is set, a
// controller may start from a view of before the last writes.
func storm(t *testing.T, rng *rand.Rand, stale bool) int {
	k := newCluster(t, plain(40)...)
	k.stale = stale
	k.latency, k.lag = time.Millisecond, time.Duration(rng.IntN(500))*time.Millisecond
	var mu sync.Mutex
	calm := false
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		if calm {
			return n
		}
		return rng.IntN(n)
	}
	k.fail(draw)
	config := func(cfg *Config) {
		cfg.Workers = 1 + draw(8)
		cfg.Max, cfg.RequestLife = 2*time.Second, requestLife
	}
	var a *nodeipam.Allocator
	var stop func()
	for round := range 4 {
		a = small(t, 64)
		var c *Controller
		c, stop = k.start(a, config)
		for i := range 60 {
			name := fmt.Sprintf("n%04d", draw(60))
			k.mu.Lock()
			if _, ok := k.nodes[name]; ok {
				k.change(name, nil)
			} else {
				k.change(name, &nodeipam.Node{Name: name, UID: fmt.Sprint(round, i)})
			}
			k.mu.Unlock()
			c.queue.add(fmt.Sprintf("n%04d", draw(60))) // a heartbeat
			sleep(time.Duration(draw(100)) * time.Millisecond)
		}
		if stale { // stop amid writes
			for i := range 20 {
				name := fmt.Sprintf("n%04d", 60+20*round+i)
				k.set(name, &nodeipam.Node{Name: name, UID: "0"})
			}
			sleep(k.lag + 3*time.Millisecond)
		}
		if round < 3 {
			stop()
			sleep(requestLife)
		}
	}
	if stale {
		stop()
		return k.twice
	}
	mu.Lock()
	calm = true
	mu.Unlock()
	sleep(time.Minute)
	synctest.Wait()
	stop()
	k.checkAllServed(a)
	return k.twice
}

// checkAllServed checks that every node has what the allocator holds for it, and
// that it holds nothing else.
func (k *cluster) checkAllServed(a *nodeipam.Allocator) {
	t := k.t
	for name, n := range k.nodes {
		if len(n.Prefixes) != 1 || !slices.Equal(holds(a, name), n.Prefixes) {
			t.Errorf("%s has %v, holds %v", name, n.Prefixes, holds(a, name))
		}
	}
	if len(k.view) != len(k.nodes) {
		t.Errorf("the view has %d nodes of %d", len(k.view), len(k.nodes))
	}
	if st := a.Stats(); st.Nodes != len(k.nodes) {
		t.Errorf("%d owners, %d nodes", st.Nodes, len(k.nodes))
	}
}
