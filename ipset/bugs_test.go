package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func ranges(prefixes ...string) *netipx.IPSet {
	var sb netipx.IPSetBuilder
	for _, p := range prefixes {
		sb.AddPrefix(netip.MustParsePrefix(p))
	}
	set, err := sb.IPSet()
	if err != nil {
		panic(err)
	}
	return set
}

func (w *world) releaseHandle(h string) []netip.Addr {
	w.t.Helper()
	as, err := w.ReleaseByHandle(bg, h)
	if err != nil {
		w.t.Fatal(err)
	}
	return as
}

// records returns the number of records of a kind.
func (w *world) records(kind string) int {
	return len(w.list(store.Range{From: kind, To: kind + "\xff\xff"}))
}

// former returns how many records say that a block was the own one of a former owner.
func (w *world) former() (n int) {
	for _, r := range w.list(store.Range{From: record.KindOwner, To: record.EndOf(record.KindOwner)}) {
		if _, number := record.ParseOwnerKey(r.Key); !number && r.Value != "" {
			n++
		}
	}
	return n
}

// list returns the records of a range.
func (w *world) list(r store.Range) []store.Record {
	w.t.Helper()
	recs, _, err := w.store.List(bg, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return recs
}

func TestHandleIsIndexedForEachAddress(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 30))
	if got := w.assign(want("h", 6, "p")); len(got.V4) != 6 || w.records(record.KindHandle) != 6 {
		t.Fatalf("%d addresses, %d index records", len(got.V4), w.records(record.KindHandle))
	}
	w.check()
	w.releaseHandle("p")
	if n := w.records(record.KindHandle); n != 0 {
		t.Errorf("%d index records of a handle without addresses", n)
	}
	w.check()
}

func TestConflictDoesNotCountAHandleTwice(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/28", 30))
	r := newRacing(w.store)
	e := w.engine(r)
	r.before = func([]store.Op) { w.assign(want("h", 1, "other")) }
	if _, err := e.AssignIP(bg, AssignIPArgs{Address: ip("10.0.0.9"), Owner: HostOwner("h"), Claim: Claim{Handle: "p"}}); err != nil {
		t.Fatal(err)
	}
	w.check()
	if as := w.releaseHandle("p"); len(as) != 1 {
		t.Errorf("handle held %v", as)
	}
	w.check()
}

func TestReleaseWithCancelledContextDoesNotPanic(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/22", 30))
	var rs []Release
	for i := range 16 {
		for _, al := range w.assign(want(fmt.Sprint("h", i), 4, "p")).V4 {
			rs = append(rs, Release{Address: al.Address})
		}
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := w.ReleaseIPs(ctx, rs...); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	w.check()
	if als, _ := w.IPsByHandle(bg, "p"); len(als) != 64 {
		t.Errorf("%d addresses left", len(als))
	}
}

func TestReleasesOfOneHandleDoNotRace(t *testing.T) { // of use with -race
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 30), poolOf("b", "2001:db8::/120", 126))
	a := want("h", 12, "p")
	a.Num6 = 12
	got := w.assign(a)
	var wg sync.WaitGroup
	for _, al := range append(got.V4, got.V6...) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := w.ReleaseIPs(bg, Release{Address: al.Address}); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	w.check()
}

func TestResizedPoolDoesNotGiveTwice(t *testing.T) {
	for _, sizes := range [][2]int{{26, 28}, {28, 26}, {28, 32}, {32, 28}, {25, 27}} {
		w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/25", sizes[0]))
		held := map[netip.Addr]bool{}
		for i, al := range w.assign(want("old", 40, "p")).V4 {
			if held[al.Address] = true; i%3 > 0 {
				w.ReleaseIPs(bg, Release{Address: al.Address})
				delete(held, al.Address)
			}
		}
		if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/25", sizes[1])); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			for _, al := range w.assign(want(fmt.Sprint("h", i%5), 10, "q")).V4 {
				if held[al.Address] {
					t.Fatalf("%v: %s given twice", sizes, al.Address)
				}
				held[al.Address] = true
			}
		}
		w.check()
		// The old blocks drain: they give nothing out, and vanish when they are empty and given back.
		w.releaseHandle("p")
		if _, err := w.DisownBlocks(bg, DisownArgs{Owner: HostOwner("old"), OnlyEmpty: true}); err != nil {
			t.Fatal(err)
		}
		for b, err := range w.Operator().Blocks(bg, netip.Prefix{}) {
			if err != nil || b.Prefix().Bits() != sizes[1] {
				t.Errorf("%v: left: %v, %v", sizes, b.Prefix(), err)
			}
		}
		w.check()
	}
}

