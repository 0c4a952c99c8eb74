package release

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// ClaimFailure is a block that could not be claimed, and why.
type ClaimFailure struct {
	Block netip.Prefix
	Err   error
}

// maxClaim is the largest number of blocks that one ClaimAffinity names.
const maxClaim = 1 << 16

// ClaimAffinity carries out the call of that name.
func (e *Releaser) ClaimAffinity(ctx context.Context, p netip.Prefix, o block.Owner) (claimed []netip.Prefix, failed []ClaimFailure, err error) {
	if err := errors.Join(o.Check(), block.CheckPrefix(p)); err != nil {
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
		if _, nested := cat.Inner[i].Cover(part); nested || !pool.Prefix.Overlaps(p) {
			continue
		}
		any = true
		if pool.Disabled {
			failed = append(failed, ClaimFailure{part, cause.Wrap(ipalloc.Error{Op: "claim", Name: pool.Name, Err: cause.NoPool})})
			continue
		}
		if part.Bits() > pool.BlockBits {
			failed = append(failed, ClaimFailure{part, fmt.Errorf("%w: a block of %s is a /%d", cause.BadBlockSize, pool.Name, pool.BlockBits)})
			continue
		}
		if pool.BlockBits-part.Bits() > 16 {
			return claimed, failed, cause.Wrap(ipalloc.Error{Op: "claim", Prefix: part, Err: fmt.Errorf("%w: more than %d blocks", ipalloc.ErrLimit, maxClaim)})
		}
		n := record.OrdinalOf(netip.PrefixFrom(part.Addr(), pool.BlockBits))
		for range 1 << (pool.BlockBits - part.Bits()) {
			block := record.BlockAt(part.Addr().Is6(), pool.BlockBits, n)
			n = n.Add(addr.U128{Lo: 1})
			if cat.Inner[i].Overlap(block) {
				continue
			}
			switch err := e.Do(ctx, &claimPlan{block: block, owner: o}); {
			case err == nil:
				claimed = append(claimed, block)
			case errors.Is(err, cause.Claimed), errors.Is(err, cause.BlockLimit), errors.Is(err, cause.Covered), errors.Is(err, cause.NoPool):
				failed = append(failed, ClaimFailure{block, err})
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
	owner block.Owner
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
	if cat.Pools[i].Disabled {
		return cause.NoPool
	}
	be, err := t.Block(cat, p.block)
	if err != nil {
		return err
	}
	if be.Block != nil && be.Owner().Kind != block.Nobody {
		if be.Owner() == p.owner {
			return nil
		}
		return cause.Wrap(ipalloc.Error{Op: "claim", Prefix: p.block, Holder: be.Owner().String(), Err: cause.Claimed})
	}
	blocks, err := t.BlocksOf(p.owner)
	if err != nil {
		return err
	}
	limits := *cat.Catalog
	limits.Config.NoAutoBlocks = false // this is a claim by hand
	if !limits.MayClaim(blocks, i, 0) {
		return cause.BlockLimit
	}
	b := be.Block
	if b == nil {
		b, err = t.NewBlock(cat, i, p.block, block.Options{Owner: p.owner})
	} else {
		err = t.Give(p.owner, p.block)
	}
	if err != nil {
		return err
	}
	if err := t.Room(t.BlockOps(be, txn.OwnerOps, false, true)); err != nil {
		return err
	}
	if b != be.Block {
		be.Set(b)
	}
	b.Give(p.owner, t.Now)
	t.Change(be)
	return nil
}

// ReleaseAffinity carries out the call of that name.
func (e *Releaser) ReleaseAffinity(ctx context.Context, p netip.Prefix, o block.Owner, mustBeEmpty bool) ([]netip.Prefix, error) {
	if err := errors.Join(o.Check(), block.CheckPrefix(p)); err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "release affinity", Prefix: p, Owner: o.String(), Err: err})
	}
	blocks, err := e.BlocksOf(ctx, o)
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "release affinity", Owner: o.String(), Err: err})
	}
	blocks = slices.DeleteFunc(blocks, func(b netip.Prefix) bool { return !p.Overlaps(b) || b.Bits() < p.Bits() })
	return e.disown(ctx, o, blocks, mustBeEmpty)
}

