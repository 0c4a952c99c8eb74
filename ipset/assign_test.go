package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestAssign: one address or an error; the same one while the handle holds it, another kind of pool where there is no IPv4 pool,
// and the first of several.
func TestAssign(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/30", 30), poolOf("b", "fd00::/126", 126))
	h := alloc.HostOwner("h")
	first, err := w.Assign(bg, h, "pod")
	if err != nil || !first.Address.Is4() || first.Handle != "pod" || first.Host != h {
		t.Fatal(first, err)
	}
	rev := w.rev()
	for _, e := range []*Engine{w.Engine, w.engine(w.store)} {
		if again, err := e.Assign(bg, h, "pod"); err != nil || again != first {
			t.Errorf("%+v, %v, first %+v", again, err, first)
		}
	}
	if w.rev() != rev {
		t.Error("a repetition wrote")
	}
	w.assign(want("h", 3, "others"))
	if a, err := w.Assign(bg, h, "late"); !errors.Is(err, ipalloc.ErrFull) || a != (alloc.Allocation{}) {
		t.Errorf("full: %+v, %v", a, err)
	}
	if a, err := w.Assign(bg, h, "others"); err != nil || a.Handle != "others" {
		t.Errorf("of several: %+v, %v", a, err)
	}
	if err := w.RemovePool(bg, "a"); err != nil {
		t.Fatal(err)
	}
	if a, err := w.Assign(bg, h, "six"); err != nil || !a.Address.Is6() {
		t.Errorf("without an IPv4 pool: %+v, %v", a, err)
	}
	if a, err := w.Assign(bg, h, "pod"); err != nil || a != first {
		t.Errorf("held in a pool that is gone: %+v, %v", a, err)
	}
	for handle, owner := range map[string]alloc.Owner{"": h, "a\x00": h, "pod": {}} {
		if _, err := w.Assign(bg, owner, handle); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%q, %v: %v", handle, owner, err)
		}
	}
	w.releaseHandle("pod")
	w.releaseHandle("others")
	w.AddPool(bg, poolOf("a", "10.0.0.0/30", 30))
	if a, err := w.Assign(bg, h, "pod"); err != nil || a.Seq <= first.Seq {
		t.Errorf("after a release: %+v, %v", a, err)
	}
	w.check(audit.NoPool)
}

// TestAssignOfOneHandleAtTheSameTime: two engines that serve one handle at the same time, and callers of one engine, give it one
// address.
func TestAssignOfOneHandleAtTheSameTime(t *testing.T) {
	for name, before := range map[string]func(w *world){
		"new":      func(*world) {},
		"released": func(w *world) { w.Assign(bg, alloc.HostOwner("g"), "pod"); w.releaseHandle("pod") },
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		before(w)
		r := newRacing(w.store)
		var theirs alloc.Allocation
		r.before = func([]store.Op) {
			var err error
			if theirs, err = w.Assign(bg, alloc.HostOwner("h2"), "pod"); err != nil {
				t.Error(err)
			}
		}
		ours, err := w.engine(r).Assign(bg, alloc.HostOwner("h1"), "pod")
		if err != nil || ours.Address != theirs.Address || ours.Host != alloc.HostOwner("h1") || ours.MovedFrom != theirs.Host {
			t.Errorf("%s: %+v, %v, the other engine's %+v", name, ours, err, theirs)
		}
		if als, _ := w.IPsByHandle(bg, "pod"); len(als) != 1 {
			t.Errorf("%s: holds %v", name, als)
		}
	}
	w, g, e := newGated(t)
	go e.AutoAssign(bg, want("h", 1, "first"))
	<-g.arrived
	var wg sync.WaitGroup
	seen := make(chan netip.Addr, 8)
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a, err := e.Assign(bg, alloc.HostOwner(fmt.Sprint("h", i)), "pod")
			if err != nil {
				t.Error(err)
			}
			seen <- a.Address
		}()
		waitFor(e, i+1)
	}
	close(g.open)
	wg.Wait()
	for first := <-seen; len(seen) > 0; {
		if a := <-seen; a != first {
			t.Errorf("%s and %s", a, first)
		}
	}
	w.check()
	if n := w.records(record.KindRequest) + w.records(record.KindAged); n != 0 {
		t.Errorf("%d records beside the holding", n)
	}
}

