package hostlocal

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// small is a set of four addresses in two ranges that lie on both sides of the edge of a page, one of them a gateway.
func small() []RangeSet {
	return []RangeSet{{parseRange("10.0.0.0/24 10.0.0.63 10.0.0.64 10.0.0.1"), parseRange("10.0.1.0/24 10.0.1.127 10.0.1.128 10.0.1.127")}}
}

// TestExhaustively runs every sequence of operations of two containers on three addresses beside the twin.
func TestExhaustively(t *testing.T) {
	sets, err := Canonical(small())
	if err != nil {
		t.Fatal(err)
	}
	all := addrs("10.0.0.63", "10.0.0.64", "10.0.1.127", "10.0.1.128")
	const ops, most = 9, 5
	depth := most
	if testing.Short() {
		depth = 4
	}
	total := 1
	for range depth {
		total *= ops
	}
	for n := range total {
		db := store.NewMemory()
		e, err := New(db, Config{Network: "n", Sets: small()})
		if err != nil {
			t.Fatal(err)
		}
		m := model.NewHostLocal()
		m.Sets = [][]model.HostLocalRange{nil}
		for _, r := range sets[0] {
			m.Sets[0] = append(m.Sets[0], model.HostLocalRange{First: r.First, Last: r.Last, Gateway: r.Gateway})
		}
		for k, step := n, 0; step < depth; k, step = k/ops, step+1 {
			var asked []netip.Addr
			who := eth0(fmt.Sprint("c", k%ops%2))
			key := model.HostLocalKey{who.Container, who.Interface}
			switch op := k % ops; {
			case op < 2:
			case op < 4:
				if got, err := e.Del(ctx, who); err != nil || len(got) != len(m.Del(key)) {
					t.Fatalf("sequence %d: Del(%s) = %v, %v", n, who, got, err)
				}
				continue
			case op < 8:
				asked = all[op-4 : op-3]
			default:
				full := m.Full() >= 0
				if err := e.Status(ctx); errors.Is(err, ipalloc.ErrFull) != full {
					t.Fatalf("sequence %d: %v, want full %v", n, err, full)
				}
				continue
			}
			want, _, why := m.Add(key, asked)
			got, err := e.Add(ctx, who, asked...)
			if (err == nil) != (why == "") || err == nil && got[0].Prefix.Addr() != want[0] {
				t.Fatalf("sequence %d: Add(%s, %v) = %v, %v, want %v, %q", n, who, asked, got, err, want, why)
			}
		}
		if n%7 == 0 {
			if err := e.Check(ctx); err != nil {
				t.Fatalf("sequence %d: %v", n, err)
			}
		}
	}
}

// TestEveryState puts a set that spans an edge of two pages into every one of its states, and looks for the next free
// address from every place.
func TestEveryState(t *testing.T) {
	set := RangeSet{parseRange("10.0.0.0/24 10.0.0.60 10.0.0.67 10.0.0.65")}
	var all []netip.Addr
	for i := range 8 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, byte(60 + i)}))
	}
	for state := range 1 << 8 {
		if state&(1<<5) != 0 {
			continue // the gateway
		}
		db := store.NewMemory()
		e, err := New(db, Config{Network: "n", Sets: []RangeSet{set}})
		if err != nil {
			t.Fatal(err)
		}
		var s State
		for i, a := range all {
			if state>>i&1 == 1 {
				s.Holdings = append(s.Holdings, holds(fmt.Sprint("c", i), a.String()))
			}
		}
		for from := range 9 {
			s.Cursors = map[int]netip.Addr{0: netip.AddrFrom4([4]byte{10, 0, 0, byte(59 + from)})}
			if _, err := e.Import(ctx, s); err != nil {
				t.Fatal(err)
			}
			want := netip.Addr{}
			for k := range 8 {
				if i := (from + k) % 8; state>>i&1 == 0 && i != 5 {
					want = all[i]
					break
				}
			}
			got, err := e.Add(ctx, eth0("x"))
			if want.IsValid() != (err == nil) || err == nil && got[0].Prefix.Addr() != want {
				t.Fatalf("state %08b from %d: %v, %v, want %v", state, from, got, err, want)
			}
			if err := e.Check(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Del(ctx, eth0("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
}
