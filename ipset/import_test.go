package ipset

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
)

// TestImportOfManyWithoutHandle: addresses without handle have no index records and do not count against a commit's limit.
func TestImportOfManyWithoutHandle(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 24))
	b := mustBlock(t, "10.0.0.0/24", block.Options{Owner: alloc.HostOwner("h")})
	for i := range 100 {
		attrs, err := alloc.NewAttributes(map[string]string{"n": fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		b.AutoAssign(nil, 1, alloc.Claim{Attributes: attrs}, w.clock.now(), nil)
	}
	if err := w.engine(limited(w.store, 64)).Operator().ImportBlock(bg, b); err != nil {
		t.Error(err)
	}
}

// TestImportUnderAnyLimit: a block comes in whole or not at all, in as many commits as the limit makes of it, down to one for each address.
func TestImportUnderAnyLimit(t *testing.T) {
	whole := 0
	for ops := 8; whole < 3; ops++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 24))
		b := mustBlock(t, "10.0.0.0/24", block.Options{Owner: alloc.HostOwner("h")})
		for i := range 11 {
			b.AutoAssign(nil, 1, alloc.Claim{Handle: fmt.Sprint(i)}, w.clock.now(), nil)
		}
		err := w.engine(limited(w.store, ops)).Operator().ImportBlock(bg, b)
		if err == nil {
			whole++
		}
		if held := len(w.used()); err == nil && held != 11 || err != nil && (held != 0 || !errors.Is(err, ipalloc.ErrLimit)) {
			t.Errorf("%d operations a commit: %d addresses, %v", ops, held, err)
		}
	}
}

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
