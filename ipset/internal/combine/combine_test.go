package combine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// bench is a queue whose batches a test serves by hand.
type bench struct {
	*Queue
	ready chan struct{} // a batch may be taken
	taken chan []*Call
}

func newBench(lead bool) *bench {
	b := &bench{ready: make(chan struct{}), taken: make(chan []*Call)}
	b.Queue = New(lead, func() {
		<-b.ready
		b.taken <- b.Take(func(*Call) bool { return true })
	})
	return b
}

// take lets the goroutine that serves take a batch.
func (b *bench) take() []*Call {
	b.ready <- struct{}{}
	return <-b.taken
}

type ended struct {
	call *Call
	fate Fate
}

// call queues a call and waits until it is queued.
func (b *bench) call(ctx context.Context, what string) (*Call, <-chan ended) {
	c, done, before := &Call{Ctx: ctx, Table: what}, make(chan ended, 1), b.Waiting()
	go func() { done <- ended{c, b.Do(c)} }()
	for b.Waiting() == before {
		runtime.Gosched()
	}
	return c, done
}

func names(batch []*Call) (list []string) {
	for _, c := range batch {
		list = append(list, c.Table)
	}
	return list
}

// Calls that wait share a batch, in their order, and each gets its own answer.
func TestShare(t *testing.T) {
	b := newBench(false)
	_, first := b.call(t.Context(), "a")
	_, second := b.call(t.Context(), "b")
	batch := b.take()
	if !slices.Equal(names(batch), []string{"a", "b"}) {
		t.Fatalf("the batch is %q", names(batch))
	}
	wrong := errors.New("wrong")
	batch[0].Answer(1, nil)
	batch[1].Answer(0, wrong)
	if e := <-first; e.fate != Answered || e.call.Rev != 1 || e.call.Err != nil {
		t.Errorf("first: %+v", e)
	}
	if e := <-second; e.fate != Answered || e.call.Err != wrong {
		t.Errorf("second: %+v", e)
	}
}

// A batch has the first call however large it is, and those after it that fit.
func TestTakeWhatFits(t *testing.T) {
	b := newBench(false)
	for _, what := range []string{"large", "b", "c"} {
		b.call(t.Context(), what)
	}
	if got := names(b.Take(func(c *Call) bool { return c.Table == "b" })); !slices.Equal(got, []string{"large", "b"}) {
		t.Errorf("took %q", got)
	}
	if got := names(b.Take(func(*Call) bool { return false })); !slices.Equal(got, []string{"c"}) {
		t.Errorf("took %q", got)
	}
}

// A caller that leaves knows whether its call was part of a batch, in every state of the call.
func TestLeave(t *testing.T) {
	for name, tt := range map[string]struct {
		between func(b *bench, c *Call)
		want    Fate
	}{
		"waits":       {func(*bench, *Call) {}, Untouched},
		"taken":       {func(b *bench, _ *Call) { b.take() }, Doubtful},
		"put back":    {func(b *bench, _ *Call) { b.Return(b.take()) }, Untouched},
		"taken out":   {func(b *bench, c *Call) { b.take(); b.Exit(c) }, Untouched},
		"taken again": {func(b *bench, c *Call) { b.take(); b.Exit(c); b.Enter(c) }, Doubtful},
		"answered":    {func(b *bench, c *Call) { b.take(); c.Answer(7, nil) }, Answered},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(false)
			ctx, cancel := context.WithCancel(t.Context())
			c, done := b.call(ctx, "a")
			tt.between(b, c)
			cancel()
			if e := <-done; e.fate != tt.want {
				t.Errorf("fate %d, want %d", e.fate, tt.want)
			}
			if tt.want == Answered {
				return
			}
			if b.Enter(c) {
				t.Error("a call whose caller has left can be served")
			}
			if b.Return([]*Call{c}); b.Waiting() != 0 {
				t.Error("a call whose caller has left waits again")
			}
		})
	}
}

// What is put back goes before what came later.
func TestReturn(t *testing.T) {
	b := newBench(false)
	b.call(t.Context(), "a")
	batch := b.take()
	b.call(t.Context(), "b")
	b.Return(batch)
	if got := names(b.take()); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("took %q", got)
	}
}

