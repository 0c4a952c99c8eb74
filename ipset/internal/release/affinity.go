package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A host usually gets its blocks by assigning addresses. These calls give it blocks by hand and take them back, for operators that plan
// routes before there are addresses.

// maxClaim is the largest number of blocks that one ClaimAffinity names.
const maxClaim = 1 << 16

// ClaimAffinity carries out the call of that name.
func (e *Releaser) ClaimAffinity(ctx context.Context, p netip.Prefix, o alloc.Owner) (claimed []netip.Prefix, failed []alloc.ClaimFailure, err error) {
	err = o.Check()
	if err == nil {
		err = block.CheckPrefix(p)
	}
	if err != nil {
		return nil, nil, cause.Wrap(ipalloc.Error{Op: "claim", Prefix: p, Owner: o.String(), Err: err})
	}
	cat, err := e.ReadCatalog(ctx)
	if err != nil {
		return nil, nil, err
	}
	any := false
	for i, pool := range cat.Pools {
		part := p
		if part.Bits() < pool.Prefix.Bits() {
			part = pool.Prefix
		}
		if _, nested := cat.Pools[i].Inner.Cover(part); nested || !pool.Prefix.Overlaps(p) {
			continue
		}
		any = true
		if pool.Disabled || cat.Closed(i) {
			failed = append(failed, alloc.ClaimFailure{Block: part, Err: cause.Wrap(ipalloc.Error{Op: "claim", Name: pool.Name, Err: cause.NoPool})})
			continue
		}
		if part.Bits() > pool.BlockBits {
			failed = append(failed, alloc.ClaimFailure{Block: part, Err: fmt.Errorf("%w: a block of %s is a /%d", cause.BadBlockSize, pool.Name, pool.BlockBits)})
			continue
		}
		if pool.BlockBits-part.Bits() > 16 {
			return claimed, failed, cause.Wrap(ipalloc.Error{Op: "claim", Prefix: part, Err: fmt.Errorf("%w: more than %d blocks", ipalloc.ErrLimit, maxClaim)})
		}
		n := record.OrdinalOf(netip.PrefixFrom(part.Addr(), pool.BlockBits))
		for range 1 << (pool.BlockBits - part.Bits()) {
			block := record.BlockAt(part.Addr().Is6(), pool.BlockBits, n)
			n = n.Add(addr.U128{Lo: 1})
			if cat.Pools[i].Inner.Overlap(block) {
				continue
			}
			switch err := e.Do(ctx, &claimPlan{block: block, owner: o}); {
			case err == nil:
				claimed = append(claimed, block)
			case errors.Is(err, cause.Claimed), errors.Is(err, cause.BlockLimit), errors.Is(err, cause.Covered), errors.Is(err, cause.NoPool):
				failed = append(failed, alloc.ClaimFailure{Block: block, Err: err})
			default:
				return claimed, failed, cause.Wrap(ipalloc.Error{Op: "claim", Prefix: block, Owner: o.String(), Err: err})
			}
		}
	}
	if !any {
		return nil, nil, cause.Wrap(ipalloc.Error{Op: "claim", Prefix: p, Err: cause.UnknownPool})
	}
	return claimed, failed, nil
}

// claimPlan gives a block to an owner: makes it, or adopts it.
type claimPlan struct {
	block netip.Prefix
	owner alloc.Owner
}

