package ipset

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// waitFor waits until n calls wait in the engine.
func waitFor(e *Engine, n int) {
	for {
		if waiting, _ := e.core.Run.Waiting(); waiting == n {
			return
		}
		runtime.Gosched()
	}
}

func TestConcurrentCallersAreCombined(t *testing.T) {
	w, g, e := newGated(t)
	held := w.assign(want("h", 32, "held")).V4
	for name, do := range map[string]func(i int) error{
		"assign":  func(i int) error { _, err := e.AutoAssign(bg, want("h", 1, fmt.Sprint(i))); return err },
		"release": func(i int) error { _, err := e.ReleaseIPs(bg, alloc.Release{Address: held[i].Address}); return err },
	} {
		g.Reset()
		var wg sync.WaitGroup
		call := func(i int) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := do(i); err != nil {
					t.Error(err)
				}
			}()
		}
		call(0)
		<-g.arrived
		for i := range 31 {
			call(1 + i)
		}
		waitFor(e, 31)
		for range 32 { // more than it takes
			g.open <- struct{}{}
		}
		wg.Wait()
		if g.Counts().Commits != 2 {
			t.Errorf("%s: %d commits for 32 callers", name, g.Counts().Commits)
		}
		for range len(g.open) {
			<-g.open
		}
		for range len(g.arrived) {
			<-g.arrived
		}
		w.check()
	}
}

func TestCallerThatLeavesTheQueueLeavesNoTrace(t *testing.T) {
	w, g, e := newGated(t)
	first := make(chan error, 1)
	go func() { _, err := e.AutoAssign(bg, want("h", 1, "first")); first <- err }()
	<-g.arrived
	ctx, cancel := context.WithCancel(bg)
	second := make(chan error, 1)
	go func() { _, err := e.AutoAssign(ctx, want("h", 1, "second")); second <- err }()
	waitFor(e, 1)
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("left the queue: %v", err)
	}
	g.open <- struct{}{}
	if err := <-first; err != nil {
		t.Errorf("the other: %v", err)
	}
	if als, _ := w.IPsByHandle(bg, "second"); len(als) != 0 {
		t.Errorf("it got %v", als)
	}
	w.check()
}

func TestCallerThatLeavesABatchDoesNotEndIt(t *testing.T) {
	w, g, e := newGated(t)
	errs := make([]chan error, 3)
	ctx, cancel := context.WithCancel(bg)
	for i, c := range []context.Context{bg, ctx, bg} {
		errs[i] = make(chan error, 1)
		go func() { _, err := e.AutoAssign(c, want("h", 1, fmt.Sprint(i))); errs[i] <- err }()
		if i == 0 {
			<-g.arrived
		} else {
			waitFor(e, i)
		}
	}
	g.open <- struct{}{}
	if err := <-errs[0]; err != nil {
		t.Error(err)
	}
	<-g.arrived // the batch of the other two
	cancel()
	if err := <-errs[1]; !errors.Is(err, context.Canceled) || !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("left a batch: %v", err)
	}
	g.open <- struct{}{}
	if err := <-errs[2]; err != nil {
		t.Errorf("who stayed: %v", err)
	}
	w.check()
}

// TestCallersThatLeaveShareNothingWithTheBatch: a call in steps whose caller leaves is planned on by the batch, so it must not read its
// plan any more. It fails under the race detector alone.
func TestCallersThatLeaveShareNothingWithTheBatch(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	calls := []func(context.Context, int){
		func(ctx context.Context, i int) { w.ReleaseByHandle(ctx, fmt.Sprint(i%2)) },
		func(ctx context.Context, i int) { w.Renew(ctx, fmt.Sprint(i%2), alloc.RenewArgs{TTL: time.Hour}) },
		func(ctx context.Context, i int) { w.ReleaseByHost(ctx, alloc.HostOwner("h")) },
		func(ctx context.Context, i int) { w.Operator().Reindex(ctx, "a") },
	}
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 300 {
				a := want("h", 2, fmt.Sprint(i%2))
				a.TTL = time.Hour
				w.AutoAssign(bg, a)
				ctx, cancel := context.WithTimeout(bg, time.Duration(i%60)*2*time.Microsecond)
				call(ctx, i)
				cancel()
			}
		}()
	}
	wg.Wait()
}

