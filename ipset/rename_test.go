package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// toRename makes a host "a" with all that a host can have, of a pool in which "b" has the other block and "c" has borrowed.
func toRename(t *testing.T) *world {
	p := poolOf("p", "10.0.0.0/26", 27)
	p.Cooldown = time.Minute
	w := newWorld(t, alloc.Config{}, p, poolOf("six", "fd00::/124", 126))
	for i := range 25 {
		a := want("a", 1, fmt.Sprint("p", i))
		if i%5 == 0 {
			a.TTL = time.Hour
		}
		w.assign(a)
	}
	first := w.assign(want("a", 1, "vm")).V4[0]
	if _, err := w.Assign(bg, alloc.HostOwner("a"), "vm"); err != nil {
		t.Fatal(err)
	}
	six := w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num6: 1, Handle: "six", Request: "add six"}).V6[0]
	w.assign(want("b", 20, "q"))
	w.assign(want("a", 10, "more"))    // the last of its own, and borrowed ones
	w.releaseHandle("p3")              // cools
	w.assign(want("c", 1, "borrower")) // of b
	share := alloc.Share{Max: 3}
	for _, h := range []string{"a", "c", "a"} {
		_, err := w.AssignIP(bg, alloc.AssignIPArgs{Owner: alloc.HostOwner(h), Address: six.Address.Next(), Handle: fmt.Sprint(h, w.rev()), Share: share})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a"), Prefix: six.Block}); err != nil {
		t.Fatal(err)
	}
	free := netip.MustParsePrefix("fd00::c/126")
	if free == six.Block {
		free = netip.MustParsePrefix("fd00::/126")
	}
	if _, failed, err := w.ClaimAffinity(bg, free, alloc.HostOwner("a")); err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	if first.Host != alloc.HostOwner("a") || w.former() == 0 {
		t.Fatal("the host has no block that was its own")
	}
	w.check()
	return w
}

// TestRenameHost: everything that a host has moves to its new name with new sequence numbers, in one commit or in many, interrupted at
// each commit and repeated.
func TestRenameHost(t *testing.T) {
	a, to := alloc.HostOwner("a"), alloc.HostOwner("new")
	for _, ops := range []int{0, 24, 60} {
		for cut := 1; ; cut++ {
			w := toRename(t)
			held, blocks, others := w.heldFor("a"), fmt.Sprint(w.blocksOf("a")), w.heldFor("b")+" and "+w.heldFor("c")
			was, err := w.IPsByHost(bg, a)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(bg)
			commits := 0
			e := w.engine(onCommit(limited(w.store, ops), func(context.Context, []store.Op) faults.Outcome {
				if commits++; commits == cut {
					cancel()
				}
				return faults.Outcome{}
			}))
			moved, own, err := e.Operator().RenameHost(ctx, alloc.RenameArgs{From: a, To: to})
			cancel()
			w.check()
			whole := err == nil
			if !whole {
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				more, blocks, err := w.engine(limited(w.store, ops)).Operator().RenameHost(bg, alloc.RenameArgs{From: a, To: to})
				if moved, own = append(moved, more...), append(own, blocks...); err != nil {
					t.Fatalf("cut off at commit %d of %d operations: %v", cut, ops, err)
				}
			}
			if w.heldFor("new") != held || fmt.Sprint(w.blocksOf("new")) != blocks || w.heldFor("b")+" and "+w.heldFor("c") != others || w.heldFor("a") != "" || len(w.blocksOf("a")) != 0 {
				t.Fatalf("cut off at commit %d: new has %s and %v, a %s and %v", cut, w.heldFor("new"), w.blocksOf("new"), w.heldFor("a"), w.blocksOf("a"))
			}
			if whole && (len(moved) != len(was) || len(own) != len(w.blocksOf("new"))) {
				t.Errorf("%d addresses and %d blocks, had %d", len(moved), len(own), len(was))
			}
			for _, al := range moved {
				if al.Host != to || al.MovedFrom != a {
					t.Errorf("%+v", al)
				}
			}
			w.check()
			w.renamed(was)
			if n := w.records(record.KindRename); n != 0 {
				t.Errorf("%d memos are left", n)
			}
			if whole {
				if ops == 0 && commits != 1 || ops > 0 && commits < 2 {
					t.Errorf("%d commits of %d operations", commits, ops)
				}
				break
			}
		}
	}
}

