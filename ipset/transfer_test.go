package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestTransfer: what a handle holds is held by another in one commit, with the host, the attributes and the lease of before, and nothing
// of the former handle works on it any more.
func TestTransfer(t *testing.T) {
	attr, err := alloc.NewAttributes(map[string]string{"user": "ann"})
	if err != nil {
		t.Fatal(err)
	}
	for _, ops := range []int{0, 16} {
		for _, one := range []bool{true, false} {
			p := poolOf("p", "10.0.0.0/24", 28)
			p.Index, p.Cooldown = []string{"user"}, time.Minute
			w := newWorld(t, alloc.Config{}, p)
			e := w.engine(limited(w.store, ops))
			a := want("h", 1, "old")
			a.TTL, a.Attributes, a.Existing, a.Sticky = time.Hour, attr, true, true
			was := w.assign(a).V4[0]
			b := want("g", 3, "old")
			b.Request, b.Blocks.Max = "add", 9
			w.assign(b)
			w.clock.add(time.Second)
			args, n := alloc.TransferArgs{From: "old", To: "new"}, 4
			if one {
				args.Address, n = was.Address, 1
			}
			moved, err := e.Transfer(bg, args)
			if err != nil || len(moved) != n {
				t.Fatalf("%v, %v", moved, err)
			}
			is := moved[0]
			if is.Address != was.Address { // the order is that of the addresses
				is = moved[n-1]
			}
			if is.Handle != "new" || is.Host != was.Host || is.Attributes != attr || !is.Until.Equal(was.Until) || is.Seq <= was.Seq || !is.Since.After(was.Since) {
				t.Errorf("%+v, was %+v", is, was)
			}
			w.check()
			for _, g := range []alloc.Guard{{Handle: "old"}, {Seq: was.Seq}} {
				if r, err := w.ReleaseIPs(bg, alloc.Release{Address: was.Address, Guard: g}); err != nil || r[0].Outcome != alloc.OwnerChanged {
					t.Errorf("late release: %v, %v", r, err)
				}
				if _, err := w.RenewIP(bg, was.Address, g, alloc.RenewArgs{TTL: time.Hour}); !errors.Is(err, ipalloc.ErrMismatch) {
					t.Errorf("late renewal: %v", err)
				}
			}
			again, err := w.Transfer(bg, args)
			if err != nil || one && (len(again) != 1 || again[0].Seq != is.Seq) || !one && len(again) != 0 {
				t.Errorf("again: %v, %v", again, err)
			}
			if al, err := w.Assign(bg, was.Host, "new"); err != nil || !one && al.Address == (netip.Addr{}) || one && al.Seq != is.Seq {
				t.Errorf("the first of the new handle: %v, %v", al, err)
			}
			if as := w.records(record.KindSticky); as != 0 {
				t.Errorf("%d memos of sticky handles", as)
			}
			w.releaseHandle("new")
			w.clock.add(2 * time.Minute)
			if _, err := w.Withdraw(bg, "add"); err != nil {
				t.Fatal(err)
			}
			a.Existing = false
			if al := w.assign(a).V4[0]; al.Address == was.Address && one {
				t.Errorf("the former handle gets %v again", al)
			}
		}
	}
}

