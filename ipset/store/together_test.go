package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// plan is the allocators of one store: prefixes above, addresses below.
type plan struct {
	*ipset.Engine
	tree *prefixes.Allocator
}

func planOn(t *testing.T, db store.Store) plan {
	t.Helper()
	tree, err := prefixes.New(db, prefixes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := ipset.New(db, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plan{e, tree}
}

var region = netip.MustParsePrefix("10.0.0.0/8")

// node gives a node its prefix and makes that a pool of addresses.
func (p plan) node(ctx context.Context, name string) (netip.Prefix, error) {
	h, err := p.tree.Assign(ctx, prefixes.Request{Pool: region, Owner: name, Bits: 24})
	if err != nil {
		return netip.Prefix{}, err
	}
	return h.Prefix, p.AddPool(ctx, alloc.Pool{Name: name, Prefix: h.Prefix})
}

// remove takes both back as package prefixes advises: the pool by itself, and the prefix in a commit that relies on the pool being gone.
func remove(t *testing.T, db store.Store, name string, at netip.Prefix) error {
	t.Helper()
	ctx := t.Context()
	if err := planOn(t, db).Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{name}, IfEmpty: true}); err != nil {
		return err
	}
	return store.Together(ctx, db, func(tx store.Store) error {
		p := planOn(t, tx)
		pools, err := p.Pools(ctx)
		if err != nil || slices.ContainsFunc(pools, func(p alloc.Pool) bool { return p.Name == name }) {
			return cmp.Or(err, ipalloc.ErrInUse)
		}
		return p.tree.Release(ctx, at, name)
	})
}

// A prefix of a tree and the pool that is made of it come in one commit and go as advised; an address in between keeps both.
func TestTogetherMakesAPoolOfAHolding(t *testing.T) {
	ctx := t.Context()
	for _, space := range []string{"", "red"} {
		memory := store.NewMemory()
		faulty := faults.NewFaulty(memory)
		db := store.Store(faulty)
		if space != "" {
			var err error
			if db, err = store.Space(db, space); err != nil {
				t.Fatal(err)
			}
		}
		p := planOn(t, db)
		if err := p.tree.AddPool(ctx, prefixes.Pool{Prefix: region, Sizes: prefixes.Sizes{Shortest: 16, Longest: 28}}); err != nil {
			t.Fatal(err)
		}
		var at netip.Prefix
		both := func(do func(tx plan) error) error {
			faulty.Reset()
			err := store.Together(ctx, db, func(tx store.Store) error { return do(planOn(t, tx)) })
			if n := faulty.Counts().Commits; err == nil && n != 1 || err != nil && n != 0 {
				t.Errorf("%d commits, %v", n, err)
			}
			return err
		}
		if err := both(func(tx plan) (err error) { at, err = tx.node(ctx, "n1"); return err }); err != nil {
			t.Fatal(err)
		}
		faulty.Reset()
		again := func(tx store.Store) error { _, err := planOn(t, tx).node(ctx, "n1"); return err }
		if err := store.Together(ctx, db, again); err != nil || faulty.Counts().Commits != 0 {
			t.Errorf("again: %d commits, %v", faulty.Counts().Commits, err)
		}
		if _, err := p.Assign(ctx, alloc.HostOwner("n1"), "pod", "n1"); err != nil {
			t.Fatal(err)
		}
		if err := remove(t, db, "n1", at); !errors.Is(err, ipalloc.ErrInUse) {
			t.Errorf("removed with an address: %v", err)
		}
		stop := errors.New("stop")
		if err := both(func(tx plan) error { _, _ = tx.node(ctx, "n2"); return stop }); err != stop {
			t.Error(err)
		}
		if _, err := p.ReleaseByHandle(ctx, "pod"); err != nil {
			t.Fatal(err)
		}
		if err := remove(t, db, "n1", at); err != nil {
			t.Fatal(err)
		}
		pools, err := p.Pools(ctx)
		held, _, stateErr := p.tree.State(ctx, netip.Prefix{})
		if err != nil || stateErr != nil || len(pools)+len(held) != 0 {
			t.Errorf("left: %v, %v, %v, %v", pools, held, err, stateErr)
		}
		if rep, err := p.Operator().Check(ctx, nil); err != nil || len(rep.Problems) > 0 {
			t.Errorf("%v, %v", rep, err)
		}
		if rep, err := p.tree.Check(ctx); err != nil || len(rep.Problems) > 0 {
			t.Errorf("%v, %v", rep, err)
		}
	}
}

