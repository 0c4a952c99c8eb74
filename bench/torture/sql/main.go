// Command sql compares the rates of stores on this disk: bbolt and SQLite with 1, 8 and 64 callers, and an assignment with its
// release on PostgreSQL beside two transactions that insert a row.
//
//	cd bench/torture && GOWORK=off go run ./sql -duration 5m
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"time"

	_ "modernc.org/sqlite"

	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx" // the driver pgx
)

// pool is what is assigned from.
var pool = netip.MustParsePrefix("10.0.0.0/24")

// config says what to do.
type config struct {
	Duration time.Duration
	Sync     bool
}

func main() {
	c := config{}
	flag.DurationVar(&c.Duration, "duration", time.Minute, "how long it takes")
	flag.BoolVar(&c.Sync, "sync", false, "have PostgreSQL wait for the disk")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := rates(ctx, c, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// open opens a store.
func open(ctx context.Context, driver, dsn string) (*sql.DB, *sqlstore.Store, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, s, nil
}