// DisownBlocks carries out the call of that name.
func (e *Releaser) DisownBlocks(ctx context.Context, o block.Owner, mustBeEmpty bool) ([]netip.Prefix, error) {
	blocks, err := e.BlocksOf(ctx, o)
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "release affinity", Owner: o.String(), Err: err})
	}
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
		return nil, cause.Wrap(ipalloc.Error{Op: "release affinity", Name: name, Err: cause.UnknownPool})
	}
	var notEmpty error
	for b, err := range e.Blocks(ctx, cat.Pools[i].Prefix) {
		if err != nil {
			return released, err
		}
		if b.Owner().Kind == block.Nobody || cat.Containing(b.Prefix().Addr()) != i {
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
func (e *Releaser) disown(ctx context.Context, o block.Owner, blocks []netip.Prefix, mustBeEmpty bool) (released []netip.Prefix, err error) {
	var notEmpty error
	err = e.InSteps(blocks, txn.StepCost{txn.OpsPerBlock, 1}, func(part []netip.Prefix) error {
		p := disownPlan{owner: o, blocks: part, mustBeEmpty: mustBeEmpty}
		if err := e.Do(ctx, &p); err != nil {
			return err
		}
		released = append(released, p.released...)
		if p.refused.IsValid() {
			notEmpty = cause.Wrap(ipalloc.Error{Op: "release affinity", Prefix: p.refused, Owner: o.String(), Err: cause.NotEmpty})
		}
		return nil
	})
	if err != nil {
		return released, cause.Wrap(ipalloc.Error{Op: "release affinity", Owner: o.String(), Err: err})
	}
	return released, notEmpty
}

// disownPlan takes blocks from an owner in one commit.
type disownPlan struct {
	owner       block.Owner
	blocks      []netip.Prefix
	mustBeEmpty bool
	emptySince  int64 // if not 0, only blocks that have been empty since then or before
	keep        int   // blocks that the owner keeps at least
	released    []netip.Prefix
	refused     netip.Prefix

	chosen  []*txn.BlockEntry
	records int // that taking those writes at most
}

// Plan implements [occ.Plan].
func (p *disownPlan) Plan(t *txn.Txn) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	if err := p.choose(t, cat); err != nil || len(p.chosen) == 0 {
		return err
	}
	if err := t.Room(p.records); err != nil {
		return err
	}
	p.finish(t)
	return nil
}

// choose finds the blocks to take, and changes none of them.
func (p *disownPlan) choose(t *txn.Txn, cat *txn.CatalogEntry) error {
	p.released, p.refused, p.chosen, p.records = p.released[:0], netip.Prefix{}, p.chosen[:0], 0
	if err := t.Warm(p.blocks); err != nil {
		return err
	}
	var empty []netip.Prefix
	for _, block := range p.blocks {
		if be := t.Blocks.Get(block); be != nil && be.Block != nil && be.IsEmpty() {
			empty = append(empty, block)
		}
	}
	if err := t.WarmPages(empty); err != nil {
		return err
	}
	var used []netip.Prefix // blocks taken that are in use
	owned, err := t.BlocksOf(p.owner)
	if err != nil {
		return err
	}
	for _, block := range p.blocks {
		be, err := t.Block(cat, block)
		if err != nil {
			return err
		}
		switch {
		case be.Block == nil || be.Owner() != p.owner || p.keep > 0 && owned.Len()-len(p.chosen) <= p.keep:
			continue
		case !be.IsEmpty() && p.mustBeEmpty, p.emptySince != 0 && be.Since() > p.emptySince:
			p.refused = block
			continue
		}
		if be.IsEmpty() {
			if err := t.Vacate(block, be.Seq()); err != nil {
				return err
			}
		}
		if err := t.Take(p.owner, block); err != nil {
			return err
		}
		if p.chosen = append(p.chosen, be); be.Used() > 0 {
			used = append(used, be.At)
		}
		p.records += t.BlockOps(be, txn.OwnerOps, false, true)
	}
	// The addresses say whether any is held for the owner: if none is, the block need not name it any more.
	return t.FetchPlaces(used)
}

// finish takes the blocks.
func (p *disownPlan) finish(t *txn.Txn) {
	for _, be := range p.chosen {
		p.released = append(p.released, be.Prefix())
		if be.IsEmpty() {
			be.Set(nil)
		} else {
			be.Disown()
			be.Forget(p.owner)
		}
		t.Change(be)
	}
}
