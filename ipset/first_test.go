package ipset

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// atRest returns what the store keeps when nothing is held: all records but space pages and floors, which keep sequence numbers, and
// records that a caller has asked for.
func (w *world) atRest() map[string]string {
	left := make(map[string]string)
	for _, r := range w.list(store.Range{}) {
		if kind := r.Key[:1]; kind != record.KindPage && kind != record.KindMemo && kind != record.KindAged {
			left[r.Key] = r.Value
		}
	}
	return left
}

// TestReleasedAddressesLeaveNoRecord: for every call that assigns and every way in which a holding ends, on two engines and with small
// commits, the store is what it was before, and has no record of a request that nobody made.
func TestReleasedAddressesLeaveNoRecord(t *testing.T) {
	h, g := alloc.HostOwner("h"), alloc.HostOwner("g")
	pools := []alloc.Pool{poolOf("a", "10.0.0.0/24", 28), poolOf("b", "10.1.0.0/24", 28), poolOf("c", "fd00::/48", 64)}
	pools[1].Index = []string{"tenant"}
	var w *world
	together := func(call func(e *Engine) error) error {
		return store.Together(bg, w.store, func(tx store.Store) error { return call(w.engine(tx)) })
	}
	assigns := map[string]func(e, f *Engine) (alloc.Allocation, error){
		"Assign of a block of 2^64": func(e, _ *Engine) (alloc.Allocation, error) { return e.Assign(bg, h, "x", "c") },
		"Assign, and the pool gets another block size": func(e, f *Engine) (alloc.Allocation, error) {
			al, err := e.Assign(bg, h, "x", "a")
			p := pools[0]
			p.BlockBits = 29
			if err == nil {
				err = f.UpdatePool(bg, p)
			}
			if err == nil { // a block of the new size
				_, err = f.AssignIP(bg, alloc.AssignIPArgs{Owner: h, Address: netip.MustParseAddr("10.0.0.9"), Handle: "x"})
			}
			return al, err
		},
		"AssignIP with an index and alternate attributes": func(e, f *Engine) (alloc.Allocation, error) {
			m, _ := alloc.NewAttributes(map[string]string{"tenant": "t"})
			al, err := e.AssignIP(bg, alloc.AssignIPArgs{Owner: h, Address: netip.MustParseAddr("10.1.0.9"), Handle: "x", Attributes: m})
			if err == nil {
				err = f.Update(bg, alloc.UpdateArgs{Address: al.Address, Alternate: &m})
			}
			return al, err
		},
		"Assign in Together": func(_, _ *Engine) (al alloc.Allocation, err error) {
			return al, together(func(e *Engine) (err error) {
				if al, err = e.Assign(bg, h, "x", "a"); err == nil {
					_, err = e.Assign(bg, h, "x", "b")
				}
				return err
			})
		},
		"Assign": func(e, _ *Engine) (alloc.Allocation, error) { return e.Assign(bg, h, "x") },
		"Assign, repeated": func(e, f *Engine) (alloc.Allocation, error) {
			f.Assign(bg, h, "x")
			return e.Assign(bg, h, "x")
		},
		"Assign, of two pools": func(e, f *Engine) (alloc.Allocation, error) {
			f.Assign(bg, h, "x", "b")
			return e.Assign(bg, h, "x", "a")
		},
		"Assign, moved": func(e, f *Engine) (alloc.Allocation, error) {
			f.Assign(bg, g, "x")
			return e.Assign(bg, h, "x")
		},
		"AutoAssign and Assign": func(e, f *Engine) (alloc.Allocation, error) {
			f.AutoAssign(bg, alloc.AssignArgs{Owner: h, Num4: 2, Handle: "x"})
			return e.Assign(bg, h, "x")
		},
		"AutoAssign": func(e, _ *Engine) (alloc.Allocation, error) {
			got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: h, Num4: 1, Handle: "x", TTL: time.Minute})
			return firstOf(got), err
		},
		"Existing": func(e, _ *Engine) (alloc.Allocation, error) {
			got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: h, Num4: 3, Existing: true, Handle: "x", TTL: time.Minute})
			return firstOf(got), err
		},
		"Offer": func(e, _ *Engine) (alloc.Allocation, error) {
			got, err := e.Offer(bg, alloc.AssignArgs{Owner: h, Num4: 1, Handle: "x", TTL: time.Minute})
			return firstOf(got), err
		},
		"AssignIP": func(e, _ *Engine) (alloc.Allocation, error) {
			return e.AssignIP(bg, alloc.AssignIPArgs{Owner: h, Address: netip.MustParseAddr("10.0.0.77"), Handle: "x", TTL: time.Minute})
		},
		"Assign of a co-held address": func(e, f *Engine) (alloc.Allocation, error) {
			share := alloc.Share{Max: 2}
			a := alloc.AssignIPArgs{Owner: h, Address: netip.MustParseAddr("10.0.0.77"), Handle: "x", Share: share}
			f.AssignIP(bg, a)
			a.Handle = "y"
			f.AssignIP(bg, a)
			f.Assign(bg, g, "x")
			return e.Assign(bg, h, "y")
		},
		"Assign, transferred": func(e, f *Engine) (alloc.Allocation, error) {
			f.Assign(bg, h, "z")
			f.Assign(bg, h, "x", "b")
			got, err := e.Transfer(bg, alloc.TransferArgs{From: "z", To: "x"})
			if err != nil || len(got) != 1 {
				return alloc.Allocation{}, err
			}
			return e.Assign(bg, h, "x", "a")
		},
		"Assign, renamed": func(e, f *Engine) (alloc.Allocation, error) {
			f.Assign(bg, g, "x")
			if _, _, err := e.Operator().RenameHost(bg, alloc.RenameArgs{From: g, To: h}); err != nil {
				return alloc.Allocation{}, err
			}
			return f.Assign(bg, h, "x")
		},
		"a request": func(e, _ *Engine) (alloc.Allocation, error) {
			got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: h, Num4: 1, Request: "r", Handle: "x", TTL: time.Minute})
			return firstOf(got), err
		},
	}
	ends := map[string]func(w *world, e *Engine, al alloc.Allocation){
		"ReleaseIPs": func(w *world, e *Engine, _ alloc.Allocation) {
			for _, p := range pools {
				for al := range e.Allocations(bg, p.Prefix) {
					e.ReleaseIPs(bg, alloc.Release{Address: al.Address})
				}
			}
		},
		"ReleaseByHandle": func(w *world, e *Engine, _ alloc.Allocation) { e.ReleaseByHandle(bg, "x"); e.ReleaseByHandle(bg, "y") },
		"ReleaseByHandle in Together": func(*world, *Engine, alloc.Allocation) {
			together(func(e *Engine) error {
				_, err := e.ReleaseByHandle(bg, "x")
				_, also := e.ReleaseByHandle(bg, "y")
				return errors.Join(err, also)
			})
		},
		"a collector": func(w *world, e *Engine, _ alloc.Allocation) {
			e.Operator().NewCollector(0).Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Gone })
		},
		"Release": func(w *world, e *Engine, _ alloc.Allocation) {
			e.Release(bg, alloc.ReleaseArgs{Handle: "x"})
			e.Release(bg, alloc.ReleaseArgs{Handle: "y"})
		},
		"host": func(w *world, e *Engine, _ alloc.Allocation) {
			e.ReleaseByHost(bg, h)
			e.ReleaseByHost(bg, g)
		},
		"RemoveHost": func(w *world, e *Engine, _ alloc.Allocation) { e.RemoveHost(bg, h); e.RemoveHost(bg, g) },
		"Decline": func(w *world, e *Engine, al alloc.Allocation) {
			e.Decline(bg, alloc.DeclineArgs{Address: al.Address, For: time.Minute})
			w.clock.add(2 * time.Minute)
			e.ReleaseByHandle(bg, "x")
			e.ReleaseByHandle(bg, "y")
		},
		"time": func(w *world, e *Engine, al alloc.Allocation) {
			w.clock.add(2 * time.Minute)
			e.Assign(bg, al.Host, "passes by")
			e.ReleaseByHandle(bg, "passes by")
			e.ReleaseByHandle(bg, "x")
			e.ReleaseByHandle(bg, "y")
		},
	}
	for _, limit := range []int{0, 20} {
		for assign, do := range assigns {
			for end, undo := range ends {
				w = newWorld(t, alloc.Config{}, pools...)
				before := w.atRest()
				engine := func() *Engine { return w.engine(faults.NewLimited(w.store, store.Limits{Ops: limit})) }
				e, f := engine(), engine()
				al, err := do(e, f)
				if err != nil || al.Host != h {
					t.Fatal(assign, al, err)
				}
				w.check()
				if n := w.records(record.KindMemo); n > 0 && assign != "Offer" && assign != "a request" {
					t.Errorf("%s: %d records of requests", assign, n)
				}
				undo(w, f, al)
				if err := f.UpdatePool(bg, pools[0]); err != nil { // its block size
					t.Fatal(err)
				}
				w.clock.add(time.Hour)
				if _, err := e.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute, RequestsAfter: -1, StickyAfter: -1}); err != nil {
					t.Fatal(err)
				}
				w.check()
				after := w.atRest()
				for _, m := range []map[string]string{before, after} {
					maps.DeleteFunc(m, func(key, _ string) bool { return strings.HasPrefix(key, record.KindCatalog) }) // knows former block sizes
				}
				if !maps.Equal(before, after) {
					t.Errorf("limit %d, %s, %s: %q, before %q", limit, assign, end, after, before)
				}
			}
		}
	}
}

