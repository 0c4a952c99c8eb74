package txn

import (
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A fence disturbs as few commits of others as possible: a record that the lost commit changes comes before one that it verifies, and the
// catalog, on which every commit rests, is the last. A record that the commit makes, and one of the caller's, are none.
func TestOrderOfFences(t *testing.T) {
	ops := []store.Op{
		{Kind: store.Put, Key: record.KindBlock, Expect: 7},
		{Kind: store.Guard, Key: record.KindBlock, Expect: 7},
		{Kind: store.Guard, Key: record.CatalogKey, Expect: 7},
		{Kind: store.Put, Key: record.KindBlock},
		{Kind: store.Guard, Key: record.KindBlock},
		{Kind: store.Put, Key: "Row", Expect: 7},
	}
	var ranks []int
	for _, op := range ops {
		rank, _ := fence(op)
		ranks = append(ranks, rank)
	}
	for i := range 3 {
		if ranks[i] <= ranks[i+1] {
			t.Errorf("%v: rank %d, before %v: rank %d", ops[i], ranks[i], ops[i+1], ranks[i+1])
		}
	}
	if !slices.Equal(ranks[3:], []int{0, 0, 0}) {
		t.Errorf("%v", ranks[3:])
	}
	if rank, value := fence(store.Op{Kind: store.Guard, Key: record.CatalogKey}); rank == 0 || value == "" {
		t.Errorf("a catalog that does not exist: %d, %q", rank, value)
	}
}
