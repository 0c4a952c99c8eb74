//go:build go1.25 || goexperiment.synctest

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/synctest"
)

// cloud decides what nodes get: ranges by name, or an error.
type cloud struct {
	mu     sync.Mutex
	a      *nodeipam.Allocator
	ranges map[string][]netip.Prefix
	err    error
	asked  int
}

func (c *cloud) choose(_ context.Context, n nodeipam.Node) (as nodeipam.Assignment, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	n.Prefixes = c.ranges[n.Name]
	if err := c.err; err != nil {
		return as, err
	}
	if len(n.Prefixes) == 0 {
		return as, fmt.Errorf("no range of %s yet: %w", n.Name, unknownDelay{errTimeout})
	}
	if err := c.a.Occupy(n); err != nil {
		return as, err
	}
	as, _ = c.a.Lookup(n.Name)
	return as, nil
}

// set changes what the cloud answers.
func (c *cloud) set(err error, name string, ranges ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.ranges[name] = err, pfxs(ranges...)
}

// chooses runs f beside a controller whose decisions a cloud makes.
func chooses(t *testing.T, nodes int, f func(*cluster, *cloud, *Controller)) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(nodes)...)
		d := &cloud{a: small(t, 16), ranges: map[string][]netip.Prefix{}}
		c, stop := k.start(d.a, func(cfg *Config) { cfg.Choose = d.choose })
		defer stop()
		f(k, d, c)
	})
}

// last returns the last report.
func (k *cluster) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.reports) == 0 {
		return ""
	}
	return k.reports[len(k.reports)-1]
}

// A node gets what Choose decides, as soon as that is decided, and nothing else.
func TestChooseDecides(t *testing.T) {
	chooses(t, 1, func(k *cluster, d *cloud, c *Controller) {
		sleep(30 * time.Second)
		if st := c.Stats(); d.asked != 1 || st.Unwritten != 1 || !strings.Contains(k.last(), "no range of n0000 yet") {
			t.Errorf("asked %d times, %+v, %s", d.asked, st, k.last())
		}
		d.set(nil, "n0000", "10.0.7.0/24")
		sleep(time.Minute) // the delay that Choose named
		if got := k.prefixes("n0000"); !slices.Equal(got, pfxs("10.0.7.0/24")) || c.Stats().Unwritten != 0 || k.last() != "n0000: fine" {
			t.Errorf("%v, %s", got, k.last())
		}
		k.set("n0000", nil)
		sleep(time.Second)
		if owners(d.a) != 0 {
			t.Error("a node that is gone still holds its prefixes")
		}
	})
}

// A decision that fails is reported, nothing is written meanwhile, and Choose is called again.
func TestChooseFails(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		cidr string
		says string
	}{
		"an error of the cloud":        {errTimeout, "", "controller: choose for \"n0000\": unknown outcome: connection lost"},
		"another node's range":         {nil, "10.0.15.0/24", "held by \"other\""},
		"a range outside of the pools": {nil, "172.16.0.0/24", "in no pool of its slot"},
		"no space":                     {ipalloc.ErrFull, "", "n0000: full"},
		"a node that is gone":          {ipalloc.ErrNotFound, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			chooses(t, 1, func(k *cluster, d *cloud, ctl *Controller) {
				k.set("other", &nodeipam.Node{Name: "other", Prefixes: pfxs("10.0.15.0/24")})
				d.set(c.err, "n0000", slices.DeleteFunc([]string{c.cidr}, func(s string) bool { return s == "" })...)
				sleep(10 * time.Minute)
				if got := k.last(); !strings.Contains(got, c.says) || len(k.writes) != 0 || d.asked < 4 || holds(d.a, "n0000") != nil {
					t.Errorf("asked %d times, %d writes, %s", d.asked, len(k.writes), got)
				}
				d.set(nil, "n0000", "10.0.7.0/24")
				sleep(2 * time.Minute)
				if got := k.prefixes("n0000"); !slices.Equal(got, pfxs("10.0.7.0/24")) {
					t.Errorf("has %v afterwards", got)
				}
			})
		})
	}
}