// What another changes meanwhile makes f begin anew, also a record that f has only read: no pool is made of a prefix that is released.
func TestTogetherBeginsAnew(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	p := planOn(t, db)
	if err := p.tree.AddPool(ctx, prefixes.Pool{Prefix: region, Sizes: prefixes.Sizes{Shortest: 16, Longest: 28}}); err != nil {
		t.Fatal(err)
	}
	h, err := p.tree.Allocate(ctx, prefixes.Request{Pool: region, Owner: "n1", Bits: 24})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	err = store.Together(ctx, db, func(tx store.Store) error {
		in := planOn(t, tx)
		got, err := in.tree.Get(ctx, h.Prefix) // no commit of the tree relies on it
		if err != nil {
			return err
		}
		if calls++; calls == 1 {
			if err := p.tree.Release(ctx, h.Prefix, "n1"); err != nil {
				t.Fatal(err)
			}
		}
		return in.AddPool(ctx, alloc.Pool{Name: "n1", Prefix: got.Prefix})
	})
	if pools, _ := p.Pools(ctx); !errors.Is(err, ipalloc.ErrNotHeld) && !errors.Is(err, ipalloc.ErrNotFound) || calls != 1 || len(pools) != 0 {
		t.Errorf("%d calls, %v, pools %v", calls, err, pools)
	}
	// A write of another between two commits of f.
	calls = 0
	err = store.Together(ctx, db, func(tx store.Store) error {
		in := planOn(t, tx)
		if _, err := in.node(ctx, "n2"); err != nil {
			return err
		}
		if calls++; calls < 3 {
			return p.AddPool(ctx, alloc.Pool{Name: string(rune('a' + calls)), Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(calls)}), 24)})
		}
		return nil
	})
	if pools, _ := p.Pools(ctx); err != nil || calls != 3 || len(pools) != 3 {
		t.Errorf("%d calls, %v, pools %v", calls, err, pools)
	}
	// f fails because of a read that is outdated; it has also written that record.
	calls = 0
	err = store.Together(ctx, db, func(tx store.Store) error {
		recs, err := tx.Get(ctx, nil, "Once")
		if calls++; err != nil || recs[0].Rev != 0 {
			return err
		}
		op := []store.Op{{Kind: store.Put, Key: "Once", Expect: store.AnyRevision}}
		if _, err := db.Commit(ctx, op); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(ctx, op); err != nil {
			t.Fatal(err)
		}
		return ipalloc.ErrNotFound
	})
	if err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
	// Against one who always changes what f has read the call gives up, whether f writes that record or another.
	for _, writes := range []string{"Yours", "Mine"} {
		neverWins(t, db, writes)
	}
}

func neverWins(t *testing.T, db store.Store, writes string) {
	ctx, calls := t.Context(), 0
	err := store.Together(ctx, db, func(tx store.Store) error {
		calls++
		recs, err := tx.Get(ctx, nil, "Mine")
		if err == nil {
			_, err = db.Commit(ctx, []store.Op{{Kind: store.Put, Key: "Mine", Value: "other", Expect: store.AnyRevision}})
		}
		if err == nil {
			_, err = tx.Commit(ctx, []store.Op{{Kind: store.Put, Key: writes, Value: recs[0].Value + "mine", Expect: store.AnyRevision}})
		}
		return err
	})
	if key, ok := store.ConflictKey(err); !ok || key != "Mine" || calls != 16 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if recs, err := db.Get(ctx, nil, "Yours", "Mine"); err != nil || recs[0].Rev != 0 || recs[1].Value != "other" {
		t.Errorf("%v, %v", recs, err)
	}
}

// A record that is written as it may be, and never read, is not verified: others may change it, and it leaves room to those that are.
func TestTogetherWritesBlindly(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	calls := 0
	err := store.Together(ctx, faults.NewLimited(db, store.Limits{Ops: 12}), func(tx store.Store) error {
		calls++
		var ops, others []store.Op
		var keys []string
		for i := range 8 {
			keys = append(keys, fmt.Sprint("Read/", i))
			ops = append(ops, store.Op{Kind: store.Kind(1 + i%2), Key: fmt.Sprint("Row/", i), Value: "mine", Expect: store.AnyRevision})
			others = append(others, store.Op{Kind: store.Put, Key: ops[i].Key, Value: "other", Expect: store.AnyRevision})
		}
		_, err := tx.Get(ctx, nil, keys...)
		if err == nil {
			_, err = tx.Commit(ctx, ops)
		}
		if err == nil {
			_, err = db.Commit(ctx, others)
		}
		return err
	})
	recs, _, listErr := db.List(ctx, store.Range{})
	if err != nil || listErr != nil || calls != 1 || len(recs) != 4 || slices.ContainsFunc(recs, func(r store.Record) bool { return r.Value != "mine" }) {
		t.Errorf("%d calls, %v, %v, %v", calls, err, recs, listErr)
	}
}

