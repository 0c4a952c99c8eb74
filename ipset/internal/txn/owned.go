package txn

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every commit that gives an owner a block or takes one writes the record with the number of its blocks. So the revision of that record
// is also that of the set: blocks listed after the cell was read are the set of its revision, or the commit that rests on the cell
// is in conflict.

// OwnerEntry is the cell of how many blocks an owner has, and which if they are few.
type OwnerEntry struct{ occ.Var[record.Owned] }

// readOwner makes the entry of an owner.
func readOwner(o alloc.Owner, r store.Record) (*OwnerEntry, error) {
	if o.Kind == alloc.Nobody {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
	}
	owned, err := record.DecodeOwned(r)
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "read", Owner: o.String(), Err: err})
	}
	return &OwnerEntry{occ.NewVar(r, owned)}, nil
}

// Write implements [occ.Entry].
func (oe *OwnerEntry) Write(o *occ.Ops) {
	owned := oe.Get()
	if owned.N == 0 {
		o.Delete(&oe.Cell)
		return
	}
	o.Put(&oe.Cell)
	o.Buf = owned.Append(o.Buf)
	o.Value()
}

// Settle implements [occ.Entry].
func (oe *OwnerEntry) Settle() { oe.Complete(oe.Get().Settled()) }

// Owner returns how many blocks an owner has.
func (t *Txn) Owner(o alloc.Owner) (*OwnerEntry, error) {
	oe := t.Owners.Get(o)
	if oe == nil {
		if err := t.Load(record.OwnerKey(o)); err != nil {
			return nil, err
		}
		oe = t.Owners.Get(o)
	}
	t.Guard(&oe.Cell)
	return oe, nil
}

// BlocksOf returns the blocks of an owner: many are those in the store, with what the transaction has changed.
func (t *Txn) BlocksOf(o alloc.Owner) ([]netip.Prefix, error) {
	oe, err := t.Owner(o)
	if err != nil {
		return nil, err
	}
	owned := oe.Get()
	if owned.Listed() {
		return owned.Blocks, nil
	}
	recs, err := t.ListStored(record.CodeRange(record.KindOwner, o))
	if err != nil {
		return nil, err
	}
	own, _, err := record.BlocksOf(o, recs)
	return owned.All(own), err
}

// Give adds a block to those of an owner, who has not had it. Nobody has no number of blocks.
func (t *Txn) Give(o alloc.Owner, p netip.Prefix) error {
	if o.Kind == alloc.Nobody {
		return nil
	}
	oe, err := t.Owner(o)
	if err == nil {
		occ.Set(&t.Txn, oe, oe.Get().With(p))
	}
	return err
}

// Take removes a block from those of an owner, who has had it. Before few are left they are listed. If records are damaged the number
// is that of the list.
func (t *Txn) Take(o alloc.Owner, p netip.Prefix) error {
	oe, err := t.Owner(o)
	if err != nil {
		return err
	}
	owned := oe.Get()
	if owned.N <= record.MaxListed+1 {
		blocks, err := t.BlocksOf(o)
		if err != nil {
			return err
		}
		owned = record.OwnedOf(blocks)
	}
	occ.Set(&t.Txn, oe, owned.Without(p))
	return nil
}

// Limit returns the limit that forbids an owner one more block of pool i, false if none does; asked narrows the limit of all its blocks
// if it is above 0.
func (t *Txn) Limit(c *pool.Catalog, o alloc.Owner, i, asked int) (limit alloc.BlockLimit, reached bool, err error) {
	oe, err := t.Owner(o)
	if err != nil {
		return limit, false, err
	}
	n, p := oe.Get().N, &c.Pools[i]
	if most := c.MostBlocks(asked); n >= most {
		return alloc.BlockLimit{Blocks: n, Max: most}, true, nil
	}
	if p.MaxBlocksPerHost == 0 || n < p.MaxBlocksPerHost {
		return limit, false, nil
	}
	blocks, err := t.BlocksOf(o)
	if err != nil {
		return limit, false, err
	}
	n = 0
	for _, b := range blocks {
		if p.Prefix.Contains(b.Addr()) && c.Containing(b.Addr()) == i {
			n++
		}
	}
	return alloc.BlockLimit{Pool: p.Name, Blocks: n, Max: p.MaxBlocksPerHost}, n >= p.MaxBlocksPerHost, nil
}
