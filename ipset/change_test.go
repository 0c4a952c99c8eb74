package ipset

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// TestChangeOfPoolIsSeenAtOnce: an engine that has everything cached must not assign from a pool that another disabled.
func TestChangeOfPoolIsSeenAtOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	e := w.engine(w.store)
	if _, err := e.AutoAssign(bg, want("h", 1, "p")); err != nil {
		t.Fatal(err)
	}
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Disabled = true
	if err := w.UpdatePool(bg, p); err != nil {
		t.Fatal(err)
	}
	if got, err := e.AutoAssign(bg, want("h", 1, "q")); !errors.Is(err, cause.NoPool) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.AddPool(bg, poolOf("b", "10.0.1.0/24", 28)); err != nil {
		t.Fatal(err)
	}
	if got, err := e.AutoAssign(bg, want("h", 1, "q")); err != nil || !netip.MustParsePrefix("10.0.1.0/24").Contains(got.V4[0].Address) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestStaleCacheDoesNotClaim: room that another engine made in the own block is found before a block is claimed, or a
// shortage is reported.
func TestStaleCacheDoesNotClaim(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 30))
	e := w.engine(w.store)
	got, err := e.AutoAssign(bg, want("h", 4, "p"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: got.V4[1].Address}); err != nil {
		t.Fatal(err)
	}
	if next, err := e.AutoAssign(bg, want("h", 1, "q")); err != nil || next.V4[0].Address != got.V4[1].Address {
		t.Errorf("%+v, %v", next, err)
	}
	if n := len(w.blocksOf("h")); n != 1 {
		t.Errorf("%d blocks", n)
	}
	e.AutoAssign(bg, want("h", 4, "r"))
	w.ReleaseIPs(bg, alloc.Release{Address: got.V4[2].Address})
	if next, err := e.AutoAssign(bg, want("h", 1, "s")); err != nil || len(next.V4) != 1 {
		t.Errorf("reported short: %+v, %v", next, err)
	}
}

func TestHandlesDifferInCase(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	for _, h := range []string{"pod", "Pod", "POD", "pod\r\n", "pod/", "p", "\x01", "é"} {
		w.assign(want("h", 1, h))
	}
	for _, h := range []string{"pod", "Pod", "POD", "pod\r\n", "pod/", "p", "\x01", "é"} {
		if als, err := w.IPsByHandle(bg, h); err != nil || len(als) != 1 || als[0].Handle != h {
			t.Errorf("%q: %v, %v", h, als, err)
		}
	}
	w.assign(want("h", 2, ""))
	if _, err := w.IPsByHandle(bg, ""); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("empty handle: %v", err)
	}
	if _, err := w.ReleaseByHandle(bg, "a\x00b"); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("NUL: %v", err)
	}
}
