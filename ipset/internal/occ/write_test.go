package occ

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestWriteIsAlone: operations that are written as they are share no commit with plans on the same records, and the plans that
// follow see what was written.
func TestWriteIsAlone(t *testing.T) {
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	g := newGate()
	db.Script(g.script)
	r := newRunner(db, keep(8))
	first := do(bg, r, incr("a"))
	<-g.arrived
	done := make(chan error, 3)
	before := do(bg, r, incr("a"))
	waitFor(r, 1)
	go func() {
		done <- r.Write(bg, []store.Op{{Kind: store.Put, Key: "a", Value: "10", Expect: store.AnyRevision}})
	}()
	waitFor(r, 2)
	after := do(bg, r, incr("a"))
	waitFor(r, 3)
	db.Script(nil)
	g.open <- struct{}{}
	for _, err := range []error{<-first, <-before, <-done, <-after} {
		if err != nil {
			t.Error(err)
		}
	}
	if is := stored(t, mem); !maps.Equal(is, counters{"a": 11}) {
		t.Error(is)
	}
}

// TestWriteConflicts: a record at another revision ends a write, a conflict about nothing does not.
func TestWriteConflicts(t *testing.T) {
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	r := newRunner(db)
	db.Script(faults.AtCommit(1, faults.Conflict("a")))
	if err := r.Write(bg, []store.Op{{Kind: store.Put, Key: "a", Value: "1"}}); err != nil {
		t.Error(err)
	}
	db.Script(nil)
	err := r.Write(bg, []store.Op{{Kind: store.Put, Key: "b", Value: "1"}, {Kind: store.Guard, Key: "a"}})
	if key, ok := store.ConflictKey(err); key != "a" || !ok || errors.Is(err, ErrGaveUp) {
		t.Error(err)
	}
	if is := stored(t, mem); !maps.Equal(is, counters{"a": 1}) {
		t.Error(is)
	}
	if c := db.Counts(); c.Commits != 1 || c.Gets != 1 {
		t.Errorf("%+v", c)
	}
}

// TestWriteOfUnknownOutcome: a write that lands late does not land after the next answer.
func TestWriteOfUnknownOutcome(t *testing.T) {
	mem := store.NewMemory()
	db, late := faults.NewFaulty(mem), make(chan struct{})
	r := newRunner(db)
	db.Script(faults.AtCommit(1, faults.Late(late)))
	if err := r.Write(bg, []store.Op{{Kind: store.Put, Key: "a", Value: "7"}}); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if err := r.Current(context.Background()); err != nil {
		t.Fatal(err)
	}
	close(late)
	db.Settle()
	if is := stored(t, mem); !maps.Equal(is, counters{"a": 0}) {
		t.Error(is)
	}
}
