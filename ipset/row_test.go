package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// row returns arguments of an assignment of n neighbours.
func row(host string, n int, aligned bool, handle string) alloc.AssignArgs {
	a := want(host, n, handle)
	if a.Partial, a.Choose = false, alloc.Contiguous(); aligned {
		a.Choose = alloc.Aligned()
	}
	return a
}

// isRow reports whether allocations are neighbours in one block.
func isRow(als []alloc.Allocation) bool {
	for i := 1; i < len(als); i++ {
		if als[i].Address != als[i-1].Address.Next() || als[i].Block != als[0].Block {
			return false
		}
	}
	return true
}

// TestContiguousLengths: runs of every boundary length, in blocks below, of and above 64 addresses, beside an address that is held.
func TestContiguousLengths(t *testing.T) {
	for _, bits := range []int{32, 31, 27, 26, 25, 24} {
		size := 1 << (32 - bits)
		for _, n := range []int{1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 256} {
			for _, aligned := range []bool{false, true} {
				if aligned && n&(n-1) != 0 {
					continue
				}
				w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", bits))
				w.assign(want("h", 1, "one"))
				got, err := w.AutoAssign(bg, row("h", n, aligned, "row"))
				if n > size {
					if !errors.Is(err, ipalloc.ErrFull) {
						t.Errorf("%d of a /%d: %v", n, bits, err)
					}
					w.refuses("too long", err, ipalloc.ErrFull, `in "a": not enough addresses: blocks too small`)
					continue
				}
				if err != nil || len(got.V4) != n || !isRow(got.V4) {
					t.Errorf("%d of a /%d: %v, %v", n, bits, got, err)
					continue
				}
				first := got.V4[0].Address.As4()
				if aligned && int(first[3])%n != 0 {
					t.Errorf("%d of a /%d begin at %s", n, bits, got.V4[0].Address)
				}
				// They fit beside the address that is held, or are in a block of their own.
				beside := n < size && (!aligned || 2*n <= size)
				if blocks := w.blocksOf("h"); len(blocks) != 2 != beside {
					t.Errorf("%d of a /%d, aligned %v: %d blocks", n, bits, aligned, len(blocks))
				}
				w.check()
				if released, err := w.ReleaseByHandle(bg, "row"); err != nil || len(released) != n {
					t.Errorf("released %v, %v", released, err)
				}
			}
		}
	}
}

// isFragmented fails unless a call in pool a finds nothing because what is left is in pieces.
func isFragmented(t *testing.T, w *world, a alloc.AssignArgs, what string) {
	t.Helper()
	want := alloc.Shortage{Family: 4, Pool: "a", Reason: alloc.ReasonFragmented}
	got, err := w.AutoAssign(bg, a)
	if !errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrReserved) || !strings.HasSuffix(err.Error(), "not enough addresses: fragmented") {
		t.Errorf("%s: %v", what, err)
	}
	if len(got.Short) != 1 || got.Short[0] != want {
		t.Errorf("%s: short %+v", what, got.Short)
	}
	if x, err := w.Explain(bg, a); err != nil || len(x) != 1 || x[0].Shortage != want || len(x[0].Gives) > 0 {
		t.Errorf("%s: explained %+v, %v", what, x, err)
	}
}

// An aligned request of a host that has no block says that what is left is in pieces, in the error, in the result and in Explain,
// while Utilization shows it available: beside reserved addresses, in a subnet, and in blocks of another host.
func TestRowOfANewHostIsFragmented(t *testing.T) {
	for _, c := range []struct {
		name      string
		subnet    bool
		reserve   []netipx.IPRange
		cfg       alloc.Config
		given     int
		available uint64
	}{
		{"plain", false, nil, alloc.Config{}, 3, 15},
		{"plain, strict", false, nil, alloc.Config{Strict: true}, 3, 15},
		{"subnet", true, nil, alloc.Config{}, 1, 45},
		{"reserved", false, []netipx.IPRange{netipx.MustParseIPRange("10.0.0.0-10.0.0.0"), netipx.MustParseIPRange("10.0.0.63-10.0.0.63")}, alloc.Config{}, 1, 45},
	} {
		p := poolOf("a", "10.0.0.0/26", 28)
		p.Subnet = c.subnet
		w := newWorld(t, c.cfg, p)
		if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: alloc.Reservations(c.reserve...)}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Owner: alloc.HostOwner("one"), Address: netip.MustParseAddr("10.0.0.17")}); err != nil {
			t.Fatal(err)
		}
		a := alloc.AssignArgs{Num4: 16, Choose: alloc.Aligned()}
		for i := range c.given {
			a.Owner = alloc.HostOwner(fmt.Sprint("n", i))
			if _, err := w.AutoAssign(bg, a); err != nil {
				t.Fatal(c.name, i, err)
			}
		}
		for _, limit := range []int{0, 1} {
			a.Owner, a.Blocks.Max = alloc.HostOwner("last"), limit
			if limit > 0 {
				a.Owner = alloc.HostOwner("one") // its block is all that it may have, and it is in pieces
			}
			isFragmented(t, w, a, fmt.Sprintf("%s, limit %d", c.name, limit))
		}
		if u, err := w.Utilization(bg); err != nil || u[0].Available != (alloc.Count{Lo: c.available}) {
			t.Errorf("%s: %+v, %v", c.name, u, err)
		}
		// One by one, all that is available is given, and then it is the reserved addresses that are left, or none.
		a = alloc.AssignArgs{Owner: alloc.HostOwner("one"), Num4: 64, Partial: true}
		if c.cfg.Strict {
			continue
		}
		rest, err := w.AutoAssign(bg, a)
		if err != nil || uint64(len(rest.V4)) != c.available {
			t.Errorf("%s: %d one by one, %v", c.name, len(rest.V4), err)
		}
		a = alloc.AssignArgs{Owner: alloc.HostOwner("last"), Num4: 16, Choose: alloc.Aligned()}
		why := map[string]alloc.Reason{"plain": alloc.ReasonFull, "subnet": alloc.ReasonOutsideLeft, "reserved": alloc.ReasonReservedLeft}[c.name]
		if got, err := w.AutoAssign(bg, a); err == nil || got.Short[0].Reason != why || strings.Contains(err.Error(), "range") {
			t.Errorf("%s, nothing left: %v, want %v", c.name, err, why)
		}
	}
}
