package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
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

// Random calls are made, and the changes followed: from the state in the middle, and from several revisions. At each revision the
// state that the changes make is that of the store, and every change says what was before.
func TestChangesTellEveryState(t *testing.T) {
	kinds, shared := map[alloc.ChangeKind]int{}, 0
	for seed := range seeds.Each(t, 60, 60) {
		db := store.NewMemory()
		l := newLedger()
		var e *ipset.Engine
		var next func() (alloc.Commit, error, bool)
		states, last := trace(t, db, seed, 200, func(engine *ipset.Engine) {
			e = engine
			var stop func()
			next, stop = iter.Pull2(e.Changes(context.Background(), 0))
			t.Cleanup(stop)
			for more := true; more; {
				c, err, _ := next()
				if err != nil || !c.Present {
					t.Fatal(c, err)
				}
				for _, ch := range c.Changes {
					if err := l.apply(ch); err != nil {
						t.Fatal(err)
					}
				}
				more = c.More
			}
			if want := state(t, e); len(l.blocks) != len(want.blocks) || len(l.pools) != len(want.pools) {
				t.Fatalf("%+v\nwant\n%+v", l, want)
			}
		})
		if n := l.follow(t, next, states, last); n < 10 && !seeds.Chosen() || n == 0 || len(l.unknown) > 0 {
			t.Errorf("seed %d: %d states compared, %v unknown", seed, n, l.unknown)
		}
		for from := last / 4; from < last; from += 1 + last/4 {
			if states[from] == nil {
				continue
			}
			l := states[from].copy()
			next, stop := iter.Pull2(e.Changes(context.Background(), from))
			l.follow(t, func() (alloc.Commit, error, bool) {
				c, err, ok := next()
				for _, ch := range c.Changes {
					if kinds[ch.Kind]++; len(slices.Collect(ch.Is.Holders())) > 1 {
						shared++
					}
				}
				return c, err, ok
			}, states, last)
			stop()
		}
	}
	for k := alloc.AddressAssigned; k <= alloc.ConfigChanged; k++ {
		if t.Log(k, kinds[k]); kinds[k] == 0 && !seeds.Chosen() {
			t.Errorf("%v was never reported", k)
		}
	}
	if shared == 0 && !seeds.Chosen() {
		t.Error("no address had several holders")
	}
}

// The present state comes in parts, pools first and addresses last, and an empty store has one part.
func TestChangesBeginWithTheState(t *testing.T) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	e := w.engine(t, store.NewMemory(), 0)
	for c, err := range e.Changes(ctx, 0) {
		if err != nil || !c.Present || c.More || len(c.Changes) > 0 {
			t.Fatal(c, err)
		}
		break
	}
	must(e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/20")}))
	changes := e.Changes(ctx, 0)
	for range 2 { // each loop begins with the state
		for c, err := range changes {
			if err != nil || !c.Present || c.Changes[0].Kind != alloc.PoolAdded {
				t.Fatal(c, err)
			}
			break
		}
	}
	if _, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 2500, Handle: "p"}); err != nil {
		t.Fatal(err)
	}
	parts, held, last := 0, 0, alloc.PoolAdded
	for c, err := range e.Changes(ctx, 0) {
		if err != nil || !c.Present || c.Rev != 3 || len(c.Changes) > 1000 {
			t.Fatal(len(c.Changes), err)
		}
		parts++
		for _, ch := range c.Changes {
			if ch.Kind > last {
				t.Fatalf("%v after %v", ch.Kind, last)
			}
			if last = ch.Kind; ch.Kind == alloc.AddressAssigned && ch.Is.Handle == "p" && !ch.Unknown {
				held++
			}
		}
		if !c.More {
			break
		}
	}
	if parts < 3 || held != 2500 {
		t.Errorf("%d parts, %d addresses", parts, held)
	}
}