func TestOrphanIsNotLostUnderStrictAffinity(t *testing.T) {
	w := newWorld(t, Config{Strict: true}, poolOf("a", "10.0.0.0/29", 29))
	w.assign(want("gone", 3, "p"))
	if _, err := w.DisownBlocks(bg, DisownArgs{Owner: HostOwner("gone")}); err != nil {
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
	w.DisownBlocks(bg, DisownArgs{Owner: HostOwner("new")})
	claimed, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/29"), HostOwner("third"))
	if err != nil || len(claimed) != 1 || len(failed) != 0 {
		t.Fatalf("claimed %v, failed %v, %v", claimed, failed, err)
	}
	w.check()
}

func TestCoolingOrphanIsNotLost(t *testing.T) {
	p := poolOf("a", "10.0.0.0/30", 30)
	p.Cooldown = time.Minute
	w := newWorld(t, Config{Strict: true}, p)
	w.assign(want("gone", 2, "p"))
	w.DisownBlocks(bg, DisownArgs{Owner: HostOwner("gone")})
	w.releaseHandle("p")
	w.check()
	if got := w.assign(want("new", 4, "q")); lastBytes(got.V4) != "2 3" || got.Short[0].Reason != ReasonCoolingLeft {
		t.Fatalf("while cooling: %+v", got)
	}
	w.releaseHandle("q")
	w.DisownBlocks(bg, DisownArgs{Owner: HostOwner("new")})
	w.clock.add(time.Hour)
	if _, err := w.Operator().Sweep(bg, SweepArgs{}); err != nil {
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
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
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
	w.check()
}

func TestReservedEndsDoNotSpoilSmallPools(t *testing.T) {
	w := newWorld(t, Config{Strict: true}, poolOf("a", "10.0.0.0/30", 30), poolOf("b", "10.0.1.0/31", 31), poolOf("c", "10.0.2.0/32", 32), poolOf("d", "10.0.3.0/24", 29))
	a := want("h", 2, "p")
	a.Head, a.Tail = 3, 1
	got := w.assign(a)
	for _, al := range got.V4 {
		if !netip.MustParsePrefix("10.0.3.0/24").Contains(al.Address) {
			t.Errorf("%s is in a pool whose blocks are all reserved", al.Address)
		}
	}
	a.Pools = []string{"a", "b", "c"}
	if _, err := w.AutoAssign(bg, a); !errors.Is(err, cause.NoPool) {
		t.Errorf("only small pools: %v", err)
	}
	w.check()
}

func TestClaimDoesNotLeaveThePool(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.1.0/24", 26))
	claimed, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/22"), HostOwner("h"))
	if err != nil || len(claimed) != 4 || len(failed) != 0 {
		t.Fatalf("claimed %v, failed %v, %v", claimed, failed, err)
	}
	if _, _, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.9.0.0/22"), HostOwner("h")); !errors.Is(err, cause.UnknownPool) {
		t.Errorf("outside every pool: %v", err)
	}
	if _, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.1.0/24"), HostOwner("other")); err != nil || len(failed) != 4 || !errors.Is(failed[0].Err, cause.Claimed) {
		t.Errorf("foreign: %v, %v", failed, err)
	}
	w.check()
}

func TestBlockLimitIsNotPerPool(t *testing.T) {
	w := newWorld(t, Config{Strict: true, MaxBlocksPerHost: 2}, poolOf("a", "10.0.0.0/24", 30), poolOf("b", "10.0.1.0/24", 30))
	for _, name := range []string{"a", "b"} {
		a := want("h", 16, "p")
		a.Pools = []string{name}
		w.assign(a)
	}
	if n := len(w.blocksOf("h")); n != 2 {
		t.Errorf("%d blocks, limit 2", n)
	}
	_, err := w.AssignIP(bg, AssignIPArgs{Address: ip("10.0.1.200"), Owner: HostOwner("h")})
	if !errors.Is(err, cause.BlockLimit) {
		t.Errorf("AssignIP beyond the limit: %v", err)
	}
	w.check()
}

