package ipset

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// ImportBlock puts a block as it is into the store, with its index records: one that [ImportCalicoBlock] read, or that
// [DecodeBlock] read elsewhere. The engine takes the block over; the caller must not use it any more.
//
// It returns [ipalloc.ErrOccupied] if a block is there already, of whatever size, and [ipalloc.ErrNotFound] if no pool has it or the
// pool's blocks have another size; nothing is changed then.
func (e *Engine) ImportBlock(ctx context.Context, b *Block) error {
	if b == nil {
		return wrap(ipalloc.Error{Op: "import", Err: errBadArgument})
	}
	if err := b.Check(); err != nil {
		return wrap(ipalloc.Error{Op: "import", Prefix: b.prefix, Err: fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)})
	}
	// Sequence numbers of the block may be above those of the present generation; later blocks must start above them.
	err := e.change(ctx, "import", func(_ *txn, c *catalog) error {
		c.Generation = max(c.Generation, b.seq>>genShift+1)
		if c.Generation > maxGeneration {
			return errExhausted
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.do(ctx, &importPlan{b}); err != nil {
		return wrap(ipalloc.Error{Op: "import", Prefix: b.prefix, Err: err})
	}
	return nil
}

type importPlan struct{ b *Block }

// plan implements plan.
func (p *importPlan) plan(t *txn) error {
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	block := p.b.prefix
	i := cat.containing(block.Addr())
	if i < 0 || cat.Pools[i].BlockBits != block.Bits() {
		return errUnknownPool
	}
	be, err := t.block(cat, block)
	if err != nil {
		return err
	}
	if _, taken, err := t.occupied(cat, i, block); err != nil || taken {
		if err == nil {
			err = errCovered
		}
		return err
	}
	var d draft
	if _, err := d.occupy(t, block); err != nil {
		return err
	}
	if err := d.give(t, p.b.owner, block); err != nil {
		return err
	}
	handles := 0
	for i := range p.b.holders.list {
		if h := &p.b.holders.list[i]; h.held > 0 && h.handle != "" {
			handles++
		}
	}
	if err := t.room(d.size(t)+t.blockOps(be, handles+len(p.b.hosts)), 0); err != nil {
		return err
	}
	d.apply(t)
	be.set(p.b)
	named := make(map[string]bool)
	for i := range p.b.holders.list {
		if h := &p.b.holders.list[i]; h.held > 0 && h.handle != "" && !named[h.handle] {
			named[h.handle] = true
			be.touches = append(be.touches, touch{kindHandle, h.handle, true})
		}
	}
	for _, host := range slices.Sorted(maps.Keys(p.b.hosts)) {
		be.touches = append(be.touches, touch{kindHost, host, true})
	}
	t.changed(be)
	return nil
}