// renamed checks that the guards and requests of the first name fail.
func (w *world) renamed(was []alloc.Allocation) {
	w.t.Helper()
	for _, al := range was {
		guard := alloc.Guard{Handle: al.Handle, Seq: al.Seq}
		if r, err := w.ReleaseIPs(bg, alloc.Release{Address: al.Address, Guard: guard}); err != nil || r[0].Outcome != alloc.OwnerChanged {
			w.t.Errorf("late release of %v: %v, %v", al.Address, r, err)
		}
		if _, err := w.RenewIP(bg, al.Address, guard, alloc.RenewArgs{TTL: time.Hour}); !errors.Is(err, ipalloc.ErrMismatch) {
			w.t.Errorf("late renewal of %v: %v", al.Address, err)
		}
		if r, err := w.ReleaseByHandle(bg, al.Handle, al.Host); err != nil || len(r) != 0 {
			w.t.Errorf("late release of %s: %v, %v", al.Handle, r, err)
		}
	}
	if got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: was[0].Host, Num6: 1, Handle: "six", Request: "add six"}); !errors.Is(err, ipalloc.ErrMismatch) {
		w.t.Errorf("a late request: %v, %v", got, err)
	}
	if al, err := w.Assign(bg, alloc.HostOwner("new"), "vm"); err != nil || al.MovedFrom != (alloc.Owner{}) {
		w.t.Errorf("%v, %v", al, err)
	}
}

// TestRenameToAnExistingHost: a new name that has anything is refused and nothing changes; with Merge it gets both. A repetition changes
// nothing, and a memo that is left goes with it.
func TestRenameToAnExistingHost(t *testing.T) {
	a := alloc.HostOwner("a")
	for name, to := range map[string]alloc.Owner{"blocks": alloc.HostOwner("b"), "a borrowed address": alloc.HostOwner("c")} {
		w := toRename(t)
		rev := w.rev()
		_, _, err := w.Operator().RenameHost(bg, alloc.RenameArgs{From: a, To: to})
		if !errors.Is(err, ipalloc.ErrExists) || w.rev() != rev {
			t.Errorf("%s: %v", name, err)
		}
		var both int
		for _, o := range []alloc.Owner{a, to} {
			als, err := w.IPsByHost(bg, o)
			if both += len(als); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := w.Operator().RenameHost(bg, alloc.RenameArgs{From: a, To: to, Merge: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if als, err := w.IPsByHost(bg, to); err != nil || len(als) != both {
			t.Errorf("%s: %d addresses, both had %d: %v", name, len(als), both, err)
		}
		w.check()
		rev = w.rev()
		if moved, blocks, err := w.Operator().RenameHost(bg, alloc.RenameArgs{From: a, To: to}); err != nil || len(moved)+len(blocks) != 0 || w.rev() != rev {
			t.Errorf("%s, again: %v, %v, %v", name, moved, blocks, err)
		}
	}
	w := toRename(t)
	f := limited(w.store, 24)
	f.Script(faults.AtCommit(3, faults.Fail(faults.ErrInjected)))
	args := alloc.RenameArgs{From: a, To: alloc.HostOwner("new")}
	if _, _, err := w.engine(f).Operator().RenameHost(bg, args); !errors.Is(err, faults.ErrInjected) {
		t.Fatal(err)
	}
	for r, err := range w.Operator().Remembered(bg) {
		if r.Kind == alloc.RememberedRename && (r.Name != "host:a to host:new" || r.At.IsZero()) || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if _, _, err := w.Operator().RenameHost(bg, alloc.RenameArgs{From: a, To: alloc.HostOwner("new")}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.RemoveHost(bg, a); err != nil {
		t.Fatal(err)
	}
	if n := w.records(record.KindRename); n != 0 {
		t.Errorf("%d memos are left", n)
	}
}

// TestRenameBorrowerOfAFirstAddress: the key of a borrowed first address of a block is that of the block. Each address moves once.
func TestRenameBorrowerOfAFirstAddress(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/28", 28))
	w.assign(want("b", 1, "own"))
	for i := range 4 {
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Owner: alloc.HostOwner("a"), Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * i)}), Handle: "x"}); err != nil && i > 0 {
			t.Fatal(err)
		}
	}
	w.releaseHandle("own")
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Owner: alloc.HostOwner("a"), Address: ip("10.0.0.0"), Handle: "x"}); err != nil {
		t.Fatal(err)
	}
	moved, _, err := w.Operator().RenameHost(bg, alloc.RenameArgs{From: alloc.HostOwner("a"), To: alloc.HostOwner("new")})
	if err != nil || len(moved) != 4 {
		t.Errorf("%v, %v", moved, err)
	}
}
