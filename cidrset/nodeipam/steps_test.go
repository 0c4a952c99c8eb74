package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/selector"
)

// What the nodes of the index cost is bounded: a search looks at no more nodes than
// the trie is deep, twice. Steps are the contract, not nanoseconds; they are counted
// with the tag "invariants".
func TestStepsGrowWithTheLogarithm(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("steps are counted with the tag invariants only")
	}
	for _, n := range []int{1000, 10_000, 100_000} {
		a, err := New(Config{ByLabels: true})
		if err != nil {
			t.Fatal(err)
		}
		for name, bits := range map[string]int{"large": 8, "small": 5} {
			r := selector.Requirement{Key: "size", Op: selector.In, Values: []string{name}}
			if err := a.AddEntry(Entry{Name: name, IPv4: netip.MustParsePrefix("10.0.0.0/8"), HostBits: bits, Selector: []selector.Term{{Labels: []selector.Requirement{r}}}}); err != nil {
				t.Fatal(err)
			}
		}
		var most uint64
		sizes := []map[string]string{{"size": "large"}, {"size": "small"}}
		for i := range n {
			before := invariant.Steps()
			// Seven small nodes for each large one, so that 100,000 fit.
			if _, err := a.Allocate(Node{Name: fmt.Sprint(i), Labels: sizes[min(i%8, 1)]}); err != nil {
				t.Fatal(err)
			}
			most = max(most, invariant.Steps()-before)
		}
		log := 0
		for 1<<log < n {
			log++
		}
		t.Logf("%d nodes: at most %d steps for one allocation", n, most)
		if most > uint64(8*log) {
			t.Errorf("%d nodes: %d steps, more than 8 log2(n) = %d", n, most, 8*log)
		}
	}
}

// Each further node that holds the same prefix takes as many steps to load as the ones
// before: it is compared with a bounded number of them, and still reported. So does its
// release, the first one first, which is the last of the claims of the prefix.
func TestStepsOfOnePrefix(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("steps are counted with the tag invariants only")
	}
	steps := func(n int) (load, release uint64) {
		a, err := New(Config{Slots: []Slot{{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}}})
		if err != nil {
			t.Fatal(err)
		}
		nodes := make([]Node, n)
		for i := range nodes {
			nodes[i] = ParseNode(fmt.Sprint(i), "10.0.1.0/24")
		}
		before := invariant.Steps()
		problems := a.Load(nodes)
		if err := a.Reserve(nodes[0].Prefixes[0]); err != nil {
			t.Fatal(err)
		}
		load = invariant.Steps() - before
		if len(problems) != n-1 {
			t.Errorf("%d nodes with one prefix: %d problems", n, len(problems))
		}
		for _, p := range problems {
			if !errors.Is(p, ipalloc.ErrOccupied) || p.Holder == "" || p.Holder == p.Owner {
				t.Fatalf("%v", p)
			}
		}
		if _, problems := a.Observe(nodes[0]); len(problems) != 2 || !errors.Is(problems[0], ipalloc.ErrReserved) {
			t.Errorf("reserved behind %d nodes: %v", n, problems)
		}
		if err := a.Check(); err != nil {
			t.Error(err)
		}
		before = invariant.Steps()
		for i := range nodes {
			a.Release(nodes[i].Name)
		}
		release = invariant.Steps() - before
		if held := a.Holders(nodes[0].Prefixes[0]); len(held) != 0 {
			t.Errorf("%d nodes hold what all have released", len(held))
		}
		if err := a.Check(); err != nil {
			t.Error(err)
		}
		return load, release
	}
	load, release := steps(1000)
	loadMany, releaseMany := steps(10_000)
	t.Logf("1,000 nodes: %d steps to load, %d to release; 10,000: %d and %d", load, release, loadMany, releaseMany)
	if loadMany > 11*load || releaseMany > 11*max(release, 1000) {
		t.Errorf("1,000 nodes: %d steps to load, %d to release; 10,000: %d and %d, more than 11 times as many", load, release, loadMany, releaseMany)
	}
}

// The package comment says what a node costs.
func TestSizeOfAnOwner(t *testing.T) {
	if size := unsafe.Sizeof(owner{}); size > 210 {
		t.Errorf("an owner takes %d bytes", size)
	}
}

// The steps of a call with n prefixes or records grow as n log n: of one node with many
// prefixes, of records of a whole pool that overlap each other's children, and of a
// snapshot with terminating entries that have no node.
func TestStepsOfLargeCalls(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("steps are counted with the tag invariants only")
	}
	children := func(n int) (ps []netip.Prefix) {
		for i := range n {
			ps = append(ps, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
		}
		return ps
	}
	whole := netip.MustParsePrefix("10.0.0.0/8")
	fresh := func() *Allocator { return mustNew(t, Config{Slots: []Slot{{32, []netip.Prefix{whole}}}}) }
	for name, work := range map[string]func(n int){
		"observe": func(n int) { fresh().Observe(Node{Name: "n", Prefixes: children(n)}) },
		"occupy":  func(n int) { _ = fresh().Occupy(Node{Name: "n", Prefixes: children(n)}) },
		"load": func(n int) {
			var nodes []Node
			for i, p := range children(n) {
				nodes = append(nodes, Node{Name: fmt.Sprint("n", i), Prefixes: []netip.Prefix{p}}, Node{Name: fmt.Sprint("m", i), Prefixes: []netip.Prefix{whole}})
			}
			if problems := fresh().Load(nodes); len(problems) < n {
				t.Errorf("%d problems", len(problems))
			}
		},
		"restore": func(n int) {
			l, err := New(Config{ByLabels: true}) // which Check refuses below
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := l.AddEntry(Entry{Name: fmt.Sprintf("e%05d", i), IPv4: whole, HostBits: 8}); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range l.policy.(*labels).entries {
				e.terminating = true
			}
			data, _ := l.MarshalBinary()
			before := invariant.Steps()
			b, err := Restore(data)
			if err != nil || b.Stats().Entries != 0 || invariant.Steps()-before > uint64(20*n) {
				t.Errorf("%d entries: %v, %d steps", n, err, invariant.Steps()-before)
			}
		},
	} {
		last := uint64(0)
		for _, n := range []int{1000, 2000, 4000} {
			before := invariant.Steps()
			work(n)
			now := invariant.Steps() - before
			if last != 0 && now > 5*last/2 {
				t.Errorf("%s of %d: %d steps, of half as many %d", name, n, now, last)
			}
			last = max(now, 1)
		}
	}
}