// TestEndedSpaceLeavesNoRecord: a space that is removed, and the operator's copy and collection in it, leave the store as it was.
func TestEndedSpaceLeavesNoRecord(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	h := alloc.HostOwner("h")
	if _, err := w.Assign(bg, h, "stays"); err != nil {
		t.Fatal(err)
	}
	before := w.list(store.Range{})
	for range 2 { // its name can be used again
		in, err := w.InSpace("blue")
		if err == nil {
			err = in.AddPool(bg, poolOf("b", "10.0.0.0/24", 28))
		}
		for i := range 20 {
			if err == nil {
				_, err = in.Assign(bg, h, fmt.Sprint("x", i))
			}
		}
		if err == nil {
			_, _, err = in.RemoveHost(bg, h)
		}
		if err == nil {
			err = in.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"b"}, IfEmpty: true})
		}
		if err == nil {
			err = w.Operator().RemoveSpace(bg, "blue")
		}
		if err != nil {
			t.Fatal(err)
		}
		if after := w.list(store.Range{}); !slices.Equal(after, before) {
			t.Errorf("%q, before %q", after, before)
		}
	}
}

func firstOf(a alloc.Assigned) (al alloc.Allocation) {
	for _, al := range append(a.V4, a.V6...) {
		return al
	}
	return al
}

