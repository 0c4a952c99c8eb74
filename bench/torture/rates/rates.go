package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// turns is how often each side has its turn; the median counts.
const turns = 3

// config says what to measure.
type config struct {
	Callers []int         // at once
	Turn    time.Duration // of one side
}

// value is about what an assignment writes: the record of a block and that of an address.
var value = strings.Repeat("v", 150)

// subject is a store, and the program that it stands on without it.
type subject struct {
	store store.Store
	bare  func(ctx context.Context, caller int) error // one write
	close func() error
}

// rates prints a row for each store.
func rates(ctx context.Context, c config, say func(string, ...any)) error {
	dir, err := os.MkdirTemp("", "torture-rates-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	say("| | pairs a second: %s callers | pairs of bare writes |", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Callers), " ", ", "), "[]"))
	say("|---|---:|---:|")
	for _, s := range subjects {
		on, err := s.open(ctx, dir)
		if err == nil {
			var text string
			text, err = row(ctx, on, c)
			err = errors.Join(err, on.close())
			say("| %s | %s |", s.name, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// row returns the measurements of one store.
func row(ctx context.Context, s *subject, c config) (string, error) {
	e, err := ipset.New(s.store, ipset.Options{})
	if err != nil {
		return "", err
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/12"), BlockBits: 26}); err != nil {
		return "", err
	}
	sides := []func(ctx context.Context, caller int) error{
		func(ctx context.Context, caller int) error { return pair(ctx, e, caller) },
		func(ctx context.Context, caller int) error {
			return errors.Join(s.bare(ctx, caller), s.bare(ctx, caller))
		},
	}
	var text [2][]string
	for _, n := range c.Callers {
		var on [2][]float64
		for i := range turns + 1 { // the first turn warms up
			for side, f := range sides {
				rate, err := perSecond(ctx, n, c.Turn, f)
				if err != nil {
					return "", err
				}
				if i > 0 {
					on[side] = append(on[side], rate)
				}
			}
		}
		for side := range on {
			slices.Sort(on[side])
			text[side] = append(text[side], fmt.Sprintf("%.0f", on[side][turns/2]))
		}
	}
	return strings.Join(text[0], ", ") + " | " + strings.Join(text[1], ", "), nil
}

// pair assigns an address to a caller's host and releases it.
func pair(ctx context.Context, e *ipset.Engine, caller int) error {
	handle := fmt.Sprint("pod ", caller)
	got, err := e.AutoAssign(ctx, alloc.AssignArgs{
		Owner: alloc.HostOwner(fmt.Sprint("host ", caller)), Num4: 1, Claim: alloc.Claim{Handle: handle},
	})
	if err != nil {
		return err
	}
	_, err = e.ReleaseIPs(ctx, alloc.Release{Address: got.V4[0].Address, Guard: alloc.Guard{Handle: handle}})
	return err
}

// perSecond returns how many calls of f callers make a second.
func perSecond(ctx context.Context, n int, d time.Duration, f func(context.Context, int) error) (float64, error) {
	var made atomic.Int64
	errs := make([]error, n)
	var wg sync.WaitGroup
	begin := time.Now()
	for c := range n {
		wg.Go(func() {
			for errs[c] == nil && time.Since(begin) < d {
				errs[c] = f(ctx, c)
				made.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(made.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}
