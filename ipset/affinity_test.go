package ipset

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
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

// What is smaller than a block of its pool cannot be claimed, and the reason matches ErrInvalid.
func TestClaimOfAPartOfABlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	claimed, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.16/29"), alloc.HostOwner("h"))
	if err != nil || len(claimed) != 0 || len(failed) != 1 || !errors.Is(failed[0].Err, ipalloc.ErrInvalid) {
		t.Errorf("%v, %v, %v", claimed, failed, err)
	}
}
