package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// RestoreBlock returns a block as another system has it: free are its free addresses in the order in which they will be handed
// out, busy those held or cooling; the cooling ones among them in the order of their release. The prefix of Allocation.Block
// does not count. Together with the reserved ends they must be all addresses of the prefix.
//
// It returns the errors of [NewBlock], and [ipalloc.ErrCorrupt] for what does not fit together.
func RestoreBlock(p netip.Prefix, o BlockOptions, free []netip.Addr, busy []Allocation) (*Block, error) {
	b, err := NewBlock(p, o)
	if err != nil {
		return nil, err
	}
	bad := func(what string, at netip.Addr) (*Block, error) {
		return nil, wrap(ipalloc.Error{Op: "restore", Prefix: p, Addr: at, Reason: what, Err: ipalloc.ErrCorrupt})
	}
	for _, al := range busy {
		x, err := b.locate(al.Address)
		a := address{
			identity: identity{al.Host, al.Handle, al.Attributes.code, al.Alternate.code},
			seq:      al.Seq, until: stamp(al.Until), cooling: al.Cooling, borrowed: !al.Cooling && al.Host != b.owner && al.Host.Kind != Nobody,
		}
		if err == nil {
			_, _, err = decodeAddress(string(a.append(nil, p.Bits())))
		}
		if err == nil {
			err = b.restore(x, a)
		}
		if err != nil {
			return bad(err.Error(), al.Address)
		}
	}
	var queue queue
	for _, at := range free {
		x, err := b.locate(at)
		if err != nil || !b.free.remove(x) {
			return bad("the address is not free, or twice", at)
		}
		queue.push(x)
	}
	if !b.free.empty() {
		return bad("an address is in no state", b.addr(b.free.spans[b.free.head].lo))
	}
	b.free = queue
	if err := b.Check(); err != nil {
		return bad(err.Error(), netip.Addr{})
	}
	return b, nil
}

// ImportBlock puts a block as it is into the store, with its index records. The engine takes over the block; the caller must
// not use it afterwards. A block with more addresses than one commit can hold is written in steps: an import that is
// interrupted
// leaves the block with the addresses so far, the others free.
//
// It returns [ipalloc.ErrOccupied] if a block is there already, of whatever size, and [ipalloc.ErrNotFound] if no pool has it
// or the
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
	// The cooling ones come in the order of their release.
	var xs []uint64
	for x, a := range b.each() {
		if !a.cooling {
			xs = append(xs, x)
		}
	}
	for _, c := range b.cool {
		xs = append(xs, c.x)
	}
	for n, first := len(xs), true; first || len(xs) > 0; {
		n = min(n, len(xs))
		err := e.do(ctx, &importPlan{b: b, xs: xs[:n], rest: xs[n:], create: first})
		if n > 1 && errors.Is(err, ipalloc.ErrLimit) {
			n = (n + 1) / 2
			continue
		}
		if err != nil {
			return wrap(ipalloc.Error{Op: "import", Prefix: b.prefix, Err: err})
		}
		xs, first = xs[n:], false
	}
	return nil
}

// importPlan writes some addresses of a block, and the block with the first of them.
type importPlan struct {
	b      *Block
	xs     []uint64
	rest   []uint64 // those that later steps write: free until then, at the end of the queue
	create bool
}

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
	n := 0
	for _, x := range p.xs {
		_, a := p.b.look(x)
		n += a.records()
	}
	var d draft
	if p.create {
		if _, taken, err := t.occupied(cat, i, block); err != nil || taken {
			if err == nil {
				err = errCovered
			}
			return err
		}
		if _, err := d.occupy(t, block); err != nil {
			return err
		}
		if err := d.give(t, p.b.owner, block); err != nil {
			return err
		}
	} else if be.Block == nil {
		return errCovered // it has been given back meanwhile
	} else if slices.ContainsFunc(p.xs, func(x uint64) bool { st, _ := be.look(x); return st != stateFree }) {
		return wrap(ipalloc.Error{Op: "import", Prefix: block, Err: ipalloc.ErrOccupied})
	}
	if err := t.room(d.size(t)+t.blockOps(be, n, p.b.lease != 0 || len(p.b.cool) > 0, true), 0); err != nil {
		return err
	}
	d.apply(t)
	if p.create {
		be.set(p.begin())
	}
	for _, x := range p.xs {
		_, a := p.b.look(x)
		if err := be.restore(x, *a); err != nil {
			return err
		}
	}
	t.changed(be)
	return nil
}

// begin returns the block without addresses, with those to come at the end of its queue.
func (p *importPlan) begin() *Block {
	b := *p.b
	b.free = queue{spans: slices.Clone(p.b.free.spans[p.b.free.head:])}
	for _, x := range p.xs {
		b.free.push(x)
	}
	for _, x := range p.rest {
		b.free.push(x)
	}
	b.cool, b.dir, b.sparse, b.used, b.leases, b.lease, b.absent = nil, nil, nil, 0, 0, 0, 0
	return &b
}
