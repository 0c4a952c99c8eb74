package ipset

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// row returns the record of a caller.
func (w *world) row(name string) store.Record {
	w.t.Helper()
	recs, err := w.store.Get(bg, nil, "Row/"+name)
	if err != nil {
		w.t.Fatal(err)
	}
	return recs[0]
}

// insert is a row that must not exist, update one that must be at a revision, remove deletes it whatever it is.
func insert(name, value string) store.Op {
	return store.Op{Kind: store.Put, Key: "Row/" + name, Value: value}
}

func update(name, value string, rev uint64) store.Op {
	return store.Op{Kind: store.Put, Key: "Row/" + name, Value: value, Expect: rev}
}

func remove(name string) store.Op {
	return store.Op{Kind: store.Delete, Key: "Row/" + name, Expect: store.AnyRevision}
}

// with are arguments of an assignment of one address and of a row with it.
func with(handle string, ops ...store.Op) alloc.AssignArgs {
	return alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: handle, Also: ops}
}

// The calls that write records of the caller, with the same operations.
var alsoCalls = map[string]func(e *Engine, handle string, ops ...store.Op) error{
	"AutoAssign": func(e *Engine, handle string, ops ...store.Op) error {
		_, err := e.AutoAssign(bg, with(handle, ops...))
		return err
	},
	"AssignIP": func(e *Engine, handle string, ops ...store.Op) error {
		at := map[string]string{"vm": "10.0.0.77", "vm2": "10.0.0.78"}[handle]
		_, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: ip(at), Owner: alloc.HostOwner("h"), Handle: handle, Also: ops})
		return err
	},
	"Release": func(e *Engine, handle string, ops ...store.Op) error {
		_, err := e.Release(bg, alloc.ReleaseArgs{Handle: handle, Addresses: []alloc.Release{{Address: ip("10.0.0.9")}}, Also: ops})
		return err
	},
}

// The record of a caller and the addresses are one commit. If the record is not as it expects, neither is written, the error names
// the record, and the engine tries no more than once again.
func TestAlsoBothOrNeither(t *testing.T) {
	for name, call := range alsoCalls {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		w.assign(want("g", 3, "vm"))
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.9"), Owner: alloc.HostOwner("h"), Handle: "nine"}); err != nil && !errors.Is(err, ipalloc.ErrOccupied) {
			t.Fatal(err)
		}
		before := w.revision()
		if err := call(w.Engine, "vm", insert("1", "a"), insert("2", "b")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w.row("1").Value != "a" || w.row("2").Value != "b" || w.revision() != before+1 {
			t.Errorf("%s: %+v, %+v, %d commits", name, w.row("1"), w.row("2"), w.revision()-before)
		}
		state, _ := w.store.MarshalBinary()
		for what, op := range map[string]store.Op{
			"exists":         insert("1", "x"),
			"does not exist": update("3", "x", 1),
			"old revision":   update("1", "x", before),
			"guard":          {Kind: store.Guard, Key: "Row/2", Expect: before},
		} {
			s := faults.NewFaulty(w.store)
			err := call(w.engine(s), "vm2", insert("4", "x"), op)
			if key, ok := store.ConflictKey(err); !errors.Is(err, ipalloc.ErrConflict) || !ok || key != op.Key {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if after, _ := w.store.MarshalBinary(); string(after) != string(state) || s.Counts().Calls() > 12 {
				t.Errorf("%s, %s: changed the store, or %d calls of the store", name, what, s.Counts().Calls())
			}
		}
	}
}

// What is not a record of the caller is refused, as is a malformed operation, and what no commit can hold.
func TestAlsoRefusals(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	var many []store.Op
	for i := range 64 {
		many = append(many, insert(fmt.Sprint(i), "x"))
	}
	e := w.engine(limited(w.store, 64))
	before, _ := w.store.MarshalBinary()
	for name, call := range alsoCalls {
		for what, tt := range map[string]struct {
			ops  []store.Op
			want error
		}{
			"no key":            {[]store.Op{{Kind: store.Put}}, ipalloc.ErrInvalid},
			"the engine's":      {[]store.Op{{Kind: store.Put, Key: record.CatalogKey}}, ipalloc.ErrInvalid},
			"a kind to come":    {[]store.Op{insert("1", ""), {Kind: store.Put, Key: "z"}}, ipalloc.ErrInvalid},
			"after the letters": {[]store.Op{{Kind: store.Put, Key: "[1"}}, ipalloc.ErrInvalid},
			"hostlocal's":       {[]store.Op{{Kind: store.Put, Key: "Lpods"}}, ipalloc.ErrInvalid},
			"prefixes'":         {[]store.Op{{Kind: store.Delete, Key: "Xr", Expect: store.AnyRevision}}, ipalloc.ErrInvalid},
			"twice":             {[]store.Op{insert("1", "a"), remove("1")}, ipalloc.ErrInvalid},
			"no such operation": {[]store.Op{{Kind: 99, Key: "Row"}}, ipalloc.ErrInvalid},
			"too many":          {many, ipalloc.ErrLimit},
		} {
			if err := call(e, "vm", tt.ops...); !errors.Is(err, tt.want) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("a refusal changed the store")
	}
}

// Callers that share commits fail alone, and two that write the same record do not share one.
func TestAlsoOfManyCallers(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 26))
	if _, err := w.store.Commit(bg, []store.Op{insert("stale", "x")}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var stale, lost, won atomic.Int64
	for i := range 60 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			op := insert(fmt.Sprint(i), "x")
			switch i % 3 {
			case 1:
				op = insert("stale", "y")
			case 2:
				op = insert("same", fmt.Sprint(i))
			}
			_, err := w.AutoAssign(bg, with(fmt.Sprint("p", i), op))
			switch {
			case i%3 == 0 && err != nil:
				t.Errorf("%d: %v", i, err)
			case i%3 == 1 && errors.Is(err, ipalloc.ErrConflict):
				stale.Add(1)
			case i%3 == 2 && err == nil:
				won.Add(1)
			case i%3 == 2 && errors.Is(err, ipalloc.ErrConflict):
				lost.Add(1)
			}
		}()
	}
	wg.Wait()
	if stale.Load() != 20 || won.Load() != 1 || lost.Load() != 19 {
		t.Errorf("%d stale, %d won, %d lost", stale.Load(), won.Load(), lost.Load())
	}
	rep, err := w.Operator().Check(bg, nil)
	if err != nil || rep.Allocations != 21 || len(rep.Problems) != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// Callers that write the same record have a commit each, and none of them fails.
