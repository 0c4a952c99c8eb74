package ipset

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// TestWish: an address that a client asks for is given where automatic assignment could give it, else another is, and never an error.
func TestWish(t *testing.T) {
	pool := alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/26"), BlockBits: 29, MaxBlocksPerHost: 3, Cooldown: time.Hour,
		Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.2-10.0.0.47")}}
	w := newWorld(t, alloc.Config{}, pool, alloc.Pool{Name: "m", Prefix: netip.MustParsePrefix("10.1.0.0/28"), Manual: true})
	if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: alloc.Reservations(netipx.MustParseIPRange("10.0.0.20-10.0.0.21"))}); err != nil {
		t.Fatal(err)
	}
	ask := func(host, handle, wish string, n int) []alloc.Allocation {
		t.Helper()
		got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: n, Handle: handle, Choose: alloc.Prefer(ip(wish))})
		if err != nil || len(got.V4) != n {
			t.Fatalf("%s for %s: %v, %v", wish, handle, got, err)
		}
		w.check()
		return got.V4
	}
	for i, c := range []struct {
		what, wish string
		want       bool
	}{
		{"a block that is made for it", "10.0.0.19", true},
		{"its own block", "10.0.0.17", true},
		{"held by another", "10.0.0.17", false},
		{"reserved", "10.0.0.20", false},
		{"a second block", "10.0.0.4", true},
		{"outside the ranges", "10.0.0.1", false},
		{"outside the ranges, in no block", "10.0.0.60", false},
		{"a pool that must be named", "10.1.0.3", false},
		{"no pool", "192.0.2.1", false},
		{"the other family", "fd00::1", false},
	} {
		if got := ask("h", string(rune('a'+i)), c.wish, 1)[0].Address; (got == ip(c.wish)) != c.want {
			t.Errorf("%s: asked for %s, got %s", c.what, c.wish, got)
		}
	}
	// The rest of several comes from the block that is made, and a limit keeps the next one from being made.
	if got := ask("h", "more", "10.0.0.33", 4); got[0].Address != ip("10.0.0.33") {
		t.Errorf("%v", got)
	}
	if got := ask("h", "limit", "10.0.0.41", 1)[0].Address; got == ip("10.0.0.41") {
		t.Error("the wish is beyond the limit of blocks")
	}
	if got := ask("g", "limit", "10.0.0.38", 1)[0].Address; got != ip("10.0.0.38") {
		t.Errorf("borrowed: %s", got)
	}
	w.releaseHandle("limit")
	if got := ask("g", "other", "10.0.0.38", 1)[0].Address; got == ip("10.0.0.38") {
		t.Error("the address cools")
	}
	for _, a := range []alloc.AssignArgs{{Choose: alloc.Prefer(netip.MustParseAddr("::ffff:10.0.0.1"))}, {Choose: alloc.From(netip.MustParseAddr("::ffff:10.0.0.1"))}} {
		a.Owner, a.Num4 = alloc.HostOwner("h"), 1
		if _, err := w.AutoAssign(bg, a); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

// TestWishWhoseStoreFails: an assignment that one failed call of the store ends while it makes the block of the wish returns that error
// and assigns nothing.
func TestWishWhoseStoreFails(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
		w.assign(want("other", 1, "q"))
		if err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/24", 26)); err != nil { // blocks of the former size are looked for
			t.Fatal(err)
		}
		wish := ip("10.0.0.7")
		if w.blocksOf("other")[0].Overlaps(netip.MustParsePrefix("10.0.0.0/26")) {
			wish = ip("10.0.0.77")
		}
		f := scripted(w.store, faults.At(k, faults.Fail(errDown)))
		got, err := w.engine(f).AutoAssign(bg, alloc.AssignArgs{
			Owner: alloc.HostOwner("h"), Num4: 1, Choose: alloc.Prefer(wish), Handle: "c", Partial: true,
		})
		held, lookErr := w.IPsByHandle(bg, "c")
		if lookErr != nil {
			t.Fatal(lookErr)
		}
		w.check()
		if f.Counts().Calls() < k {
			if err != nil || len(held) != 1 || held[0].Address != wish || k < 4 {
				t.Errorf("%v, %v, %d calls", got, err, k-1)
			}
			return
		}
		if !errors.Is(err, errDown) || len(held) != 0 {
			t.Errorf("call %d fails: %v, %v; held %v", k, got, err, held)
		}
	}
}

// Under strict affinity a wish, and an address that is named, is given from a block that the call may take over or adopt.
func TestStrictWishInABlockThatMayBecomeOwn(t *testing.T) {
	for name, leave := range map[string]func(w *world){
		"idle": func(w *world) { w.releaseHandle("x"); w.clock.add(time.Hour) },
		"orphan": func(w *world) {
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a")}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, n := range []int{1, 3} {
			w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/28", 28))
			w.assign(want("a", 1, "x"))
			leave(w)
			a := want("b", n, "y")
			wish := ip("10.0.0.7")
			a.Choose = alloc.Prefer(wish)
			got := w.assign(a)
			if len(got.V4) == 0 || got.V4[0].Address != wish || len(w.blocksOf("b")) != 1 || len(w.blocksOf("a")) != 0 {
				t.Errorf("%s, %d: %+v", name, n, got)
			}
		}
	}
	w := newWorld(t, alloc.Config{Strict: true, MaxBlocksPerHost: 1}, poolOf("p", "10.0.0.0/27", 28))
	w.assign(want("a", 1, "x"))
	at := w.blocksOf("a")[0]
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a")}); err != nil {
		t.Fatal(err)
	}
	named := func(host string, n int) error {
		a := at.Addr()
		for range n {
			a = a.Next()
		}
		_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: alloc.HostOwner(host), Handle: host})
		return err
	}
	w.assign(want("full", 1, "z"))
	if err := named("full", 5); !errors.Is(err, ipalloc.ErrLimit) {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := named("b", 5); err != nil || len(w.blocksOf("b")) != 1 {
		t.Errorf("an address of a block without owner: %v", err)
	}
	if err := named("c", 6); err == nil {
		t.Error("an address of another owner's block")
	}
}

// An address that another host reserved at the end of a block which it has left is given to a caller that prefers or names it, with and
// without strict affinity: automatic assignment takes the block over and may give it.
func TestWishInTheEndsOfAnIdleBlock(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for name, ask := range map[string]func(w *world) (alloc.Allocation, error){
			"preferred": func(w *world) (alloc.Allocation, error) {
				a := want("b", 1, "y")
				a.Choose = alloc.Prefer(ip("10.0.0.1"))
				return w.assign(a).V4[0], nil
			},
			"within rules": func(w *world) (alloc.Allocation, error) {
				return w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("b"), Handle: "y", WithinRules: true})
			},
		} {
			w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/28", 28))
			ends := want("a", 1, "x")
			ends.Blocks = alloc.BlockArgs{Head: 2}
			w.assign(ends)
			w.releaseHandle("x")
			w.clock.add(time.Hour)
			if err := w.Operator().SetConfig(bg, alloc.Config{Strict: strict}); err != nil {
				t.Fatal(err)
			}
			if al, err := ask(w); err != nil || al.Address != ip("10.0.0.1") || len(w.blocksOf("b")) != 1 {
				t.Errorf("%s, strict %v: %+v, %v", name, strict, al, err)
			}
		}
	}
}
