package ipset

import (
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A block without owner stays until the last holder has gone, also when they go together.
func TestHoldersInOrphan(t *testing.T) {
	for _, together := range []bool{false, true} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
		for _, h := range []string{"p", "q"} {
			if err := join(w.Engine, h, alloc.Share{Max: 2}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a")}); err != nil {
			t.Fatal(err)
		}
		first, second := alloc.Release{Address: vip, Guard: alloc.Guard{Handle: "p"}}, alloc.Release{Address: vip, Guard: alloc.Guard{Handle: "q"}}
		if together {
			if res, err := w.ReleaseIPs(bg, first, second); err != nil || res[0].Outcome != alloc.Released || res[1].Outcome != alloc.Released {
				t.Fatal(res, err)
			}
		} else {
			for _, r := range []alloc.Release{first, second} {
				if got := w.holders(); len(got) == 0 {
					t.Fatalf("held by %v before %+v", got, r)
				}
				if res, err := w.ReleaseIPs(bg, r); err != nil || res[0].Outcome != alloc.Released {
					t.Fatal(res, err)
				}
				w.check()
			}
		}
		if b, err := w.Operator().BlockOf(bg, vip); err != nil || b != nil {
			t.Errorf("together %v: the block is still there, %v", together, err)
		}
	}
}

// A block goes from one store to another with all holders, and its records lost and written again are the same.
func TestImportHolders(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
	for _, h := range []string{"q", "p", "r"} {
		if err := join(w.Engine, h, alloc.Share{Max: 3, Key: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Operator().BlockOf(bg, vip)
	if err != nil {
		t.Fatal(err)
	}
	restored, err := block.Restore(b.Prefix(), block.Options{Owner: b.Owner(), Claimed: b.Claimed(), Seq: b.Seq()}, slices.Collect(b.FreeAddresses()), slices.Collect(b.All()))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []*block.Block{b, restored} {
		to := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
		if err := to.Operator().ImportBlock(bg, b); err != nil {
			t.Fatal(err)
		}
		if got := to.holders(); !slices.Equal(got, []string{"q", "p", "r"}) {
			t.Errorf("held by %v", got)
		}
		to.check()
	}
	db := store.NewMemory()
	if _, err := store.Copy(bg, db, w.store); err != nil {
		t.Fatal(err)
	}
	to := &world{Engine: w.engine(db), t: t, store: db, clock: w.clock}
	if got := to.holders(); !slices.Equal(got, []string{"q", "p", "r"}) {
		t.Errorf("copied: held by %v", got)
	}
	// Each index record that is lost is found and written again.
	recs, _, _ := db.List(bg, store.Range{})
	for _, r := range recs {
		if k := r.Key[:1]; k != record.KindHandle && k != record.KindHost {
			continue
		}
		if _, err := db.Commit(bg, []store.Op{{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
		rep, err := to.Operator().Check(bg, nil)
		if err != nil || len(rep.Problems) != 1 || rep.Problems[0].Kind != audit.MissingIndex {
			t.Fatalf("%q lost: %+v, %v", r.Key, rep, err)
		}
		if _, err := to.Operator().Repair(bg, rep.Repair); err != nil {
			t.Fatal(err)
		}
	}
	to.check()
}
