package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// ClaimFailure is a block that could not be claimed, and why.
type ClaimFailure struct {
	Block netip.Prefix
	Err   error
}

// maxClaim is the largest number of blocks that one ClaimAffinity names.
const maxClaim = 1 << 16

// ClaimAffinity gives an owner every block in a prefix, as far as it lies in a pool: blocks that do not exist are
// made, those without owner are adopted, those of others, those beyond a limit and those of a disabled pool fail, and those
// the owner has count as claimed. One commit per block; an interrupted claim is resumed by repeating it.
//
// It returns [ipalloc.ErrInvalid] for an owner or a prefix that cannot be, [ipalloc.ErrNotFound] if no pool overlaps the
// prefix, ipalloc.ErrLimit for more
// than 65,536 blocks; or an error of the store and what was done so far.
func (e *Engine) ClaimAffinity(ctx context.Context, p netip.Prefix, o Owner) (claimed []netip.Prefix, failed []ClaimFailure, err error) {
	if err := errors.Join(o.Check(), block.CheckPrefix(p)); err != nil {
		return nil, nil, wrap(ipalloc.Error{Op: "claim", Prefix: p, Owner: o.String(), Err: err})
	}
	cat, err := e.readCatalog(ctx)
	if err != nil {
		return nil, nil, err
	}
	any := false
	for i, pool := range cat.Pools {
		part := p
		if part.Bits() < pool.Prefix.Bits() {
			part = pool.Prefix
		}
		if _, nested := cat.inner[i].cover(part); nested || !pool.Prefix.Overlaps(p) {
			continue
		}
		any = true
		if pool.Disabled {
			failed = append(failed, ClaimFailure{part, wrap(ipalloc.Error{Op: "claim", Name: pool.Name, Err: errNoPool})})
			continue
		}
		if part.Bits() > pool.BlockBits {
			failed = append(failed, ClaimFailure{part, fmt.Errorf("%w: a block of %s is a /%d", errBadBlockSize, pool.Name, pool.BlockBits)})
			continue
		}
		if pool.BlockBits-part.Bits() > 16 {
			return claimed, failed, wrap(ipalloc.Error{Op: "claim", Prefix: part, Err: fmt.Errorf("%w: more than %d blocks", ipalloc.ErrLimit, maxClaim)})
		}
		n := ordinalOf(netip.PrefixFrom(part.Addr(), pool.BlockBits))
		for range 1 << (pool.BlockBits - part.Bits()) {
			block := blockAt(part.Addr().Is6(), pool.BlockBits, n)
			n = n.Add(addr.U128{Lo: 1})
			if cat.inner[i].overlap(block) {
				continue
			}
			switch err := e.do(ctx, &claimPlan{block: block, owner: o}); {
			case err == nil:
				claimed = append(claimed, block)
			case errors.Is(err, errClaimed), errors.Is(err, errBlockLimit), errors.Is(err, errCovered), errors.Is(err, errNoPool):
				failed = append(failed, ClaimFailure{block, err})
			default:
				return claimed, failed, wrap(ipalloc.Error{Op: "claim", Prefix: block, Owner: o.String(), Err: err})
			}
		}
	}
	if !any {
		return nil, nil, wrap(ipalloc.Error{Op: "claim", Prefix: p, Err: errUnknownPool})
	}
	return claimed, failed, nil
}

// claimPlan gives a block to an owner: makes it, or adopts it.
type claimPlan struct {
	block netip.Prefix
	owner Owner
}

// Plan implements [occ.Plan].
func (p *claimPlan) Plan(t *txn) error {
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	i := cat.containing(p.block.Addr())
	if i < 0 || cat.Pools[i].BlockBits != p.block.Bits() {
		return errUnknownPool
	}
	if cat.Pools[i].Disabled {
		return errNoPool
	}
	be, err := t.block(cat, p.block)
	if err != nil {
		return err
	}
	if be.Block != nil && be.Owner().Kind != Nobody {
		if be.Owner() == p.owner {
			return nil
		}
		return wrap(ipalloc.Error{Op: "claim", Prefix: p.block, Holder: be.Owner().String(), Err: errClaimed})
	}
	blocks, err := t.blocksOf(p.owner)
	if err != nil {
		return err
	}
	limits := *cat.catalog
	limits.Config.NoAutoBlocks = false // this is a claim by hand
	if !limits.mayClaim(blocks, i, 0) {
		return errBlockLimit
	}
	b := be.Block
	if b == nil {
		b, err = t.newBlock(cat, i, p.block, block.Options{Owner: p.owner})
	} else {
		err = t.give(p.owner, p.block)
	}
	if err != nil {
		return err
	}
	if err := t.Room(t.blockOps(be, ownerOps, false, true)); err != nil {
		return err
	}
	if b != be.Block {
		be.set(b)
	}
	b.Give(p.owner, t.now)
	t.Change(be)
	return nil
}

// ReleaseAffinity takes the blocks that lie in a prefix from an owner: an empty one is deleted, one in use is left without
// owner unless mustBeEmpty. Blocks of others, and one that is larger than the prefix, are not touched. It returns the blocks
// taken and, with mustBeEmpty, an error that is [ipalloc.ErrInUse] if one was in use; errors of the store as they come. Steps of a
// few blocks each.
func (e *Engine) ReleaseAffinity(ctx context.Context, p netip.Prefix, o Owner, mustBeEmpty bool) ([]netip.Prefix, error) {
	if err := errors.Join(o.Check(), block.CheckPrefix(p)); err != nil {
		return nil, wrap(ipalloc.Error{Op: "release affinity", Prefix: p, Owner: o.String(), Err: err})
	}
	blocks, err := e.BlocksOf(ctx, o)
	if err != nil {
		return nil, wrap(ipalloc.Error{Op: "release affinity", Owner: o.String(), Err: err})
	}
	blocks = slices.DeleteFunc(blocks, func(b netip.Prefix) bool { return !p.Overlaps(b) || b.Bits() < p.Bits() })
	return e.disown(ctx, o, blocks, mustBeEmpty)
}

