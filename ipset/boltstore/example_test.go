package boltstore_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An engine on a file: what it gave is there after a restart.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "example")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "store.db")

	for range 2 { // the second time, the pool is there already, which is no error
		s, err := boltstore.Open(ctx, path, boltstore.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		engine, _ := ipset.New(s, ipset.Options{})
		if err := engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/16"), BlockBits: 26}); err != nil {
			fmt.Println(err)
		}
		got, _ := engine.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("node-1"), Num4: 1, Use: alloc.Workload, Handle: "pod"})
		fmt.Println(len(got.V4), s.Close())
	}
	// Output:
	// 1 <nil>
	// 1 <nil>
}

// From memory to a file.
func Example_move() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "example")
	defer os.RemoveAll(dir)

	memory := store.NewMemory()
	engine, _ := ipset.New(memory, ipset.Options{})
	_ = engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/16"), BlockBits: 26})

	file, _ := boltstore.Open(ctx, filepath.Join(dir, "store.db"), boltstore.Options{})
	defer file.Close()
	fmt.Println(store.Copy(ctx, file, memory))

	var backup bytes.Buffer
	_, _ = file.Backup(ctx, &backup)
	fmt.Println(boltstore.Restore(ctx, &backup, filepath.Join(dir, "restored.db")))
	// Output:
	// {2 2} <nil>
	// <nil>
}
