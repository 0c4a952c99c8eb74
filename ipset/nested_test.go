package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// refuses runs calls that must fail, say what stands in the way, and change nothing.
func (w *world) refuses(name string, err error, sentinel error, parts ...string) {
	w.t.Helper()
	if !errors.Is(err, sentinel) {
		w.t.Errorf("%s: %v", name, err)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			w.t.Errorf("%s: %q does not say %q", name, err, p)
		}
	}
}

// TestNestedRefusals: an error names the pool in the way, and nothing changes.
func TestNestedRefusals(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/16", 24), poolOf("mid", "10.0.8.0/22", 28), poolOf("in", "10.0.8.64/26", 28))
	before, _ := w.store.MarshalBinary()
	w.refuses("same prefix", w.AddPool(bg, poolOf("x", "10.0.8.0/22", 26)), ipalloc.ErrExists, `"mid"`)
	w.refuses("same prefix, by name before", w.AddPool(bg, poolOf("a", "10.0.8.0/22", 26)), ipalloc.ErrExists, `in "a"`, `by "mid"`)
	w.refuses("part of a block", w.AddPool(bg, poolOf("x", "10.0.0.0/25", 28)), ipalloc.ErrInvalid, `"out"`, "whole blocks", "10.0.0.0/16")
	w.refuses("around a part of a block", w.AddPool(bg, poolOf("x", "10.0.8.0/25", 25)), ipalloc.ErrInvalid, `"x"`, `"in"`)
	w.refuses("larger blocks", w.UpdatePool(bg, poolOf("mid", "10.0.8.0/22", 25)), ipalloc.ErrInvalid, `"mid"`, `"in"`)
	w.refuses("pool between", w.RemovePool(bg, "mid"), ipalloc.ErrInvalid, `"out"`, `"in"`)
	w.refuses("grows to the same", w.UpdatePool(bg, poolOf("mid", "10.0.0.0/16", 28)), ipalloc.ErrExists, `"out"`)
	w.refuses("split across a pool", w.Operator().SplitPool(bg, "out", 7), ipalloc.ErrExists, `"mid"`, "10.0.8.0/22")
	w.refuses("split at a pool", w.Operator().SplitPool(bg, "out", 6), ipalloc.ErrExists, `"mid"`)
	w.refuses("parts off the grid", w.Operator().SplitPool(bg, "mid", 3), ipalloc.ErrInvalid, `"out"`)
	w.refuses("merged off the grid", w.Operator().MergePools(bg, "m", "out", "mid"), ipalloc.ErrInvalid, `"m"`, `"in"`)
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("the store changed")
	}
}

// TestNestedPoolServesItsAddresses: what is done by pool or by prefix keeps to the addresses that the pool serves.
func TestNestedPoolServesItsAddresses(t *testing.T) {
	for _, p := range [][2]alloc.Pool{
		{poolOf("out", "10.0.0.0/24", 26), poolOf("in", "10.0.0.64/26", 28)},
		{poolOf("out", "fd00::/120", 122), poolOf("in", "fd00::40/122", 124)},
	} {
		w := newWorld(t, alloc.Config{}, p[0], p[1])
		six := p[0].Prefix.Addr().Is6()
		from := func(name string, n int) []alloc.Allocation {
			a := want("h-"+name, n, name)
			if a.Pools = []string{name}; six {
				a.Num4, a.Num6 = 0, n
			}
			got := w.assign(a)
			for _, s := range got.Short {
				if s.Reason != alloc.ReasonFull {
					t.Errorf("%s gave no more: %s", name, s.Reason)
				}
			}
			return append(got.V4, got.V6...)
		}
		outer, inner := from("out", 256), from("in", 256)
		if len(outer) != 192 || len(inner) != 64 {
			t.Errorf("%d and %d addresses", len(outer), len(inner))
		}
		for _, al := range inner {
			if !p[1].Prefix.Contains(al.Address) || al.Block.Bits() != p[1].BlockBits {
				t.Errorf("%+v", al)
			}
		}
		us, err := w.Utilization(bg)
		if err != nil || us[0].Capacity != (alloc.Count{Lo: 64}) || us[1].Capacity != (alloc.Count{Lo: 192}) || us[1].Used.Lo != 192 || len(us[1].Blocks) != 3 {
			t.Errorf("%+v, %v", us, err)
		}
		if held, err := w.Operator().Drain(bg, "out"); err != nil || len(held) != 192 {
			t.Errorf("drain lists %d, %v", len(held), err)
		}
		if blocks, err := w.DisownBlocks(bg, alloc.DisownArgs{Pool: "out"}); err != nil || len(blocks) != 3 {
			t.Errorf("released %v, %v", blocks, err)
		}
		if n := len(w.blocksOf("h-in")); n != 4 {
			t.Errorf("the owner in the nested pool has %d blocks", n)
		}
	}
}

