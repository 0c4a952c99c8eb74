package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// traffic is what other engines do while a procedure runs: each with a cache that is older than what the procedure
// changes. It remembers what each call was told.
type traffic struct {
	*testing.T
	w       *World
	engines []*ipset.Engine
	n       int
	told    map[string][]netip.Addr // by handle
	ended   map[netip.Addr]string   // addresses whose release was acknowledged, by the handle that had them
}

func newTraffic(t *testing.T, w *World, db store.Store) *traffic {
	tr := &traffic{T: t, w: w, told: map[string][]netip.Addr{}, ended: map[netip.Addr]string{}}
	for range 2 {
		e := w.Engine(t, db, "", 0)
		for _, q := range Queries() {
			if _, err := q.Do(t.Context(), e); err != nil && !errors.Is(err, ipalloc.ErrNotHeld) && !errors.Is(err, ipalloc.ErrCooling) && !errors.Is(err, ipalloc.ErrInvalid) {
				t.Fatal(q.Method, err)
			}
		}
		tr.engines = append(tr.engines, e)
	}
	return tr
}

// burst makes one assignment, and releases an older one, on the next engine.
func (tr *traffic) burst() {
	tr.n++
	e := tr.engines[tr.n%len(tr.engines)]
	handle := fmt.Sprint("traffic-", tr.n)
	a := alloc.AssignArgs{Owner: host(fmt.Sprint("t", tr.n%3)), Num4: 1 + tr.n%2, Handle: handle}
	if pools := []string{"", "lowest", "random", "tiny", "inner", "resized"}; tr.n%len(pools) > 0 {
		a.Pools = pools[tr.n%len(pools):][:1]
	}
	got, err := e.AutoAssign(context.Background(), a)
	if err == nil {
		for _, al := range got.V4 {
			tr.told[handle] = append(tr.told[handle], al.Address)
			delete(tr.ended, al.Address)
		}
	} else if !expected(err) {
		tr.Errorf("traffic: %v", err)
	}
	old := fmt.Sprint("traffic-", tr.n-3)
	if released, err := e.ReleaseByHandle(context.Background(), old); err != nil || len(released) != len(tr.told[old]) {
		tr.Errorf("traffic: released %v of %s, told %v: %v", released, old, tr.told[old], err)
	}
	for _, a := range tr.told[old] {
		tr.ended[a] = old
	}
	delete(tr.told, old)
}

// expected reports whether an error is one that an assignment may meet while pools come, go and fill.
func expected(err error) bool {
	for _, ok := range []error{ipalloc.ErrFull, ipalloc.ErrNotFound, ipalloc.ErrLimit, ipalloc.ErrInUse, ipalloc.ErrCooling, ipalloc.ErrReserved} {
		if errors.Is(err, ok) {
			return true
		}
	}
	return false
}

// settle checks that whoever was told of an address has it, and nothing else has.
func (tr *traffic) settle(what string) {
	tr.Helper()
	e := tr.w.Engine(tr, tr.w.DB, "", 0)
	seen := map[netip.Addr]string{}
	for handle, want := range tr.told {
		held, err := e.IPsByHandle(context.Background(), handle)
		if err != nil {
			tr.Fatal(err)
		}
		for _, a := range want {
			if other, twice := seen[a]; twice {
				tr.Errorf("%s: %v was given to %s and to %s", what, a, other, handle)
			}
			seen[a] = handle
			if !slices.ContainsFunc(held, func(al alloc.Allocation) bool { return al.Address == a }) {
				tr.Errorf("%s: %s was told that it has %v, and holds %v", what, handle, a, held)
			}
		}
		if len(held) != len(want) {
			tr.Errorf("%s: %s holds %v, and was told of %v", what, handle, held, want)
		}
	}
	for a, handle := range tr.ended {
		if al, err := e.Lookup(context.Background(), a); err == nil && al.Handle == handle {
			tr.Errorf("%s: %v is held for %s, which released it", what, a, handle)
		}
	}
	for _, p := range tr.w.check(tr.T, tr.w.DB, "", nil).Problems {
		if p.Kind != audit.NoPool { // the blocks of a pool that was removed stay until they are empty
			tr.Errorf("%s: %v", what, p)
		}
	}
}

// Every call as a procedure under traffic: other engines assign and release before each of its store calls, it is cut off at
// each of them, and repeated on the same engine or on another one. Whoever was told of an address has it, alone, and what
// others had before is untouched.
func TestProceduresUnderTraffic(t *testing.T) {
	w := New(t)
	before := w.Look(t, w.DB, "")
	limits := limits
	if testing.Short() {
		limits = limits[2:]
	}
	for _, l := range limits {
		for i, c := range Calls() {
			for k := 1; ; k++ {
				w := w.Copy(t)
				others := newTraffic(t, w, w.DB)
				db := faults.NewLimited(w.DB, l)
				met := false
				db.Script(func(_ context.Context, call faults.Call) faults.Outcome {
					others.burst()
					if call.N != k {
						return faults.Outcome{}
					}
					met = true
					return []faults.Outcome{faults.Fail(faults.ErrInjected), faults.Unknown(true), faults.Unknown(false)}[(i+k)%3]
				})
				e := w.Engine(t, db, "", 0)
				_, err := c.Do(t.Context(), e)
				if k%2 == 0 && !errors.Is(err, ipalloc.ErrUnknownOutcome) {
					e = w.Engine(t, db, "", 0) // the process was killed, another one goes on
				}
				if err != nil {
					_, _ = c.Do(t.Context(), e)
				}
				db.Script(nil)
				what := fmt.Sprintf("%s (%d) with %v, cut off at call %d (%v)", c.Method, i, l, k, err)
				others.settle(what)
				after := w.Look(t, w.DB, "")
				for _, line := range Diff(before, after) {
					_, thing := Key(line)
					if isHeld(thing) && !isTraffic(thing) && (c.May == nil || !c.May(thing)) {
						t.Errorf("%s changes %s", what, line)
					}
				}
				if !met {
					break
				}
				if testing.Short() {
					k += 2
				}
			}
		}
	}
}

// isHeld reports whether a thing of a picture is an address that is held.
func isHeld(thing string) bool { return strings.HasPrefix(thing, "address ") }

// isTraffic reports whether a thing is an address of the traffic.
func isTraffic(thing string) bool {
	return strings.Contains(thing, " traffic-")
}
