package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
)

// childEnv tells a process of this program what it is to do, its words separated by spaces.
const childEnv = "TORTURE_BOLT_CHILD"

// childMain does what the environment says, and reports whether it said anything.
func childMain() bool {
	words := strings.Fields(os.Getenv(childEnv))
	if len(words) == 0 {
		return false
	}
	var err error
	switch words[0] {
	case "work":
		err = work(words[1], words[2], words[3] == "nosync")
	case "full":
		err = fillDisk(words[1], words[2])
	default:
		err = fmt.Errorf("%s: %q", childEnv, words)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// A report tells the parent, one line each, what is about to be done and what has been acknowledged. A line is written at once
// or not at all.
type report struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *report) line(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.w, format+"\n", args...)
}

const (
	workers = 8
	hosts   = 5
)

// work allocates and releases until it is killed, or its input ends.
func work(path, run string, noSync bool) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent is gone
		os.Exit(0)
	}()
	s, err := boltstore.Open(context.Background(), path, boltstore.Options{NoSync: noSync, NoCreate: true})
	if err != nil {
		return err
	}
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		return err
	}
	tree, err := prefixes.New(s, prefixes.Options{})
	if err != nil {
		return err
	}
	nodes, services, err := journals(s)
	if err != nil {
		return err
	}
	out := &report{w: os.Stdout}
	failed := make(chan error)
	for w := range workers {
		for kind, a := range map[string]allocator{"pod": pods{e}, nodePrefix: cidrs{nodes, make(map[string]netip.Prefix)}, "service": grants{services}, treePrefix: trees{tree}} {
			go func() { failed <- worker(a, out, fmt.Sprintf("%s.%s.%d", kind, run, w)) }()
		}
	}
	return <-failed
}

// worker allocates and releases under handles of its own.
func worker(a allocator, out *report, name string) error {
	ctx := context.Background()
	var mine []string
	for i := 0; ; i++ {
		if len(mine) > 4 || len(mine) > 0 && rand.IntN(3) == 0 {
			k := rand.IntN(len(mine))
			handle := mine[k]
			mine = append(mine[:k], mine[k+1:]...)
			out.line("release %s", handle)
			if err := a.release(ctx, handle); err != nil {
				return fmt.Errorf("release %s: %w", handle, err)
			}
			out.line("released %s", handle)
			continue
		}
		handle := fmt.Sprintf("%s.%d", name, i)
		out.line("assign %s", handle)
		got, err := a.assign(ctx, handle)
		if err != nil {
			return fmt.Errorf("assign %s: %w", handle, err)
		}
		out.line("assigned %s %s", handle, strings.Join(got, " "))
		mine = append(mine, handle)
	}
}

// pools are what the storm allocates from.
func pools(e *ipset.Engine) error {
	for name, p := range map[string]string{"four": "10.0.0.0/20", "six": "2001:db8::/116"} {
		prefix := netip.MustParsePrefix(p)
		if err := e.AddPool(context.Background(), ipset.Pool{Name: name, Prefix: prefix, BlockBits: prefix.Addr().BitLen() - 5}); err != nil {
			return err
		}
	}
	return nil
}
