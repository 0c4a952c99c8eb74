package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
)

// TestGenerationsEnd: a block or a pool that needs a generation beyond the last is refused, and changes nothing.
func TestGenerationsEnd(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 24))
	imported := func(prefix string, generation uint64) error {
		return w.Operator().ImportBlock(bg, mustBlock(t, prefix, block.Options{Owner: alloc.HostOwner("h"), Seq: generation << pool.GenShift}))
	}
	if err := imported("10.0.0.0/24", pool.MaxGeneration-1); err != nil {
		t.Fatal(err)
	}
	rev := w.rev()
	for what, err := range map[string]error{
		"import":     imported("10.0.1.0/24", pool.MaxGeneration),
		"block size": w.UpdatePool(bg, poolOf("a", "10.0.0.0/23", 25)),
	} {
		if !errors.Is(err, ipalloc.ErrLimit) || w.rev() != rev {
			t.Errorf("%s: %v, revision %d, was %d", what, err, w.rev(), rev)
		}
	}
}

// TestImportBesideAnAssignment: an address that another engine assigns between two commits of an import stays with its holder, and the
// import fails.
func TestImportBesideAnAssignment(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	b := mustBlock(t, "10.0.0.0/28", block.Options{Owner: alloc.HostOwner("h")})
	for i := range 11 {
		b.AutoAssign(nil, 1, alloc.Claim{Handle: fmt.Sprint(i)}, w.clock.now(), nil)
	}
	db, last, parts := limited(w.store, 20), netip.MustParseAddr("10.0.0.10"), 0
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && len(w.used()) > 0 {
			if parts++; parts == 1 {
				if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: last, Handle: "other", Owner: alloc.HostOwner("h")}); err != nil {
					t.Error(err)
				}
			}
		}
		return faults.Outcome{}
	})
	err := w.engine(db).Operator().ImportBlock(bg, b)
	if !errors.Is(err, ipalloc.ErrOccupied) || parts == 0 {
		t.Errorf("%v, in %d more commits", err, parts)
	}
	if al, err := w.Lookup(bg, last); err != nil || al.Handle != "other" {
		t.Errorf("%v is held by %q, %v", last, al.Handle, err)
	}
}
