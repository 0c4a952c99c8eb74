package journal_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
)

// A set that no crash makes hand out the same prefix twice.
func ExampleOpenSet() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "example")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "nodes.db")

	for range 2 {
		s, _ := boltstore.Open(ctx, path, boltstore.Options{})
		nodes, err := journal.OpenSet(ctx, s, "nodes", netip.MustParsePrefix("10.244.0.0/16"), 24)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(journal.Do(ctx, nodes, (*cidrset.Set).AllocateNext)) // in the file by now
		s.Close()
	}
	// Output:
	// 10.244.0.0/24 <nil>
	// 10.244.1.0/24 <nil>
}