// TestSubnetPools: the ends of a subnet are not assigned automatically, and may be named.
func TestSubnetPools(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		bits   int
		spared []string
	}{
		{"10.0.0.0/28", 30, []string{"10.0.0.0", "10.0.0.15"}},
		{"10.0.0.0/31", 31, nil},
		{"10.0.0.0/32", 32, nil},
		{"fd00::/124", 126, []string{"fd00::"}},
		{"fd00::/127", 127, nil},
	} {
		p := poolOf("a", tt.prefix, tt.bits)
		p.Subnet = true
		w := newWorld(t, alloc.Config{}, p)
		a := want("h", 16, "p")
		if p.Prefix.Addr().Is6() {
			a.Num4, a.Num6 = 0, 16
		}
		got := w.assign(a)
		size := 1 << (p.Prefix.Addr().BitLen() - p.Prefix.Bits())
		all := append(got.V4, got.V6...)
		if len(all) != size-len(tt.spared) {
			t.Errorf("%s: %d of %d", tt.prefix, len(all), size)
		}
		for _, al := range all {
			for _, s := range tt.spared {
				if al.Address == ip(s) {
					t.Errorf("%s was given", s)
				}
			}
		}
		for _, s := range tt.spared {
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip(s), Owner: alloc.HostOwner("h")}); err != nil {
				t.Error(err)
			}
		}
		w.check()
		if len(tt.spared) < 2 {
			continue
		}
		w.releaseHandle("p")
		for _, s := range tt.spared {
			w.ReleaseIPs(bg, alloc.Release{Address: ip(s)})
		}
		if err := w.Operator().SplitPool(bg, "a", 1); err != nil {
			t.Fatal(err)
		}
		if got := w.assign(a); len(got.V4) != 14 {
			t.Errorf("split: %d", len(got.V4))
		}
	}
}

// TestPoolGrows: a pool takes in more addresses, blocks that another pool has left there included; it does not shrink or move.
func TestPoolGrows(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28), poolOf("b", "10.0.0.64/26", 29))
	w.assign(want("h", 64, "p"))
	w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.70"), Owner: alloc.HostOwner("g"), Handle: "q"})
	p := poolOf("a", "10.0.0.0/24", 28)
	if err := w.UpdatePool(bg, p); err != nil { // over another pool
		t.Fatal(err)
	}
	w.check()
	if err := w.RemovePool(bg, "b"); err != nil {
		t.Fatal(err)
	}
	w.check()
	if got := w.assign(want("h2", 256, "r")); len(got.V4) != 256-64-1-8 { // not the half of a place beside the block of another size in use
		t.Errorf("%d more", len(got.V4))
	}
	w.check()
	for _, prefix := range []string{"10.0.0.0/25", "10.0.1.0/24", "fd00::/64"} {
		if err := w.UpdatePool(bg, poolOf("a", prefix, 0)); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

// A block without owner that has room becomes that of a host before the host borrows from others: for an address and for
// EnsureBlock, up to the limits; what it lacks then is borrowed, from other blocks.
func TestOrphanIsAdoptedBeforeBorrowing(t *testing.T) {
	orphaned := func(most int) *world {
		p := poolOf("a", "10.0.0.0/28", 29)
		p.MaxBlocksPerHost = most
		w := newWorld(t, alloc.Config{}, p)
		w.assign(want("stays", 8, "p"))
		w.assign(want("gone", 6, "q"))
		w.ReleaseIPs(bg, alloc.Release{Address: ip(fmt.Sprintf("10.0.0.%d", w.blocksOf("stays")[0].Addr().As4()[3]))})
		if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("gone")}); err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := orphaned(0)
	got := w.assign(want("new", 3, "r"))
	if own := w.blocksOf("new"); len(got.V4) != 3 || len(own) != 1 || got.V4[0].Block != own[0] || got.V4[1].Block != own[0] || got.V4[2].Block == own[0] {
		t.Errorf("got %+v, owns %v: want two addresses of the adopted block and one borrowed", got, own)
	}
	if als, err := w.IPsByHost(bg, alloc.HostOwner("new")); err != nil || len(als) != 3 {
		t.Errorf("held for it: %+v, %v", als, err)
	}
	w.check()

	w = orphaned(0)
	if blocks, err := w.EnsureBlock(bg, alloc.AssignArgs{Owner: alloc.HostOwner("new"), Num4: 1}); err != nil || len(blocks) != 1 || !slices.Equal(blocks, w.blocksOf("new")) {
		t.Errorf("ensured %v, %v", blocks, err)
	}
	w.check()

	w = orphaned(1)
	w.assign(want("stays", 1, "p"))
	if got := w.assign(want("stays", 1, "s")); len(got.V4) != 1 || len(w.blocksOf("stays")) != 1 {
		t.Errorf("at its limit it got %+v and owns %v: want one borrowed", got, w.blocksOf("stays"))
	}
	w.check()
}