// A start at a revision knows what was not changed meanwhile, and says so of the rest.
func TestChangesAfterARevision(t *testing.T) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	db := store.NewMemory()
	e := w.engine(t, db, 0)
	must(e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/29"), BlockBits: 29}))
	for i := range 3 {
		if _, err := e.Assign(ctx, alloc.HostOwner("h"), fmt.Sprint("p", i)); err != nil {
			t.Fatal(err)
		}
	}
	from := revision(t, db)
	release := func(handle string) {
		if _, err := e.ReleaseByHandle(ctx, handle); err != nil {
			t.Fatal(err)
		}
	}
	release("p0")
	next, stop := iter.Pull2(e.Changes(ctx, from))
	defer stop()
	released := func() alloc.Change {
		c, err, _ := next()
		if err != nil || c.Present || c.Changes[len(c.Changes)-1].Kind != alloc.AddressReleased {
			t.Fatal(c, err)
		}
		return c.Changes[len(c.Changes)-1]
	}
	if c := released(); !c.Unknown || c.Was.Address.IsValid() || c.Address != netip.MustParseAddr("10.0.0.0") {
		t.Errorf("%+v", c)
	}
	release("p1")
	if c := released(); c.Unknown || c.Was.Handle != "p1" {
		t.Errorf("%+v", c)
	}
	if _, err := e.Assign(ctx, alloc.HostOwner("h"), "p0"); err != nil {
		t.Fatal(err)
	}
	if c, err, _ := next(); err != nil || len(c.Changes) != 1 || c.Changes[0].Unknown || c.Changes[0].Is.Handle != "p0" {
		t.Errorf("%+v, %v", c, err)
	}
}

// Pools and settings that were changed before the start are all reported as they are, also if none is left.
func TestChangesOfUnknownSettings(t *testing.T) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	db := store.NewMemory()
	e := w.engine(t, db, 0)
	must(e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/29")}))
	from := revision(t, db)
	must(e.RemovePool(ctx, "a"))
	for c, err := range e.Changes(ctx, from) {
		if err != nil || len(c.Changes) != 2 || !c.Changes[0].Unknown || c.Changes[0].Kind != alloc.ReservationsChanged || c.Changes[1].Kind != alloc.ConfigChanged {
			t.Fatal(c, err)
		}
		break
	}
}

