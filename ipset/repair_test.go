package ipset

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// remove deletes records behind the engine's back.
func (w *world) remove(keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: key, Expect: store.AnyRevision}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestRepairOfUnknownOutcome: a step whose answer was lost is made before the engine's next answer or never.
func TestRepairOfUnknownOutcome(t *testing.T) {
	for _, what := range []string{"index", "release"} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		w.leaves(audit.MissingIndex)
		al := w.assign(want("h", 1, "p")).V4[0]
		if what == "index" {
			w.remove(w.list(record.HandleRange("p"))[0].Key)
		}
		rep, err := w.Operator().Check(bg, func(yield func(audit.InUse) bool) {
			if what == "index" {
				yield(audit.InUse{Address: al.Address})
			}
		})
		if err != nil || len(rep.Repair) != 1 {
			t.Fatal(rep, err)
		}
		f, late := faults.NewFaulty(w.store), make(chan struct{})
		f.Script(faults.AtCommit(1, faults.Late(late)))
		e := w.engine(f)
		if n, err := e.Operator().Repair(bg, rep.Repair); n != 0 || !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatalf("%s: %d, %v", what, n, err)
		}
		if _, err := e.Lookup(bg, al.Address); err != nil {
			t.Fatal(err)
		}
		before := w.list(store.Range{})
		close(late)
		f.Settle()
		if after := w.list(store.Range{}); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: the lost step was made after the next answer", what)
		}
	}
}

// TestRepairOnAFailingStore fails the n-th call of a repair, for every n: the error is the store's, the repair ends there, and the
// next one completes it.
func TestRepairOnAFailingStore(t *testing.T) {
	for n, more := 1, true; more; n++ {
		w := busy(t)
		uses := w.used()
		for _, kind := range []string{record.KindHandle, record.KindOwner, record.KindPage} {
			w.remove(w.list(store.Range{From: kind, To: record.EndOf(kind), Limit: 1})[0].Key)
		}
		rep, err := w.Operator().Check(bg, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := faults.NewFaulty(w.store)
		more = false
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.N == n {
				more = true
				return faults.Fail(faults.ErrInjected)
			}
			return faults.Outcome{}
		})
		if done, err := w.engine(f).Operator().Repair(bg, rep.Repair); more != errors.Is(err, faults.ErrInjected) || more == (done == len(rep.Repair)) {
			t.Fatalf("call %d: %d of %d steps, %v", n, done, len(rep.Repair), err)
		}
		for range 2 {
			rep, _ = w.Operator().Check(bg, nil)
			if _, err := w.Operator().Repair(bg, rep.Repair); err != nil {
				t.Fatal(err)
			}
		}
		w.keeps("failing repair", uses)
	}
}

// TestRepairKeepsSequenceNumbersUnique: after pages or the catalog were lost and repaired, no address gets a sequence number that
// it had, whatever the block size by then.
func TestRepairKeepsSequenceNumbersUnique(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"pages": func(w *world) {
			for _, rec := range w.list(store.Range{From: record.KindPage, To: record.KindPage + "\xff"}) {
				w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: rec.Key, Expect: store.AnyRevision}})
			}
		},
		"a damaged page": func(w *world) {
			for _, rec := range w.list(store.Range{From: record.KindPage, To: record.KindPage + "\xff"}) {
				w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: rec.Key, Value: "?", Expect: store.AnyRevision}})
			}
		},
		"the catalog": func(w *world) {
			w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: record.CatalogKey, Expect: store.AnyRevision}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf("a", "10.0.0.0/26", 27)
			w := newWorld(t, alloc.Config{}, p)
			p.BlockBits = 28 // raises the generation
			if err := w.UpdatePool(bg, p); err != nil {
				t.Fatal(err)
			}
			seen := make(map[alloc.Release]bool)
			note := func(als []alloc.Allocation) {
				for _, al := range als {
					k := alloc.Release{Address: al.Address, Guard: alloc.Guard{Seq: al.Seq}}
					if seen[k] {
						t.Fatalf("%v again", k)
					}
					seen[k] = true
				}
			}
			churn := func() {
				for range 5 {
					note(w.assign(want("h", 64, "p")).V4)
					w.releaseHandle("p")
					if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), OnlyEmpty: true}); err != nil {
						t.Fatal(err)
					}
				}
			}
			churn()
			note(w.assign(want("g", 1, "stays")).V4)
			lose(w)
			rep, err := w.Operator().Check(bg, nil)
			if err != nil || len(rep.Repair) == 0 {
				t.Fatal(rep, err)
			}
			if n, err := w.Operator().Repair(bg, rep.Repair); err != nil || n != len(rep.Repair) {
				t.Fatalf("%d of %d steps, %v", n, len(rep.Repair), err)
			}
			if name == "the catalog" {
				if err := w.AddPool(bg, p); err != nil {
					t.Fatal(err)
				}
			}
			w.check()
			churn()
			p.BlockBits = 29
			if err := w.UpdatePool(bg, p); err != nil {
				t.Fatal(err)
			}
			w.releaseHandle("stays")
			churn()
		})
	}
}
