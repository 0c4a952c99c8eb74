package world

import (
	"context"
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A call in store.Together answers and changes what it does by itself, in one commit. If others assign and release before any of its
// store calls, each of them holds the addresses that it was told, and nobody else does; addresses held before stay held.
func TestCallsTogether(t *testing.T) {
	w := New(t)
	before := w.Look(t, w.DB, "")
	for i, c := range append(Calls(), Queries()...) {
		alone := w.Copy(t)
		want, wantErr := c.Do(t.Context(), alone.Engine(t, alone.DB, "", 0))
		for k, met := 0, true; met; k++ {
			w := w.Copy(t)
			others := newTraffic(t, w, w.DB)
			db := faults.NewFaulty(w.DB)
			db.Script(func(_ context.Context, call faults.Call) faults.Outcome {
				if call.N == k {
					others.burst()
				}
				return faults.Outcome{}
			})
			got := ""
			err := store.Together(t.Context(), db, func(tx store.Store) (err error) {
				got, err = c.Do(t.Context(), w.Engine(t, tx, "", 0))
				return err
			})
			counts := db.Counts()
			met = k <= counts.Calls()
			switch {
			case k > 0:
				others.settle(c.Method)
				after := w.Look(t, w.DB, "")
				for _, line := range Diff(before, after) {
					_, thing := Key(line)
					if isHeld(thing) && !isTraffic(thing) && (c.May == nil || !c.May(thing)) {
						t.Errorf("%s (%d) beside others at call %d of %d (%v) changes %s", c.Method, i, k, counts.Calls(), err, line)
					}
				}
			case errors.Is(err, ipalloc.ErrInvalid) && c.Method == "ChangePools": // with IfEmpty
			default:
				if got != want || errText(err) != errText(wantErr) {
					t.Errorf("%s (%d): %s %v, by itself %s %v", c.Method, i, got, err, want, wantErr)
				}
				if counts.Commits > 1 {
					t.Errorf("%s (%d): %d commits", c.Method, i, counts.Commits)
				}
				if err == nil { // else nothing is written, also what the call by itself has
					for _, line := range Diff(alone.Look(t, alone.DB, ""), w.Look(t, w.DB, "")) {
						t.Errorf("%s (%d): %s", c.Method, i, line)
					}
				}
			}
		}
	}
}