func TestBatchEndsWithItsLastCaller(t *testing.T) {
	w, g, e := newGated(t)
	first := make(chan error, 1)
	go func() { _, err := e.AutoAssign(bg, want("h", 1, "first")); first <- err }()
	<-g.arrived
	ctx, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := e.AutoAssign(ctx, want("h", 1, fmt.Sprint(i))); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		waitFor(e, i+1)
	}
	g.open <- struct{}{}
	<-first
	<-g.arrived
	cancel()
	wg.Wait()
	// The engine is free again although nobody opened the gate, and no goroutine stays.
	for busy := true; busy; runtime.Gosched() {
		_, busy = e.core.Run.Waiting()
	}
	g.open <- struct{}{}
	if _, err := e.AutoAssign(bg, want("h", 1, "next")); err != nil {
		t.Error(err)
	}
	for range 20000 {
		if !strings.Contains(stacks(), ").drain") {
			w.check()
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("a goroutine stays behind:\n" + stacks())
}

func stacks() string {
	buf := make([]byte, 1<<16)
	return string(buf[:runtime.Stack(buf, true)])
}

// TestCommitsKeepTheLimits runs everything that is large through a store that takes 64 records at a time.
func TestCommitsKeepTheLimits(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 30))
	e := w.engine(limited(w.store, 64))
	var wg sync.WaitGroup
	for i := range 128 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if got, err := e.AutoAssign(bg, want(fmt.Sprint("h", i%2), 4, fmt.Sprint("p", i%3))); err != nil || len(got.V4) != 4 {
				t.Errorf("%+v, %v", got, err)
			}
		}()
	}
	wg.Wait()
	w.check()
	if n := len(w.blocksOf("h0")); n != 64 {
		t.Errorf("%d blocks", n)
	}
	if got, err := e.AutoAssign(bg, want("h9", 500, "q")); err != nil || len(got.V4) < 20 || len(got.Short) == 0 {
		t.Errorf("500 addresses: %d, %v, %v", len(got.V4), got.Short, err)
	}
	if _, err := e.ReleaseByHandle(bg, "q"); err != nil {
		t.Error(err)
	}
	all := want("h9", 500, "q")
	all.Partial = false
	if _, err := e.AutoAssign(bg, all); !errors.Is(err, ipalloc.ErrLimit) {
		t.Errorf("500 addresses: %v", err)
	}
	if as, err := e.ReleaseByHandle(bg, "p1"); err != nil || len(as) != 172 {
		t.Errorf("released %d, %v", len(as), err)
	}
	w.check()
	var rs []alloc.Release
	for al, err := range e.Allocations(bg, w.blocksOf("h0")[0]) {
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, alloc.Release{Address: al.Address})
	}
	for al := range e.Allocations(bg, poolOf("", "10.0.0.0/22", 0).Prefix) {
		rs = append(rs, alloc.Release{Address: al.Address})
	}
	if res, err := e.ReleaseIPs(bg, rs...); err != nil || len(res) != len(rs) {
		t.Errorf("%d of %d, %v", len(res), len(rs), err)
	}
	// A removed host goes in steps, and what was interrupted is resumed.
	ctx, cancel := context.WithCancel(bg)
	r := newRacing(limited(w.store, 64))
	e = w.engine(r)
	r.before = func([]store.Op) { cancel() }
	if _, err := e.DisownBlocks(ctx, alloc.DisownArgs{Owner: alloc.HostOwner("h0")}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	w.check()
	if _, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h0")}); err != nil || len(w.blocksOf("h0")) != 0 {
		t.Errorf("resumed: %v, %d blocks left", err, len(w.blocksOf("h0")))
	}
}

// TestContentionIsBounded: a conflict that never ends is given up after Attempts, with waits that grow.
func TestContentionIsBounded(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	w.assign(want("h", 1, "p"))
	var waits []time.Duration
	s := onCommit(w.store, func(context.Context, []store.Op) faults.Outcome { return faults.Conflict(record.CatalogKey) })
	e, err := New(s, Options{Now: w.clock.now, Retry: Retry{Attempts: 6, Base: 4 * time.Millisecond, Max: 10 * time.Millisecond, Sleep: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.AutoAssign(bg, want("h", 1, "q"))
	if !errors.Is(err, occ.ErrGaveUp) || !errors.Is(err, ipalloc.ErrConflict) || s.Counts().Commits != 6 || len(waits) != 4 {
		t.Errorf("%v after %d commits and waits %v", err, s.Counts().Commits, waits)
	}
	for i, most := range []time.Duration{4, 8, 10, 10} {
		if most *= time.Millisecond; i < len(waits) && (waits[i] > most || waits[i] < most/2) {
			t.Errorf("wait %d: %v, at most %v", i, waits[i], most)
		}
	}
}
