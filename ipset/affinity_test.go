package ipset

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestOrphanIsNotLostUnderStrictAffinity(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/29", 29))
	w.assign(want("gone", 3, "p"))
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("gone")}); err != nil {
		t.Fatal(err)
	}
	w.check()
	got := w.assign(want("new", 6, "q"))
	if s := lastBytes(got.V4); s != "3 4 5 6 7" || len(got.Short) != 1 {
		t.Fatalf("the adopter got %s, %v", s, got.Short)
	}
	if n := len(w.blocksOf("new")); n != 1 {
		t.Errorf("it owns %d blocks", n)
	}
	w.check()
	// Adopted by hand as well.
	w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("new")})
	claimed, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/29"), alloc.HostOwner("third"))
	if err != nil || len(claimed) != 1 || len(failed) != 0 {
		t.Fatalf("claimed %v, failed %v, %v", claimed, failed, err)
	}
}

func TestCoolingOrphanIsNotLost(t *testing.T) {
	p := poolOf("a", "10.0.0.0/30", 30)
	p.Cooldown = time.Minute
	w := newWorld(t, alloc.Config{Strict: true}, p)
	w.assign(want("gone", 2, "p"))
	w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("gone")})
	w.releaseHandle("p")
	w.check()
	if got := w.assign(want("new", 4, "q")); lastBytes(got.V4) != "2 3" || got.Short[0].Reason != alloc.ReasonCoolingLeft {
		t.Fatalf("while cooling: %+v", got)
	}
	w.releaseHandle("q")
	w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("new")})
	w.clock.add(time.Hour)
	if _, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
		t.Fatal(err)
	}
	if n := w.records(record.KindBlock) + w.records(record.KindDue); n != 0 {
		t.Errorf("%d records of the block are left", n)
	}
	w.check()
	if got := w.assign(want("third", 4, "r")); len(got.V4) != 4 {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestNoAffinityWithoutBlock(t *testing.T) { // the affinity is a field of the block, so that there is nothing to leak
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	r := newRacing(w.store)
	e := w.engine(r)
	ctx, cancel := context.WithCancel(bg)
	r.before = func([]store.Op) { cancel() }
	if _, err := e.AutoAssign(ctx, want("h", 1, "p")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := w.records(record.KindOwner) + w.records(record.KindBlock) + w.records(record.KindPage); n != 0 {
		t.Errorf("an interrupted claim left %d records", n)
	}
}

func TestOrphansOfBothFamiliesAreSeen(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26), poolOf("b", "2001:db8::/120", 122))
	w.leaves(audit.NoPool)
	a := want("h", 1, "p")
	a.Num6 = 1
	w.assign(a)
	for _, name := range []string{"a", "b"} {
		if err := w.RemovePool(bg, name); err != nil {
			t.Fatal(err)
		}
	}
	us, err := w.Utilization(bg)
	if err != nil || len(us) != 1 || us[0].Pool != "" || len(us[0].Blocks) != 2 || us[0].Used != (alloc.Count{Lo: 2}) || us[0].Available != (alloc.Count{Lo: 126}) {
		t.Errorf("%+v, %v", us, err)
	}
	w.check(audit.NoPool)
	if as := w.releaseHandle("p"); len(as) != 2 {
		t.Errorf("released %v", as)
	}
}

func TestVirtualOwnersAreReleasedToo(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("", 1, "lb")
	a.Owner = alloc.VirtualOwner("lb")
	w.assign(a)
	w.assign(want("lb", 1, "host of the same name"))
	if n := len(w.blocksOf("lb")); n != 1 {
		t.Fatalf("host has %d blocks", n)
	}
	released, err := w.DisownBlocks(bg, alloc.DisownArgs{Pool: "a"})
	if err != nil || len(released) != 2 || w.records(record.KindOwner) != 2 || w.former() != 2 {
		t.Errorf("released %v, %v, %d records of owners left, %d of former ones", released, err, w.records(record.KindOwner), w.former())
	}
}

// What is smaller than a block of its pool cannot be claimed, and the reason matches ErrInvalid.
func TestClaimOfAPartOfABlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	claimed, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.16/29"), alloc.HostOwner("h"))
	if err != nil || len(claimed) != 0 || len(failed) != 1 || !errors.Is(failed[0].Err, ipalloc.ErrInvalid) {
		t.Errorf("%v, %v, %v", claimed, failed, err)
	}
}
