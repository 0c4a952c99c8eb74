package occ

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// gate is a script that stops every commit until the test lets it through.
type gate struct {
	arrived chan []store.Op
	open    chan struct{}
}

func newGate() *gate { return &gate{make(chan []store.Op, 100), make(chan struct{}, 100)} }

func (g *gate) script(ctx context.Context, c faults.Call) faults.Outcome {
	if c.Kind != faults.Commit {
		return faults.Outcome{}
	}
	g.arrived <- slices.Clone(c.Ops)
	select {
	case <-g.open:
		return faults.Outcome{}
	case <-ctx.Done():
		return faults.Fail(ctx.Err())
	}
}

// waitFor waits until n calls wait in a runner.
func waitFor(r *runner, n int) {
	for {
		r.mu.Lock()
		waiting := len(r.waiting)
		r.mu.Unlock()
		if waiting == n {
			return
		}
		runtime.Gosched()
	}
}

// do carries out a plan in a goroutine.
func do(ctx context.Context, r *runner, p Plan[*txn]) chan error {
	c := make(chan error, 1)
	go func() { c <- r.Do(ctx, p) }()
	return c
}

// incr adds one to a counter.
func incr(key string) deed { return deed{"incr", "", key} }

// TestCallersShareCommits: the first caller is alone in a commit, all that come meanwhile share the next, or as many as its
// limit needs.
func TestCallersShareCommits(t *testing.T) {
	for _, c := range []struct{ limit, commits int }{{0, 2}, {31, 2}, {16, 3}, {1, 32}} {
		g := newGate()
		mem := store.NewMemory()
		db := faults.NewLimited(mem, store.Limits{Ops: c.limit})
		db.Script(g.script)
		r := newRunner(db)
		calls := []chan error{do(bg, r, incr("k0"))}
		<-g.arrived
		for i := range 31 {
			calls = append(calls, do(bg, r, incr(fmt.Sprint("k", i+1))))
			waitFor(r, i+1)
		}
		for range 100 {
			g.open <- struct{}{}
		}
		for _, call := range calls {
			if err := <-call; err != nil {
				t.Error(err)
			}
		}
		if n := db.Counts().Commits; n != c.commits {
			t.Errorf("%d records a commit: %d commits, want %d", c.limit, n, c.commits)
		}
		if is := stored(t, mem); len(is) != 32 {
			t.Errorf("%d records a commit: %v", c.limit, is)
		}
	}
}

// TestPlanTooLargeFailsAlone: a plan with more changes than a commit takes gets ErrLimit and leaves nothing, alone and in a batch.
func TestPlanTooLargeFailsAlone(t *testing.T) {
	large := Func[*txn](func(t *txn) error {
		for i := range 5 {
			t.Put(fmt.Sprint("large", i), "1")
		}
		return nil
	})
	g := newGate()
	mem := store.NewMemory()
	db := faults.NewLimited(mem, store.Limits{Ops: 4})
	r := newRunner(db)
	if err := r.Do(bg, large); !errors.Is(err, ipalloc.ErrLimit) {
		t.Error(err)
	}
	db.Script(g.script)
	first := do(bg, r, incr("a"))
	<-g.arrived
	second, third, fourth := do(bg, r, incr("a")), (chan error)(nil), (chan error)(nil)
	waitFor(r, 1)
	third = do(bg, r, large)
	waitFor(r, 2)
	fourth = do(bg, r, incr("a"))
	waitFor(r, 3)
	for range 10 {
		g.open <- struct{}{}
	}
	for i, c := range []chan error{first, second, third, fourth} {
		if err := <-c; errors.Is(err, ipalloc.ErrLimit) != (i == 2) || i != 2 && err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if is := stored(t, mem); !maps.Equal(is, counters{"a": 3}) {
		t.Error(is)
	}
}

// TestLeaving: a caller that leaves the queue leaves no trace; the outcome is unknown to one that leaves a commit, which goes on
// for the others, and Current waits for it.
func TestLeaving(t *testing.T) {
	g := newGate()
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	db.Script(g.script)
	r := newRunner(db)
	first := do(bg, r, incr("first"))
	<-g.arrived
	early, leaveEarly := context.WithCancel(bg)
	late, leaveLate := context.WithCancel(bg)
	second := do(early, r, incr("second"))
	waitFor(r, 1)
	third := do(late, r, incr("third"))
	waitFor(r, 2)
	fourth := do(bg, r, incr("fourth"))
	waitFor(r, 3)
	leaveEarly()
	if err := <-second; !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("left the queue: %v", err)
	}
	g.open <- struct{}{}
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-g.arrived
	leaveLate()
	if err := <-third; !errors.Is(err, context.Canceled) || !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("left a commit: %v", err)
	}
	current := make(chan error, 1)
	go func() { current <- r.Current(bg) }()
	waitFor(r, 1)
	g.open <- struct{}{}
	if err := <-fourth; err != nil {
		t.Error(err)
	}
	if err := <-current; err != nil {
		t.Error(err)
	}
	if is := stored(t, mem); !maps.Equal(is, counters{"first": 1, "third": 1, "fourth": 1}) {
		t.Error(is)
	}
}

