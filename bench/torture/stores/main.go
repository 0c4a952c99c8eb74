// Command stores stresses every store of package ipset with faults. Callers in many processes use the store. Beside them, writers
// assign and release on engines, on an allocator of prefixes and, in a file, on a registry of services with a journal. Meanwhile
// these processes and the servers behind the store are killed, stopped, cut off and filled. Then every answer of the store is
// compared with the replay of all commits (package oracle). Every unknown outcome is settled as documented, by a repeated call. The
// history of the writers must be linearizable (package history), and nothing may be lost, held twice, or held without an owner. File
// faults.go and the files beside it have the table of faults.
//
// In the end each store is set back to older data, in the ways of formers.go, while such calls are in flight. A process that saw a
// lost commit must get no answer from then on, and the store that is left must be sound.
//
//	cd bench/torture && GOWORK=off go run ./stores -duration 5m
//	cd bench/torture && GOWORK=off go run ./stores -store etcd,kube
//
// It prints a summary and fails if it found an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// config says what to do.
type config struct {
	Duration, Hold time.Duration
	Commits        int64
	Callers        int
	Seed           uint64
}

func main() {
	if childMain() {
		return
	}
	if status, done := contained(); done {
		os.Exit(status)
	}
	c := config{}
	names := slices.Sorted(maps.Keys(subjects))
	names = append(names, "socket") // which is only set back
	flag.DurationVar(&c.Duration, "duration", time.Minute, "how long each store is tormented")
	flag.Int64Var(&c.Commits, "commits", 0, "how many commits each storm has at least")
	flag.DurationVar(&c.Hold, "hold", time.Second, "the longest time between two faults, and how long one lasts")
	flag.IntVar(&c.Callers, "callers", 3, "callers, and as many writers, in each process")
	flag.Uint64Var(&c.Seed, "seed", uint64(time.Now().UnixNano()), "of all choices")
	which := flag.String("store", strings.Join(names, ","), "which stores")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	fmt.Printf("seed %d\n", c.Seed)
	var errs []error
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	for name := range strings.SplitSeq(*which, ",") {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("no store %q; there are %v", name, names))
			continue
		}
		if subjects[name] != nil {
			if err := storm(ctx, name, c, say); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
		for _, former := range slices.Sorted(maps.Keys(formers)) {
			if kind, _, _ := strings.Cut(former, ","); kind != name {
				continue
			}
			if err := setBack(ctx, former, c, say); err != nil {
				errs = append(errs, fmt.Errorf("%s, set back: %w", former, err))
			}
		}
	}
	stop()
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
