package ipset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

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
	if _, err := e.AssignIP(bg, AssignIPArgs{Address: ip("10.0.0.9"), Owner: alloc.HostOwner("h"), Claim: alloc.Claim{Handle: "p"}}); err != nil {
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

func TestSecondReleaseIsNoConflict(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	al := w.assign(want("h", 1, "p")).V4[0]
	rel := Release{al.Address, alloc.Guard{Handle: "p", Seq: al.Seq}}
	for i, wantOutcome := range []alloc.Outcome{alloc.Released, alloc.WasFree, alloc.WasFree} {
		res, err := w.ReleaseIPs(bg, rel)
		if err != nil || res[0].Outcome != wantOutcome {
			t.Errorf("release %d: %v, %v", i, res, err)
		}
	}
	w.AssignIP(bg, AssignIPArgs{Address: al.Address, Owner: alloc.HostOwner("h"), Claim: alloc.Claim{Handle: "q"}})
	if res, err := w.ReleaseIPs(bg, rel); err != nil || res[0].Outcome != alloc.OwnerChanged {
		t.Errorf("after it got another owner: %v, %v", res, err)
	}
	w.check()
}
