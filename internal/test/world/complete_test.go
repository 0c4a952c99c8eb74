package world

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// The world has every kind of record, every field and every state of an address that there is.
func TestWorldIsComplete(t *testing.T) {
	w := New(t)
	for _, space := range Spaces {
		for al, err := range w.Engine(t, w.DB, space, 0).Allocations(t.Context(), netip.Prefix{}) {
			if err != nil {
				t.Fatal(err)
			}
			for h := range al.Holders() {
				w.used = append(w.used, h)
			}
			w.used = append(w.used, al)
		}
		pools, err := w.Engine(t, w.DB, space, 0).Pools(t.Context())
		if err != nil || !slices.ContainsFunc(pools, func(p alloc.Pool) bool { return len(p.Draining) > 0 }) {
			t.Error("no pool has blocks of another size", err)
		}
	}
	for _, m := range w.Missing(t, "../../../ipset/store/README.md") {
		t.Error("the world lacks", m)
	}
	if w := w.Look(t, w.DB); len(w) < 200 {
		t.Error("the picture has", len(w), "things")
	}
}
