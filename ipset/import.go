package ipset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// ImportBlock puts a block as it is into the store, with its index records. The engine takes over the block; the caller must
// not use it afterwards. A block with more addresses than one commit can hold is written in steps: an import that is
// interrupted
// leaves the block with the addresses so far, the others free.
//
// It returns [ipalloc.ErrOccupied] if a block is there already, of whatever size, and [ipalloc.ErrNotFound] if no pool has it
// or the
// pool's blocks have another size; nothing is changed then.
func (e *Engine) ImportBlock(ctx context.Context, b *block.Block) error {
	if b == nil {
		return wrap(ipalloc.Error{Op: "import", Err: errBadArgument})
	}
	if err := b.Check(); err != nil {
		return wrap(ipalloc.Error{Op: "import", Prefix: b.Prefix(), Err: fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)})
	}
	// Sequence numbers of the block may be above those of the present generation; later blocks must start above them.
	err := e.change(ctx, "import", func(_ *txn, c *catalog) error {
		c.Generation = max(c.Generation, b.Seq()>>genShift+1)
		if c.Generation > maxGeneration {
			return errExhausted
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The cooling ones come in the order of their release.
	var xs []uint64
	for x, a := range b.Each() {
		if !a.Cooling {
			xs = append(xs, x)
		}
	}
	for x := range b.EachCooling() {
		xs = append(xs, x)
	}
	for n, first := len(xs), true; first || len(xs) > 0; {
		n = min(n, len(xs))
		err := e.do(ctx, &importPlan{b: b, xs: xs[:n], rest: xs[n:], create: first})
		if n > 1 && errors.Is(err, ipalloc.ErrLimit) {
			n = (n + 1) / 2
			continue
		}
		if err != nil {
			return wrap(ipalloc.Error{Op: "import", Prefix: b.Prefix(), Err: err})
		}
		xs, first = xs[n:], false
	}
	return nil
}

// importPlan writes some addresses of a block, and the block with the first of them.
type importPlan struct {
	b      *block.Block
	xs     []uint64
	rest   []uint64 // those that later steps write: free until then, at the end of the queue
	create bool
}

// Plan implements [occ.Plan].
func (p *importPlan) Plan(t *txn) error {
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	at := p.b.Prefix()
	i := cat.containing(at.Addr())
	if i < 0 || cat.Pools[i].BlockBits != at.Bits() {
		return errUnknownPool
	}
	be, err := t.block(cat, at)
	if err != nil {
		return err
	}
	n := 0
	for _, x := range p.xs {
		_, a := p.b.Look(x)
		a.Mark(cat.Pools[i].Index)
		n += recordsOf(a)
	}
	if p.create {
		if _, taken, err := t.occupied(cat, i, at); err != nil || taken {
			if err == nil {
				err = errCovered
			}
			return err
		}
		if _, err := t.occupy(at); err != nil {
			return err
		}
		if err := t.give(p.b.Owner(), at); err != nil {
			return err
		}
	} else if be.Block == nil {
		return errCovered // it has been given back meanwhile
	} else if slices.ContainsFunc(p.xs, func(x uint64) bool { st, _ := be.Look(x); return st != block.Free }) {
		return wrap(ipalloc.Error{Op: "import", Prefix: at, Err: ipalloc.ErrOccupied})
	}
	if err := t.Room(t.blockOps(be, n, p.b.NextLease() != 0 || p.b.Cooling() > 0, true)); err != nil {
		return err
	}
	if p.create {
		be.set(p.b.Emptied(p.xs, p.rest))
	}
	for _, x := range p.xs {
		_, a := p.b.Look(x)
		if err := be.Put(x, *a); err != nil {
			return err
		}
	}
	t.Change(be)
	return nil
}
