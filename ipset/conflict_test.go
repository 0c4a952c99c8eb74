package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestManyCallersOfOneHostGetNoSpuriousErrors(t *testing.T) {
	const callers, each = 256, 10
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/16", 28))
	var mu sync.Mutex
	seen := map[netip.Addr]bool{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				got, err := w.AutoAssign(bg, want("h", 1, fmt.Sprint(c, "-", i)))
				if err != nil || len(got.V4) != 1 {
					t.Errorf("caller %d: %+v, %v", c, got, err)
					return
				}
				mu.Lock()
				if seen[got.V4[0].Address] {
					t.Errorf("%s twice", got.V4[0].Address)
				}
				seen[got.V4[0].Address] = true
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if n := len(w.blocksOf("h")); n != callers*each/16 {
		t.Errorf("%d blocks for %d addresses", n, callers*each)
	}
}

func TestLostClaimRaceIsRetried(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	r := newRacing(w.store)
	e := w.engine(r)
	r.before = func([]store.Op) {
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.9"), Owner: alloc.HostOwner("fast")}); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.10"), Owner: alloc.HostOwner("slow"), Handle: "p"}); err != nil {
		t.Errorf("the one who lost: %v", err)
	}
	b, _ := w.Operator().BlockOf(bg, ip("10.0.0.10"))
	if b.Owner() != alloc.HostOwner("fast") || b.Used() != 2 {
		t.Errorf("block of %v with %d addresses", b.Owner(), b.Used())
	}
}

func TestCancelledSearchIsNotAShortage(t *testing.T) {
	for at := 1; at <= 3; at++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
		for i := range 4 {
			w.assign(want(fmt.Sprint("h", i), 16, "p"))
		}
		ctx, cancel := context.WithCancel(bg)
		e := w.engine(scripted(w.store, func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == faults.List && c.Nth == at {
				cancel()
			}
			return faults.Outcome{}
		}))
		if got, err := e.AutoAssign(ctx, want("new", 1, "q")); !errors.Is(err, context.Canceled) {
			t.Errorf("ended at list %d: %+v, %v", at, got, err)
		}
	}
}
