package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Entry is one line of a worker's log: a call that begins, the same call with its answer, or what a watch yielded.
type Entry struct {
	Call  *Call       `json:",omitempty"`
	Watch string      `json:",omitempty"` // the ID of a watch
	Begun *Watch      `json:",omitempty"`
	Event store.Event `json:",omitzero"`
}

// Worker makes calls of one process on a store, and writes what it does to Log: each call before it is sent, and its answer.
type Worker struct {
	Store   store.Store
	Name    string // no other worker has it
	Callers int
	Seed    uint64
	Log     io.Writer

	mu sync.Mutex
}

// keys are what the workers contend for.
const keys = 6

// pause lets a caller that fails at once do so less often.
const pause = 5 * time.Millisecond

// Run makes calls until ctx ends. Two watches follow all the time: one of everything, one of some keys.
func (w *Worker) Run(ctx context.Context) {
	var group sync.WaitGroup
	for i, prefixes := range [][]string{{""}, {"a1", "b2", "b3"}} {
		group.Go(func() { w.watch(ctx, fmt.Sprint(w.Name, ".w", i), prefixes) })
	}
	for i := range w.Callers {
		group.Go(func() {
			c := caller{Worker: w, id: i, random: rand.New(rand.NewPCG(w.Seed, uint64(i))), known: make(map[string]uint64)}
			c.do(ctx, &Call{Kind: List})
			for ctx.Err() == nil {
				c.next(ctx)
			}
		})
	}
	group.Wait()
}

func (w *Worker) log(e Entry) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.Log.Write(append(line, '\n')) // a reader that is gone ends the worker otherwise
}

// watch follows a store, anew from its present revision when it no longer has what comes next.
func (w *Worker) watch(ctx context.Context, id string, prefixes []string) {
	for n := 0; ctx.Err() == nil; n++ {
		_, rev, err := w.Store.List(ctx, store.Range{From: "~"})
		if err != nil {
			time.Sleep(pause)
			continue
		}
		name := fmt.Sprint(id, ".", n)
		w.log(Entry{Watch: name, Begun: &Watch{After: rev, Prefixes: prefixes}})
		for ev, err := range w.Store.Watch(ctx, rev, prefixes...) {
			if err != nil {
				break
			}
			w.log(Entry{Watch: name, Event: ev})
		}
	}
}

// caller makes one call after the other.
type caller struct {
	*Worker
	id, n  int
	random *rand.Rand
	known  map[string]uint64
}

func (c *caller) key() string {
	return string("ab"[c.random.IntN(2)]) + fmt.Sprint(c.random.IntN(keys))
}

// next makes a call of a random kind; one in ten has hardly any time.
func (c *caller) next(ctx context.Context) {
	limit := 5 * time.Second
	if c.random.IntN(10) == 0 {
		limit = time.Duration(c.random.IntN(20_000)) * time.Microsecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch c.random.IntN(6) {
	case 0:
		call := &Call{Kind: Get}
		for range 1 + c.random.IntN(4) {
			call.Keys = append(call.Keys, c.key())
		}
		c.do(ctx, call)
	case 1:
		r := store.Range{From: c.key(), To: "b9", Reverse: c.random.IntN(2) == 0, Limit: c.random.IntN(4)}
		c.do(ctx, &Call{Kind: List, Range: r})
	default:
		c.do(ctx, &Call{Kind: Commit, Ops: c.ops()})
	}
}

// ops returns a commit of several records on the revisions that the caller knows.
func (c *caller) ops() (ops []store.Op) {
	used := make(map[string]bool)
	for range 1 + c.random.IntN(4) {
		op := store.Op{Key: c.key(), Kind: store.Kind(c.random.IntN(3))}
		if op.Expect = c.known[op.Key]; op.Kind != store.Guard && c.random.IntN(4) == 0 {
			op.Expect = store.AnyRevision
		}
		if op.Kind == store.Delete && op.Expect == 0 {
			op.Expect = store.AnyRevision
		}
		if !used[op.Key] {
			used[op.Key] = true
			ops = append(ops, op)
		}
	}
	return ops
}

// do makes a call and logs it.
func (c *caller) do(ctx context.Context, call *Call) {
	call.ID = fmt.Sprintf("%s.%d.%d", c.Name, c.id, c.n)
	c.n++
	if call.writes() {
		call.Ops = append(call.Ops, store.Op{Kind: store.Put, Key: Mark(call.ID), Expect: store.AnyRevision})
	}
	for i := range call.Ops {
		if call.Ops[i].Kind == store.Put {
			call.Ops[i].Value = call.ID
		}
	}
	call.Begin = time.Now().UnixNano()
	c.log(Entry{Call: call})
	var err error
	switch call.Kind {
	case Get:
		call.Records, err = c.Store.Get(ctx, nil, call.Keys...)
	case List:
		call.Records, call.Rev, err = c.Store.List(ctx, call.Range)
	default:
		call.Rev, err = c.Store.Commit(ctx, call.Ops)
	}
	call.End = time.Now().UnixNano()
	switch key, conflict := store.ConflictKey(err); {
	case err == nil:
		call.Outcome = Done
	case conflict:
		call.Outcome, call.Key = Conflict, key
	case errors.Is(err, ipalloc.ErrUnknownOutcome):
		call.Outcome = Unknown
	default:
		call.Outcome = Refused
	}
	c.log(Entry{Call: call})
	c.learn(call)
}

// learn remembers the revisions that an answer tells.
func (c *caller) learn(call *Call) {
	for _, r := range call.Records {
		c.known[r.Key] = r.Rev
	}
	switch call.Outcome {
	case Done:
		for _, op := range call.Ops {
			if op.Kind == store.Put {
				c.known[op.Key] = call.Rev
			} else if op.Kind == store.Delete {
				c.known[op.Key] = 0
			}
		}
	case Conflict:
		delete(c.known, call.Key) // as if it did not exist; a read tells
	default:
		time.Sleep(pause)
	}
}

// Read collects the log of a worker, whose last line may be cut short. Calls without an answer have the zero Outcome.
func Read(r io.Reader, calls map[string]Call, watches map[string]*Watch) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // killed in the middle of a line, or at its end
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%w in %.200q", err, line)
		}
		switch {
		case e.Call != nil:
			calls[e.Call.ID] = *e.Call
		case e.Begun != nil:
			watches[e.Watch] = e.Begun
		default:
			w := watches[e.Watch]
			w.Events = append(w.Events, e.Event)
		}
	}
}
