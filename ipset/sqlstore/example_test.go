package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"

	_ "modernc.org/sqlite"
)

// An engine on a SQLite file.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "sqlstore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "vpn.db")+"?_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := ipset.New(store, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := engine.AddPool(ctx, ipset.Pool{Name: "vpn", Prefix: netip.MustParsePrefix("100.64.0.0/26"), BlockBits: 26}); err != nil {
		log.Fatal(err)
	}
	a, err := engine.Assign(ctx, ipset.HostOwner("control"), "laptop-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Prefix())
	// Output: 100.64.0.0/26
}
