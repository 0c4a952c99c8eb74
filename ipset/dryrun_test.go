package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// revision returns the revision of a store: any commit raises it.
func revision(t testing.TB, db store.Store) uint64 {
	_, rev, err := db.List(context.Background(), store.Range{From: "c", To: "c\x00"})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// drySteps compares dry runs with the calls that they stand for, on so many random states; met counts the calls by name and by
// whether they failed.
func drySteps(t testing.TB, db store.Store, seed uint64, states int, met map[string]int) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(seed, 7)), dryStart}
	engines := []*ipset.Engine{w.engine(t, db, 0), w.engine(t, db, 2)} // each meets what the other has changed
	for range 8 {
		if err := engines[0].AddPool(ctx, w.pool()); err != nil {
			continue // the name is taken, or the prefix
		}
	}
	for state := 0; state < states; {
		e := engines[w.r.IntN(2)]
		var calls []dryCall
		var dry []string
		plan, before := e.DryRun(), revision(t, db)
		for range 1 + w.r.IntN(4) {
			c := w.call()
			calls, dry = append(calls, c), append(dry, c.do(ctx, plan))
		}
		if revision(t, db) != before {
			t.Errorf("seed %d, state %d: a dry run wrote", seed, state)
			return
		}
		for i, c := range calls {
			if got := c.do(ctx, e); got != dry[i] {
				t.Errorf("seed %d, state %d, call %d, %s:\ndry run %s\nanswer  %s", seed, state, i, c.name, dry[i], got)
				return
			} else if strings.HasSuffix(got, "<nil>") {
				met[c.name]++
			} else {
				met[c.name+" refused"]++
			}
			state++
		}
		w.now = w.now.Add(time.Duration(w.r.IntN(4)/3*w.r.IntN(50)) * time.Second)
	}
}

// On 100,000 random states a dry run answers what the call answers: dry runs of one to four calls in a row, on engines whose caches
// are stale, followed by the calls. No dry run makes a commit.
func TestDryRunAnswersAsTheCall(t *testing.T) {
	const part = 1000
	var mu sync.Mutex
	met := map[string]int{}
	var wg sync.WaitGroup
	work := make(chan uint64)
	for range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for seed := range work {
				mine := map[string]int{}
				drySteps(t, store.NewMemory(), seed, part, mine)
				mu.Lock()
				for name, n := range mine {
					met[name] += n
				}
				mu.Unlock()
			}
		}()
	}
	for seed := range seeds.Each(t, 10, 100) {
		work <- seed + 45
	}
	close(work)
	wg.Wait()
	for _, name := range slices.Sorted(maps.Keys(met)) {
		t.Log(name, met[name])
	}
	if !seeds.Chosen() && len(met) < 22 {
		t.Errorf("%d kinds of calls were made", len(met))
	}
}

// A dry run reads as few records as the call, however many the store has, and makes no commit.
func TestDryRunCost(t *testing.T) {
	ctx := context.Background()
	f := faults.NewFaulty(store.NewMemory())
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	e := w.engine(t, f, 0)
	if err := e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/12")}); err != nil {
		t.Fatal(err)
	}
	reads := func() (n [2]int) {
		for i, host := range []string{"h1", "new"} {
			f.Reset()
			if _, err := e.DryRun().Assign(ctx, alloc.HostOwner(host), "another"); err != nil {
				t.Fatal(err)
			}
			c := f.Counts()
			if n[i] = c.Read; c.Commits != 0 || c.Calls() > 8 {
				t.Errorf("%+v", c)
			}
		}
		return n
	}
	var first [2]int
	for i := range 1000 {
		a := alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("h", i)), Num4: 50, Handle: fmt.Sprint("p", i)}
		if _, err := e.AutoAssign(ctx, a); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			first = reads()
		}
	}
	if last := reads(); last[0] > first[0] || last[1] > first[1]+4 || last[0] > 24 || last[1] > 24 {
		t.Errorf("%d records read, %d with few in the store", last, first)
	}
}

// Every error of the store reaches the caller of a dry run, at every call that it makes, and leaves the real engine as it was; so
// does the end of the context.
func TestDryRunFails(t *testing.T) {
	db := store.NewMemory()
	f := faults.NewFaulty(db)
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	e := w.engine(t, f, 0)
	for _, p := range []alloc.Pool{{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28}, {Name: "b", Prefix: netip.MustParsePrefix("fd00::/64")}} {
		if err := e.AddPool(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	}
	calls := func(ctx context.Context, e *ipset.Engine) (n int, err error) {
		for i := range 3 {
			if _, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 12, Num6: 3, Handle: fmt.Sprint("p", i)}); err != nil {
				return n, err
			}
			n++
		}
		_, _, err = e.RemoveHost(ctx, alloc.HostOwner("h"))
		return n, err
	}
	failed, before := 0, revision(t, db)
	for k := 1; ; k++ {
		f.Reset()
		f.Script(faults.At(k, faults.Fail(faults.ErrInjected)))
		plan := e.DryRun()
		_, err := calls(context.Background(), plan)
		if f.Counts().Commits > 0 {
			t.Fatal("a dry run wrote")
		}
		if err == nil {
			break
		}
		failed++
		if !errors.Is(err, faults.ErrInjected) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("call %d: %v", k, err)
		}
		f.Script(nil)
		ctx, cancel := context.WithCancel(context.Background())
		f.Reset()
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.N == k {
				cancel()
			}
			return faults.Outcome{}
		})
		if _, err := calls(ctx, e.DryRun()); !errors.Is(err, context.Canceled) {
			t.Errorf("end at call %d: %v", k, err)
		}
		f.Script(nil)
		if _, err := calls(context.Background(), plan); err != nil {
			t.Errorf("again after call %d: %v", k, err)
		}
	}
	if failed < 8 || revision(t, db) != before {
		t.Errorf("%d calls failed, revision %d, was %d", failed, revision(t, db), before)
	}
}