// A host that is removed leaves no record of itself, also where others have addresses in its blocks, whether it gave up its blocks
// at that moment or before.
func TestRemovedHostLeavesNoRecord(t *testing.T) {
	for _, before := range []bool{false, true} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
		w.assign(want("gone", 6, "p"))
		w.assign(want("b", 8, "q"))
		w.assign(want("b", 2, "q")) // of the block of gone
		if before {
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("gone")}); err != nil || w.former() != 1 {
				t.Fatalf("%d names of former owners, %v", w.former(), err)
			}
		}
		if released, _, err := w.RemoveHost(bg, alloc.HostOwner("gone")); err != nil || len(released) != 6 {
			t.Fatalf("released %v, %v", released, err)
		}
		if n := w.former(); n != 0 {
			t.Errorf("disowned before %v: %d names of former owners are left", before, n)
		}
		for _, r := range w.list(store.Range{}) {
			if strings.Contains(r.Key+r.Value, "gone") {
				t.Errorf("disowned before %v: record %q names the host", before, r.Key)
			}
		}
	}
}

// A pool that has too few addresses is full, also where the blocks that were looked at are more than a commit can verify; one that
// has enough in more blocks than a commit can change gives what fits with Partial, and says so.
func TestShortageInManyBlocks(t *testing.T) {
	for _, limit := range []int{0, 20, 48, 127} {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/23", 30))
		for i := range 128 { // three of four addresses of each block are held
			w.assign(want(fmt.Sprint("h", i), 3, fmt.Sprint("p", i)))
		}
		e := w.engine(faults.NewLimited(w.store, store.Limits{Ops: limit}))
		a := want("x", 200, "x")
		a.Partial = false
		if _, err := e.AutoAssign(bg, a); !errors.Is(err, ipalloc.ErrFull) {
			t.Errorf("%d records, 200 of 128: %v", limit, err)
		}
		for _, n := range []int{1, 5, 16, 60, 128, 200} {
			got, err := e.AutoAssign(bg, want("x", n, "x"))
			fits := slices.ContainsFunc(got.Short, func(s alloc.Shortage) bool { return s.Reason == alloc.ReasonCommitFull })
			if err != nil || len(got.V4) == 0 || len(got.V4) < min(n, 128) && !fits || (len(got.V4) < n) != (len(got.Short) > 0) || limit == 0 && len(got.V4) != min(n, 128) {
				t.Errorf("%d records, %d of 128: %d, %v, %v", limit, n, len(got.V4), got.Short, err)
			}
			if as, err := e.ReleaseByHandle(bg, "x"); err != nil || len(as) != len(got.V4) {
				t.Errorf("%d records: %v, %v", limit, as, err)
			}
			w.check()
		}
	}
}

// Addresses to reserve at both ends that make up no number are refused, not taken for none.
func TestEndsThatOverflow(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t, alloc.Config{Strict: strict}, poolOf("p", "10.0.0.0/24", 28))
		for _, ends := range [][2]uint64{{1 << 63, 1 << 63}, {1<<64 - 1, 1}, {1<<64 - 1, 1<<64 - 1}} {
			a := want("h", 1, "p")
			a.Blocks.Head, a.Blocks.Tail = ends[0], ends[1]
			_, err1 := w.AutoAssign(bg, a)
			_, err2 := w.EnsureBlock(bg, a)
			_, err3 := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.20"), Owner: alloc.HostOwner("h"), Blocks: a.Blocks})
			for _, err := range []error{err1, err2, err3} {
				if !errors.Is(err, ipalloc.ErrInvalid) {
					t.Errorf("strict %v, %d + %d: %v", strict, ends[0], ends[1], err)
				}
			}
		}
	}
}