// TestAssignBesideAutoAssign: an address that another call gives to the handle between the plan and the commit of an Assign does not
// make two Assigns return different addresses.
func TestAssignBesideAutoAssign(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Minute} {
		for _, owners := range [][2]string{{"x", "y"}, {"y", "x"}, {"x", "x"}} {
			w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 30))
			if lease > 0 { // the record of a first holding is there, and its lease has ended
				w.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner(owners[0]), Num4: 1, Existing: true, Handle: "h", TTL: lease})
				w.clock.add(2 * lease)
			}
			r := newRacing(w.store)
			a := w.engine(r)
			if _, err := a.Assign(bg, alloc.HostOwner(owners[0]), "warm"); err != nil {
				t.Fatal(err)
			}
			var other alloc.Allocation
			r.before = func([]store.Op) {
				b := w.engine(w.store)
				_, err := b.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner(owners[1]), Num4: 1, Handle: "h"})
				if err == nil {
					other, err = b.Assign(bg, alloc.HostOwner(owners[1]), "h")
				}
				if err != nil {
					t.Error(err)
				}
			}
			mine, err := a.Assign(bg, alloc.HostOwner(owners[0]), "h")
			if err != nil || mine.Address != other.Address {
				t.Errorf("%v, lease %v: two Assigns of one handle: %v and %v, %v", owners, lease, mine, other, err)
			}
		}
	}
}