// TestTransferOfACoolingAddress: the other handle has it at once. It is refused where an assignment would be.
func TestTransferOfACoolingAddress(t *testing.T) {
	p := poolOf("p", "10.0.0.0/24", 28)
	p.Cooldown = time.Hour
	h := alloc.HostOwner("h")
	args := alloc.TransferArgs{From: "port-a", To: "port-b", Also: []store.Op{{Kind: store.Put, Key: "Port/b", Value: "up", Expect: 0}}}
	for name, do := range map[string]struct {
		before func(w *world, a netip.Addr) error
		want   error
	}{
		"cools": {func(w *world, _ netip.Addr) error { return nil }, nil},
		"orphan": {func(w *world, _ netip.Addr) error {
			_, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: h})
			return err
		}, nil},
		"disabled": {func(w *world, _ netip.Addr) error { _, err := w.Operator().Drain(bg, "p"); return err }, ipalloc.ErrNotFound},
		"no pool":  {func(w *world, _ netip.Addr) error { return w.RemovePool(bg, "p") }, ipalloc.ErrNotFound},
		"free":     {func(w *world, _ netip.Addr) error { w.clock.add(2 * time.Hour); return nil }, ipalloc.ErrNotHeld},
		"strict": {func(w *world, _ netip.Addr) error {
			_, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: h})
			if err == nil {
				_, _, err = w.ClaimAffinity(bg, p.Prefix, alloc.HostOwner("g"))
			}
			return errors.Join(err, w.Operator().SetConfig(bg, alloc.Config{Strict: true}))
		}, ipalloc.ErrOccupied},
		"of another": {func(w *world, a netip.Addr) error {
			_, err := w.Transfer(bg, alloc.TransferArgs{From: "port-a", To: "x", Address: a})
			return err
		}, ipalloc.ErrMismatch},
		"declined": {func(w *world, a netip.Addr) error {
			_, err := w.Transfer(bg, alloc.TransferArgs{From: "port-a", To: "port-b", Address: a})
			if err == nil {
				_, err = w.Decline(bg, alloc.DeclineArgs{Address: a, For: time.Hour, Reason: "in use"})
			}
			return err
		}, ipalloc.ErrCooling},
		"a record of the caller": {func(w *world, _ netip.Addr) error {
			_, err := w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: "Port/b", Value: "there"}})
			return err
		}, ipalloc.ErrConflict},
	} {
		w := newWorld(t, alloc.Config{}, p)
		w.leaves(audit.NoPool)
		a := w.assign(alloc.AssignArgs{Owner: h, Num4: 1, Handle: "port-a", Sticky: true}).V4[0]
		w.releaseHandle("port-a")
		if err := do.before(w, a.Address); err != nil {
			t.Fatal(name, err)
		}
		args.Address = a.Address
		rev := w.rev()
		got, err := w.Transfer(bg, args)
		if !errors.Is(err, do.want) || err != nil && w.rev() != rev {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if do.want != nil {
			continue
		}
		if len(got) != 1 || got[0].Handle != "port-b" || got[0].Host != h || got[0].Seq <= a.Seq || !got[0].Until.IsZero() || len(w.list(store.Range{From: "Port/b", To: "Port/c"})) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if n := w.records(record.KindSticky); n != 0 {
			t.Errorf("%s: %d memos of sticky handles", name, n)
		}
		w.check()
	}
}

// TestTransferOfASharedAddress: one holder is replaced, and the others stay. The new handle may not be among them.
func TestTransferOfASharedAddress(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
	at := ip("10.0.0.7")
	for _, h := range []string{"a", "b", "c"} {
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Owner: alloc.HostOwner("h" + h), Address: at, Handle: h, Share: alloc.Share{Max: 3, Key: "web"}}); err != nil {
			t.Fatal(err)
		}
	}
	rev := w.rev()
	if _, err := w.Transfer(bg, alloc.TransferArgs{From: "a", To: "b"}); !errors.Is(err, ipalloc.ErrOccupied) || w.rev() != rev {
		t.Error(err)
	}
	if got, err := w.Transfer(bg, alloc.TransferArgs{From: "a", To: "x", Address: at}); err != nil || len(got) != 1 || got[0].Host != alloc.HostOwner("ha") {
		t.Error(got, err)
	}
	al, err := w.Lookup(bg, at)
	var handles []string
	for h := range al.Holders() {
		handles = append(handles, h.Handle)
	}
	if err != nil || fmt.Sprint(handles) != "[b c x]" {
		t.Error(handles, err)
	}
}

// TestTransferIsRepeated: cut off at each call of the store, in steps or at once, the repetition ends as an undisturbed call.
func TestTransferIsRepeated(t *testing.T) {
	for _, ops := range []int{0, 12} {
		for k, met := 1, true; met; k++ {
			for _, o := range []faults.Outcome{faults.Fail(faults.ErrInjected), faults.Unknown(false), faults.Unknown(true)} {
				w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
				w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 20, Handle: "old", Sticky: true})
				f := limited(w.store, ops)
				e := w.engine(f)
				f.Script(faults.At(k, o))
				args := alloc.TransferArgs{From: "old", To: "new"}
				moved, err := e.Transfer(bg, args)
				met = f.Counts().Calls() >= k
				f.Script(nil)
				if err != nil {
					w.check()
					var more []alloc.Allocation
					more, err = e.Transfer(bg, args)
					moved = append(moved, more...)
				}
				if als, err2 := w.IPsByHandle(bg, "new"); err != nil || err2 != nil || len(als) != 20 || len(moved) > 20 {
					t.Fatalf("call %d of %d operations, %+v: %d and %d addresses, %v, %v", k, ops, o, len(moved), len(als), err, err2)
				}
			}
		}
	}
}