// Plan implements [occ.Plan].
func (p *claimPlan) Plan(t *txn.Txn) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	i := cat.Containing(p.block.Addr())
	if i < 0 || cat.Pools[i].BlockBits != p.block.Bits() {
		return cause.UnknownPool
	}
	if cat.Pools[i].Disabled || cat.Closed(i) {
		return cause.NoPool
	}
	be, err := t.Block(cat, p.block)
	if err != nil {
		return err
	}
	if be.Block != nil && be.Owner().Kind != alloc.Nobody {
		if be.Owner() == p.owner {
			return nil
		}
		return cause.Wrap(ipalloc.Error{Op: "claim", Prefix: p.block, Holder: be.Owner().String(), Err: cause.Claimed})
	}
	limits := *cat.Catalog
	limits.Config.NoAutoBlocks = false // this is a claim by hand
	if _, reached, err := t.Limit(&limits, p.owner, i, 0); err != nil {
		return err
	} else if reached {
		return cause.BlockLimit
	}
	b, gone := be.Block, []*txn.BlockEntry(nil)
	if b != nil {
		err = t.Give(p.owner, p.block)
	} else if gone, err = t.MakeRoom(cat, i, p.block, func(be *txn.BlockEntry) bool { return t.MayGo(be, p.owner) }); err == nil {
		b, err = t.NewBlock(cat, p.block, block.Options{Owner: p.owner})
	}
	if err != nil {
		return err
	}
	t.DeleteBlocks(gone)
	t.Change(be)
	if b != be.Block {
		be.Set(b)
	}
	b.Give(p.owner, t.Now)
	return nil
}

// DisownBlocks takes all blocks from an owner, or those that lie in a prefix if that is not the zero one.
func (e *Releaser) DisownBlocks(ctx context.Context, o alloc.Owner, in netip.Prefix, mustBeEmpty bool) ([]netip.Prefix, error) {
	r := record.CodeRange(record.KindOwner, o)
	if in != (netip.Prefix{}) {
		if err := cmp.Or(o.Check(), block.CheckPrefix(in)); err != nil {
			return nil, cause.Wrap(ipalloc.Error{Op: "disown", Prefix: in, Owner: o.String(), Err: err})
		}
		r = record.BlockRange(record.OwnerKey(o), in)
	}
	blocks, _, err := e.Owned(ctx, o, r)
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "disown", Owner: o.String(), Err: err})
	}
	blocks = slices.DeleteFunc(blocks, func(b netip.Prefix) bool { return b.Bits() < in.Bits() })
	return e.disown(ctx, o, blocks, mustBeEmpty)
}

// ReleasePool carries out the call of that name.
func (e *Releaser) ReleasePool(ctx context.Context, name string, mustBeEmpty bool) (released []netip.Prefix, err error) {
	cat, err := e.ReadCatalog(ctx)
	if err != nil {
		return nil, err
	}
	i := cat.ByName(name)
	if i < 0 {
		return nil, cause.Wrap(ipalloc.Error{Op: "disown", Name: name, Err: cause.UnknownPool})
	}
	var notEmpty error
	for b, err := range e.Blocks(ctx, cat.Pools[i].Prefix) {
		if err != nil {
			return released, err
		}
		if b.Owner().Kind == alloc.Nobody || cat.Containing(b.Prefix().Addr()) != i {
			continue
		}
		done, err := e.disown(ctx, b.Owner(), []netip.Prefix{b.Prefix()}, mustBeEmpty)
		if released = append(released, done...); err != nil && !errors.Is(err, cause.NotEmpty) {
			return released, err
		} else if err != nil {
			notEmpty = err
		}
	}
	return released, notEmpty
}

// disown takes blocks from an owner, some at a time.
func (e *Releaser) disown(ctx context.Context, o alloc.Owner, blocks []netip.Prefix, mustBeEmpty bool) (released []netip.Prefix, err error) {
	var notEmpty error
	err = e.InSteps(blocks, func(part []netip.Prefix) (int, error) {
		p := disownPlan{mustBeEmpty: mustBeEmpty}
		for _, at := range part {
			p.blocks = append(p.blocks, ownedBlock{owner: o, at: at})
		}
		if err := e.Do(ctx, &p); err != nil {
			return 0, err
		}
		released = append(released, p.released...)
		if p.refused.IsValid() {
			notEmpty = cause.Wrap(ipalloc.Error{Op: "disown", Prefix: p.refused, Owner: o.String(), Err: cause.NotEmpty})
		}
		return p.done, nil
	})
	if err != nil {
		return released, cause.Wrap(ipalloc.Error{Op: "disown", Owner: o.String(), Err: err})
	}
	return released, notEmpty
}