// TestLeftCallIsNotPlannedAgain: when a commit is in conflict, the calls whose callers have left meanwhile go no further.
func TestLeftCallIsNotPlannedAgain(t *testing.T) {
	g := newGate()
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	db.Script(g.script)
	r := newRunner(db)
	first := do(bg, r, incr("first"))
	<-g.arrived
	ctx, leave := context.WithCancel(bg)
	second := do(ctx, r, incr("second"))
	waitFor(r, 1)
	third := do(bg, r, incr("third"))
	waitFor(r, 2)
	g.open <- struct{}{}
	<-g.arrived
	leave()
	if err := <-second; !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
	if err := newRunner(mem).Do(bg, incr("third")); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		g.open <- struct{}{}
	}
	for _, c := range []chan error{first, third} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	if is := stored(t, mem); !maps.Equal(is, counters{"first": 1, "third": 2}) {
		t.Error(is)
	}
}

// TestLeavingBetweenCommits: whichever caller leaves a batch whose commit was not made, before the next one, leaves no trace.
func TestLeavingBetweenCommits(t *testing.T) {
	g := newGate()
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	db.Script(g.script)
	waits, goOn := make(chan int, 1), make(chan int)
	r := newRunner(db, func(c *Config) { c.Wait = func(context.Context, int) error { waits <- 0; <-goOn; return nil } })
	first := do(bg, r, incr("first"))
	<-g.arrived
	ctx, leave := context.WithCancel(bg)
	stays := do(bg, r, incr("stays"))
	leaving := []chan error{do(ctx, r, incr("a")), do(ctx, r, incr("b")), do(ctx, r, incr("c"))}
	waitFor(r, 4)
	g.open <- struct{}{}
	<-g.arrived
	db.Script(nil)
	if _, err := mem.Commit(bg, []store.Op{{Kind: store.Put, Key: "stays", Value: "5", Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
	g.open <- struct{}{}
	<-waits
	leave()
	for i, c := range leaving {
		if err := <-c; !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("caller %d left: %v", i, err)
		}
	}
	close(goOn)
	if err := errors.Join(<-first, <-stays); err != nil {
		t.Error(err)
	}
}

// TestBatchEndsWithItsLastCaller: when all callers of a commit have left, its context ends, and the runner is idle again.
func TestBatchEndsWithItsLastCaller(t *testing.T) {
	g := newGate()
	db := faults.NewFaulty(store.NewMemory())
	db.Script(g.script)
	r := newRunner(db)
	first := do(bg, r, incr("first"))
	<-g.arrived
	ctx, leave := context.WithCancel(bg)
	others := []chan error{do(ctx, r, incr("a")), do(ctx, r, incr("b"))}
	waitFor(r, 2)
	g.open <- struct{}{}
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-g.arrived
	leave()
	for _, c := range others {
		if err := <-c; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for busy := true; busy; runtime.Gosched() {
		r.mu.Lock()
		busy = r.busy
		r.mu.Unlock()
	}
	for range 10 {
		g.open <- struct{}{}
	}
	if err := r.Do(bg, incr("next")); err != nil {
		t.Error(err)
	}
}

// TestStorm: callers give up at random moments on a store that loses commits and makes some of them late. What a runner has
// answered stays, and each of its deeds is carried out once or, if its outcome is unknown, at most once. Of use with -race.
func TestStorm(t *testing.T) {
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	var n atomic.Int64
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind != faults.Commit {
			return faults.Outcome{}
		}
		switch n.Add(1) % 7 {
		case 3:
			return faults.Unknown(true)
		case 5:
			until := make(chan struct{})
			time.AfterFunc(time.Duration(rand.IntN(int(time.Millisecond))), func() { close(until) })
			return faults.Late(until)
		}
		return faults.Outcome{}
	})
	attempts := func(c *Config) { c.Attempts = 1 << 20 }
	runners := []*runner{newRunner(db, attempts), newRunner(db, attempts, keep(4))}
	var done, unknown [3]atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := runners[i%2]
			for k := range 60 {
				key := (i + k) % 3
				ctx, cancel := context.WithCancel(bg)
				timer := time.AfterFunc(time.Duration(rand.IntN(int(200*time.Microsecond))), cancel)
				switch err := r.Do(ctx, incr(string(rune('a'+key)))); {
				case err == nil:
					done[key].Add(1)
				case errors.Is(err, ipalloc.ErrUnknownOutcome):
					unknown[key].Add(1)
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				timer.Stop()
				cancel()
			}
		}()
	}
	wg.Wait()
	db.Settle()
	is := stored(t, mem)
	for key := range done {
		got, least := int64(is[string(rune('a'+key))]), done[key].Load()
		if most := least + unknown[key].Load(); got < least || got > most {
			t.Errorf("%c is %d, want %d to %d", 'a'+key, got, least, most)
		}
	}
}

