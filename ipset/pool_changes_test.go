package ipset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func names(t *testing.T, e *Engine) (all []string) {
	t.Helper()
	pools, err := e.Pools(bg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		all = append(all, p.Name+" "+p.Prefix.String())
	}
	return all
}

// TestChangePoolsInOneCommit: pools come, go, change and take another's place, and reservations come and go, in one commit; an equal
// call writes nothing, and a wrong one changes nothing.
func TestChangePoolsInOneCommit(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30), poolOf("b", "10.1.0.0/28", 30), poolOf("c", "10.2.0.0/28", 30))
	e := w.Engine
	changes := alloc.PoolChanges{
		Set:       []alloc.Pool{poolOf("a", "10.0.0.0/28", 30), {Name: "c", Prefix: netip.MustParsePrefix("10.2.0.0/27"), BlockBits: 30, Cooldown: time.Hour}, poolOf("d", "10.1.0.0/28", 30)},
		Remove:    []string{"b", "none"},
		Reserve:   []alloc.Reservation{{Range: netipx.MustParseIPRange("10.0.0.0-10.0.0.3"), Note: "printers", By: "ann"}, {Range: netipx.MustParseIPRange("10.0.0.0-10.0.0.3"), By: "import"}},
		Unreserve: alloc.Reservations(netipx.MustParseIPRange("10.0.0.3-10.0.0.9")),
	}
	for want := uint64(1); want <= 1; want-- { // the second call finds everything done
		before := w.rev()
		if err := e.Operator().ChangePools(bg, changes); err != nil || w.rev()-before != want {
			t.Errorf("%d commits, want %d: %v", w.rev()-before, want, err)
		}
	}
	reserved, err := e.Operator().Reservations(bg)
	if got := names(t, e); err != nil || !slices.Equal(got, []string{"a 10.0.0.0/28", "c 10.2.0.0/27", "d 10.1.0.0/28"}) || len(reserved) != 2 || reserved[0].Range.String() != "10.0.0.0-10.0.0.3" || reserved[0].Note != "printers" || !reserved[1].Since.Equal(w.clock.now().Truncate(time.Second)) {
		t.Errorf("%v, %v, %v", got, reserved, err)
	}
	// A pool that is made anew may be elsewhere.
	if err := e.Operator().ChangePools(bg, alloc.PoolChanges{Set: []alloc.Pool{poolOf("a", "10.9.0.0/28", 30)}, Remove: []string{"a"}}); err != nil {
		t.Error(err)
	}
	before := names(t, e)
	for text, wrong := range map[string]alloc.PoolChanges{
		"can grow and not shrink":      {Set: []alloc.Pool{poolOf("e", "10.5.0.0/28", 30), poolOf("a", "10.6.0.0/28", 30)}},
		"another pool has that prefix": {Set: []alloc.Pool{poolOf("e", "10.5.0.0/28", 30), poolOf("f", "10.9.0.0/28", 30)}},
		"zero IPRange":                 {Set: []alloc.Pool{poolOf("e", "10.5.0.0/28", 30)}, Reserve: make([]alloc.Reservation, 1)},
	} {
		if err := e.Operator().ChangePools(bg, wrong); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if after := names(t, e); !slices.Equal(after, before) {
		t.Errorf("%v, was %v", after, before)
	}
}

// TestChangePoolsMakesAnew: a pool that is removed and set by one call, in place, smaller or with blocks of the size that drained, knows
// the sizes of the blocks that are there: what they hold is found by its address and not assigned again.
func TestChangePoolsMakesAnew(t *testing.T) {
	for _, anew := range []struct {
		prefix string
		sizes  []int // one call for each
	}{{"10.0.0.0/26", []int{30}}, {"10.0.0.0/27", []int{30}}, {"10.0.0.0/26", []int{30, 30}}, {"10.0.0.0/26", []int{30, 28}}} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
		held, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: netip.MustParseAddr("10.0.0.5"), Owner: alloc.HostOwner("h"), Handle: "first"})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range anew.sizes {
			if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"a"}, Set: []alloc.Pool{poolOf("a", anew.prefix, size)}}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = w.AssignIP(bg, alloc.AssignIPArgs{Address: held.Address, Owner: alloc.HostOwner("i"), Handle: "second"})
		if !errors.Is(err, ipalloc.ErrOccupied) {
			t.Errorf("%v: second holder: %v, want occupied", anew, err)
		}
		w.check()
		if out, err := w.ReleaseIPs(bg, alloc.Release{Address: held.Address}); err != nil || out[0].Outcome != alloc.Released {
			t.Errorf("%v: release: %v, %v", anew, out, err)
		}
	}
}