// What the store has forgotten, a damaged record, a failing store and the end of the context are errors, each the last that comes.
func TestChangesFail(t *testing.T) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	f := faults.NewFaulty(store.NewMemory())
	e := w.engine(t, f, 0)
	must(e.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/29"), BlockBits: 29}))
	last := func(ctx context.Context, after uint64) (last error) {
		for _, err := range e.Changes(ctx, after) {
			if last != nil {
				t.Error("an error was not the last")
			}
			last = err
		}
		return last
	}
	ended, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := last(ended, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	for n := 1; n <= 2; n++ { // the list, the watch
		f.Script(faults.At(n, faults.Fail(faults.ErrInjected)))
		if err := last(ctx, 0); !errors.Is(err, faults.ErrInjected) {
			t.Errorf("call %d: %v", n, err)
		}
	}
	f.Script(nil)
	for range 1200 {
		if _, err := e.Assign(ctx, alloc.HostOwner("h"), "p"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.ReleaseByHandle(ctx, "p"); err != nil {
			t.Fatal(err)
		}
	}
	if err := last(ctx, 1); !errors.Is(err, ipalloc.ErrOutOfRange) {
		t.Error(err)
	}
	for _, bad := range []struct {
		key, value string
		want       error
	}{
		{"a4\n\x00\x00\x01", "\x02", ipalloc.ErrVersion}, {"a4\n\x00\x00\x01", "?", ipalloc.ErrVersion}, {"a5", "?", ipalloc.ErrCorrupt},
		{"b4\n\x00\x00\x00\x1d", "\x01", ipalloc.ErrCorrupt}, {"b4\n\x00\x00\x00\x1d", "?", ipalloc.ErrVersion}, {"b4", "?", ipalloc.ErrCorrupt},
		{"cp", "\x02", ipalloc.ErrVersion}, {"cp", "?", ipalloc.ErrVersion},
	} {
		before, key := revision(t, f), bad.key
		if _, err := f.Commit(ctx, []store.Op{{Kind: store.Put, Key: key, Value: bad.value, Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
		for _, after := range []uint64{0, before} {
			if err := last(ctx, after); !errors.Is(err, bad.want) {
				t.Errorf("%q after %d: %v", key, after, err)
			}
		}
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome { // mended before the loop watches
			if c.Kind == faults.Watch {
				_, err := f.Commit(ctx, []store.Op{{Kind: store.Delete, Key: key, Expect: store.AnyRevision}})
				must(err)
			}
			return faults.Outcome{}
		})
		if err := last(ctx, revision(t, f)); !errors.Is(err, bad.want) {
			t.Errorf("%q mended: %v", key, err)
		}
		f.Script(nil)
	}
}

// The changes of a space are its own, and records of other programs are in none. Calls that share a commit are in one.
func TestChangesOfASpace(t *testing.T) {
	ctx := context.Background()
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	db := store.NewMemory()
	e := w.engine(t, db, 0)
	in, err := e.InSpace("blue")
	if err != nil {
		t.Fatal(err)
	}
	nextOf := map[*ipset.Engine]func() (alloc.Commit, error, bool){}
	for _, e := range []*ipset.Engine{e, in} {
		next, stop := iter.Pull2(e.Changes(ctx, 0))
		defer stop()
		if c, err, _ := next(); err != nil || !c.Present {
			t.Fatal(c, err)
		}
		nextOf[e] = next
	}
	for i := range 2 {
		for _, e := range []*ipset.Engine{e, in} {
			if _, err := db.Commit(ctx, []store.Op{{Kind: store.Put, Key: fmt.Sprint("Mine", i, e.Space()), Expect: 0}}); err != nil {
				t.Fatal(err)
			}
			must(e.AddPool(ctx, alloc.Pool{Name: fmt.Sprint(e.Space(), i), Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 24)}))
		}
	}
	for e, next := range nextOf {
		for i := range 2 {
			if c, err, _ := next(); err != nil || len(c.Changes) != 1 || c.Changes[0].Pool.Name != fmt.Sprint(e.Space(), i) {
				t.Fatalf("%q: %+v, %v", e.Space(), c, err)
			}
		}
	}
	a := alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 3, Handle: "p"}
	if _, err := e.AutoAssign(ctx, a); err != nil {
		t.Fatal(err)
	}
	if c, err, _ := nextOf[e](); err != nil || len(c.Changes) != 4 || c.Changes[0].Kind != alloc.BlockClaimed || c.Changes[3].Kind != alloc.AddressAssigned {
		t.Errorf("%+v, %v", c, err)
	}
}

// A loop that is left leaves no goroutine, and several loops follow callers at once.
func TestChangesAtOnce(t *testing.T) {
	w := &dryWorld{rand.New(rand.NewPCG(1, 1)), dryStart}
	e := w.engine(t, store.NewMemory(), 0)
	must(e.AddPool(context.Background(), alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/24")}))
	before := runtime.NumGoroutine()
	ctx := context.Background()
	var callers, readers sync.WaitGroup
	for g := range 3 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for i := range 50 {
				handle := fmt.Sprint("p", g, i%3)
				if _, err := e.Assign(ctx, alloc.HostOwner(fmt.Sprint("h", g)), handle); err != nil {
					t.Error(err)
				}
				if _, err := e.ReleaseByHandle(ctx, handle); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	var begun sync.WaitGroup // readers that have the state with the pool
	for range 3 {
		readers.Add(1)
		begun.Add(1)
		go func() {
			defer readers.Done()
			begin := sync.OnceFunc(begun.Done)
			defer begin()
			held := map[netip.Addr]bool{}
			for c, err := range e.Changes(ctx, 0) {
				if err != nil {
					t.Error(err)
					return
				}
				begin()
				for _, ch := range c.Changes {
					if ch.Kind == alloc.PoolRemoved {
						if len(held) > 0 {
							t.Error(held)
						}
						return
					}
					if is := ch.Kind == alloc.AddressAssigned; (is || ch.Kind == alloc.AddressReleased) && held[ch.Address] == is {
						t.Errorf("revision %d: %v %s twice", c.Rev, ch.Kind, ch.Address)
					} else if is {
						held[ch.Address] = true
					} else {
						delete(held, ch.Address)
					}
				}
			}
		}()
	}
	for range 20 {
		for range e.Changes(ctx, 0) {
			break
		}
	}
	callers.Wait()
	begun.Wait()
	must(e.RemovePool(ctx, "a")) // the readers end when they have seen it
	readers.Wait()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 1000 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}