// A named address whose block would have nothing but reserved ends is refused by the name of the argument, and in an assignment
// beside others too. A block that exists keeps its own ends.
func TestEndsOfSmallBlocks(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/24", 31))
	refused := func(err error) bool {
		e := (*ipalloc.Error)(nil)
		return errors.Is(err, ipalloc.ErrInvalid) && errors.As(err, &e) && e.Field == "Blocks.Head"
	}
	a := alloc.AssignIPArgs{Address: ip("10.0.0.20"), Owner: alloc.HostOwner("h"), Blocks: alloc.BlockArgs{Head: 1, Tail: 1}}
	if _, err := w.AssignIP(bg, a); !refused(err) {
		t.Error(err)
	}
	if _, err := w.AssignIPs(bg, alloc.AssignArgs{Owner: a.Owner, Blocks: alloc.BlockArgs{Head: 1, Tail: 1}}, ip("10.0.0.30"), a.Address); !refused(err) {
		t.Error(err)
	}
	a.Blocks.Head = 0
	if al, err := w.AssignIP(bg, a); err != nil || al.Address != a.Address {
		t.Error(al, err)
	}
	a.Address, a.Blocks.Head = ip("10.0.0.21"), 1
	if _, err := w.AssignIP(bg, a); !errors.Is(err, ipalloc.ErrReserved) {
		t.Error("the end of a block that exists:", err)
	}
}

// Assign with pools gives a handle one address of each call's pools, and the same one when it is repeated. Without pools it answers
// the IPv4 address that was given first, in whichever order the others were given.
func TestAssignOfNamedPools(t *testing.T) {
	prefixes := map[string]string{"front": "10.0.0.0/28", "back": "10.1.0.0/28", "six": "fd00::/124"}
	for _, order := range [][]string{{"front", "back", "six"}, {"back", "six", "front"}, {"six", "front", "back"}} {
		manual := poolOf("back", "10.1.0.0/28", 30)
		manual.Manual = true
		w := newWorld(t, alloc.Config{}, poolOf("front", "10.0.0.0/28", 30), manual, poolOf("six", "fd00::/124", 126))
		h := alloc.HostOwner("a")
		first := map[string]netip.Addr{}
		for range 2 {
			for _, name := range order {
				al, err := w.Assign(bg, h, "vm", name)
				if err != nil || !netip.MustParsePrefix(prefixes[name]).Contains(al.Address) || first[name].IsValid() && first[name] != al.Address {
					t.Fatalf("of %s: %v, %v, before %v", name, al, err, first[name])
				}
				first[name] = al.Address
			}
		}
		if all, err := w.IPsByHandle(bg, "vm"); err != nil || len(all) != 3 {
			t.Errorf("%v, %v", all, err)
		}
		want := first[slices.DeleteFunc(slices.Clone(order), func(name string) bool { return name == "six" })[0]]
		if al, err := w.Assign(bg, h, "vm"); err != nil || al.Address != want {
			t.Errorf("of any pool, after %v: %v, %v", order, al, err)
		}
		if _, err := w.Assign(bg, h, "vm", "front", "none"); err != nil {
			t.Errorf("it holds one of the first: %v", err)
		}
		if _, err := w.Assign(bg, h, "other", "none"); !errors.Is(err, ipalloc.ErrNotFound) {
			t.Errorf("of an unknown pool: %v", err)
		}
	}
}

// An assignment that has to be cut to what a commit takes also writes what it remembers: the answer of its request, and what the
// sticky handle has.
func TestCutAssignmentsRemember(t *testing.T) {
	for limit := 16; limit <= 40; limit++ {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 26))
		e := w.engine(faults.NewLimited(w.store, store.Limits{Ops: limit}))
		for range 3 { // from the second on a memo takes the place of another
			a := want("h", 50, "x")
			a.Sticky, a.Request = true, "r"
			if got, err := e.AutoAssign(bg, a); err != nil || len(got.V4) == 0 || len(got.Short) == 0 {
				t.Fatalf("%d records: %d addresses, %v, %v", limit, len(got.V4), got.Short, err)
			}
			w.clock.add(time.Minute)
			if _, err := e.ReleaseByHandle(bg, "x"); err != nil {
				t.Fatalf("%d records: %v", limit, err)
			}
			w.clock.add(time.Minute)
		}
	}
}
