package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Borrowings yields what hosts hold in blocks of others, of both families, and nothing else.
func TestBorrowings(t *testing.T) {
	faulty := faults.NewFaulty(store.NewMemory())
	e, err := New(faulty, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for i, p := range []string{"10.0.0.0/29", "2001:db8::3400:0:0/125"} { // a family byte in the middle of the address
		prefix := netip.MustParsePrefix(p)
		if err := e.AddPool(ctx, alloc.Pool{Name: fmt.Sprint(i), Prefix: prefix, BlockBits: prefix.Bits()}); err != nil {
			t.Fatal(err)
		}
	}
	var want []alloc.Borrowing
	for _, host := range []string{"a", "b", "c"} {
		got, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: 2, Num6: 2, Handle: host})
		if err != nil {
			t.Fatal(err)
		}
		for _, al := range append(got.V4, got.V6...) {
			if host != "a" {
				want = append(want, alloc.Borrowing{Host: alloc.HostOwner(host), Address: al.Address, Block: al.Block})
			}
		}
	}
	list := func() (bs []alloc.Borrowing, err error) {
		for b, err := range e.Operator().Borrowings(ctx) {
			if err != nil {
				return bs, err
			}
			bs = append(bs, b)
		}
		return bs, nil
	}
	if got, err := list(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := e.ReleaseByHandle(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if got, err := list(); err != nil || !slices.Equal(got, want[4:]) {
		t.Errorf("%v, %v; want %v", got, err, want[4:])
	}
	for range e.Operator().Borrowings(ctx) {
		break
	}

	faulty.Script(faults.From(1, faults.Fail(faults.ErrInjected)))
	if _, err := list(); !errors.Is(err, faults.ErrInjected) {
		t.Errorf("a store that fails: %v", err)
	}
	faulty.Script(nil)
	if _, err := faulty.Commit(ctx, []store.Op{{Kind: store.Put, Key: record.KindHost + "1x\x00bad"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := list(); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("a damaged key: %v", err)
	}
}
