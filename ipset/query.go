package ipset

import (
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Lookup returns the allocation of an address as it is in the store. It returns [ipalloc.ErrNotHeld] for one that is not held,
// [ipalloc.ErrCooling] with the allocation for one that is cooling, and [ipalloc.ErrInvalid].
func (e *Engine) Lookup(ctx context.Context, a netip.Addr) (Allocation, error) {
	if addr.CheckAddr(a) != nil {
		return Allocation{}, wrap(ipalloc.Error{Op: "look up", Addr: a, Err: errBadAddress})
	}
	b, err := e.blockOf(ctx, a)
	if err != nil {
		return Allocation{}, wrap(ipalloc.Error{Op: "look up", Addr: a, Err: err})
	}
	if b != nil {
		if al, ok := b.Lookup(a); ok && al.Cooling {
			return al, wrap(ipalloc.Error{Op: "look up", Addr: a, Err: ipalloc.ErrCooling})
		} else if ok {
			return al, nil
		}
	}
	return Allocation{}, wrap(ipalloc.Error{Op: "look up", Addr: a, Err: ipalloc.ErrNotHeld})
}

// BlockOf returns a copy of the block that an address is in, nil if there is none.
func (e *Engine) BlockOf(ctx context.Context, a netip.Addr) (*Block, error) {
	if addr.CheckAddr(a) != nil {
		return nil, wrap(ipalloc.Error{Op: "look up", Addr: a, Err: errBadAddress})
	}
	return e.blockOf(ctx, a)
}

// blockOf reads the block that an address is in, nil if there is none.
func (e *Engine) blockOf(ctx context.Context, a netip.Addr) (*Block, error) {
	if err := e.current(ctx); err != nil {
		return nil, err
	}
	cat, recs, err := e.readAround(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, rec := range recs {
		if rec.Rev == 0 {
			continue
		}
		b, err := DecodeBlock(rec.Value)
		if err != nil {
			return nil, err
		}
		if b.prefix.Contains(a) {
			b.advance(e.past(), cat.cooldown(b.prefix), math.MaxInt)
			return b, nil
		}
	}
	return nil, nil
}

// readAround reads the catalog and the blocks that an address may be in: together by the catalog as it was last seen, and the blocks
// once more if it is another now.
func (e *Engine) readAround(ctx context.Context, a netip.Addr) (*catalog, []store.Record, error) {
	keys := []string{catalogKey}
	guess := e.decoded.Load()
	if guess != nil {
		keys = guess.appendKeys(keys, a)
	}
	recs, err := e.store.Get(ctx, nil, keys...)
	if err != nil {
		return nil, nil, err
	}
	cat, err := e.decodeCatalog(recs[0])
	if err != nil {
		return nil, nil, err
	}
	if guess == nil || guess.rev != recs[0].Rev {
		keys = cat.appendKeys(keys[:1], a)
		if recs, err = e.store.Get(ctx, nil, keys...); err != nil {
			return nil, nil, err
		}
	}
	if len(keys) > 1 {
		return cat, recs[1:], nil
	}
	recs, _, err = e.store.List(ctx, blockBefore(a)) // it may be in a block that a pool has left behind
	return cat, recs, err
}

// appendKeys appends the keys of the blocks that an address may be in, none if it is in no pool.
func (c *catalog) appendKeys(keys []string, a netip.Addr) []string {
	if i := c.containing(a); i >= 0 {
		for _, p := range c.Pools[i].blocksOf(a) {
			keys = append(keys, blockKey(kindBlock, p))
		}
	}
	return keys
}

// Blocks yields a copy of every block in p, in address order; an error is the last thing it yields. It reads a few
// at a time, so that it is no snapshot. The zero prefix is every block of both families.
func (e *Engine) Blocks(ctx context.Context, p netip.Prefix) iter.Seq2[*Block, error] {
	return func(yield func(*Block, error) bool) {
		r := store.Range{From: kindBlock, To: kindBlock + "\xff"}
		if p.IsValid() {
			r = blockRange(kindBlock, p)
		}
		if err := e.current(ctx); err != nil {
			yield(nil, err)
			return
		}
		cat, err := e.readCatalog(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		now := e.past()
		for r.Limit = 256; ; {
			recs, _, err := e.store.List(ctx, r)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, rec := range recs {
				b, err := DecodeBlock(rec.Value)
				if err == nil {
					b.advance(now, cat.cooldown(b.prefix), math.MaxInt)
				}
				if !yield(b, err) || err != nil {
					return
				}
			}
			if len(recs) < r.Limit {
				return
			}
			r.From = recs[len(recs)-1].Key + "\x00"
		}
	}
}

// Allocations yields what is held or cooling in p, in address order; an error is the last thing it yields. No snapshot.
func (e *Engine) Allocations(ctx context.Context, p netip.Prefix) iter.Seq2[Allocation, error] {
	return func(yield func(Allocation, error) bool) {
		if p.IsValid() {
			// The block that p begins in may begin before p.
			b, err := e.blockOf(ctx, p.Addr())
			if err != nil {
				yield(Allocation{}, err)
				return
			}
			if b != nil && b.prefix.Bits() < p.Bits() {
				for al := range b.All() {
					if p.Contains(al.Address) && !yield(al, nil) {
						return
					}
				}
				return
			}
		}
		for b, err := range e.Blocks(ctx, p) {
			if err != nil {
				yield(Allocation{}, err)
				return
			}
			for al := range b.All() {
				if !yield(al, nil) {
					return
				}
			}
		}
	}
}

// IPsByHandle returns the addresses of a handle in address order; none is no error. It returns [ipalloc.ErrInvalid] for an
// empty handle. Cost: two round trips.
func (e *Engine) IPsByHandle(ctx context.Context, handle string) ([]Allocation, error) {
	if err := checkName("handle", handle); err != nil {
		return nil, wrap(ipalloc.Error{Op: "look up", Err: err})
	}
	if err := e.current(ctx); err != nil {
		return nil, err
	}
	recs, _, err := e.store.List(ctx, handleRange(handle))
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	blocks, err := blocksIn(recs, len(handleRange(handle).From))
	if err != nil {
		return nil, err
	}
	var als []Allocation
	now := e.past()
	err = e.eachRecord(ctx, blocks, func(b *Block) {
		b.advance(now, 0, math.MaxInt)
		for _, x := range b.ordinalsOf(nil, handle) {
			_, s := b.look(x)
			als = append(als, b.allocation(x, s))
		}
	})
	if err != nil {
		return nil, wrap(ipalloc.Error{Op: "look up", Owner: handle, Err: err})
	}
	return als, nil
}

// blocksIn returns the blocks that index records name from a place in their keys on.
func blocksIn(recs []store.Record, at int) ([]netip.Prefix, error) {
	blocks := make([]netip.Prefix, 0, len(recs))
	for _, rec := range recs {
		p, ok := parseBlockID(rec.Key[at:])
		if !ok {
			return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, rec.Key)
		}
		blocks = append(blocks, p)
	}
	return blocks, nil
}

// eachRecord calls do with a copy of each of the blocks that exist, all as they are at one moment.
func (e *Engine) eachRecord(ctx context.Context, blocks []netip.Prefix, do func(*Block)) error {
	if len(blocks) == 0 {
		return nil
	}
	keys := make([]string, len(blocks))
	for i, p := range blocks {
		keys[i] = blockKey(kindBlock, p)
	}
	recs, err := e.store.Get(ctx, nil, keys...)
	if err != nil {
		return err
	}
	for _, rec := range recs {
		if rec.Rev == 0 {
			continue
		}
		b, err := DecodeBlock(rec.Value)
		if err != nil {
			return err
		}
		do(b)
	}
	return nil
}

// BlocksOf returns the blocks of an owner in address order. One round trip.
func (e *Engine) BlocksOf(ctx context.Context, o Owner) ([]netip.Prefix, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := e.current(ctx); err != nil {
		return nil, err
	}
	recs, err := e.store.Get(ctx, nil, ownerKey(o))
	if err != nil {
		return nil, err
	}
	return decodeOwner(recs[0].Value)
}
