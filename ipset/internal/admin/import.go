package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Another program's blocks come in address by address, with holders and times as they were. Sequence numbers of an import may be
// ahead of this store, so the generation of the catalog is raised first.

// ImportBlock carries out the call of that name.
func (e *Admin) ImportBlock(ctx context.Context, b *block.Block) error {
	if b == nil {
		return cause.Wrap(ipalloc.Error{Op: "import", Err: cause.Invalid("block", "is nil")})
	}
	if err := b.Check(); err != nil {
		return cause.Wrap(ipalloc.Error{Op: "import", Prefix: b.Prefix(), Err: fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)})
	}
	// Sequence numbers of the block may be above those of the present generation; later blocks must start above them.
	err := e.Change(ctx, "import", func(_ *txn.Txn, c *pool.Catalog) error {
		c.Generation = max(c.Generation, b.Seq()>>pool.GenShift+1)
		if c.Generation > pool.MaxGeneration {
			return cause.Exhausted
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
		err := e.Do(ctx, &importPlan{b: b, xs: xs[:n], rest: xs[n:], create: first})
		if n > 1 && errors.Is(err, ipalloc.ErrLimit) {
			n = (n + 1) / 2
			continue
		}
		if err != nil {
			return cause.Wrap(ipalloc.Error{Op: "import", Prefix: b.Prefix(), Err: err})
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
func (p *importPlan) Plan(t *txn.Txn) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	at := p.b.Prefix()
	i := cat.Containing(at.Addr())
	if i < 0 || cat.Pools[i].BlockBits != at.Bits() {
		return cause.UnknownPool
	}
	be, err := t.Block(cat, at)
	if err != nil {
		return err
	}
	for _, x := range p.xs {
		_, a := p.b.Look(x)
		a.Mark(cat.Pools[i].Index)
		a.NotFirst() // the handle may have a first holding in this store
	}
	if p.create {
		if by, _, err := t.Occupied(cat, i, at); err != nil || by.IsValid() {
			if err == nil {
				err = cause.Covered
			}
			return err
		}
		if _, err := t.Occupy(at); err != nil {
			return err
		}
		if err := t.Give(p.b.Owner(), at); err != nil {
			return err
		}
	} else if be.Block == nil {
		return cause.Covered // it has been given back meanwhile
	} else if slices.ContainsFunc(p.xs, func(x uint64) bool { st, _ := be.Look(x); return st != block.Free }) {
		return cause.Wrap(ipalloc.Error{Op: "import", Prefix: at, Err: ipalloc.ErrOccupied})
	}
	disabled := p.create && cat.Pools[i].Disabled // by a removal that has looked, perhaps: it begins again if the catalog is written
	if disabled {
		if t.Pending() {
			return occ.ErrFirst
		}
		value, err := cat.Encode()
		if err != nil {
			return err
		}
		t.SetCatalog(cat.Catalog, value)
	}
	t.Change(be)
	if p.create {
		be.Set(p.b.Emptied(p.xs, p.rest))
	}
	for _, x := range p.xs {
		_, a := p.b.Look(x)
		if err := be.Put(x, *a); err != nil {
			return err
		}
	}
	return nil
}