// TestChangePoolsBeyondTheLimit: pools of which a commit of the store cannot verify that no block of a former size is left are not
// changed, and the error says so.
func TestChangePoolsBeyondTheLimit(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 28)) // blocks of four pages, and the catalog
	anew := alloc.PoolChanges{Remove: []string{"a"}, Set: []alloc.Pool{poolOf("b", "10.0.0.0/20", 26)}}
	err := w.engine(limited(w.store, 4)).Operator().ChangePools(bg, anew)
	if got := names(t, w.Engine); !errors.Is(err, ipalloc.ErrLimit) || !slices.Equal(got, []string{"a 10.0.0.0/20"}) {
		t.Errorf("%v, %v", got, err)
	}
	err = w.engine(limited(w.store, 5)).Operator().ChangePools(bg, anew)
	if got := names(t, w.Engine); err != nil || !slices.Equal(got, []string{"b 10.0.0.0/20"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestRemoveIfEmpty: a pool of which an address is held stays as it is, also if the address comes while the call is under way; an
// empty one goes with its blocks.
func TestRemoveIfEmpty(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30), poolOf("b", "10.1.0.0/28", 30))
	a := want("h", 1, "x")
	a.Pools = []string{"b"}
	held := w.assign(a).V4[0]
	before, _ := w.store.MarshalBinary()
	gone := alloc.PoolChanges{Remove: []string{"a", "b"}, IfEmpty: true}
	err := w.Operator().ChangePools(bg, gone)
	if e := new(ipalloc.Error); !errors.Is(err, ipalloc.ErrInUse) || !errors.As(err, &e) || e.Name != "b" || e.Addr != held.Address || e.Holder != "x" {
		t.Errorf("%v", err)
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("the refused call has changed the store")
	}
	w.releaseHandle("x")
	db := faults.NewLimited(w.store, store.Limits{})
	e, meanwhile := w.engine(db), false
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && !meanwhile {
			meanwhile = true
			w.assign(a) // between the first look and the commit
		}
		return faults.Outcome{}
	})
	if err := e.Operator().ChangePools(bg, gone); !errors.Is(err, ipalloc.ErrInUse) || !meanwhile {
		t.Errorf("%v", err)
	}
	pools, err := w.Pools(bg)
	if err != nil || len(pools) != 2 || pools[0].Disabled || pools[1].Disabled {
		t.Errorf("%v, %v", pools, err)
	}
	w.releaseHandle("x")
	if err := e.Operator().ChangePools(bg, gone); err != nil {
		t.Error(err)
	}
	for b := range w.Operator().Blocks(bg, netip.Prefix{}) {
		t.Errorf("block %v is left", b.Prefix())
	}
}

// TestRemoveIfEmptyBesideAnother: a refused call enables again what it has disabled, and not what another has disabled meanwhile.
func TestRemoveIfEmptyBesideAnother(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30), poolOf("b", "10.1.0.0/28", 30))
	r := newRacing(w.store)
	r.before = func([]store.Op) {
		p := poolOf("a", "10.0.0.0/28", 30)
		p.Disabled = true
		if err := w.UpdatePool(bg, p); err != nil {
			t.Error(err)
		}
		w.assign(want("h", 1, "x"))
	}
	if err := w.engine(r).Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"a", "b"}, IfEmpty: true}); !errors.Is(err, ipalloc.ErrInUse) {
		t.Error(err)
	}
	if pools, err := w.Pools(bg); err != nil || len(pools) != 2 || !pools[0].Disabled || pools[1].Disabled {
		t.Errorf("%+v, %v", pools, err)
	}
}