func TestAlsoOfOneRecord(t *testing.T) {
	w, g, e := newGated(t)
	if _, err := w.store.Commit(bg, []store.Op{insert("same", "x")}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			op := insert("same", fmt.Sprint(i))
			op.Expect = store.AnyRevision
			if _, err := e.AutoAssign(bg, with(fmt.Sprint("p", i), op)); err != nil {
				t.Error(err)
			}
		}()
		if i == 0 {
			<-g.arrived
		}
	}
	waitFor(e, 3)
	close(g.open)
	wg.Wait()
	if n := g.Counts().Commits; n != 4 {
		t.Errorf("%d commits for 4 callers", n)
	}
	w.check()
}

// A request that is repeated, on the same engine, on another, or where its first commit had an unknown outcome, has the rows of
// its first commit: they are not written again.
func TestAlsoOfRequests(t *testing.T) {
	for name, call := range map[string]func(e *Engine, key string, ops ...store.Op) (alloc.Allocation, error){
		"AutoAssign": func(e *Engine, key string, ops ...store.Op) (alloc.Allocation, error) {
			a := with("vm", ops...)
			a.Request = key
			got, err := e.AutoAssign(bg, a)
			if err != nil {
				return alloc.Allocation{}, err
			}
			return got.V4[0], nil
		},
		"AssignIP": func(e *Engine, key string, ops ...store.Op) (alloc.Allocation, error) {
			return e.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.7"), Owner: alloc.HostOwner("h"), Handle: "vm", Request: key, Also: ops})
		},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		l := newLate(w.store, true)
		e := w.engine(l)
		if _, err := call(e, "r", insert("vm", "1")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		if !l.land() {
			t.Fatal("the commit could not be made")
		}
		rev := w.row("vm").Rev
		if rev == 0 {
			t.Fatal("no row")
		}
		first, err := call(e, "r", insert("vm", "1"))
		if err != nil {
			t.Errorf("%s: repeated after an unknown outcome: %v", name, err)
		}
		if row := w.row("vm"); row.Rev != rev {
			t.Errorf("%s: written again: %+v", name, row)
		}
		if _, err := w.store.Commit(bg, []store.Op{remove("vm")}); err != nil {
			t.Fatal(err)
		}
		again, err := call(w.engine(w.store), "r", insert("vm", "2"))
		if err != nil || again != first || w.row("vm").Rev != 0 {
			t.Errorf("%s: repeated: %+v, %v, row %+v, first %+v", name, again, err, w.row("vm"), first)
		}
		w.releaseHandle("vm")
		if _, err := call(w.engine(w.store), "r", insert("vm", "3")); err != nil || w.row("vm").Rev != 0 {
			t.Errorf("%s: repeated after a release: %v, row %+v", name, err, w.row("vm"))
		}
	}
}
