package ipset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/check"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// busy returns a world in which every kind of record occurs.
func busy(t testing.TB) *world {
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Cooldown, p.Index = time.Hour, []string{"user"}
	w := newWorld(t, alloc.Config{}, p, poolOf("b", "2001:db8::/118", 122))
	w.assign(want("h", 20, "p"))
	w.assign(want("gone", 3, "q"))
	user := want("h", 1, "u")
	user.Attributes = attributes(t, "user", "anna")
	w.assign(user)
	w.assign(want("empty", 1, "r"))
	w.releaseHandle("r")
	lease := want("h", 2, "s")
	lease.TTL = time.Hour
	w.assign(lease)
	six := want("h", 1, "six")
	six.Num6 = 2
	w.assign(six)
	sticky := want("h", 1, "sticky")
	sticky.Sticky, sticky.Request = true, "request"
	w.assign(sticky)
	shared := want("h", 1, "vip")
	shared.Share = alloc.Share{Max: 2, Key: "web"}
	w.assign(shared)
	w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("gone")})
	last := w.blocksOf("h")[1]
	for at := last.Addr(); w.records(record.KindHost) == 0 && last.Contains(at); at = at.Next() {
		w.AssignIP(bg, alloc.AssignIPArgs{Address: at, Owner: alloc.HostOwner("guest")})
	}
	return w
}

// TestCheckSeesEveryIndex: the writer's index records are those that Check derives, for every kind of index record there is, and
// Check sees each of them missing, and one too many beside it.
func TestCheckSeesEveryIndex(t *testing.T) {
	w := busy(t)
	w.check()
	for _, kind := range strings.Split(check.BlockKinds+record.KindAged, "") {
		recs := w.list(store.Range{From: kind, To: record.EndOf(kind), Limit: 1})
		if len(recs) == 0 {
			t.Errorf("no record of kind %q", kind)
			continue
		}
		r := recs[0]
		for _, op := range []store.Op{{Kind: store.Delete, Key: r.Key}, {Kind: store.Put, Key: r.Key, Value: r.Value + "\x01"}, {Kind: store.Put, Key: kind + "\x01" + r.Key[1:], Value: r.Value}} {
			op.Expect = store.AnyRevision
			if _, err := w.store.Commit(bg, []store.Op{op}); err != nil {
				t.Fatal(err)
			}
			rep, err := w.Operator().Check(bg, nil)
			if err != nil || len(rep.Problems) == 0 {
				t.Errorf("%v of %q goes unseen, %v", op.Kind, op.Key, err)
			}
			for range 2 {
				w.Operator().Repair(bg, rep.Repair)
				rep, _ = w.Operator().Check(bg, nil)
			}
			w.check()
		}
	}
}

// TestCheckReadsPages: a check of a store in order reads nothing in larger parts than a page, and nothing twice but the catalog.
func TestCheckReadsPages(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/18", 26))
	for i := range 200 {
		w.assign(want(fmt.Sprint("h", i/3), 60, fmt.Sprint("p", i)))
	}
	all := len(w.list(store.Range{}))
	f := faults.NewFaulty(w.store)
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.List && (c.Range.Limit == 0 || c.Range.Limit > txn.ReadMost) {
			t.Errorf("a list of %+v", c.Range)
		}
		return faults.Outcome{}
	})
	rep, err := w.engine(f).Operator().Check(bg, nil)
	if err != nil || len(rep.Problems) != 0 || rep.Blocks < 188 || rep.Allocations != 12000 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if c := f.Counts(); c.Read > all+2 || c.Gets > 1 {
		t.Errorf("%d records read of %d, %d gets", c.Read, all, c.Gets)
	}
}

// TestCheckWhileOthersCommit makes commits before every read of a check: blocks are claimed, filled, emptied and given back,
// pools come and go. Nothing of that is a problem, however it falls; damage that was there before is found all the same.
func TestCheckWhileOthersCommit(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for round := range 100 {
		w := busy(t)
		damaged := round%2 == 1
		var key string
		if damaged { // of a block that is not touched
			w.assign(want("quiet", 3, "quiet"))
			key = w.list(record.HandleRange("quiet"))[1].Key
			w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: key, Expect: store.AnyRevision}})
		}
		f := faults.NewFaulty(w.store)
		f.Script(func(context.Context, faults.Call) faults.Outcome {
			for range 1 + r.IntN(3) {
				w.disturb(r)
			}
			return faults.Outcome{}
		})
		rep, err := w.engine(f).Operator().Check(bg, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Script(nil)
		switch {
		case !damaged && len(rep.Problems) > 0:
			t.Fatalf("round %d: %v", round, rep.Problems)
		case damaged && !(len(rep.Problems) == 1 && rep.Problems[0].Kind == audit.MissingIndex && rep.Problems[0].Key == key):
			t.Fatalf("round %d: %v, want %q missing", round, rep.Problems, key)
		}
		if damaged {
			if rep, err = w.Operator().Check(bg, nil); err != nil {
				t.Fatal(err)
			}
			if n, err := w.Operator().Repair(bg, rep.Repair); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
}

// disturb makes one change that leaves everything in order, of blocks other than those of the owner quiet.
func (w *world) disturb(r *rand.Rand) {
	host, handle := fmt.Sprint("d", r.IntN(4)), fmt.Sprint("d", r.IntN(6))
	switch r.IntN(9) {
	case 0, 1, 2:
		a := want(host, 1+r.IntN(12), handle)
		a.Partial, a.Pools = true, []string{"a"}
		w.AutoAssign(bg, a)
	case 3, 4:
		w.ReleaseByHandle(bg, handle)
	case 5:
		w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner(host), OnlyEmpty: r.IntN(2) == 0})
	case 6:
		w.clock.add(time.Duration(r.IntN(90)) * time.Minute)
		w.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute})
	case 7:
		if w.AddPool(bg, poolOf("new", "10.0.1.0/27", 29)) != nil {
			w.ReleaseByHandle(bg, "new")
			w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("new"), OnlyEmpty: true})
			w.RemovePool(bg, "new")
			return
		}
		a := want("new", 8, "new")
		a.Pools = []string{"new"}
		w.AutoAssign(bg, a)
	case 8:
		pools, err := w.Pools(bg)
		if err != nil {
			w.t.Fatal(err)
		}
		p := pools[slices.IndexFunc(pools, func(p alloc.Pool) bool { return p.Name == "a" })]
		p.BlockBits = 28 + r.IntN(4)
		if err := w.UpdatePool(bg, p); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestSnapshotLists compares the lists and gets of a snapshot with those of a store.
func TestSnapshotLists(t *testing.T) {
	w := busy(t)
	recs := w.list(store.Range{})
	s := check.Snapshot(recs)
	keys := []string{"", "\xff"}
	for _, r := range recs {
		keys = append(keys, r.Key, r.Key+"\x00")
	}
	for i, from := range keys {
		rg := store.Range{From: from, To: keys[(i*7+3)%len(keys)], Limit: i % 5}
		want := w.list(rg)
		if got, _, err := s.List(bg, rg); err != nil || !slices.Equal(got, want) {
			t.Errorf("List(%+v): %d records, want %d, %v", rg, len(got), len(want), err)
		}
	}
	got, err := s.Get(bg, nil, keys[2:]...)
	want, err2 := w.store.Get(bg, nil, keys[2:]...)
	if err != nil || err2 != nil || !slices.Equal(got, want) {
		t.Errorf("Get of %d keys differs: %v, %v", len(keys)-2, err, err2)
	}
}