// TestRemoveIfEmptyBesideEnabling: if another caller enables the pool before any store call of its removal, and takes an address of it, it
// stays, also if it is disabled again by then.
func TestRemoveIfEmptyBesideEnabling(t *testing.T) {
	for _, again := range []bool{false, true} {
		kept := 0
		for k, met := 1, true; met; k++ {
			p := poolOf("a", "10.0.0.0/28", 30)
			w := newWorld(t, alloc.Config{}, p)
			db := faults.NewLimited(w.store, store.Limits{})
			e, late := w.engine(db), error(nil)
			db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if c.N != k {
					return faults.Outcome{}
				}
				if late = w.UpdatePool(bg, p); late == nil {
					_, late = w.Assign(bg, alloc.HostOwner("h"), "x")
				}
				if off := p; late == nil && again {
					off.Disabled = true
					if err := w.UpdatePool(bg, off); err != nil {
						t.Error(err)
					}
				}
				return faults.Outcome{}
			})
			err := e.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"a"}, IfEmpty: true})
			if met = db.Counts().Calls() >= k; !met {
				break
			}
			pools, poolsErr := w.Pools(bg)
			switch held, heldErr := w.IPsByHandle(bg, "x"); {
			case poolsErr != nil || heldErr != nil || (len(held) > 0) != (late == nil):
				t.Errorf("call %d: %v, %v, %v, late %v", k, held, poolsErr, heldErr, late)
			case len(held) > 0:
				kept++
				if !errors.Is(err, ipalloc.ErrInUse) || len(pools) != 1 || pools[0].Disabled && !again {
					t.Errorf("again %v, call %d: held, %v, pools %v", again, k, err, pools)
				}
			case err != nil || len(pools) != 0:
				t.Errorf("again %v, call %d: %v, pools %v", again, k, err, pools)
			}
		}
		if kept == 0 {
			t.Errorf("again %v: never kept", again)
		}
	}
}

// TestRemoveIfEmptyBesideImport: so it is with a block that is imported, which disabled pools take.
func TestRemoveIfEmptyBesideImport(t *testing.T) {
	kept := 0
	for k, met := 1, true; met; k++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
		w.leaves(audit.NoPool)
		before := mustBlock(t, "10.0.0.8/30", block.Options{}) // after it the sequence numbers of b are none that change the catalog
		if err := w.Operator().ImportBlock(bg, before); err != nil {
			t.Fatal(err)
		}
		b := mustBlock(t, "10.0.0.4/30", block.Options{Owner: alloc.HostOwner("h")})
		b.AutoAssign(nil, 1, alloc.Claim{Handle: "x"}, w.clock.now(), nil)
		db, late := faults.NewLimited(w.store, store.Limits{}), error(nil)
		db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.N == k {
				late = w.Operator().ImportBlock(bg, b)
			}
			return faults.Outcome{}
		})
		err := w.engine(db).Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"a"}, IfEmpty: true})
		if met = db.Counts().Calls() >= k; !met {
			break
		}
		if pools, _ := w.Pools(bg); late == nil && (!errors.Is(err, ipalloc.ErrInUse) || len(pools) != 1 || pools[0].Disabled) ||
			late != nil && (!errors.Is(late, ipalloc.ErrNotFound) || err != nil || len(pools) != 0) {
			t.Errorf("call %d: %v, imported %v, pools %v", k, err, late, pools)
		}
		if late == nil {
			kept++
		}
		w.check()
	}
	if kept == 0 {
		t.Error("never kept")
	}
}

// TestRemoveIfEmptyStaysDisabled: if a change is refused and its pools cannot be enabled again, one error says both and matches the
// refusal alone.
func TestRemoveIfEmptyStaysDisabled(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30), poolOf("b", "10.1.0.0/28", 30))
	db, disabled := faults.NewLimited(w.store, store.Limits{}), false
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		writes := slices.ContainsFunc(c.Ops, func(op store.Op) bool { return op.Kind == store.Put })
		if writes && disabled {
			return faults.Fail(ipalloc.ErrUnknownOutcome)
		}
		disabled = disabled || writes
		return faults.Outcome{}
	})
	a := alloc.PoolChanges{Remove: []string{"a"}, IfEmpty: true, Set: []alloc.Pool{poolOf("c", "10.1.0.0/28", 30)}}
	err := w.engine(db).Operator().ChangePools(bg, a)
	if !errors.Is(err, ipalloc.ErrExists) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("%v", err)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "\n") || !strings.Contains(text, "pools stay disabled") {
		t.Errorf("%q", text)
	}
	pools, err := w.Pools(bg)
	if err != nil || len(pools) != 2 || !pools[0].Disabled || pools[1].Disabled {
		t.Errorf("%v, %v", pools, err)
	}
}