// DisownBlocks takes all its blocks from an owner, as ReleaseAffinity does.
func (e *Engine) DisownBlocks(ctx context.Context, o Owner, mustBeEmpty bool) ([]netip.Prefix, error) {
	blocks, err := e.BlocksOf(ctx, o)
	if err != nil {
		return nil, wrap(ipalloc.Error{Op: "release affinity", Owner: o.String(), Err: err})
	}
	return e.disown(ctx, o, blocks, mustBeEmpty)
}

// ReleasePool takes every block of a pool from its owner, as ReleaseAffinity does. It returns [ipalloc.ErrNotFound].
func (e *Engine) ReleasePool(ctx context.Context, name string, mustBeEmpty bool) (released []netip.Prefix, err error) {
	cat, err := e.readCatalog(ctx)
	if err != nil {
		return nil, err
	}
	i := cat.byName(name)
	if i < 0 {
		return nil, wrap(ipalloc.Error{Op: "release affinity", Name: name, Err: errUnknownPool})
	}
	var notEmpty error
	for b, err := range e.Blocks(ctx, cat.Pools[i].Prefix) {
		if err != nil {
			return released, err
		}
		if b.Owner().Kind == Nobody || cat.containing(b.Prefix().Addr()) != i {
			continue
		}
		done, err := e.disown(ctx, b.Owner(), []netip.Prefix{b.Prefix()}, mustBeEmpty)
		if released = append(released, done...); err != nil && !errors.Is(err, errNotEmpty) {
			return released, err
		} else if err != nil {
			notEmpty = err
		}
	}
	return released, notEmpty
}

// disown takes blocks from an owner, some at a time.
func (e *Engine) disown(ctx context.Context, o Owner, blocks []netip.Prefix, mustBeEmpty bool) (released []netip.Prefix, err error) {
	var notEmpty error
	err = e.inSteps(blocks, stepCost{opsPerBlock, 1}, func(part []netip.Prefix) error {
		p := disownPlan{owner: o, blocks: part, mustBeEmpty: mustBeEmpty}
		if err := e.do(ctx, &p); err != nil {
			return err
		}
		released = append(released, p.released...)
		if p.refused.IsValid() {
			notEmpty = wrap(ipalloc.Error{Op: "release affinity", Prefix: p.refused, Owner: o.String(), Err: errNotEmpty})
		}
		return nil
	})
	if err != nil {
		return released, wrap(ipalloc.Error{Op: "release affinity", Owner: o.String(), Err: err})
	}
	return released, notEmpty
}

// disownPlan takes blocks from an owner in one commit.
type disownPlan struct {
	owner       Owner
	blocks      []netip.Prefix
	mustBeEmpty bool
	emptySince  int64 // if not 0, only blocks that have been empty since then or before
	keep        int   // blocks that the owner keeps at least
	released    []netip.Prefix
	refused     netip.Prefix

	chosen  []*blockEntry
	records int // that taking those writes at most
}

// Plan implements [occ.Plan].
func (p *disownPlan) Plan(t *txn) error {
	cat, err := t.catalog()
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
func (p *disownPlan) choose(t *txn, cat *catalogEntry) error {
	p.released, p.refused, p.chosen, p.records = p.released[:0], netip.Prefix{}, p.chosen[:0], 0
	if err := t.warm(p.blocks); err != nil {
		return err
	}
	var empty []netip.Prefix
	for _, block := range p.blocks {
		if be := t.blocks.Get(block); be != nil && be.Block != nil && be.IsEmpty() {
			empty = append(empty, block)
		}
	}
	if err := t.warmPages(empty); err != nil {
		return err
	}
	var used []netip.Prefix // blocks taken that are in use
	owned, err := t.blocksOf(p.owner)
	if err != nil {
		return err
	}
	for _, block := range p.blocks {
		be, err := t.block(cat, block)
		if err != nil {
			return err
		}
		switch {
		case be.Block == nil || be.Owner() != p.owner || p.keep > 0 && owned.len()-len(p.chosen) <= p.keep:
			continue
		case !be.IsEmpty() && p.mustBeEmpty, p.emptySince != 0 && be.Since() > p.emptySince:
			p.refused = block
			continue
		}
		if be.IsEmpty() {
			if err := t.vacate(block, be.Seq()); err != nil {
				return err
			}
		}
		if err := t.take(p.owner, block); err != nil {
			return err
		}
		if p.chosen = append(p.chosen, be); be.Used() > 0 {
			used = append(used, be.at)
		}
		p.records += t.blockOps(be, ownerOps, false, true)
	}
	// The addresses say whether any is held for the owner: if none is, the block need not name it any more.
	return t.fetchPlaces(used)
}

// finish takes the blocks.
func (p *disownPlan) finish(t *txn) {
	for _, be := range p.chosen {
		p.released = append(p.released, be.Prefix())
		if be.IsEmpty() {
			be.set(nil)
		} else {
			be.Disown()
			be.Forget(p.owner)
		}
		t.Change(be)
	}
}
