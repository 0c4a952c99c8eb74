package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestHandleIsIndexedForEachAddress(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 30))
	if got := w.assign(want("h", 6, "p")); len(got.V4) != 6 || w.records(record.KindHandle) != 6 {
		t.Fatalf("%d addresses, %d index records", len(got.V4), w.records(record.KindHandle))
	}
	w.check()
	w.releaseHandle("p")
	if n := w.records(record.KindHandle); n != 0 {
		t.Errorf("%d index records of a handle without addresses", n)
	}
}

func TestConflictDoesNotCountAHandleTwice(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
	r := newRacing(w.store)
	e := w.engine(r)
	r.before = func([]store.Op) { w.assign(want("h", 1, "other")) }
	if _, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.9"), Owner: alloc.HostOwner("h"), Handle: "p"}); err != nil {
		t.Fatal(err)
	}
	w.check()
	if as := w.releaseHandle("p"); len(as) != 1 {
		t.Errorf("handle held %v", as)
	}
}

func TestReleaseWithCancelledContextDoesNotPanic(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 30))
	var rs []alloc.Release
	for i := range 16 {
		for _, al := range w.assign(want(fmt.Sprint("h", i), 4, "p")).V4 {
			rs = append(rs, alloc.Release{Address: al.Address})
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
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 30), poolOf("b", "2001:db8::/120", 126))
	a := want("h", 12, "p")
	a.Num6 = 12
	got := w.assign(a)
	var wg sync.WaitGroup
	for _, al := range append(got.V4, got.V6...) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := w.ReleaseIPs(bg, alloc.Release{Address: al.Address}); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
}

func TestSecondReleaseIsNoConflict(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	al := w.assign(want("h", 1, "p")).V4[0]
	rel := alloc.Release{Address: al.Address, Guard: alloc.Guard{Handle: "p", Seq: al.Seq}}
	for i, wantOutcome := range []alloc.Outcome{alloc.Released, alloc.WasFree, alloc.WasFree} {
		res, err := w.ReleaseIPs(bg, rel)
		if err != nil || res[0].Outcome != wantOutcome {
			t.Errorf("release %d: %v, %v", i, res, err)
		}
	}
	w.AssignIP(bg, alloc.AssignIPArgs{Address: al.Address, Owner: alloc.HostOwner("h"), Handle: "q"})
	if res, err := w.ReleaseIPs(bg, rel); err != nil || res[0].Outcome != alloc.OwnerChanged {
		t.Errorf("after it got another owner: %v, %v", res, err)
	}
}

// TestReleaseInParts: addresses that a commit has no room for are released by the next, in the order of their names.
func TestReleaseInParts(t *testing.T) {
	for ops := 16; ops < 64; ops += 7 {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		var rs []alloc.Release
		for i := range 40 {
			rs = append(rs, alloc.Release{Address: w.assign(want("h", 1, fmt.Sprint("p", i))).V4[0].Address})
		}
		res, err := w.engine(limited(w.store, ops)).ReleaseIPs(bg, rs...)
		if err != nil || len(res) != len(rs) {
			t.Fatalf("%d operations a commit: %v, %v", ops, res, err)
		}
		for i, r := range res {
			if r.Outcome != alloc.Released {
				t.Errorf("%d operations a commit: %s: %v", ops, rs[i].Address, r.Outcome)
			}
		}
		if held := w.used(); len(held) > 0 {
			t.Errorf("%d operations a commit: %v are held", ops, held)
		}
	}
}

// TestReleaseWhoseStoreFails: a release that one failed call of the store ends returns that error and changes nothing: of the last
// address of a block without owner, and beside an address that was declined for longer than the pool's addresses cool.
func TestReleaseWhoseStoreFails(t *testing.T) {
	p := poolOf("a", "10.0.0.0/24", 28)
	for name, build := range map[string]func(w *world) netip.Addr{
		"orphan": func(w *world) netip.Addr {
			at := w.assign(want("h", 1, "p")).V4[0]
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h")}); err != nil {
				t.Fatal(err)
			}
			return at.Address
		},
		"declined": func(w *world) netip.Addr {
			p := p
			p.Cooldown = time.Minute
			if err := w.UpdatePool(bg, p); err != nil {
				t.Fatal(err)
			}
			als := w.assign(want("h", 4, "p")).V4
			for i, d := range []time.Duration{time.Hour, time.Minute, 2 * time.Minute} { // the block knows the first and the last
				if _, err := w.Decline(bg, alloc.DeclineArgs{Address: als[i].Address, Guard: alloc.Guard{Handle: "p"}, For: d}); err != nil {
					t.Fatal(err)
				}
			}
			return als[3].Address
		},
	} {
		for k := 1; ; k++ {
			w := newWorld(t, alloc.Config{}, p)
			at := build(w)
			rev := w.rev()
			s := scripted(w.store, faults.At(k, faults.Fail(errDown)))
			got, err := w.engine(s).ReleaseIPs(bg, alloc.Release{Address: at})
			w.check()
			if s.Counts().Calls() < k {
				if err != nil || len(got) != 1 || k < 4 {
					t.Errorf("%s: %v, %v, %d calls", name, got, err, k-1)
				}
				break
			}
			if !errors.Is(err, errDown) || w.rev() != rev {
				t.Errorf("%s: call %d fails: %v, %v; revision %d, was %d", name, k, got, err, w.rev(), rev)
			}
		}
	}
}

