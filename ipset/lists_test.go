package ipset

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

func count[T any](t *testing.T, seq iter.Seq2[T, error]) (n int) {
	t.Helper()
	for _, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestListsOfManyRecords: what a call lists, counts or releases is complete when it takes several reads: of the blocks, of their owners,
// of the addresses of a handle, of a host and of borrowers.
func TestListsOfManyRecords(t *testing.T) {
	const n = txn.ReadMost + 200
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 31))
	guest := alloc.HostOwner("guest")
	for i := range n {
		a := want(fmt.Sprint("h", i), 1, "")
		if _, err := w.EnsureBlock(bg, a); err != nil {
			t.Fatal(err)
		}
		b := w.blocksOf(fmt.Sprint("h", i))[0]
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: b.Addr(), Owner: guest, Handle: "g"}); err != nil {
			t.Fatal(err)
		}
	}
	e := w.engine(w.store)
	us, err := e.Utilization(bg)
	if err != nil || us[0].Used.Lo != n || len(us[0].Blocks) != n {
		t.Errorf("Utilization: %v, %v", us[0].Used, err)
	}
	hosts, err := e.Hosts(bg)
	if err != nil || len(hosts) != n+1 {
		t.Errorf("Hosts: %d, %v", len(hosts), err)
	}
	byHost, err := e.IPsByHost(bg, guest)
	if err != nil || len(byHost) != n {
		t.Errorf("IPsByHost: %d, %v", len(byHost), err)
	}
	byHandle, err := e.IPsByHandle(bg, "g")
	if err != nil || len(byHandle) != n {
		t.Errorf("IPsByHandle: %d, %v", len(byHandle), err)
	}
	for what, got := range map[string]int{
		"Allocations": count(t, e.Allocations(bg, netip.Prefix{})), "Blocks": count(t, e.Operator().Blocks(bg, netip.Prefix{})),
		"Borrowings": count(t, e.Operator().Borrowings(bg)), "Allocations of a pool": count(t, e.Allocations(bg, netip.MustParsePrefix("10.0.0.0/20"))),
	} {
		if got != n {
			t.Errorf("%s: %d, want %d", what, got, n)
		}
	}
	if rep, err := e.Operator().Check(bg, nil); err != nil || rep.Blocks != n || rep.Allocations != n || len(rep.Problems) != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	if held, err := e.Operator().Drain(bg, "a"); err != nil || len(held) != n {
		t.Errorf("Drain: %d, %v", len(held), err)
	}
	if gone, err := e.ReleaseByHandle(bg, "g"); err != nil || len(gone) != n {
		t.Errorf("ReleaseByHandle: %d, %v", len(gone), err)
	}
	if blocks, err := e.DisownBlocks(bg, alloc.DisownArgs{Pool: "a"}); err != nil || len(blocks) != n {
		t.Errorf("DisownBlocks: %d, %v", len(blocks), err)
	}
	if blocks := count(t, e.Operator().Blocks(bg, netip.Prefix{})); blocks != 0 {
		t.Errorf("%d blocks are left", blocks)
	}
}

// A prefix that cannot be is refused. It is not the zero prefix, which means everything, and host bits do not hide what is below them.
func TestPrefixesThatCannotBe(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	h := alloc.HostOwner("h")
	if _, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: h, Num4: 20}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []netip.Prefix{
		netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 99), netip.PrefixFrom(netip.MustParseAddr("10.0.0.3"), 24), netip.MustParsePrefix("::ffff:10.0.0.0/120"),
	} {
		for al, err := range w.Allocations(bg, p) {
			if !errors.Is(err, ipalloc.ErrInvalid) {
				t.Errorf("allocations in %v: %v, %v", p, al.Address, err)
			}
		}
		for b, err := range w.Operator().Blocks(bg, p) {
			if !errors.Is(err, ipalloc.ErrInvalid) {
				t.Errorf("blocks in %v: %v, %v", p, b, err)
			}
		}
		if taken, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: h, Prefix: p}); len(taken) > 0 || !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("disown in %v: %v, %v", p, taken, err)
		}
	}
}