// Prefixes that Choose has not claimed in the allocator are not written.
func TestChooseMustClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		_, stop := k.start(small(t, 16), func(cfg *Config) {
			cfg.Choose = func(context.Context, nodeipam.Node) (nodeipam.Assignment, error) {
				return nodeipam.Assignment{Prefixes: pfxs("10.0.7.0/24")}, nil
			}
		})
		defer stop()
		sleep(10 * time.Minute)
		if len(k.writes) != 0 || !strings.Contains(k.last(), "the allocator does not hold the prefixes") {
			t.Errorf("%q, %s", k.writes, k.last())
		}
	})
}

// A decision that changes waits until no request of the former one can be carried out. It then
// replaces what the node holds.
func TestChooseChangesItsMind(t *testing.T) {
	chooses(t, 1, func(k *cluster, d *cloud, c *Controller) {
		lost := true
		k.locked(func() {
			k.onWrite = func(string) (error, bool) { return errTimeout, !lost }
			k.late = func() time.Duration { return 0 }
		})
		d.set(nil, "n0000", "10.0.7.0/24")
		sleep(2 * time.Minute)
		d.set(nil, "n0000", "10.0.8.0/24")
		sleep(90 * time.Second) // of the 2 minutes of RequestLife
		if got := holds(d.a, "n0000"); !slices.Equal(got, pfxs("10.0.7.0/24")) {
			t.Errorf("holds %v while a write of the first decision may be carried out", got)
		}
		sleep(5 * time.Minute)
		if got := holds(d.a, "n0000"); !slices.Equal(got, pfxs("10.0.8.0/24")) {
			t.Errorf("holds %v at last: %s", got, k.last())
		}
		k.locked(func() { lost = false })
		sleep(5 * time.Minute)
		if got := k.prefixes("n0000"); !slices.Equal(got, pfxs("10.0.8.0/24")) || c.Stats().Unsettled != 0 {
			t.Errorf("has %v, %+v", got, c.Stats())
		}
	})
}

// A node that Choose calls gone keeps what it holds while a write of it may be carried out.
func TestChooseLosesANodeInDoubt(t *testing.T) {
	chooses(t, 1, func(k *cluster, d *cloud, c *Controller) {
		k.locked(func() { k.onWrite = func(string) (error, bool) { return errTimeout, false } })
		d.set(nil, "n0000", "10.0.7.0/24")
		sleep(2 * time.Minute)
		d.set(ipalloc.ErrNotFound, "n0000")
		sleep(time.Minute)
		if got := holds(d.a, "n0000"); !slices.Equal(got, pfxs("10.0.7.0/24")) {
			t.Errorf("holds %v", got)
		}
		sleep(5 * time.Minute)
		if got := holds(d.a, "n0000"); got != nil {
			t.Errorf("still holds %v", got)
		}
	})
}

// A write that is refused releases the prefixes, and Choose claims them again.
func TestChooseAfterARefusal(t *testing.T) {
	chooses(t, 1, func(k *cluster, d *cloud, c *Controller) {
		tries := 0
		k.locked(func() {
			k.onWrite = func(string) (error, bool) {
				tries++
				if tries <= 9 {
					return fmt.Errorf("admission: %w", ipalloc.ErrConflict), false
				}
				return nil, true
			}
		})
		d.set(nil, "n0000", "10.0.7.0/24")
		sleep(10 * time.Minute)
		if got := k.prefixes("n0000"); !slices.Equal(got, pfxs("10.0.7.0/24")) || d.asked < 4 || c.Stats().Rejected != 9 {
			t.Errorf("%v, asked %d times, %+v", got, d.asked, c.Stats())
		}
	})
}