// TestAssignBesideAssignOfOneHandle: Assigns of one handle that meet on two engines return one address, and leave nothing.
func TestAssignBesideAssignOfOneHandle(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
	engines := []*Engine{w.Engine, w.engine(w.store)}
	hosts := make([]alloc.Owner, 8)
	for i := range hosts {
		hosts[i] = alloc.HostOwner(fmt.Sprint("h", i))
	}
	before := w.atRest()
	for i := range 50 {
		handle := fmt.Sprint("c", i)
		var wg sync.WaitGroup
		got := make([]alloc.Allocation, len(hosts))
		for k, h := range hosts {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var err error
				for {
					if got[k], err = engines[k&1].Assign(bg, h, handle); !errors.Is(err, ipalloc.ErrConflict) {
						break
					}
				}
				if err != nil {
					t.Error(err)
				}
			}()
		}
		wg.Wait()
		for _, al := range got {
			if al.Address != got[0].Address {
				t.Fatal(handle, got)
			}
		}
		if i%2 == 0 {
			engines[0].ReleaseByHandle(bg, handle)
		} else {
			engines[1].ReleaseIPs(bg, alloc.Release{Address: got[0].Address})
		}
	}
	w.check()
	for _, h := range hosts {
		w.RemoveHost(bg, h)
	}
	if after := w.atRest(); !maps.Equal(before, after) {
		t.Errorf("%q, before %q", after, before)
	}
}

// TestLateAssignIsSettled: the documented recovery after an unknown outcome, also with a commit that arrives late.
func TestLateAssignIsSettled(t *testing.T) {
	for _, made := range []bool{false, true} {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
		f := faults.NewFaulty(w.store)
		e, other := w.engine(f), w.engine(w.store)
		h := alloc.HostOwner("h")
		e.Assign(bg, h, "warm")
		f.Script(faults.AtCommit(1, faults.Unknown(made)))
		f.Reset()
		if _, err := e.Assign(bg, h, "x"); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		theirs, err := other.Assign(bg, h, "x")
		ours, err2 := e.Assign(bg, h, "x")
		if err != nil || err2 != nil || ours != theirs {
			t.Errorf("made %v: %v, %v, the other engine's %v, %v", made, ours, err2, theirs, err)
		}
		w.releaseHandle("x")
		if als, _ := w.IPsByHandle(bg, "x"); len(als) != 0 || w.records(record.KindHandle) != 1 {
			t.Errorf("made %v: %v", made, als)
		}
	}
}