// A plan of more records than one commit takes is refused as a whole.
func TestTogetherOfTooMuch(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	err := store.Together(ctx, faults.NewLimited(db, store.Limits{Ops: 12}), func(tx store.Store) error {
		for i := range 5 {
			var ops []store.Op
			for k := range 5 {
				ops = append(ops, store.Op{Kind: store.Put, Key: "Row/" + string(rune('a'+5*i+k)), Expect: store.AnyRevision})
			}
			if _, err := tx.Commit(ctx, ops); err != nil {
				return err
			}
		}
		return nil
	})
	if recs, _, _ := db.List(ctx, store.Range{}); !errors.Is(err, ipalloc.ErrLimit) || len(recs) != 0 {
		t.Errorf("%v, %v", recs, err)
	}
}

// An address that another process takes from a pool before any store call of its removal keeps the pool and its prefix, or comes too
// late to be taken: in a block that comes meanwhile, and in one that is there.
func TestPoolOfAHoldingIsUsedMeanwhile(t *testing.T) {
	ctx := t.Context()
	for _, blocks := range []int{0, 1, 40} {
		kept, refused := 0, 0
		for k, met := 1, true; met; k++ {
			memory := store.NewMemory()
			p := planOn(t, memory)
			if err := p.tree.AddPool(ctx, prefixes.Pool{Prefix: region, Sizes: prefixes.Sizes{Shortest: 16, Longest: 28}}); err != nil {
				t.Fatal(err)
			}
			h, err := p.tree.Assign(ctx, prefixes.Request{Pool: region, Owner: "n1", Bits: 24})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.AddPool(ctx, alloc.Pool{Name: "n1", Prefix: h.Prefix, BlockBits: 30}); err != nil {
				t.Fatal(err)
			}
			for i := range blocks {
				if _, err := p.EnsureBlock(ctx, alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("h", i)), Num4: 1, Use: alloc.Workload}); err != nil {
					t.Fatal(err)
				}
			}
			var late error
			db := faults.NewFaulty(memory)
			db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if c.N == k {
					_, late = p.Assign(ctx, alloc.HostOwner("late"), "late", "n1")
				}
				return faults.Outcome{}
			})
			err = remove(t, db, "n1", h.Prefix)
			if met = db.Counts().Calls() >= k; !met {
				break
			}
			pools, poolsErr := p.Pools(ctx)
			_, heldErr := p.tree.Get(ctx, h.Prefix)
			switch {
			case late == nil:
				kept++
				if !errors.Is(err, ipalloc.ErrInUse) || poolsErr != nil || len(pools) != 1 || pools[0].Disabled || heldErr != nil {
					t.Errorf("%d blocks, an address before call %d: %v, pools %v, %v, %v", blocks, k, err, pools, poolsErr, heldErr)
				}
			default:
				refused++
				if err != nil || poolsErr != nil || len(pools) != 0 || !errors.Is(heldErr, ipalloc.ErrNotFound) {
					t.Errorf("%d blocks, none before call %d (%v): %v, pools %v, %v, %v", blocks, k, late, err, pools, poolsErr, heldErr)
				}
			}
			if rep, err := p.Operator().Check(ctx, nil); err != nil || len(rep.Problems) > 0 {
				t.Errorf("%d blocks, call %d: %v, %v", blocks, k, rep, err)
			}
		}
		if kept == 0 || refused == 0 {
			t.Errorf("%d blocks: kept %d times, refused %d times", blocks, kept, refused)
		}
	}
}

// Calls that rest on a mark that others must see are refused, also in a space and on an overlay, and write nothing.
func TestTogetherRefusesMarks(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	refused := func(what string, err error, field string) {
		t.Helper()
		if e := new(ipalloc.Error); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", what, err)
		}
	}
	err := store.Together(ctx, db, func(tx store.Store) error {
		red, err := store.Space(tx, "red")
		if err != nil {
			return err
		}
		for what, on := range map[string]store.Store{
			"": tx, "in a space": red, "on an overlay": store.NewOverlay(tx), "in a wrapper": struct{ store.Store }{tx},
		} {
			if !on.Limits().Deferred || (store.Published(on) == nil) != (what == "in a wrapper") {
				t.Errorf("%s: %+v, %v", what, on.Limits(), store.Published(on))
			}
			changes := alloc.PoolChanges{Remove: []string{"a"}, IfEmpty: true}
			refused("ChangePools "+what, planOn(t, on).Operator().ChangePools(ctx, changes), "IfEmpty")
			network, err := hostlocal.New(on, hostlocal.Config{Network: "net", Sets: []hostlocal.RangeSet{{{Subnet: region}}}})
			if err != nil {
				return err
			}
			refused("Remove "+what, network.Remove(ctx), "store")
			if what == "in a wrapper" { // what others go by is not known
				refused("AddPool "+what, planOn(t, on).AddPool(ctx, alloc.Pool{Name: "p", Prefix: region}), "store")
			}
		}
		return nil
	})
	if recs, _, listErr := db.List(ctx, store.Range{}); err != nil || listErr != nil || len(recs) > 0 {
		t.Errorf("%v, %v, %v", err, recs, listErr)
	}
	for _, on := range []store.Store{db, store.NewOverlay(db)} {
		if store.Published(on) != nil || on.Limits().Deferred {
			t.Errorf("%T is deferred", on)
		}
	}
}