// TestNestedClaim: a claim of a prefix is served by each pool for what it has there.
func TestNestedClaim(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/24", 26), poolOf("in", "10.0.0.64/26", 28))
	got, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/24"), alloc.HostOwner("h"))
	slices.SortFunc(got, record.ComparePrefix)
	if err != nil || len(failed) > 0 || fmt.Sprint(got) != "[10.0.0.0/26 10.0.0.64/28 10.0.0.80/28 10.0.0.96/28 10.0.0.112/28 10.0.0.128/26 10.0.0.192/26]" {
		t.Errorf("%v, %v, %v", got, failed, err)
	}
	if got, failed, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.80/28"), alloc.HostOwner("h")); err != nil || len(failed) > 0 || len(got) != 1 {
		t.Errorf("in the nested pool: %v, %v, %v", got, failed, err)
	}
}

// TestNestedDraining: a pool drains only the sizes of blocks that have its own addresses.
func TestNestedDraining(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/24", 26))
	w.assign(want("h", 256, "p"))
	if err := w.AddPool(bg, poolOf("in", "10.0.0.64/26", 28)); err != nil {
		t.Fatal(err)
	}
	draining := func(name string) string {
		t.Helper()
		w.check()
		c, err := w.core.ReadCatalog(bg)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(c.Pools[c.ByName(name)].Draining)
	}
	if in, out := draining("in"), draining("out"); in != "[26]" || out != "[]" {
		t.Errorf("in drains %s, out %s", in, out)
	}
	// The address is in a block of the outer pool's size and belongs to the nested pool.
	if al, err := w.Lookup(bg, ip("10.0.0.70")); err != nil || al.Block.Bits() != 26 {
		t.Errorf("%+v, %v", al, err)
	}
	if us, _ := w.Utilization(bg); us[0].Pool != "in" || us[0].Used.Lo != 64 || us[1].Used.Lo != 192 {
		t.Errorf("%+v", us)
	}
	w.releaseHandle("p")
	w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), OnlyEmpty: true})
	w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("g"), Num4: 64, Handle: "q", Pools: []string{"in"}})
	// The outer pool had blocks of the nested one's size once; those that there are now are not its own.
	for _, bits := range []int{28, 26} {
		if err := w.UpdatePool(bg, poolOf("out", "10.0.0.0/24", bits)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		w.UpdatePool(bg, poolOf("out", "10.0.0.0/24", 26))
		w.UpdatePool(bg, poolOf("in", "10.0.0.64/26", 28))
	}
	if in, out := draining("in"), draining("out"); in != "[]" || out != "[]" {
		t.Errorf("in drains %s, out %s", in, out)
	}
	if err := w.RemovePool(bg, "in"); err != nil {
		t.Fatal(err)
	}
	if out := draining("out"); out != "[28]" {
		t.Errorf("out drains %s", out)
	}
	if got := w.assign(want("h", 256, "p")); len(got.V4) != 192 {
		t.Errorf("%d addresses beside those of the pool that was removed", len(got.V4))
	}
}

