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
	"github.com/ipalloc/ipalloc/ipset/store"

	"github.com/ipalloc/ipalloc/ipset/alloc"
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
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := ipset.New(s, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := engine.AddPool(ctx, alloc.Pool{Name: "vpn", Prefix: netip.MustParsePrefix("100.64.0.0/26"), BlockBits: 26}); err != nil {
		log.Fatal(err)
	}
	a, err := engine.Assign(ctx, alloc.HostOwner("control"), "laptop-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Prefix())
	// Output: 100.64.0.0/26
}

// The row of a machine and its address, in one transaction: if the row is refused, the address is free.
func ExampleStore_InTx() {
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
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := ipset.New(s, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := engine.AddPool(ctx, alloc.Pool{Name: "vpn", Prefix: netip.MustParsePrefix("100.64.0.0/26"), BlockBits: 26}); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE machines (name TEXT PRIMARY KEY, address TEXT NOT NULL)"); err != nil {
		log.Fatal(err)
	}

	enrol := func(row, handle string) error {
		return s.InTx(ctx, func(tx *sql.Tx, in store.Store) error {
			engine, err := ipset.New(in, ipset.Options{}) // of this transaction alone
			if err != nil {
				return err
			}
			a, err := engine.Assign(ctx, alloc.HostOwner("control"), handle)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO machines VALUES ($1, $2)", row, a.Address.String())
			return err
		})
	}
	fmt.Println(enrol("laptop", "laptop"))
	fmt.Println(enrol("laptop", "laptop of another person") != nil)
	for _, handle := range []string{"laptop", "laptop of another person"} {
		held, err := engine.IPsByHandle(ctx, handle)
		fmt.Println(len(held), err)
	}
	// Output:
	// <nil>
	// true
	// 1 <nil>
	// 0 <nil>
}
