package ipset

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

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
