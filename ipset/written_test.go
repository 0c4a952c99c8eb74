package ipset

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// What an assignment writes does not grow with what its block holds: at most 400 bytes of values and a few records with handles of
// 40 bytes, in a block of 64 addresses at any fill and in any order of its queue, with a cooldown and without.
func TestAssignmentWritesLittle(t *testing.T) {
	for _, cooldown := range []time.Duration{0, time.Minute} {
		p := poolOf("a", "10.0.0.0/26", 26)
		p.Cooldown = cooldown
		w := newWorld(t, alloc.Config{}, p)
		db := faults.NewFaulty(w.store)
		e := w.engine(db)
		const host = "node-with-a-name-of-32-characters"
		handle := func(i int) string { return fmt.Sprintf("k8s-pod-network.%024d", i) }
		most, records := 0, 0
		for i := range 400 {
			if i >= 62 {
				w.clock.add(3 * time.Second)
				if _, err := e.ReleaseByHandle(bg, handle(i-62+i%5*7%31)); err != nil {
					t.Fatal(err)
				}
			}
			db.Reset()
			a := want(host, 1, handle(i))
			a.Partial = true
			if _, err := e.AutoAssign(bg, a); err != nil {
				t.Fatal(err)
			}
			if i > 0 { // the first makes the block
				most, records = max(most, db.Counts().Values), max(records, db.Counts().Written)
			}
		}
		t.Logf("cooldown %v: at most %d bytes of values, %d records", cooldown, most, records)
		if most > 400 || records > 9 {
			t.Errorf("cooldown %v: %d bytes of values, %d records", cooldown, most, records)
		}
	}
}

// An owner of 2,000 blocks costs what an owner of one does: an assignment is one call of the store, and one that finds all blocks
// full reads the index once, and the page where it claims the next.
func TestOwnerOf2000BlocksReadsLittle(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/12", 28))
	for range 2000 {
		w.assign(want("h", 16, ""))
	}
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	for i := range 48 {
		s.Reset()
		if _, err := e.AutoAssign(bg, want("h", 1, fmt.Sprint("p", i))); err != nil {
			t.Fatal(err)
		}
		// A new engine reads the catalog, the owner and the first pages; each sixteenth call claims.
		if most := map[bool]int{true: 4, false: 1}[i%16 == 0]; i > 0 && (s.Counts().Calls() > most || touched(s) > 12) {
			t.Errorf("call %d: %d calls, %d records", i, s.Counts().Calls(), touched(s))
		}
	}
}