func TestBlockLimitDoesNotForbidBorrowing(t *testing.T) {
	w := newWorld(t, Config{MaxBlocksPerHost: 20}, poolOf("a", "10.0.0.0/24", 32))
	p := poolOf("b", "10.0.1.0/28", 28)
	if err := w.AddPool(bg, p); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AssignIP(bg, AssignIPArgs{Address: ip("10.0.1.0"), Owner: HostOwner("x")}); err != nil {
		t.Fatal(err)
	}
	got := w.assign(want("h", 30, "p"))
	if n := len(w.blocksOf("h")); n != 20 {
		t.Errorf("%d blocks, limit 20", n)
	}
	if len(got.V4) != 30 {
		t.Errorf("%d addresses: the limit forbade to borrow: %+v", len(got.V4), got.Short)
	}
	w.check()
}

func TestSecondReleaseIsNoConflict(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	al := w.assign(want("h", 1, "p")).V4[0]
	rel := Release{al.Address, Guard{Handle: "p", Seq: al.Seq}}
	for i, wantOutcome := range []Outcome{Released, WasFree, WasFree} {
		res, err := w.ReleaseIPs(bg, rel)
		if err != nil || res[0].Outcome != wantOutcome {
			t.Errorf("release %d: %v, %v", i, res, err)
		}
	}
	w.AssignIP(bg, AssignIPArgs{Address: al.Address, Owner: HostOwner("h"), Claim: Claim{Handle: "q"}})
	if res, err := w.ReleaseIPs(bg, rel); err != nil || res[0].Outcome != OwnerChanged {
		t.Errorf("after it got another owner: %v, %v", res, err)
	}
	w.check()
}

func TestAttributesOfOneAddressOnly(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	pod1, _ := NewAttributes(map[string]string{"pod": "1"})
	pod2, _ := NewAttributes(map[string]string{"pod": "2"})
	a := want("h", 3, "vm")
	a.Attributes = pod1
	got := w.assign(a).V4
	set := SetOwnerArgs{Address: got[1].Address, Guard: Guard{Handle: "vm"}, Alternate: &pod2, IfActive: &pod1}
	if err := w.SetAttributes(bg, set); err != nil {
		t.Fatal(err)
	}
	if err := w.SetAttributes(bg, SetOwnerArgs{Address: got[1].Address, Swap: true, IfAlternate: &pod2}); err != nil {
		t.Fatal(err)
	}
	if err := w.SetAttributes(bg, SetOwnerArgs{Address: got[1].Address, Swap: true, IfActive: &pod1}); !errors.Is(err, cause.Owner) {
		t.Errorf("swap with the wrong expectation: %v", err)
	}
	if err := w.SetAttributes(bg, SetOwnerArgs{Address: ip("10.0.0.255")}); !errors.Is(err, ipalloc.ErrNotHeld) {
		t.Errorf("free address: %v", err)
	}
	for i, al := range got {
		now, err := w.Lookup(bg, al.Address)
		wantActive := pod1
		if i == 1 {
			wantActive = pod2
		}
		if err != nil || now.Attributes != wantActive || now.Seq != al.Seq {
			t.Errorf("address %d: %+v, %v", i, now, err)
		}
	}
	w.check()
}

func TestManyCallersOfOneHostGetNoSpuriousErrors(t *testing.T) {
	const callers, each = 256, 10
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/16", 28))
	var mu sync.Mutex
	seen := map[netip.Addr]bool{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				got, err := w.AutoAssign(bg, want("h", 1, fmt.Sprint(c, "-", i)))
				if err != nil || len(got.V4) != 1 {
					t.Errorf("caller %d: %+v, %v", c, got, err)
					return
				}
				mu.Lock()
				if seen[got.V4[0].Address] {
					t.Errorf("%s twice", got.V4[0].Address)
				}
				seen[got.V4[0].Address] = true
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if n := len(w.blocksOf("h")); n != callers*each/16 {
		t.Errorf("%d blocks for %d addresses", n, callers*each)
	}
	w.check()
}

func TestLostClaimRaceIsRetried(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	r := newRacing(w.store)
	e := w.engine(r)
	r.before = func([]store.Op) {
		if _, err := w.AssignIP(bg, AssignIPArgs{Address: ip("10.0.0.9"), Owner: HostOwner("fast")}); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.AssignIP(bg, AssignIPArgs{Address: ip("10.0.0.10"), Owner: HostOwner("slow"), Claim: Claim{Handle: "p"}}); err != nil {
		t.Errorf("the one who lost: %v", err)
	}
	b, _ := w.Operator().BlockOf(bg, ip("10.0.0.10"))
	if b.Owner() != HostOwner("fast") || b.Used() != 2 {
		t.Errorf("block of %v with %d addresses", b.Owner(), b.Used())
	}
	w.check()
}
