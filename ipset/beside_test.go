package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// TestListsDoNotFollowThePools: a host that finds no free block borrows with as many lists, however many pools lie side by side,
// wherever there is room, and so does a call that finds all of them full. A list goes on into the pools behind.
func TestListsDoNotFollowThePools(t *testing.T) {
	for _, n := range []int{2, 16, 64} {
		for _, room := range []int{0, n / 2, n - 1, -1} { // the pool that has some
			var pools []alloc.Pool
			for i := range n {
				p := poolOf(fmt.Sprintf("p%02d", i*7%n), fmt.Sprintf("10.0.0.%d/30", 4*i), 31) // not in the order of the addresses
				if n == 2 {
					p.Name = fmt.Sprintf("p%02d", i)
				}
				p.Cooldown = time.Minute
				pools = append(pools, p)
			}
			w := newWorld(t, alloc.Config{}, pools...)
			for i := range 2 * n {
				w.assign(want(fmt.Sprint("h", i), 2, fmt.Sprint("p", i)))
			}
			if room >= 0 { // of the second block of the pool, one address
				a := netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", 4*room+2))
				if _, err := w.ReleaseIPs(bg, alloc.Release{Address: a}); err != nil {
					t.Fatal(err)
				}
				w.clock.add(time.Hour)
			}
			s := faults.NewFaulty(w.store)
			e := w.engine(s)
			if _, err := e.Pools(bg); err != nil {
				t.Fatal(err)
			}
			s.Reset()
			got, err := e.AutoAssign(bg, want("late", 1, "q"))
			if err != nil || len(got.V4) != min(1, room+1) {
				t.Fatalf("%d pools, room in %d: %v, %v", n, room, got, err)
			}
			if lists := s.Counts().Lists; lists > 10 {
				t.Errorf("%d pools, room in %d: %d lists", n, room, lists)
			}
		}
	}
}

// TestSearchesReadWhatTheLastOneRead: in pools where nearly all that is free cools, the first host that borrows finds out how much
// has to be listed, and the next ones list it at once, as those that find nothing do; when there is room again, lists are short again.
// One list more is that of what is due, which is a list of its own while so many blocks cool.
func TestSearchesReadWhatTheLastOneRead(t *testing.T) {
	var pools []alloc.Pool
	for i := range 8 {
		p := poolOf(fmt.Sprint("p", i), fmt.Sprintf("10.0.%d.0/26", i), 31)
		p.Cooldown = time.Hour
		pools = append(pools, p)
	}
	w := newWorld(t, alloc.Config{}, pools...)
	var blocks []netip.Prefix
	for i := range 256 {
		blocks = append(blocks, netip.PrefixFrom(w.assign(want(fmt.Sprint("h", i), 2, "p")).V4[0].Address, 31).Masked())
	}
	slices.SortFunc(blocks, record.ComparePrefix)
	release := func(a netip.Addr) {
		t.Helper()
		if _, err := w.ReleaseIPs(bg, alloc.Release{Address: a}); err != nil {
			t.Fatal(err)
		}
	}
	const room = 12
	for i := range room {
		release(blocks[200+i].Addr())
	}
	w.clock.add(time.Hour)
	for i := range 200 {
		release(blocks[i].Addr())
		if i%8 == 0 {
			release(blocks[i].Addr().Next())
		}
	}
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	borrow := func(name string) (lists, records int) {
		t.Helper()
		s.Reset()
		if got, err := e.AutoAssign(bg, want(name, 1, name)); err != nil || len(got.V4) != 1 {
			t.Fatal(name, got, err)
		}
		return s.Counts().Lists, touched(s)
	}
	first, _ := borrow("first")
	for i := 1; i < room; i++ {
		if lists, _ := borrow(fmt.Sprint("late", i)); lists > 1+5 || i > 1 && lists > 1+4 || lists > first/2 {
			t.Errorf("borrower %d: %d lists, the first %d", i, lists, first)
		}
	}
	for i := range 2 {
		s.Reset()
		if got, err := e.AutoAssign(bg, want("short", 1, "short")); err != nil || len(got.V4) != 0 || s.Counts().Lists > 5-i {
			t.Errorf("shortage %d: %d lists, %v, %v", i, s.Counts().Lists, got, err)
		}
	}
	w.clock.add(2 * time.Hour)
	borrow("again")
	if lists, records := borrow("at last"); lists > 2 || records > 40 {
		t.Errorf("%d lists and %d records where there is room", lists, records)
	}
}
