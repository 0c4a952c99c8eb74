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
	"strconv"
	"strings"
	"time"
)

func main() {
	c := config{Callers: []int{1, 32, 256}}
	flag.DurationVar(&c.Turn, "turn", time.Second, "how long a turn of one side takes")
	flag.Func("callers", "how many callers at once, separated by commas (default 1,32,256)", func(text string) error {
		c.Callers = nil
		for word := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no number of callers", word)
			}
			c.Callers = append(c.Callers, n)
		}
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := rates(ctx, c, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
