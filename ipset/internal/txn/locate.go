package txn

import (
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// An address is in a block of its pool's size, of another size that blocks of the pool have, or outside of every pool. One function knows
// all three cases, so that no call finds an address that another call does not.

// NewBlock makes a block where [Txn.Occupied] has found none or [Txn.MakeRoom] has made room, for the caller to put into its entry.
func (t *Txn) NewBlock(cat *CatalogEntry, at netip.Prefix, o block.Options) (*block.Block, error) {
	if be := t.assumeAbsent(at); be.Block != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "claim", Prefix: at, Err: cause.Covered})
	}
	mark, err := t.Occupy(at)
	if err != nil {
		return nil, err
	}
	o.Claimed, o.Seq = wire.Unstamp(t.Now), max(mark, cat.Generation<<pool.GenShift)
	b, err := block.New(at, o)
	if err != nil {
		return nil, err
	}
	return b, t.Give(o.Owner, at)
}

// Locate returns the block that an address is in, advanced to the present; if there is none, that which its pool would
// make, and nil outside every pool.
func (t *Txn) Locate(cat *CatalogEntry, a netip.Addr) (*BlockEntry, error) {
	i := cat.Containing(a)
	if i < 0 {
		p, ok, err := t.LastBlock(a)
		if err != nil || !ok {
			return nil, err
		}
		return t.Block(cat, p)
	}
	would, err := t.Block(cat, netip.PrefixFrom(a, cat.Pools[i].BlockBits).Masked())
	if err != nil || would.Block != nil || len(cat.Pools[i].Draining) == 0 {
		return would, err
	}
	blocks := cat.Pools[i].BlocksOf(a)
	if err := t.Warm(blocks); err != nil {
		return nil, err
	}
	for _, p := range blocks {
		if be, err := t.Block(cat, p); err != nil || be.Block != nil {
			return be, err
		}
	}
	return would, nil
}

// LastBlock returns the block that an address is in, if there is one: blocks do not overlap, so it is the last that begins at
// or before it.
func (t *Txn) LastBlock(a netip.Addr) (netip.Prefix, bool, error) {
	recs, err := t.List(record.BlockBefore(a))
	if err != nil || len(recs) == 0 {
		return netip.Prefix{}, false, err
	}
	p, ok := record.ParseBlockID(recs[0].Key[1:])
	return p, ok && p.Contains(a), nil
}