// A commit of unknown outcome is settled before a dry run reads, so the dry run answers what the call after it does, whether the
// commit was made, never is, or comes late.
func TestDryRunAfterUnknownOutcome(t *testing.T) {
	for _, read := range []func(*ipset.Engine){
		func(e *ipset.Engine) { _, _ = e.Pools(context.Background()) },
		func(e *ipset.Engine) { _, _ = e.Operator().Check(context.Background(), nil) },
	} {
		testDryRunAfterUnknownOutcome(t, read)
	}
}

// testDryRunAfterUnknownOutcome loses a commit; the first dry call gets or lists. Nothing of the commit comes after it.
func testDryRunAfterUnknownOutcome(t *testing.T, read func(*ipset.Engine)) {
	ctx := context.Background()
	for _, outcome := range []string{"made", "not made", "late"} {
		f := faults.NewFaulty(store.NewMemory())
		w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
		e := w.engine(t, f, 0)
		if err := e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/28"), BlockBits: 30}); err != nil {
			t.Fatal(err)
		}
		o, land := alloc.HostOwner("h"), make(chan struct{})
		f.Reset()
		f.Script(faults.AtCommit(1, map[string]faults.Outcome{
			"made": faults.Unknown(true), "not made": faults.Unknown(false), "late": faults.Late(land),
		}[outcome]))
		if _, err := e.Assign(ctx, o, "p1"); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		plan := e.DryRun()
		read(plan)
		close(land)
		f.Settle()
		want, err := plan.Assign(ctx, o, "p2")
		if err != nil {
			t.Fatal(err)
		}
		held, err := plan.IPsByHandle(ctx, "p1")
		if err != nil || len(held) != map[string]int{"made": 1}[outcome] {
			t.Errorf("%s: p1 holds %v, %v", outcome, held, err)
		}
		if got, err := e.Assign(ctx, o, "p2"); err != nil || got != want {
			t.Errorf("%s: %v, %v, dry run %v", outcome, got, err, want)
		}
	}
}

// A dry run sees what changes until it writes; what it has written must not change below it. Two dry engines and the real one do
// not see each other's addresses.
func TestDryRunBesideOthers(t *testing.T) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	e := w.engine(t, store.NewMemory(), 0)
	if err := e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	assign := func(e *ipset.Engine, host, handle string) netip.Addr {
		t.Helper()
		al, err := e.Assign(ctx, alloc.HostOwner(host), handle)
		if err != nil {
			t.Fatal(err)
		}
		return al.Address
	}
	one, two := e.DryRun(), e.DryRun()
	if a, b := assign(one, "h", "p1"), assign(two, "h", "p2"); a != b {
		t.Errorf("%s and %s: one dry run saw the other", a, b)
	}
	three := e.DryRun()
	if _, err := three.Lookup(ctx, netip.MustParseAddr("10.0.0.1")); !errors.Is(err, ipalloc.ErrNotHeld) {
		t.Fatal(err)
	}
	a := assign(e, "h", "p3")
	if b := assign(three, "h", "p4"); b != a.Next() {
		t.Errorf("%s after %s: a dry run that had only read does not see what came", b, a)
	}
	if _, err := one.Assign(ctx, alloc.HostOwner("h"), "p5"); !errors.Is(err, ipalloc.ErrMismatch) {
		t.Errorf("what a dry run had changed was changed meanwhile: %v", err)
	}
	four := e.DryRun()
	if a, b := assign(four, "h", "p6"), assign(four.DryRun(), "h", "p7"); b != a.Next() || assign(four, "h", "p8") != b {
		t.Errorf("a dry run of a dry run gave %s after %s", b, a)
	}
	if als, err := e.IPsByHandle(ctx, "p4"); err != nil || len(als) > 0 {
		t.Errorf("%v, %v", als, err)
	}
}

// Callers of the real engine and of several dry ones at once: each dry engine gives no address twice and none that is held, or
// says that the store has moved.
func TestDryRunsAtOnce(t *testing.T) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	e := w.engine(t, store.NewMemory(), 0)
	if err := e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/22"), BlockBits: 28}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("h0"), Num4: 100, Handle: "stays"}); err != nil {
		t.Fatal(err)
	}
	stays, err := e.IPsByHandle(ctx, "stays")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Add(1)
		go func() { // real
			defer wg.Done()
			for i := range 150 {
				handle := fmt.Sprint("real", g, i%5)
				if _, err := e.Assign(ctx, alloc.HostOwner(fmt.Sprint("h", g)), handle); err != nil {
					t.Error(err)
				}
				if _, err := e.ReleaseByHandle(ctx, handle); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 15 {
				plan := e.DryRun()
				var mu sync.Mutex
				given := make(map[netip.Addr]bool)
				for _, al := range stays {
					given[al.Address] = true
				}
				var callers sync.WaitGroup
				for c := range 4 {
					callers.Add(1)
					go func() {
						defer callers.Done()
						for i := range 5 {
							al, err := plan.Assign(ctx, alloc.HostOwner(fmt.Sprint("h", i%3)), fmt.Sprint("dry", c, i))
							if err != nil {
								if !errors.Is(err, ipalloc.ErrMismatch) && !errors.Is(err, ipalloc.ErrConflict) {
									t.Error(err)
								}
								return
							}
							mu.Lock()
							if given[al.Address] {
								t.Errorf("%s is given twice", al.Address)
							}
							given[al.Address] = true
							mu.Unlock()
						}
					}()
				}
				callers.Wait()
			}
		}()
	}
	wg.Wait()
	if rep, err := e.Operator().Check(ctx, nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}
