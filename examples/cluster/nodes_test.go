package main

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
)

// newPhase returns the built-in cluster before its first node, with the default pools and what args
// change.
func newPhase(t *testing.T, args ...string) *nodePhase {
	t.Helper()
	cfg, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := trace.LoadNodes("")
	if err != nil {
		t.Fatal(err)
	}
	p, err := newNodePhase(cfg, nodes, func() time.Time { return time.Time{} })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// addAll adds every node.
func (p *nodePhase) addAll(t *testing.T) {
	t.Helper()
	for i := range p.nodes {
		if err := p.add(&p.nodes[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshots returns the state of all sets.
func (p *nodePhase) snapshots(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, f := range p.families {
		data, err := f.set.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(data))
	}
	return out
}

func TestClass(t *testing.T) { // the thresholds belong to the class above
	p := &nodePhase{cores: []uint64{32, 64}}
	for milli, want := range map[uint64]int{0: 0, 31999: 0, 32000: 1, 32001: 1, 63999: 1, 64000: 2, trace.MaxCount: 2} {
		if got := p.class(&trace.Node{MilliCPU: milli}); got != want {
			t.Errorf("%d: class %d, want %d", milli, got, want)
		}
	}
}

// Sizes by class, in the order of the families.
func TestAdd(t *testing.T) {
	p := newPhase(t)
	p.addAll(t)
	for _, n := range p.nodes {
		held, class := p.held[n.Name], p.class(&n)
		if len(held) != 2 || held[0].Bits() != []int{26, 25, 24}[class] || held[1].Bits() != []int{64, 63, 62}[class] || !held[0].Addr().Is4() {
			t.Errorf("node %q of class %d holds %v", n.Name, class, held)
		}
	}
}

// A node that can't have a prefix of every family gets none: a hundred attempts change nothing.
func TestAddAllOrNothing(t *testing.T) {
	p := newPhase(t, "-pool6", "fd00::/62")
	if err := p.add(&trace.Node{Name: "first", MilliCPU: 64000}); err != nil {
		t.Fatal(err)
	}
	before := p.snapshots(t)
	for range 100 {
		if err := p.add(&trace.Node{Name: "second", MilliCPU: 64000}); err == nil || !strings.Contains(err.Error(), "the pool fd00::/62 is too small") {
			t.Fatalf("error %v", err)
		}
	}
	if !slices.Equal(p.snapshots(t), before) || len(p.held) != 1 {
		t.Errorf("something changed: %v", p.held)
	}
}

// The snapshot is the set: prefixes, cursor, the answer to the next question; and the nodes hold
// what they held.
func TestRestart(t *testing.T) {
	p := newPhase(t)
	p.addAll(t)
	for _, f := range p.families { // a cursor that stands somewhere
		for range 3 {
			prefix, err := f.set.AllocateNext()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.set.Release(prefix); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := p.snapshots(t)
	old := []*cidrset.Set{p.families[0].set, p.families[1].set}
	if err := p.restart(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.snapshots(t), before) {
		t.Error("other state after the restart")
	}
	for i, f := range p.families {
		if f.set == old[i] {
			t.Errorf("%s goes on with the old set", f.name)
		}
		for _, n := range p.nodes {
			if !f.set.Has(p.held[n.Name][i]) {
				t.Errorf("%q lost %v", n.Name, p.held[n.Name][i])
			}
		}
	}
}

// Faults planted between the phases are found, by the phase whose promise they break.
func TestPhasesFindFaults(t *testing.T) {
	stray := func(p *nodePhase) { p.families[0].set.Occupy(netip.MustParsePrefix("10.128.31.0/26")) }
	lost := func(p *nodePhase) { p.families[1].set.Release(p.held["web-01"][1]) }
	for name, c := range map[string]struct {
		plant func(p *nodePhase)
		phase func(p *nodePhase) error
		want  string
	}{
		"stray, restart":  {stray, (*nodePhase).restart, "IPv4 after the restart:\n\ttaken are ["},
		"lost, restart":   {lost, (*nodePhase).restart, "IPv6 after the restart:\n\tfd00:10:128::/64 of node \"web-01\" is not held"},
		"stray, rebuild":  {stray, (*nodePhase).rebuild, "IPv4 after a rebuild from the nodes' records:\n\twhat the nodes' records say is not what the set holds"},
		"shared, rebuild": {func(p *nodePhase) { p.held["web-02"] = p.held["web-01"] }, (*nodePhase).rebuild, "IPv4 after a rebuild from the nodes' records:\n\t10.128.0.0/26 of node \"web-02\": 0 of 1 /26 were free"},
		"shared, churn":   {func(p *nodePhase) { p.held["web-02"] = p.held["web-01"] }, (*nodePhase).churn, "IPv4 after a tenth of the nodes was removed:\n\t"},
		"lost, churn":     {lost, (*nodePhase).churn, "IPv6 when a node was removed:\n\treleasing fd00:10:128::/64 of node \"web-01\" freed 0 of its 1 /64"},
		"forgotten":       {func(p *nodePhase) { delete(p.held, "db-01") }, (*nodePhase).churn, "after a tenth of the nodes was removed:\n\t35 nodes hold something, there are 36"},
		"one family":      {func(p *nodePhase) { p.held["db-01"] = p.held["db-01"][:1] }, (*nodePhase).churn, "one prefix of each family is right"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPhase(t)
			p.addAll(t)
			c.plant(p)
			err := c.phase(p)
			var fault *wording.BrokenError
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	build := func(pool string, bits int, taken ...string) *cidrset.Set {
		s, err := cidrset.New(netip.MustParsePrefix(pool), bits)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range prefixesOf(taken...) {
			if _, err := s.Occupy(p); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	a := build("10.0.0.0/16", 24, "10.0.1.0/24")
	moved := build("10.0.0.0/16", 24)
	for _, release := range []bool{true, false} { // the cursor moves on, the same child is taken
		p, err := moved.AllocateNext()
		if err != nil {
			t.Fatal(err)
		}
		if release {
			moved.Release(p)
		}
	}
	for name, c := range map[string]struct {
		b    *cidrset.Set
		want []string
	}{
		"equal":  {build("10.0.0.0/16", 24, "10.0.1.0/24"), nil},
		"pool":   {build("10.0.0.0/15", 24, "10.0.1.0/24"), []string{"the pool", "the state"}},
		"child":  {build("10.0.0.0/16", 25, "10.0.1.0/24"), []string{"the child size", "the cursor", "the state"}},
		"taken":  {build("10.0.0.0/16", 24, "10.0.0.0/24"), []string{"other prefixes"}},
		"more":   {build("10.0.0.0/16", 24, "10.0.1.0/24", "10.0.9.0/24"), []string{"the state", "other prefixes"}},
		"cursor": {moved, []string{"the cursor"}},
	} {
		got := differences(a, c.b)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
