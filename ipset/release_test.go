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