// TestHandleMoves: a handle that another host asks for moves to that host with a new sequence number, by every call that returns what the
// handle holds; guards of the former host no longer match, and its releases free nothing.
func TestHandleMoves(t *testing.T) {
	a, b := alloc.HostOwner("a"), alloc.HostOwner("b")
	for name, call := range map[string]func(e *Engine, x netip.Addr) (alloc.Allocation, error){
		"Assign": func(e *Engine, _ netip.Addr) (alloc.Allocation, error) { return e.Assign(bg, b, "vm") },
		"Existing": func(e *Engine, _ netip.Addr) (alloc.Allocation, error) {
			got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: b, Num4: 1, Existing: true, Handle: "vm"})
			return firstOf(got), err
		},
		"Offer": func(e *Engine, _ netip.Addr) (alloc.Allocation, error) {
			got, err := e.Offer(bg, alloc.AssignArgs{Owner: b, Num4: 1, Handle: "vm", TTL: 2 * time.Hour})
			return firstOf(got), err
		},
		"AssignIP": func(e *Engine, x netip.Addr) (alloc.Allocation, error) {
			return e.AssignIP(bg, alloc.AssignIPArgs{Owner: b, Address: x, Handle: "vm"})
		},
		"AssignIP, automatic": func(e *Engine, x netip.Addr) (alloc.Allocation, error) {
			return e.AssignIP(bg, alloc.AssignIPArgs{Owner: b, Address: x, Handle: "vm", WithinRules: true})
		},
		"named": func(e *Engine, x netip.Addr) (alloc.Allocation, error) {
			got, err := e.AssignIPs(bg, alloc.AssignArgs{Owner: b, Handle: "vm"}, x)
			return firstOf(got), err
		},
	} {
		for _, how := range []string{"alone", "co-held", "strict", "dry"} {
			w := newWorld(t, alloc.Config{Strict: how == "strict"}, poolOf("p", "10.0.0.0/24", 28))
			first := alloc.AssignArgs{Owner: a, Num4: 1, Existing: true, Handle: "vm", TTL: time.Hour}
			if how == "co-held" {
				first.Share = alloc.Share{Max: 2}
			}
			got, err := w.AutoAssign(bg, first)
			if err != nil {
				t.Fatal(err)
			}
			was := got.V4[0]
			if how == "co-held" {
				if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Owner: a, Address: was.Address, Handle: "mate", Share: first.Share}); err != nil {
					t.Fatal(err)
				}
			}
			e := w.engine(w.store)
			if how == "dry" {
				e = e.DryRun()
			}
			rev := w.rev()
			is, err := call(e, was.Address)
			if how == "strict" || how == "dry" {
				var at *ipalloc.Error
				if how == "strict" && (!errors.Is(err, ipalloc.ErrOccupied) || !errors.As(err, &at) || at.Holder != "host:a") {
					t.Errorf("%s, strict: %v, %v", name, is, err)
				}
				if how == "dry" && (err != nil || is.Host != b) || w.rev() != rev {
					t.Errorf("%s, %s: %v, %v, revision %d, was %d", name, how, is, err, w.rev(), rev)
				}
				continue
			}
			if err != nil || is.Address != was.Address || is.Host != b || is.MovedFrom != a || is.Seq <= was.Seq {
				t.Errorf("%s, %s: %+v, %v, was %+v", name, how, is, err, was)
			}
			if again, err := call(w.Engine, was.Address); err != nil || again.Seq != is.Seq || again.MovedFrom != (alloc.Owner{}) {
				t.Errorf("%s, %s, again: %+v, %v", name, how, again, err)
			}
			guard := alloc.Guard{Handle: "vm", Seq: was.Seq}
			if r, err := w.ReleaseIPs(bg, alloc.Release{Address: was.Address, Guard: guard}); err != nil || r[0].Outcome != alloc.OwnerChanged {
				t.Errorf("%s, %s: late release: %v, %v", name, how, r, err)
			}
			if _, err := w.RenewIP(bg, was.Address, guard, alloc.RenewArgs{TTL: time.Hour}); !errors.Is(err, ipalloc.ErrMismatch) {
				t.Errorf("%s, %s: late renewal: %v", name, how, err)
			}
			if r, err := w.ReleaseByHandle(bg, "vm", a); err != nil || len(r) != 0 {
				t.Errorf("%s, %s: late release by handle: %v, %v", name, how, r, err)
			}
			if r, err := w.Release(bg, alloc.ReleaseArgs{Handle: "vm", Owner: a}); err != nil || len(r) != 0 {
				t.Errorf("%s, %s: late release: %v, %v", name, how, r, err)
			}
			if _, err := w.ReleaseByHost(bg, a); err != nil {
				t.Fatal(err)
			}
			if als, err := w.IPsByHandle(bg, "vm"); err != nil || len(als) != 1 || als[0].Host != b {
				t.Errorf("%s, %s: %v, %v", name, how, als, err)
			}
			w.check()
			if back, err := w.Assign(bg, a, "vm"); err != nil || back.Address != was.Address || back.MovedFrom != b {
				t.Errorf("%s, %s: asked back: %v, %v", name, how, back, err)
			}
			if r, err := w.ReleaseByHandle(bg, "vm", b, a); err != nil || len(r) != 1 {
				t.Errorf("%s, %s: %v, %v", name, how, r, err)
			}
		}
	}
}

// TestTwoFirstHoldings: after a lost index record two addresses may be the first of one handle. Check names it, and Repair leaves one.
func TestTwoFirstHoldings(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
	h := alloc.HostOwner("h")
	w.Assign(bg, h, "x")
	w.remove(record.HandleRange("x").From)
	second, err := w.engine(w.store).Assign(bg, h, "x")
	if err != nil {
		t.Fatal(err)
	}
	rep, err := w.Operator().Check(bg, nil)
	if err != nil || len(rep.Problems) != 1 {
		t.Fatal(rep.Problems, err)
	}
	if n, err := w.Operator().Repair(bg, rep.Repair); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	w.check()
	als, err := w.IPsByHandle(bg, "x")
	if err != nil || len(als) != 2 {
		t.Error(als, err)
	}
	if a, err := w.Assign(bg, h, "x"); err != nil || a.Address != second.Address {
		t.Errorf("%v, %v, the first is %v", a, err, second)
	}
	if !slices.IsSortedFunc(als, func(a, b alloc.Allocation) int { return a.Address.Compare(b.Address) }) {
		t.Error(als)
	}
	w.releaseHandle("x")
	w.check()
	if n := w.records(record.KindHandle); n != 0 {
		t.Errorf("%d index records", n)
	}
}

