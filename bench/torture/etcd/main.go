// Command etcd runs writers in several processes against three etcd members on loopback, while the leader is stopped, killed and
// started again, members are cut off by proxies, and the database is compacted and defragmented. Then it kills
// writers before, during and after their one commit. Afterwards the histories must be linearizable, nothing may be held twice, by
// nobody or not at all, and every error must say whether trying again can help.
//
//	cd bench/torture && GOWORK=off go run ./etcd -duration 10m
//
// It prints what it saw and fails if it saw something wrong. Clocks are compared between processes: let nobody set the machine's
// clock back meanwhile.
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
	if isWorker() {
		os.Exit(work())
	}
	c := config{Processes: 3}
	flag.DurationVar(&c.Duration, "duration", time.Minute, "how long the members are tormented")
	flag.DurationVar(&c.Hold, "hold", 3*time.Second, "how long each fault lasts, and the time between two")
	flag.IntVar(&c.Writers, "writers", 8, "writers, in three processes")
	flag.IntVar(&c.Kills, "kills", 20, "writers killed in each way")
	flag.Uint64Var(&c.Seed, "seed", uint64(time.Now().UnixNano()), "of all choices")
	flag.BoolVar(&c.Sync, "sync", false, "have etcd sync to disk")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fmt.Printf("seed %d\n", c.Seed)
	failed := false
	for _, run := range []func(context.Context, config, func(string, ...any)) error{storm, killed} {
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
	Kills              int
	Seed               uint64
	Sync               bool
}