// TestWholeReleaseOfManyBlocks: a release of all or none is one, in however many blocks its addresses are.
func TestWholeReleaseOfManyBlocks(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 32))
	var args alloc.ReleaseArgs
	for _, al := range w.assign(want("h", 150, "p")).V4 {
		args.Addresses = append(args.Addresses, alloc.Release{Address: al.Address, Guard: alloc.Guard{Handle: "p"}})
	}
	got, err := w.engine(w.store).Release(bg, args)
	left, _ := w.IPsByHandle(bg, "p")
	if err != nil || len(got) != 150 || len(left) != 0 {
		t.Errorf("%d released, %v; %d are left", len(got), err, len(left))
	}
}

// TestDisownReadsAddressesTogether: the addresses of blocks that are in use are read in a round trip, and the host for which they are held
// stays their former owner.
func TestDisownReadsAddressesTogether(t *testing.T) {
	for n, blocks := range map[int]int{1: 1, 120: 2} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		w.assign(want("h", n, "p"))
		s := faults.NewFaulty(w.store)
		got, err := w.engine(s).DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h")})
		if err != nil || len(got) != blocks || w.former() != blocks || s.Counts().Gets > 5 {
			t.Errorf("%v, %v, %d records of the former owner, %+v", got, err, w.former(), s.Counts())
		}
	}
}

// TestDisownForgetsWhoHoldsNothing: a host that gives up a block in which one address is held, for another host, is no former owner.
func TestDisownForgetsWhoHoldsNothing(t *testing.T) {
	for _, guests := range []int{1, 2} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		first := w.assign(want("h", 1, "p")).V4[0]
		for at := first.Address; guests > 0; guests-- {
			at = at.Next()
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: at, Owner: alloc.HostOwner("guest")}); err != nil {
				t.Fatal(err)
			}
		}
		w.releaseHandle("p")
		got, err := w.engine(w.store).DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h")})
		if err != nil || len(got) != 1 || w.former() != 0 {
			t.Errorf("%v, %v, %d records of the former owner", got, err, w.former())
		}
	}
}

// TestOrphanThatCoolsIsKept: a block without owner stays while its last address cools, however short that is.
func TestOrphanThatCoolsIsKept(t *testing.T) {
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Cooldown = 1
	w := newWorld(t, alloc.Config{}, p)
	w.assign(want("h", 1, "p"))
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h")}); err != nil {
		t.Fatal(err)
	}
	w.releaseHandle("p")
	w.check()
	if n := w.records(record.KindBlock); n != 1 {
		t.Errorf("%d blocks", n)
	}
}

// TestReleaseReadsNoCoolingAddresses: a release does not read the addresses that cool if it knows that its own cools longest, or does
// not cool at all.
func TestReleaseReadsNoCoolingAddresses(t *testing.T) {
	for name, change := range map[string]func(w *world, p alloc.Pool){
		"later":            func(w *world, _ alloc.Pool) { w.clock.add(time.Second) },
		"at the same time": func(*world, alloc.Pool) {},
		"without cooldown": func(w *world, p alloc.Pool) {
			p.Cooldown = 0
			if err := w.UpdatePool(bg, p); err != nil {
				t.Fatal(err)
			}
		},
	} {
		p := poolOf("a", "10.0.0.0/24", 26)
		p.Cooldown = time.Hour
		w := newWorld(t, alloc.Config{}, p)
		w.assign(want("h", 40, "p"))
		last := w.assign(want("h", 1, "q")).V4[0]
		w.releaseHandle("p")
		change(w, p)
		s := faults.NewFaulty(w.store)
		if got, err := w.engine(s).ReleaseIPs(bg, alloc.Release{Address: last.Address}); err != nil || len(got) != 1 || touched(s) > 20 {
			t.Errorf("%s: %v, %v, %d records", name, got, err, touched(s))
		}
	}
}
