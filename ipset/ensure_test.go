package ipset

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestEnsureBlockIsContentWithAFullOne: a block need not have room, and a second one is not claimed.
func TestEnsureBlockIsContentWithAFullOne(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
	w.assign(want("h", 8, "p"))
	for range 2 {
		blocks, err := w.EnsureBlock(bg, want("h", 1, ""))
		if err != nil || !slices.Equal(blocks, w.blocksOf("h")) || len(blocks) != 2 {
			t.Errorf("%v, %v", blocks, err)
		}
	}
	w.assign(want("g", 8, "q")) // all that is left
	if blocks, err := w.EnsureBlock(bg, want("new", 1, "")); !errors.Is(err, cause.Short) || blocks != nil {
		t.Errorf("%v, %v", blocks, err)
	}
	a := want("h2", 1, "")
	a.Blocks.Max = 1
	w.releaseHandle("q")
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("g"), OnlyEmpty: true}); err != nil {
		t.Fatal(err)
	}
	if err := w.Operator().SetConfig(bg, alloc.Config{Strict: true, NoAutoBlocks: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.EnsureBlock(bg, a); !errors.Is(err, cause.BlockLimit) || len(w.blocksOf("h2")) != 0 {
		t.Errorf("without automatic blocks: %v, %v", err, w.blocksOf("h2"))
	}
}

func TestAffinityOfWhatIsNotMeant(t *testing.T) {
	p := poolOf("off", "10.1.0.0/28", 30)
	p.Disabled = true
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28), p)
	w.assign(want("h", 1, "p"))
	for _, s := range []string{"10.0.0.4/30", "10.0.0.0/29", "10.0.0.15/32"} { // parts of the block
		if got, err := w.DisownBlocks(bg, alloc.DisownArgs{Prefix: netip.MustParsePrefix(s), Owner: alloc.HostOwner("h")}); err != nil || len(got) != 0 || len(w.blocksOf("h")) != 1 {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	claimed, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/7"), alloc.HostOwner("h"))
	if err != nil || len(claimed) != 1 || len(failed) != 1 || !errors.Is(failed[0].Err, cause.NoPool) {
		t.Errorf("%v, %v, %v", claimed, failed, err)
	}
	if got, err := w.DisownBlocks(bg, alloc.DisownArgs{Prefix: netip.MustParsePrefix("10.0.0.0/28"), Owner: alloc.HostOwner("h")}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestDeadlineInABatch: all callers of a batch have left, so that it is cancelled; each is told how its own context ended, and
// that the outcome is not known.
func TestDeadlineInABatch(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	entered, pass := make(chan struct{}, 8), make(chan struct{}, 1)
	e := w.engine(onCommit(w.store, func(ctx context.Context, _ []store.Op) faults.Outcome {
		entered <- struct{}{}
		select {
		case <-pass:
			return faults.Outcome{}
		case <-ctx.Done():
			return faults.Unknown(false)
		}
	}))
	done := make(chan error, 3)
	assign := func(ctx context.Context) {
		_, err := e.AutoAssign(ctx, want("h", 1, "p"))
		done <- err
	}
	go assign(bg)
	<-entered // it leads, and waits in the store
	ctx, cancel := context.WithDeadline(bg, time.Now().Add(-time.Hour))
	defer cancel()
	if _, err := e.AutoAssign(ctx, want("h", 1, "p")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that came too late: %v", err)
	}
	ends := newEnding()
	go assign(ends)
	waitFor(e, 1)
	pass <- struct{}{}
	if err := <-done; err != nil {
		t.Errorf("the first: %v", err)
	}
	<-entered // the second is in a batch
	ends.end()
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("the second: %v", err)
	}
}

// ending is a context whose deadline passes when told.
type ending struct {
	context.Context
	mu   sync.Mutex
	done chan struct{}
	err  error
}

func newEnding() *ending { return &ending{Context: bg, done: make(chan struct{})} }

func (e *ending) Done() <-chan struct{} { return e.done }

func (e *ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *ending) end() {
	e.mu.Lock()
	e.err = context.DeadlineExceeded
	e.mu.Unlock()
	close(e.done)
}

// TestCallerMayReuseWhatItPassed: a caller that leaves may change its arguments while the plan still reads them, and after a
// conflict its call is not carried out. Of use with -race.
func TestCallerMayReuseWhatItPassed(t *testing.T) {
	w, g, e := newGated(t)
	go e.AutoAssign(bg, want("h", 1, "first"))
	<-g.arrived // it has the turn
	a := want("h", 1, "second")
	a.Namespace, a.Pools = map[string]string{"k": "v"}, []string{"a"}
	rs := []alloc.Release{{Address: ip("10.0.0.1")}}
	ctx, cancel := context.WithCancel(bg)
	left := make(chan struct{}, 2)
	go func() {
		e.AutoAssign(ctx, a)
		a.Namespace["k"], a.Pools[0] = "w", "b"
		left <- struct{}{}
	}()
	go func() {
		e.ReleaseIPs(ctx, rs...)
		rs[0].Address = ip("10.0.0.2")
		left <- struct{}{}
	}()
	waitFor(e, 2)
	last := make(chan error)
	go func() { // keeps the batch alive
		_, err := e.AutoAssign(bg, want("h", 1, "third"))
		last <- err
	}()
	waitFor(e, 3)
	g.open <- struct{}{}
	<-g.arrived
	w.assign(want("h", 1, "other")) // a conflict for the batch
	cancel()
	<-left
	<-left
	g.open <- struct{}{}
	<-g.arrived
	g.open <- struct{}{}
	if err := <-last; err != nil {
		t.Error(err)
	}
	if als, err := w.IPsByHandle(bg, "second"); err != nil || len(als) != 0 {
		t.Error(als, err)
	}
	w.check()
}

// TestPoolDisabledDuringAClaim: what was claimed before stays, nothing more is claimed.
func TestPoolDisabledDuringAClaim(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
	r := newRacing(w.store)
	r.before = func([]store.Op) {
		if _, err := w.Operator().Drain(bg, "a"); err != nil {
			t.Error(err)
		}
	}
	claimed, failed, err := w.engine(r).ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/28"), alloc.HostOwner("h"))
	if err != nil || len(claimed) != 0 || len(failed) != 4 || !errors.Is(failed[0].Err, cause.NoPool) {
		t.Errorf("%v, %v, %v", claimed, failed, err)
	}
}

// TestLeftCallerMayReuseWhatItPassed: the plan of a caller that leaves in the middle of it goes on with the arguments as they were.
func TestLeftCallerMayReuseWhatItPassed(t *testing.T) {
	for name, change := range map[string]func(*alloc.AssignArgs, []netip.Addr){
		"Pools":     func(a *alloc.AssignArgs, _ []netip.Addr) { a.Pools[0] = "b" },
		"Namespace": func(a *alloc.AssignArgs, _ []netip.Addr) { a.Namespace["team"] = "y" },
		"named":     func(_ *alloc.AssignArgs, named []netip.Addr) { named[0] = ip("10.0.0.99") },
		"Also":      func(a *alloc.AssignArgs, _ []netip.Addr) { a.Also[0].Value = "changed" },
	} {
		w, g, e := newGated(t)
		pools, err := w.Pools(bg)
		if err != nil {
			t.Fatal(err)
		}
		pools[0].Namespaces = key("team", "x")
		if err := w.UpdatePool(bg, pools[0]); err != nil {
			t.Fatal(err)
		}
		if err := w.AddPool(bg, poolOf("b", "10.0.1.0/24", 26)); err != nil {
			t.Fatal(err)
		}
		a := with("second", insert("1", "x"))
		a.Owner, a.Use, a.Namespace, a.Pools, a.Selectors = alloc.HostOwner("h2"), alloc.Workload, map[string]string{"team": "x"}, []string{"a"}, true
		var named []netip.Addr
		if a.Existing = name != "named"; !a.Existing { // what the handle holds is looked up before all else
			a.Num4, named = 0, []netip.Addr{ip("10.0.0.7")}
		}
		errs := make(chan error, 2)
		go func() {
			_, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Pools: []string{"b"}})
			errs <- err
		}()
		<-g.arrived
		ctx, cancel := context.WithCancel(bg)
		left := make(chan error)
		go func() { _, err := e.AssignIPs(ctx, a, named...); left <- err }()
		waitFor(e, 1)
		go func() { // keeps the batch alive
			_, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Pools: []string{"b"}})
			errs <- err
		}()
		waitFor(e, 2)
		reading, goOn := make(chan struct{}), make(chan struct{})
		g.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.N == 1 { // the first that the plan reads
				close(reading)
				<-goOn
			}
			return faults.Outcome{}
		})
		g.open <- struct{}{}
		<-reading
		cancel()
		if err := <-left; !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("%s: left with %v", name, err)
		}
		change(&a, named)
		close(goOn)
		for range 2 {
			if err := <-errs; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		als, err := w.IPsByHandle(bg, "second")
		if err != nil || len(als) != 1 || !pools[0].Prefix.Contains(als[0].Address) || w.row("1").Value != "x" {
			t.Errorf("%s: holds %v, %v, with the row %q", name, als, err, w.row("1").Value)
		}
		if name == "named" && len(als) == 1 && als[0].Address != ip("10.0.0.7") {
			t.Errorf("holds %v, not what was named", als)
		}
		w.check()
	}
}
