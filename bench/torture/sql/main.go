// Command sql runs writers on a SQLite file and on a PostgreSQL server, each behind a process of its own that has the database
// open. These processes are killed with SIGKILL at any moment and started again; the server is stopped at once, as by a loss
// of power, and its sessions are ended. Afterwards the histories must be linearizable, nothing may be held twice, without an owner or
// not at all, every outcome must have been settled, and a watch that went on all the time must know every record.
//
//	cd bench/torture && GOWORK=off go run ./sql -duration 5m
//
// With -rates it compares the rates of stores on this disk instead: bbolt and SQLite with 1, 8 and 64 callers, and an assignment
// with its release on PostgreSQL beside two transactions that insert a row.
//
// It prints what it saw and fails if it saw something wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	if childMain() {
		return
	}
	c := config{Processes: 3}
	flag.DurationVar(&c.Duration, "duration", time.Minute, "how long each database is tormented")
	flag.DurationVar(&c.Hold, "hold", 500*time.Millisecond, "the longest time between two faults")
	flag.IntVar(&c.Writers, "writers", 8, "writers, on three processes")
	flag.Uint64Var(&c.Seed, "seed", uint64(time.Now().UnixNano()), "of all choices")
	flag.BoolVar(&c.Sync, "sync", false, "have PostgreSQL wait for the disk")
	compare := flag.Bool("rates", false, "torment nothing; compare rates with bbolt and with bare inserts, on this disk")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fmt.Printf("seed %d\n", c.Seed)
	failed := false
	runs := []func(context.Context, config, func(string, ...any)) error{stormSQLite, stormPostgres}
	if *compare {
		runs = []func(context.Context, config, func(string, ...any)) error{rates}
	}
	for _, run := range runs {
		if err := run(ctx, c, func(format string, args ...any) { fmt.Printf(format+"\n", args...) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		stop()
		os.Exit(1)
	}
}

// config says what to do.
type config struct {
	Duration, Hold     time.Duration
	Writers, Processes int
	Seed               uint64
	Sync               bool
}
