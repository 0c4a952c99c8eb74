package prefixes

import (
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestAllocateReleasedElsewhere: a prefix that another allocator has released is handed out by one that still knows its holding.
func TestAllocateReleasedElsewhere(t *testing.T) {
	ctx, s := t.Context(), store.NewMemory()
	a, other := allocator(t, s), allocator(t, s)
	r := Request{Pool: prefix("10.0.0.0/8"), Owner: "o", Bits: 16}
	if err := a.AddPool(ctx, Pool{r.Pool, Sizes{9, 24}}); err != nil {
		t.Fatal(err)
	}
	first, err := a.Allocate(ctx, r)
	if err == nil {
		err = other.Release(ctx, first.Prefix, "o")
	}
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.Allocate(ctx, r); err != nil || again.Prefix != first.Prefix {
		t.Errorf("%v, %v; want %v", again, err, first)
	}
	sound(t, a)
}

// TestAllocateHeldPrefix: a holding that its pool shows as free is damage, and is not given away.
func TestAllocateHeldPrefix(t *testing.T) {
	ctx, s := t.Context(), store.NewMemory()
	r := Request{Pool: prefix("10.0.0.0/8"), Owner: "o", Bits: 16}
	a := allocator(t, s)
	if err := a.AddPool(ctx, Pool{r.Pool, Sizes{9, 24}}); err != nil {
		t.Fatal(err)
	}
	first, err := a.Allocate(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records(t, s) {
		if _, page := parsePageKey(rec.Key); page {
			if _, err := s.Commit(ctx, []store.Op{{Kind: store.Delete, Key: rec.Key, Expect: store.AnyRevision}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Owner = "other"
	if got, err := allocator(t, s).Allocate(ctx, r); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("%v, %v", got, err)
	}
	if h, err := a.Get(ctx, first.Prefix); err != nil || h.Owner != "o" {
		t.Errorf("%v, %v", h, err)
	}
}
