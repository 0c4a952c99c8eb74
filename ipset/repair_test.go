package ipset

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

// TestRepairFitsTheStore loses more records of one block or owner than a commit of the store can hold: the steps are cut, and
// nothing is left after the round that restores blocks and addresses and the one that restores what follows from them.
func TestRepairFitsTheStore(t *testing.T) {
	for _, limits := range []store.Limits{{Ops: 16}, {Ops: 127}, {Bytes: 2000}, {Ops: 40, Bytes: 1500}} {
		for _, kind := range []string{record.KindBlock, record.KindAddress, record.KindOwner} {
			w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/16", map[bool]int{true: 32, false: 24}[kind == record.KindOwner]))
			for i := range 200 {
				w.assign(want("h", 1, fmt.Sprint("p", i)))
			}
			for _, r := range w.list(store.Range{From: kind, To: record.EndOf(kind)}) {
				w.remove(r.Key)
			}
			e := w.engine(faults.NewLimited(w.store, limits))
			for range 2 {
				rep, err := e.Operator().Check(bg, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range rep.Repair {
					if err := store.CheckOps("test", s.Ops, limits); err != nil {
						t.Fatalf("%+v, %q: %v", limits, s.Text, err)
					}
				}
				if n, err := e.Operator().Repair(bg, rep.Repair); err != nil || n != len(rep.Repair) {
					t.Fatalf("%+v, kind %q: %d of %d steps, %v", limits, kind, n, len(rep.Repair), err)
				}
			}
			w.check()
			for i := range 200 {
				if kind == record.KindAddress {
					break // nothing says who had the address
				}
				if als, err := w.IPsByHandle(bg, fmt.Sprint("p", i)); err != nil || len(als) != 1 {
					t.Fatalf("p%d holds %v, %v", i, als, err)
				}
			}
		}
	}
}

// TestRepairGoesOn: a step that is refused is reported, and those that follow are done.
func TestRepairGoesOn(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	w.assign(want("h", 1, "p"))
	lost := w.list(record.HandleRange("p"))[0].Key
	w.remove(lost)
	rep, err := w.Operator().Check(bg, nil)
	if err != nil || len(rep.Repair) != 1 {
		t.Fatal(rep, err)
	}
	large := audit.Step{Text: "too much"}
	for i := range 20 {
		large.Ops = append(large.Ops, store.Op{Kind: store.Put, Key: fmt.Sprint("A", i)})
	}
	conflict := audit.Step{Text: "changed since", Ops: []store.Op{{Kind: store.Put, Key: record.CatalogKey, Expect: 0}}}
	e := w.engine(faults.NewLimited(w.store, store.Limits{Ops: 16}))
	n, err := e.Operator().Repair(bg, append([]audit.Step{large, conflict}, rep.Repair...))
	if n != 1 || !errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrConflict) {
		t.Errorf("%d steps, %v", n, err)
	}
	w.check()
	if err := (*ipalloc.Error)(nil); !errors.As(e.mustFail(large), &err) || err.Op != "repair" || err.Text != large.Text {
		t.Errorf("%+v", err)
	}
}

// TestRepairGoesOnAfterARelease: a step that is malformed, a release that no commit takes, and releases in blocks that have become
// unreadable are reported, and the one that follows is done.
func TestRepairGoesOnAfterARelease(t *testing.T) {
	var pairs []string
	p := poolOf("a", "10.0.0.0/24", 28)
	for i := range 8 {
		p.Index, pairs = append(p.Index, fmt.Sprint("k", i)), append(pairs, fmt.Sprint("k", i), "v")
	}
	w := newWorld(t, alloc.Config{}, p)
	w.leaves()
	at := make(map[string]netip.Prefix)
	for _, host := range []string{"large", "damaged", "later", "good"} {
		a := want(host, 1, host)
		if host == "large" {
			a.Attributes = attributes(t, pairs...)
		}
		at[host] = w.assign(a).V4[0].Block
	}
	rep, err := w.Operator().Check(bg, slices.Values([]audit.InUse{}))
	if err != nil || len(rep.Repair) != 4 {
		t.Fatal(rep, err)
	}
	steps := []audit.Step{{Text: "malformed", Ops: []store.Op{{Kind: 7, Key: "A"}}}}
	for _, host := range []string{"large", "damaged", "later", "good"} {
		i := slices.IndexFunc(rep.Repair, func(s audit.Step) bool { return strings.HasSuffix(s.Text, " "+host) })
		steps = append(steps, rep.Repair[i])
	}
	for host, version := range map[string]string{"damaged": "\x01", "later": "\x7f"} {
		key := record.BlockKey(record.KindBlock, at[host])
		w.restore([]store.Record{{Key: key, Value: version}}, key)
	}
	n, err := w.engine(limited(w.store, 10)).Operator().Repair(bg, steps)
	for _, want := range []error{ipalloc.ErrInvalid, ipalloc.ErrLimit, ipalloc.ErrCorrupt, ipalloc.ErrVersion} {
		if n != 1 || !errors.Is(err, want) {
			t.Errorf("%d steps, want %v: %v", n, want, err)
		}
	}
	if als, err := w.IPsByHandle(bg, "good"); err != nil || len(als) != 0 {
		t.Errorf("%v, %v", als, err)
	}
}

// TestRepairEndsOnAFullDisk: a limit that no step exceeds is the store's, such as a full disk, and ends the repair at its first step.
func TestRepairEndsOnAFullDisk(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	f := faults.NewFaulty(w.store)
	e := w.engine(f)
	step := audit.Step{Text: "small", Ops: []store.Op{{Kind: store.Put, Key: "A", Expect: 0}}}
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit {
			return faults.Fail(fmt.Errorf("%w: no space left", ipalloc.ErrLimit))
		}
		return faults.Outcome{}
	})
	f.Reset()
	done, err := e.Operator().Repair(bg, []audit.Step{step, step, step})
	if n := f.Counts().Commits; done != 0 || !errors.Is(err, ipalloc.ErrLimit) || n != 1 {
		t.Errorf("%d steps and %d commits, %v", done, n, err)
	}
}

// mustFail returns the error of one step.
func (e *Engine) mustFail(s audit.Step) error {
	_, err := e.Operator().Repair(bg, []audit.Step{s})
	return err
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
