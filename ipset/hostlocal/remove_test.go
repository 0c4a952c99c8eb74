package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// left returns how many records a store has.
func left(t *testing.T, s store.Store) int {
	t.Helper()
	recs, _, err := s.List(ctx, store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	return len(recs)
}

// TestRemove: a network in which nothing is held leaves no record, in whatever scopes it was used, and its space can be removed.
func TestRemove(t *testing.T) {
	for _, ops := range []int{0, 24} {
		db := store.NewMemory()
		in, err := store.Space(db, "red")
		if err != nil {
			t.Fatal(err)
		}
		w := &world{TB: t, store: faults.NewLimited(in, store.Limits{Ops: ops})}
		for range 2 {
			for i := range 30 {
				e := w.scoped(fmt.Sprint("node", i), subnets("10.0.0.0/24", fmt.Sprintf("10.1.%d.0/24", i)))
				if _, err := e.Add(ctx, eth0("a")); err != nil {
					t.Fatal(err)
				}
				if err := e.Remove(ctx); !errors.Is(err, ipalloc.ErrInUse) || own(err).Holder != "a/eth0" || !own(err).Addr.IsValid() {
					t.Fatal(err)
				}
				if _, err := e.Del(ctx, eth0("a")); err != nil {
					t.Fatal(err)
				}
			}
			w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/24"), subnets("fd00::/64")}})
			w.add(eth0("a"), nil, "10.0.0.2", "fd00::2")
			w.del(eth0("a"), "10.0.0.2", "fd00::2")
			for range 2 { // the second finds nothing
				if err := w.Remove(ctx); err != nil || left(t, db) != 0 {
					t.Fatalf("%d operations a commit: %v, %d records are left", ops, err, left(t, db))
				}
			}
		}
		e, err := ipset.New(db, ipset.Options{})
		if err == nil {
			err = e.Operator().RemoveSpace(ctx, "red")
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestRemoveAmongAdds: an Add at any moment of Remove keeps its address and finds its network whole, in the scope that is removed
// from and in another.
func TestRemoveAmongAdds(t *testing.T) {
	set := subnets("10.0.0.0/28")
	for _, scope := range []string{"", "other"} {
		refused := 0
		for k, met := 1, true; met; k++ {
			w := newWorld(t)
			w.open(Config{Sets: []RangeSet{set}, Boot: "b"})
			w.add(eth0("a"), nil, "10.0.0.2")
			w.del(eth0("a"), "10.0.0.2")
			rival, err := New(w.store, Config{Network: "net", Sets: []RangeSet{set}, Scope: scope, Boot: "b"})
			if err != nil {
				t.Fatal(err)
			}
			met = false
			f := faults.NewFaulty(w.store)
			f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if met = met || c.N == k; c.N == k {
					if _, err := rival.Add(ctx, eth0("rival")); err != nil {
						t.Fatal(err)
					}
				}
				return faults.Outcome{}
			})
			e, err := New(f, Config{Network: "net"})
			if err != nil {
				t.Fatal(err)
			}
			if err = e.Remove(ctx); errors.Is(err, ipalloc.ErrInUse) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
			if err := w.Check(ctx); err != nil {
				t.Fatalf("scope %q, Add at call %d: %v", scope, k, err)
			}
			if recs, _, err := w.store.List(ctx, w.all(kindHeader)); err != nil || met && len(recs) == 0 {
				t.Fatalf("scope %q, Add at call %d: %d headers, %v", scope, k, len(recs), err)
			}
			if met {
				freed, err := rival.Del(ctx, eth0("rival"))
				if err != nil || len(freed) != 1 {
					t.Fatalf("scope %q, Add at call %d: released %v, %v", scope, k, freed, err)
				}
			}
		}
		if refused == 0 {
			t.Errorf("scope %q: no Add was in the way", scope)
		}
	}
}

// TestLateAddAfterRemove: an Add of unknown outcome that Del has settled is not made after Remove, although all that it rests
// upon is as it was.
func TestLateAddAfterRemove(t *testing.T) {
	for lost := 1; lost <= 2; lost++ {
		mem, late := store.NewMemory(), make(chan struct{})
		f := faults.NewFaulty(mem)
		f.Script(faults.AtCommit(lost, faults.Late(late)))
		w := &world{TB: t, store: f}
		w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/28")}})
		if _, err := w.Add(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		w.del(eth0("a"))
		if err := w.Remove(ctx); err != nil || left(t, mem) != 0 {
			t.Fatalf("%v, %d records are left", err, left(t, mem))
		}
		close(late)
		f.Settle()
		if s, err := w.Export(ctx); err != nil || len(s.Holdings) != 0 {
			t.Errorf("commit %d: held %v, %v", lost, s.Holdings, err)
		}
	}
}

// TestRemoveAfterBoot: attachments of an earlier boot are not in the way of Remove.
func TestRemoveAfterBoot(t *testing.T) {
	w := newWorld(t)
	c := Config{Sets: []RangeSet{subnets("10.0.0.0/28")}, Boot: "b1", Leases: true}
	w.open(c)
	w.add(eth0("a"), nil, "10.0.0.2")
	c.Boot = "b2"
	w.open(c)
	if err := w.Remove(ctx); err != nil || left(t, w.store) != 0 {
		t.Errorf("%v, %d records are left", err, left(t, w.store))
	}
}

// TestRemoveRepeatsAfterConflict: Remove begins again if an address came and went between its mark and its last commit.
func TestRemoveRepeatsAfterConflict(t *testing.T) {
	for _, times := range []int{1, 2} {
		w := newWorld(t, subnets("10.0.0.0/28"))
		w.add(eth0("a"), nil, "10.0.0.2")
		w.del(eth0("a"), "10.0.0.2")
		f := faults.NewFaulty(w.store)
		commits := 0
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind != faults.Commit {
				return faults.Outcome{}
			}
			// The second commit of each turn deletes.
			if commits++; commits%2 == 0 && commits <= 2*times {
				if _, err := w.Add(ctx, eth0("rival")); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Del(ctx, eth0("rival")); err != nil {
					t.Fatal(err)
				}
			}
			return faults.Outcome{}
		})
		e, err := New(f, Config{Network: "net", Attempts: 5})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Remove(ctx); err != nil || left(t, w.store) != 0 {
			t.Errorf("%d conflicts: %v, %d records are left", times, err, left(t, w.store))
		}
	}
}

// TestRemoveGivesUp: Remove ends if an address comes and goes each time, whether that is before it deletes or before it reads.
func TestRemoveGivesUp(t *testing.T) {
	for _, before := range []faults.Kind{faults.Commit, faults.List} {
		w := newWorld(t, subnets("10.0.0.0/28"))
		w.add(eth0("a"), nil, "10.0.0.2")
		w.del(eth0("a"), "10.0.0.2")
		f := faults.NewFaulty(w.store)
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind != before {
				return faults.Outcome{}
			}
			if _, err := w.Add(ctx, eth0("rival")); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Del(ctx, eth0("rival")); err != nil {
				t.Fatal(err)
			}
			if c.Nth > 100 {
				return faults.Fail(faults.ErrInjected)
			}
			return faults.Outcome{}
		})
		var waits []int
		wait := func(_ context.Context, attempt int) error {
			if waits = append(waits, attempt); len(waits) > 20 {
				return context.Canceled
			}
			return nil
		}
		e, err := New(f, Config{Network: "net", Attempts: 5, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Remove(ctx); !errors.Is(err, ipalloc.ErrConflict) || own(err).Op != "remove" {
			t.Errorf("before calls of kind %d: %v", before, err)
		}
		if len(waits) < 8 || waits[0] != 1 || slices.Max(waits) != 5 {
			t.Errorf("before calls of kind %d: waits after attempts %v", before, waits)
		}
		for len(waits) <= 20 {
			waits = append(waits, 0)
		}
		if err := e.Remove(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("before calls of kind %d: a wait that ends: %v", before, err)
		}
		if err := w.Remove(ctx); err != nil || left(t, w.store) != 0 {
			t.Errorf("%v, %d records are left", err, left(t, w.store))
		}
	}
}

// TestAddEndsRemoval: the first Add after Remove has marked the header clears the mark; the next one leaves the header alone.
func TestAddEndsRemoval(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/28"))
	read := func() (header, uint64) {
		t.Helper()
		recs, err := w.store.Get(ctx, nil, w.header())
		if err != nil {
			t.Fatal(err)
		}
		h, err := decode[header](recs[0].Key, recs[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		return h, recs[0].Rev
	}
	w.add(eth0("a"), nil, "10.0.0.2")
	w.del(eth0("a"), "10.0.0.2")
	if more, err := w.removeStep(ctx); err != nil || !more {
		t.Fatal(more, err)
	}
	if h, _ := read(); !h.closing {
		t.Fatal("Remove has not marked the header")
	}
	w.add(eth0("a"), nil, "10.0.0.3")
	h, rev := read()
	if h.closing {
		t.Error("the mark stays after an Add")
	}
	w.add(eth0("b"), nil, "10.0.0.4")
	if _, now := read(); now != rev {
		t.Error("an Add writes the header of a network that nobody removes")
	}
}

// TestReleasedAttachmentsLeaveNoRecord: after every way in which attachments and keys end, the store has the records that it had before
// them, and after Remove none.
func TestReleasedAttachmentsLeaveNoRecord(t *testing.T) {
	for end, undo := range map[string]func(w *world) error{
		"Del and EndKey": func(w *world) (err error) {
			for _, of := range []string{"a", "b", "c"} {
				_, also := w.Del(ctx, eth0(of))
				err = errors.Join(err, also)
			}
			_, ended := w.EndKey(ctx, "db")
			return errors.Join(err, ended)
		},
		"GC": func(w *world) error {
			_, err := w.GC(ctx, GCArgs{})
			_, ended := w.EndKey(ctx, "db")
			return errors.Join(err, ended)
		},
	} {
		w := newWorld(t)
		w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/28")}, Keys: true})
		keyed := func() map[string]string {
			recs, _, err := w.store.List(ctx, store.Range{})
			if err != nil {
				t.Fatal(err)
			}
			all := make(map[string]string)
			for _, r := range recs {
				all[r.Key] = r.Value
			}
			return all
		}
		empty := keyed()
		var before map[string]string
		for range 2 { // the first round leaves the cursor
			before = keyed()
			_, err := w.Add(ctx, eth0("a"), addrs("10.0.0.9")...)
			if err == nil {
				_, err = w.AddKey(ctx, "db", eth0("b"), addrs("10.0.0.10")...)
			}
			if err == nil {
				_, err = w.Add(ctx, eth0("c"), addrs("10.0.0.11")...)
			}
			if err == nil {
				err = undo(w)
			}
			if err != nil {
				t.Fatal(end, err)
			}
		}
		if after := keyed(); !maps.Equal(after, before) {
			t.Errorf("%s: %q, before %q", end, after, before)
		}
		if err := w.Remove(ctx); err != nil || !maps.Equal(keyed(), empty) {
			t.Errorf("%s, removed: %v, %q, before %q", end, err, keyed(), empty)
		}
	}
}