// TestReadFailureIsNoAnswer: a plan that cannot read has no commit to verify; an answer of what one read has shown neither.
func TestReadFailureIsNoAnswer(t *testing.T) {
	db := faults.NewFaulty(store.NewMemory())
	r := newRunner(db)
	for i, c := range []struct {
		script faults.Script
		p      Plan[*txn]
		err    error
		calls  int
	}{
		{nil, deed{"delete", "a", ""}, errNone, 1},
		{nil, deed{"move", "a", "b"}, errEmpty, 3},
		{faults.At(2, faults.Fail(faults.ErrInjected)), deed{"move", "a", "b"}, faults.ErrInjected, 2},
		{nil, Func[*txn](func(t *txn) error { return t.Load("a", "b", "a") }), nil, 1},
		{nil, Func[*txn](func(t *txn) error { t.Assume("c"); return nil }), nil, 1},
	} {
		db.Script(c.script)
		if err := r.Do(bg, c.p); !errors.Is(err, c.err) || db.Counts().Calls() != c.calls {
			t.Errorf("%d: %v after %d calls, want %v after %d", i, err, db.Counts().Calls(), c.err, c.calls)
		}
	}
	if n := db.Counts().Read; n != 0 {
		t.Errorf("an assumed record was read: %d", n)
	}
}

