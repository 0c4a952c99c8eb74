// Command rates measures what an assignment and its release cost on every store in one run, beside two bare writes of about the
// same size to the same program: an Update of bbolt, an INSERT, a Put of etcd, a PUT of a ConfigMap. Both sides take turns, so
// that they see the same machine, and wait for the disk. It prints the table of the page in ipset/store.
//
//	cd bench/torture && GOWORK=off go run ./rates
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
	turn := flag.Duration("turn", time.Second, "how long a turn of one side takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := rates(ctx, *turn, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
