package world

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A call that fails at any of its store calls, or whose commit has an unknown outcome, is settled as documented: repeated,
// or its handle released on the same engine and the call made again. The world is then what the call makes of it.
func TestCallsAreSettledAsDocumented(t *testing.T) {
	w := New(t)
	limits := limits
	if testing.Short() {
		limits = limits[2:]
	}
	for _, l := range limits {
		for i, c := range Calls() {
			clean := w.Copy(t)
			db := faults.NewLimited(clean.DB, l)
			if _, err := c.Do(t.Context(), clean.Engine(t, db, "", 0)); err != nil && c.May != nil {
				t.Fatalf("%s (%d): %v", c.Method, i, err)
			}
			counts, want := db.Counts(), clean.Look(t, clean.DB, "")
			step := 1
			if testing.Short() {
				step = 1 + counts.Calls()/6
			}
			for k := 1; k <= counts.Calls(); k += step {
				for _, o := range []faults.Outcome{faults.Fail(faults.ErrInjected), faults.Unknown(false), faults.Unknown(true)} {
					w := w.Copy(t)
					db := faults.NewLimited(w.DB, l)
					db.Script(faults.At(k, o))
					e := w.Engine(t, db, "", 0)
					_, err := c.Do(t.Context(), e)
					db.Script(nil)
					if errors.Is(err, ipalloc.ErrUnknownOutcome) && c.Again != "" {
						if _, err := e.ReleaseByHandle(t.Context(), c.Again); err != nil {
							t.Fatal(err)
						}
					}
					if err != nil {
						_, _ = c.Do(t.Context(), e) // what went through may be refused now
					}
					got := w.Look(t, w.DB, "")
					if c.Again != "" { // what was released may not be what is given again
						if held := want.held(c.Again); got.held(c.Again) < held || got.held(c.Again) > held && !c.Partial {
							t.Errorf("%s (%d) with %v, %+v at call %d: %d addresses, want %d", c.Method, i, l, o, k, got.held(c.Again), want.held(c.Again))
						}
						continue
					}
					for _, line := range Diff(want, got) {
						t.Errorf("%s (%d) with %v, %+v at call %d of %d (%v):\n%s", c.Method, i, l, o, k, counts.Calls(), err, line)
					}
				}
			}
		}
	}
}

// held returns how many addresses a handle has in the space without a name.
func (p Picture) held(handle string) (n int) {
	for key := range p {
		if strings.HasPrefix(key, "/address ") && strings.HasSuffix(key, " "+handle) {
			n++
		}
	}
	return n
}

// A call or a query of which any store call fails returns that failure: no read that failed is taken for nothing found.
func TestFailedStoreCallsAreReported(t *testing.T) {
	w := New(t)
	for i, c := range append(Queries(), Calls()...) {
		for k, met := 1, true; met; k++ {
			w := w
			if c.May != nil {
				w = w.Copy(t)
			}
			db := faults.NewFaulty(w.DB)
			db.Script(faults.At(k, faults.Fail(faults.ErrInjected)))
			_, err := c.Do(t.Context(), w.Engine(t, db, "", 0))
			if met = db.Counts().Calls() >= k; met && !errors.Is(err, faults.ErrInjected) {
				t.Errorf("%s (%d): store call %d of %d failed, and the answer is %v", c.Method, i, k, db.Counts().Calls(), err)
			}
		}
	}
}

// A call that follows a commit of unknown outcome first makes sure of that commit, and returns the failure of the store if it can't.
func TestCallsThatCannotSettleFail(t *testing.T) {
	w := New(t)
	for i, c := range append(Queries(), Calls()...) {
		w := w.Copy(t)
		db := faults.NewFaulty(w.DB)
		e := w.Engine(t, db, "", 0)
		db.Script(faults.AtCommit(1, faults.Unknown(false)))
		if _, err := e.Assign(t.Context(), host("lost"), "lost"); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		db.Script(faults.At(1, faults.Fail(faults.ErrInjected)))
		if _, err := c.Do(t.Context(), e); db.Counts().Calls() > 0 && !errors.Is(err, faults.ErrInjected) {
			t.Errorf("%s (%d): the first store call failed, and the answer is %v", c.Method, i, err)
		}
	}
}

// A call or a query ends as it would alone while others change the pools before its first store calls, however many: each conflict,
// also one that reading afresh meets, takes one attempt.
func TestCallsPassWhileOthersChangePools(t *testing.T) {
	w := New(t)
	for i, c := range append(Queries(), Calls()...) {
		_, want := c.Do(t.Context(), w.Copy(t).Engine(t, w.Copy(t).DB, "", 0))
		for most := 1; most <= 9; most++ {
			w := w.Copy(t)
			others := w.Engine(t, w.DB, "", 0).Operator()
			db := faults.NewFaulty(w.DB)
			db.Script(func(ctx context.Context, call faults.Call) faults.Outcome {
				if call.N <= most {
					r := netipx.IPRangeFrom(at("203.0.113.1"), at("203.0.113.1").Next())
					changes := alloc.PoolChanges{Reserve: alloc.Reservations(r)}
					if call.N%2 == 0 {
						changes = alloc.PoolChanges{Unreserve: alloc.Reservations(r)}
					}
					if err := others.ChangePools(ctx, changes); err != nil {
						t.Error(err)
					}
				}
				return faults.Outcome{}
			})
			if _, err := c.Do(t.Context(), w.Engine(t, db, "", 0)); errText(err) != errText(want) {
				t.Errorf("%s (%d) beside %d changes: %v, want %v", c.Method, i, most, err, want)
			}
		}
	}
}