// TestRemoveIfEmptyOnAFailingStore: each failed call of the store is the error of the removal, and the pool stays as it was.
func TestRemoveIfEmptyOnAFailingStore(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
		f := scripted(w.store, faults.At(k, faults.Fail(errDown)))
		err := w.engine(f).Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"a"}, IfEmpty: true})
		if f.Counts().Calls() < k {
			if err != nil || k < 6 {
				t.Errorf("%v, %d calls", err, k-1)
			}
			return
		}
		if pools, _ := w.Pools(bg); !errors.Is(err, errDown) || len(pools) != 1 || pools[0].Disabled {
			t.Errorf("call %d fails: %v, %+v", k, err, pools)
		}
	}
}

// TestRemoveIfEmptyCutOff: a removal whose last commit has an unknown outcome leaves its pools removed or disabled, and the same call
// completes it.
func TestRemoveIfEmptyCutOff(t *testing.T) {
	for _, made := range []bool{true, false} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
		e := w.engine(scripted(w.store, faults.AtCommit(2, faults.Unknown(made))))
		gone := alloc.PoolChanges{Remove: []string{"a"}, IfEmpty: true}
		err := e.Operator().ChangePools(bg, gone)
		if pools, _ := w.Pools(bg); !errors.Is(err, ipalloc.ErrUnknownOutcome) || (len(pools) == 0) != made || !made && !pools[0].Disabled {
			t.Errorf("made %v: %v, %+v", made, err, pools)
		}
		err = e.Operator().ChangePools(bg, gone)
		if pools, _ := w.Pools(bg); err != nil || len(pools) > 0 {
			t.Errorf("made %v, again: %v, %+v", made, err, pools)
		}
	}
}

// TestSeedsOfPools: the seed of a random order is drawn when the pool is made, stays with it, and can be named.
func TestSeedsOfPools(t *testing.T) {
	first := func(draws uint64, p alloc.Pool) (order string, made alloc.Pool) {
		w := newWorld(t, alloc.Config{})
		e, err := New(w.store, Options{Rand: rand.NewPCG(draws, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.AddPool(bg, p); err != nil {
			t.Fatal(err)
		}
		if err := e.AddPool(bg, p); err != nil {
			t.Errorf("the pool is there: %v", err)
		}
		p.Cooldown = time.Hour
		if err := e.UpdatePool(bg, p); err != nil {
			t.Fatal(err)
		}
		got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 8})
		if err != nil {
			t.Fatal(err)
		}
		for _, al := range got.V4 {
			order += " " + al.Address.String()
		}
		pools, _ := e.Pools(bg)
		return order, pools[0]
	}
	p := poolOf("p", "10.0.0.0/24", 24)
	p.Order = alloc.Random
	a, made := first(1, p)
	b, other := first(2, p)
	if again, _ := first(1, p); a != again || a == b || made.Seed == 0 || made.Seed == other.Seed || made.Seed >= 1<<53 {
		t.Errorf("%s, again %s, elsewhere %s; seeds %d, %d", a, again, b, made.Seed, other.Seed)
	}
	p.Seed = made.Seed
	if named, _ := first(3, p); named != a {
		t.Errorf("with the seed %s, want %s", named, a)
	}
	if _, fifo := first(1, poolOf("p", "10.0.0.0/24", 24)); fifo.Seed != 0 {
		t.Errorf("a pool in order of release has seed %d", fifo.Seed)
	}
}

// Within Together a change of pools asks the store that others see with the context of the caller.
func TestChangesTogether(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	err := store.Together(bg, heeded{w.store, t}, func(tx store.Store) error {
		e, err := New(tx, Options{Now: w.clock.now})
		if err != nil {
			return err
		}
		return e.AddPool(bg, poolOf("b", "10.1.0.0/24", 26))
	})
	if ps, perr := w.Pools(bg); err != nil || perr != nil || len(ps) != 2 {
		t.Errorf("%v, %v, %v", ps, err, perr)
	}
}
