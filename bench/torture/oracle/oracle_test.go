package oracle

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// recorded returns a history of callers on a store in memory.
func recorded(t *testing.T, s store.Store) ([]Call, []Watch) {
	t.Helper()
	var log Log
	var group sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	s = log.Recorded(s)
	group.Go(func() { Follow(ctx, s) })
	for id := range uint64(4) {
		group.Go(func() { Torment(s, 1, id, ctx.Done()) })
	}
	for n := 0; n < 1500; {
		time.Sleep(time.Millisecond)
		calls, _ := log.History()
		n = len(calls)
	}
	end()
	group.Wait()
	return log.History()
}

// A history of a store that does what it should is right; whatever is changed of it is noticed.
func TestDamagedHistories(t *testing.T) {
	seen := func(w Watch) bool { return len(w.Events) > 10 }
	calls, watches := recorded(t, store.NewMemory())
	for !slices.ContainsFunc(watches, seen) { // the scheduler gave the watches no turn
		calls, watches = recorded(t, store.NewMemory())
	}
	if err := Check(calls, watches); err != nil {
		t.Fatal(err)
	}
	first := func(ok func(c *Call) bool) *Call {
		for i := range calls {
			if ok(&calls[i]) {
				return &calls[i]
			}
		}
		t.Fatal("no such call")
		return nil
	}
	made := func(c *Call) bool { return c.Outcome == Done && c.writes() }
	found := func(c *Call) bool { return len(c.Records) > 0 && c.Outcome == Done }
	for name, damage := range map[string]func() (undo func()){
		"a lost commit": func() func() {
			c := first(made)
			was := *c
			c.Rev = 1 << 40
			return func() { *c = was }
		},
		"a refused commit that was made": func() func() {
			c := first(func(c *Call) bool { // which somebody saw
				return made(c) && slices.ContainsFunc(watches, func(w Watch) bool {
					return slices.ContainsFunc(w.Events, func(e store.Event) bool { return e.Rev == c.Rev })
				})
			})
			c.Outcome = Refused
			return func() { c.Outcome = Done }
		},
		"a conflict that was none": func() func() {
			c := first(func(c *Call) bool { return made(c) && c.Ops[0].Expect != store.AnyRevision })
			was := *c
			c.ID, c.Outcome, c.Key, c.Rev = "x", Conflict, Mark(was.ID), 0
			return func() { *c = was }
		},
		"an expectation that did not hold": func() func() {
			c := first(func(c *Call) bool { return made(c) && c.Ops[0].Expect != store.AnyRevision })
			c.Ops[0].Expect += 1000
			return func() { c.Ops[0].Expect -= 1000 }
		},
		"a record of another revision": func() func() {
			c := first(func(c *Call) bool { return found(c) && c.Kind == Get && c.Records[0].Rev != 0 })
			c.Records[0].Rev--
			return func() { c.Records[0].Rev++ }
		},
		"a list without a record": func() func() {
			c := first(func(c *Call) bool { return found(c) && c.Kind == List })
			was := c.Records
			c.Records = was[1:]
			return func() { c.Records = was }
		},
		"a stale read": func() func() {
			c := first(func(c *Call) bool { return found(c) && c.Kind == List })
			c.Begin, c.End = c.Begin+1<<40, c.End+1<<40
			return func() { c.Begin, c.End = c.Begin-1<<40, c.End-1<<40 }
		},
		"a commit before its time": func() func() {
			c := first(made)
			c.Begin, c.End = c.Begin+1<<40, c.End+1<<40
			return func() { c.Begin, c.End = c.Begin-1<<40, c.End-1<<40 }
		},
		"an event that is missing": func() func() {
			i := slices.IndexFunc(watches, seen)
			was := watches[i].Events
			watches[i].Events = slices.Concat(was[:5], was[6:])
			return func() { watches[i].Events = was }
		},
		"an event that came twice": func() func() {
			i := slices.IndexFunc(watches, seen)
			was := watches[i].Events
			watches[i].Events = slices.Concat(was[:5], was[4:])
			return func() { watches[i].Events = was }
		},
	} {
		undo := damage()
		if err := Check(calls, watches); err == nil {
			t.Errorf("%s was not noticed", name)
		}
		undo()
	}
	if err := Check(calls, watches); err != nil {
		t.Error(err)
	}
}