// What is there already is found beside what is new, although the engine first assumes that it is not: an answer to a handle, and to a
// request key.
func TestTogetherFindsWhatIsThere(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	p := planOn(t, db)
	if err := p.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.1.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]alloc.AssignArgs{
		"handle":  {Owner: alloc.HostOwner("h"), Num4: 1, Handle: "pod", Existing: true},
		"request": {Owner: alloc.HostOwner("h"), Num4: 1, Handle: "other", Request: "r"},
	} {
		was, err := p.AutoAssign(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		var got alloc.Assigned
		err = store.Together(ctx, db, func(tx store.Store) (err error) {
			in := planOn(t, tx)
			calls++
			if got, err = in.AutoAssign(ctx, a); err != nil {
				return err
			}
			return in.AddPool(ctx, alloc.Pool{Name: name, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, name[0]}), 24)})
		})
		if err != nil || calls != 1 || len(got.V4) != 1 || got.V4[0] != was.V4[0] {
			t.Errorf("%s: %d calls, %v, then %v, %v", name, calls, was, got, err)
		}
	}
}

// What f reads is one view if it writes nothing, too, and a record that it makes and deletes is verified like one that it reads.
func TestTogetherVerifiesWhatLeavesNoTrace(t *testing.T) {
	ctx := t.Context()
	for _, writes := range []bool{false, true} {
		db := store.NewMemory()
		put := func(s store.Store, ops ...store.Op) {
			t.Helper()
			if _, err := s.Commit(ctx, ops); err != nil {
				t.Fatal(err)
			}
		}
		put(db, store.Op{Kind: store.Put, Key: "Left", Expect: 0})
		calls, found := 0, 0
		err := store.Together(ctx, db, func(tx store.Store) error {
			calls++
			first, err := tx.Get(ctx, nil, "Right")
			if err != nil {
				return err
			}
			if writes && first[0].Rev == 0 {
				put(tx, store.Op{Kind: store.Put, Key: "Right", Expect: 0})
				recs, err := tx.Get(ctx, nil, "Right")
				if err != nil {
					return err
				}
				put(tx, store.Op{Kind: store.Delete, Key: "Right", Expect: recs[0].Rev}, store.Op{Kind: store.Put, Key: "Free", Expect: store.AnyRevision})
			}
			if calls == 1 { // another moves it
				put(db, store.Op{Kind: store.Delete, Key: "Left", Expect: store.AnyRevision}, store.Op{Kind: store.Put, Key: "Right", Expect: 0})
			}
			second, err := tx.Get(ctx, nil, "Left")
			if found = 0; err == nil && first[0].Rev != 0 {
				found++
			}
			if err == nil && second[0].Rev != 0 {
				found++
			}
			return err
		})
		if free, _ := db.Get(ctx, nil, "Free"); err != nil || calls != 2 || found != 1 || free[0].Rev != 0 {
			t.Errorf("writes %v: %d calls, found %d, %v, %v", writes, calls, found, free, err)
		}
	}
}

// What keeps an engine of f gets no address from it once f has returned or panicked: nobody would write that.
func TestTogetherEnds(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	var kept, dry *ipset.Engine
	f := func(end func() error) (err error) {
		defer func() { _ = recover() }()
		return store.Together(ctx, db, func(tx store.Store) error {
			kept, dry = planOn(t, tx).Engine, planOn(t, store.NewOverlay(tx)).Engine
			if err := kept.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.1.0.0/24")}); err != nil {
				t.Error(err)
			}
			return end()
		})
	}
	for _, end := range []func() error{
		func() error { return nil },
		func() error { return errors.New("stop") },
		func() error { panic("stop") },
	} {
		_ = f(end)
		for _, e := range []*ipset.Engine{kept, dry} {
			a, err := e.Assign(ctx, alloc.HostOwner("h"), "pod")
			if !errors.Is(err, ipalloc.ErrClosed) {
				t.Errorf("%v, %v", a, err)
			}
		}
		for _, err := range kept.Allocations(ctx, netip.Prefix{}) {
			if !errors.Is(err, ipalloc.ErrClosed) {
				t.Error(err)
			}
		}
	}
}