// Stop ends what waits and what comes, and Wait waits for the batch that is served.
func TestStop(t *testing.T) {
	b := newBench(false)
	_, served := b.call(t.Context(), "served")
	c := b.take()[0]
	_, waits := b.call(t.Context(), "waits")
	closed := errors.New("closed")
	b.Stop(closed)
	if e := <-waits; e.fate != Answered || e.call.Err != closed {
		t.Errorf("what waits: %+v", e)
	}
	late := &Call{Ctx: t.Context()}
	if fate := b.Do(late); fate != Answered || late.Err != closed {
		t.Errorf("what comes later: %d, %v", fate, late.Err)
	}
	c.Answer(3, nil)
	if e := <-served; e.call.Rev != 3 || e.call.Err != nil {
		t.Errorf("what is served: %+v", e)
	}
}

// Wait returns when the batch has ended, and at once if there is none.
func TestWait(t *testing.T) {
	served := false
	started, end := make(chan struct{}), make(chan struct{})
	var q *Queue
	q = New(false, func() {
		close(started)
		<-end
		served = true
		for _, c := range q.Take(func(*Call) bool { return true }) {
			c.Answer(0, nil)
		}
	})
	q.Wait()
	go q.Do(&Call{Ctx: t.Context()})
	<-started
	go close(end)
	q.Stop(errors.New("closed"))
	q.Wait()
	if !served {
		t.Error("the batch goes on")
	}
}

// One batch is served at a time, also when calls come at every moment of the one before.
func TestOneBatchAtATime(t *testing.T) {
	for _, lead := range []bool{false, true} {
		var serving atomic.Int64
		var q *Queue
		q = New(lead, func() {
			if serving.Add(1) > 1 {
				t.Error("two batches are served at once")
			}
			batch := q.Take(func(*Call) bool { return false })
			runtime.Gosched()
			serving.Add(-1)
			for _, c := range batch {
				c.Answer(1, nil)
			}
		})
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 300 {
					q.Do(&Call{Ctx: context.Background()})
				}
			}()
		}
		wg.Wait()
	}
}

// The first caller serves the batch itself if its context cannot end, and nobody else's.
func TestLead(t *testing.T) {
	var mu sync.Mutex
	batches := 0
	var q *Queue
	q = New(true, func() {
		mu.Lock()
		batches++
		mu.Unlock()
		for _, c := range q.Take(func(*Call) bool { return false }) {
			c.Answer(1, nil)
		}
	})
	var wg sync.WaitGroup
	for range 100 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := &Call{Ctx: context.Background()}
			if fate := q.Do(c); fate != Answered || c.Rev != 1 {
				t.Errorf("%d, %+v", fate, c)
			}
		}()
	}
	wg.Wait()
	if batches != 100 {
		t.Errorf("%d batches of one call for 100 calls", batches)
	}
	before := runtime.NumGoroutine()
	q.Do(&Call{Ctx: context.Background()})
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines after %d", n, before)
	}
}

// The context of a batch ends with the last of its callers' contexts.
func TestContext(t *testing.T) {
	a, endA := context.WithCancel(t.Context())
	b, endB := context.WithCancel(t.Context())
	defer endB()
	ctx, cancel := Context([]*Call{{Ctx: a}, {Ctx: b}})
	defer cancel()
	endA()
	if ctx.Err() != nil {
		t.Error("ended with one of two callers there")
	}
	endB()
	<-ctx.Done()
	if ctx, cancel := Context([]*Call{{Ctx: t.Context()}}); true {
		cancel()
		if ctx.Err() == nil {
			t.Error("goes on after cancel")
		}
	}
}

// A call that is answered while its caller gives up is answered.
func TestAnsweredCallDoesNotLeave(t *testing.T) {
	b := newBench(false)
	c, done := b.call(t.Context(), "a")
	b.take()[0].Answer(1, nil)
	<-done
	if fate := b.leave(c); fate != Answered {
		t.Errorf("%v", fate)
	}
}

// A caller whose context can end may change its ops while they are in a batch: the call has those that it gave. Those of another caller
// are not copied.
func TestOpsOfACall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, ctx := range []context.Context{ctx, context.Background()} {
		ops := []store.Op{{Kind: store.Put, Key: "a", Value: "given", Expect: store.AnyRevision}}
		c := NewCall(ctx, "table", ops)
		ops[0].Key = "b"
		if want := map[bool]string{true: "b", false: "a"}[ctx.Done() == nil]; c.Table != "table" || c.Ops[0].Key != want || c.Bytes != len("agiven") {
			t.Errorf("%+v, of %d bytes, after its caller changed its ops", c.Ops, c.Bytes)
		}
	}
}