// TestNestedPoolMeetsAClaim: an engine that puts a pool into another sees a block there that it did not know of.
func TestNestedPoolMeetsAClaim(t *testing.T) {
	for _, prefix := range []string{"10.0.0.0/24", "10.0.0.0/16"} { // of 64 blocks, and of more than a commit verifies
		w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/8", 30))
		in := poolOf("in", prefix, 31)
		if err := w.AddPool(bg, in); err != nil { // the engine has the pages now
			t.Fatal(err)
		}
		if err := w.RemovePool(bg, "in"); err != nil {
			t.Fatal(err)
		}
		if _, failed, err := w.engine(w.store).ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.128/30"), alloc.HostOwner("h")); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
		if err := w.AddPool(bg, in); err != nil {
			t.Fatal(err)
		}
		w.check()
		if cat, err := w.core.ReadCatalog(bg); err != nil || !slices.Equal(cat.Pools[0].Draining, []int{30}) {
			t.Errorf("%+v, %v", cat.Pools[0], err)
		}
	}
}

// TestNestedMerge: the addresses and the ranges of a nested pool go into the merged one; those of others stay where they are.
func TestNestedMerge(t *testing.T) {
	in := poolOf("in", "10.0.0.64/26", 26)
	in.Ranges = ranges("10.0.0.80/28").Ranges()
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/24", 26), in, poolOf("other", "10.0.0.128/26", 26))
	if err := w.Operator().MergePools(bg, "all", "in", "out"); err != nil {
		t.Fatal(err)
	}
	w.check()
	got := w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 256, Partial: true, Pools: []string{"all"}})
	if len(got.V4) != 64+16+64 {
		t.Errorf("%d addresses", len(got.V4))
	}
}

// TestNestedPoolIsSeenAtOnce: an engine that has the outer pool's blocks in its cache takes nothing from a pool that another engine
// has put there.
func TestNestedPoolIsSeenAtOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/28", 30))
	e := w.engine(w.store)
	if _, err := e.AutoAssign(bg, want("h", 3, "p")); err != nil {
		t.Fatal(err)
	}
	p := poolOf("in", "10.0.0.8/29", 30)
	p.Manual = true
	if err := w.AddPool(bg, p); err != nil {
		t.Fatal(err)
	}
	got, err := e.AutoAssign(bg, want("h", 16, "p"))
	if err != nil {
		t.Fatal(err)
	}
	for _, al := range got.V4 {
		if p.Prefix.Contains(al.Address) {
			t.Errorf("%s is the nested pool's", al.Address)
		}
	}
}

// TestNestedInABlock: a block of the outer pool that has addresses of a nested one counts in each pool with what that pool serves.
func TestNestedInABlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/24", 26))
	w.assign(want("h", 20, "p"))
	if err := w.UpdatePool(bg, poolOf("out", "10.0.0.0/24", 28)); err != nil { // that block drains
		t.Fatal(err)
	}
	if err := w.AddPool(bg, poolOf("in", "10.0.0.16/28", 30)); err != nil {
		t.Fatal(err)
	}
	us, err := w.Utilization(bg)
	if err != nil || len(us) != 2 {
		t.Fatalf("%+v, %v", us, err)
	}
	in, out := us[0], us[1]
	if in.Pool != "in" {
		in, out = out, in
	}
	if in.Capacity.Lo != 16 || in.Used.Lo != 4 || out.Capacity.Lo != 240 || out.Used.Lo != 16 || len(out.Blocks) != 1 || out.Blocks[0].Used.Lo != 20 {
		t.Errorf("nested %+v, around it %+v", in, out)
	}
}

// TestDrainingSizesAreRead: a read of the pages of any size that drains which fails ends the search for a new block.
func TestDrainingSizesAreRead(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 26))
	for _, bits := range []int{32, 28, 24} { // above and below the present size, near it and far from it
		w.assign(want(fmt.Sprint("h", bits), 1, "p"))
		if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/20", bits)); err != nil {
			t.Fatal(err)
		}
	}
	if pools, err := w.Pools(bg); err != nil || len(pools[0].Draining) != 3 {
		t.Fatalf("%+v, %v", pools, err)
	}
	for k, met := 1, true; met; k++ {
		f := faults.NewFaulty(w.store)
		f.Script(faults.At(k, faults.Fail(faults.ErrInjected)))
		a := want(fmt.Sprint("new", k), 1, "q")
		got, err := w.engine(f).AutoAssign(bg, a)
		if met = f.Counts().Calls() >= k; met && !errors.Is(err, faults.ErrInjected) {
			t.Errorf("call %d of the store failed: %+v, %v", k, got, err)
		}
	}
}