// TestImportedFirstHolding: an import takes no first holding over, because the handle may have one in this store.
func TestImportedFirstHolding(t *testing.T) {
	h := alloc.HostOwner("h")
	from := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
	there, err := from.Assign(bg, h, "x")
	if err != nil {
		t.Fatal(err)
	}
	b, err := from.Operator().BlockOf(bg, there.Address)
	if err != nil {
		t.Fatal(err)
	}
	for _, held := range []bool{false, true} {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28), poolOf("q", "10.1.0.0/24", 28))
		want := there.Address
		if held {
			here, err := w.Assign(bg, h, "x", "q")
			if err != nil {
				t.Fatal(err)
			}
			want = here.Address
		}
		if err := w.Operator().ImportBlock(bg, b); err != nil {
			t.Fatal(err)
		}
		w.check()
		if a, err := w.Assign(bg, h, "x"); err != nil || a.Address != want {
			t.Errorf("%v, %v, want %v", a, err, want)
		}
	}
}

// TestFirstHoldingEndsWithItsBatch: an Assign and the end of what it assigns, by calls that meet in one commit, leave no record of a first
// holding, and the next Assign of the handle works.
func TestFirstHoldingEndsWithItsBatch(t *testing.T) {
	h, at := alloc.HostOwner("h"), netip.MustParseAddr("10.0.0.1")
	for name, end := range map[string]func(e *Engine) error{
		"ReleaseIPs": func(e *Engine) error { _, err := e.ReleaseIPs(bg, alloc.Release{Address: at}); return err },
		"Decline": func(e *Engine) error {
			_, err := e.Decline(bg, alloc.DeclineArgs{Address: at, For: time.Minute})
			return err
		},
		"ReleaseByHost": func(e *Engine) error { _, err := e.ReleaseByHost(bg, h); return err },
		"RemoveHost":    func(e *Engine) error { _, _, err := e.RemoveHost(bg, h); return err },
		"RenameHost and RemoveHost": func(e *Engine) error {
			if _, _, err := e.Operator().RenameHost(bg, alloc.RenameArgs{From: h, To: alloc.HostOwner("new")}); err != nil {
				return err
			}
			_, _, err := e.RemoveHost(bg, alloc.HostOwner("new"))
			return err
		},
		"Transfer": func(e *Engine) error {
			if _, err := e.Transfer(bg, alloc.TransferArgs{From: "x", To: "other", Address: at}); err != nil && !errors.Is(err, ipalloc.ErrNotHeld) {
				return err
			}
			_, err := e.ReleaseIPs(bg, alloc.Release{Address: at})
			return err
		},
	} {
		for _, held := range []bool{false, true} {
			for _, limit := range []int{0, 64} {
				w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
				before := w.atRest()
				s := faults.NewLimited(w.store, store.Limits{Ops: limit})
				e := w.engine(s)
				if _, err := e.AssignIP(bg, alloc.AssignIPArgs{Owner: h, Address: at.Prev(), Handle: "other"}); err != nil {
					t.Fatal(err)
				}
				if held { // without a first holding
					if _, err := e.AssignIP(bg, alloc.AssignIPArgs{Owner: h, Address: at, Handle: "x"}); err != nil {
						t.Fatal(err)
					}
				}
				errs := w.together(e, s, func() {
					if _, err := e.Assign(bg, h, "other"); err != nil {
						t.Error(err)
					}
				}, func() {},
					func() error { _, err := e.Assign(bg, h, "x"); return err },
					func() error { return end(e) })
				if errs[0] != nil || errs[1] != nil {
					t.Errorf("%s, held %v, limit %d: %v", name, held, limit, errs)
				}
				w.check()
				if _, err := e.Assign(bg, h, "x"); err != nil {
					t.Errorf("%s, held %v, limit %d, again: %v", name, held, limit, err)
				}
				w.releaseHandle("x")
				w.releaseHandle("other")
				w.clock.add(time.Hour)
				if _, err := e.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute}); err != nil {
					t.Error(err)
				}
				after := w.atRest()
				for _, m := range []map[string]string{before, after} {
					maps.DeleteFunc(m, func(key, _ string) bool { return strings.HasPrefix(key, record.KindCatalog) }) // knows former block sizes
				}
				if !maps.Equal(before, after) {
					t.Errorf("%s, held %v, limit %d: %q, before %q", name, held, limit, after, before)
				}
			}
		}
	}
}
