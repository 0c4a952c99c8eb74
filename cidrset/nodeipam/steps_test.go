package nodeipam

import (
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/ipalloc/ipalloc/internal/invariant"
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
			r := Requirement{Key: "size", Op: In, Values: []string{name}}
			if err := a.AddEntry(Entry{Name: name, IPv4: netip.MustParsePrefix("10.0.0.0/8"), HostBits: bits, Selector: []Term{{Labels: []Requirement{r}}}}); err != nil {
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

// The package comment says what a node costs.
func TestSizeOfAnOwner(t *testing.T) {
	if size := unsafe.Sizeof(owner{}); size > 210 {
		t.Errorf("an owner takes %d bytes", size)
	}
}