// TestFailedVerification: what rests on more records than a commit takes is verified by reading them, and a failure of that is no answer.
func TestFailedVerification(t *testing.T) {
	read := Func[*txn](func(t *txn) error {
		for _, key := range []string{"a", "b", "c", "d"} {
			if _, _, err := t.Get(key); err != nil {
				return err
			}
		}
		return nil
	})
	for n := 1; n <= 6; n++ {
		db := faults.NewLimited(store.NewMemory(), store.Limits{Ops: 2})
		db.Script(faults.At(n, faults.Fail(faults.ErrInjected)))
		if err := newRunner(db).Do(bg, read); errors.Is(err, faults.ErrInjected) != (n <= 5) || db.Counts().Calls() != min(n, 5) {
			t.Errorf("call %d fails: %v after %d calls", n, err, db.Counts().Calls())
		}
	}
	mem := store.NewMemory()
	db := faults.NewLimited(mem, store.Limits{Ops: 2})
	db.Script(func(_ context.Context, c faults.Call) (o faults.Outcome) {
		if c.N == 5 {
			if _, err := mem.Commit(bg, []store.Op{{Kind: store.Put, Key: "a", Value: "1"}}); err != nil {
				t.Error(err)
			}
		}
		return o
	})
	if err := newRunner(db).Do(bg, read); err != nil || db.Counts().Calls() <= 5 {
		t.Errorf("a record that changed meanwhile: %v after %d calls", err, db.Counts().Calls())
	}
}

// TestAssume: a record that was assumed not to exist and does is read after the conflict.
func TestAssume(t *testing.T) {
	db := faults.NewFaulty(store.NewMemory())
	if err := newRunner(db).Do(bg, incr("a")); err != nil {
		t.Fatal(err)
	}
	r := newRunner(db)
	var was []string
	db.Reset()
	err := r.Do(bg, Func[*txn](func(t *txn) error {
		v, ok := t.Assume("a")
		was = append(was, v)
		if n, _ := strconv.Atoi(v); !ok || n > 0 {
			t.Put("a", strconv.Itoa(n+1))
		}
		return nil
	}))
	if c := db.Counts(); err != nil || !slices.Equal(was, []string{"", "1"}) || c.Gets != 1 || c.Commits != 2 {
		t.Errorf("%v, %q, %+v", err, was, c)
	}
}

// TestBackoff: the first retry comes at once, later ones after a wait, and the context ends it.
func TestBackoff(t *testing.T) {
	over, cancel := context.WithCancel(bg)
	cancel()
	wait := Backoff(Retry{})
	if err := wait(over, 1); err != nil {
		t.Error(err)
	}
	for _, attempt := range []int{2, 5, 30, 1 << 30} {
		if err := wait(over, attempt); !errors.Is(err, context.Canceled) {
			t.Error(attempt, err)
		}
	}
	if err := wait(bg, 2); err != nil {
		t.Error(err)
	}
	var waits []time.Duration
	wait = Backoff(Retry{
		Base: time.Second, Max: 5 * time.Second, Rand: rand.NewPCG(1, 2),
		Sleep: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
	})
	for attempt, most := range []time.Duration{2: time.Second, 3: 2 * time.Second, 4: 4 * time.Second, 5: 5 * time.Second, 60: 5 * time.Second} {
		if most == 0 {
			continue
		}
		if wait(bg, attempt); waits[len(waits)-1] < most/2 || waits[len(waits)-1] > most {
			t.Errorf("waits %v after %d attempts, want %v to %v", waits[len(waits)-1], attempt, most/2, most)
		}
	}
}

// TestResultOfACancelledBatch: the batch's error comes back as that of the caller's own context.
func TestResultOfACancelledBatch(t *testing.T) {
	ends, cancel := context.WithDeadline(bg, time.Unix(0, 0))
	defer cancel()
	cancelled := errors.Join(ipalloc.ErrUnknownOutcome, context.Canceled)
	for _, tt := range []struct {
		ctx      context.Context
		err      error
		deadline bool
		unknown  bool
	}{
		{ends, cancelled, true, true}, {ends, context.Canceled, true, false}, {bg, cancelled, false, true}, {ends, errNone, false, false}, {ends, nil, false, false},
	} {
		got := (&call[*txn]{ctx: tt.ctx, err: tt.err}).result()
		if errors.Is(got, context.DeadlineExceeded) != tt.deadline || errors.Is(got, ipalloc.ErrUnknownOutcome) != tt.unknown || !tt.deadline && got != tt.err {
			t.Errorf("%v with the context's %v: %v", tt.err, tt.ctx.Err(), got)
		}
	}
}
