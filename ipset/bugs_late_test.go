package ipset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func TestCancelledSearchIsNotAShortage(t *testing.T) {
	for at := 1; at <= 3; at++ {
		w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/26", 28))
		for i := range 4 {
			w.assign(want(fmt.Sprint("h", i), 16, "p"))
		}
		ctx, cancel := context.WithCancel(bg)
		e := w.engine(scripted(w.store, func(_ context.Context, c storetest.Call) storetest.Outcome {
			if c.Kind == storetest.List && c.Nth == at {
				cancel()
			}
			return storetest.Outcome{}
		}))
		if got, err := e.AutoAssign(ctx, want("new", 1, "q")); !errors.Is(err, context.Canceled) {
			t.Errorf("ended at list %d: %+v, %v", at, got, err)
		}
	}
}

var errForbidden = errors.New("forbidden")

func TestOtherErrorsAreNotRetried(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/16", 26))
	b := onCommit(w.store, func(_ context.Context, ops []store.Op) storetest.Outcome {
		if slices.ContainsFunc(ops, func(op store.Op) bool { return op.Key[:1] == record.KindHandle }) {
			return storetest.Fail(errForbidden)
		}
		return storetest.Outcome{}
	})
	e := w.engine(b)
	if _, err := e.AutoAssign(bg, want("h", 1, "p")); !errors.Is(err, errForbidden) || errors.Is(err, cause.BlockLimit) {
		t.Errorf("%v", err)
	}
	if b.Counts().Calls() > 3 {
		t.Errorf("%d calls", b.Counts().Calls())
	}
	w.check()
}

func TestOrphansOfBothFamiliesAreSeen(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26), poolOf("b", "2001:db8::/120", 122))
	a := want("h", 1, "p")
	a.Num6 = 1
	w.assign(a)
	for _, name := range []string{"a", "b"} {
		if err := w.RemovePool(bg, name); err != nil {
			t.Fatal(err)
		}
	}
	us, err := w.Utilization(bg)
	if err != nil || len(us) != 1 || us[0].Pool != "" || len(us[0].Blocks) != 2 || us[0].Used != (Count{Lo: 2}) || us[0].Available != (Count{Lo: 126}) {
		t.Errorf("%+v, %v", us, err)
	}
	w.check(ProblemNoPool)
	if as := w.releaseHandle("p"); len(as) != 2 {
		t.Errorf("released %v", as)
	}
}

func TestVirtualOwnersAreReleasedToo(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("", 1, "lb")
	a.Owner = Owner{Kind: Virtual, Name: "lb"}
	w.assign(a)
	w.assign(want("lb", 1, "host of the same name"))
	if n := len(w.blocksOf("lb")); n != 1 {
		t.Fatalf("host has %d blocks", n)
	}
	released, err := w.DisownBlocks(bg, DisownArgs{Pool: "a"})
	if err != nil || len(released) != 2 || w.records(record.KindOwner) != 2 || w.former() != 2 {
		t.Errorf("released %v, %v, %d records of owners left, %d of former ones", released, err, w.records(record.KindOwner), w.former())
	}
	w.check()
}

func TestHugeBlocksDoNotMakeUselessBlocks(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "2001:db8::/48", 64), poolOf("b", "2001:db9::/32", 122))
	a := AssignArgs{Owner: HostOwner("h"), Num6: 3, Use: Workload, Claim: Claim{Handle: "p"}, Pools: []string{"a"}}
	for range 5 {
		if got := w.assign(a); len(got.V6) != 3 || got.V6[0].Prefix().Bits() != 64 {
			t.Fatalf("%+v", got)
		}
	}
	if n := len(w.blocksOf("h")); n != 1 {
		t.Errorf("%d blocks", n)
	}
	a.Pools = []string{"b"}
	if got := w.assign(a); len(got.V6) != 3 {
		t.Errorf("2^90 blocks: %+v", got)
	}
	us, err := w.Utilization(bg)
	if err != nil || us[0].Capacity != (Count{Hi: 1 << 16}) || us[0].Used != (Count{Lo: 15}) {
		t.Errorf("%+v, %v", us, err)
	}
	w.check()
}
