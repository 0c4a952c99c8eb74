package ipset

import (
	"context"
	"net/netip"
)

// ClaimAffinity gives an owner every block in a prefix, as far as it lies in a pool: blocks that do not exist are
// made, those without owner are adopted, those of others, those beyond a limit and those of a disabled pool fail, and those
// the owner has count as claimed. One commit per block; an interrupted claim is resumed by repeating it.
//
// It returns [ipalloc.ErrInvalid] for an owner or a prefix that cannot be, [ipalloc.ErrNotFound] if no pool overlaps the
// prefix, ipalloc.ErrLimit for more
// than 65,536 blocks; or an error of the store and what was done so far.
func (e *Engine) ClaimAffinity(ctx context.Context, p netip.Prefix, o Owner) (claimed []netip.Prefix, failed []ClaimFailure, err error) {
	return e.release.ClaimAffinity(ctx, p, o)
}

// ReleaseAffinity takes the blocks that lie in a prefix from an owner: an empty one is deleted, one in use is left without
// owner unless mustBeEmpty. Blocks of others, and one that is larger than the prefix, are not touched. It returns the blocks
// taken and, with mustBeEmpty, an error that is [ipalloc.ErrInUse] if one was in use; errors of the store as they come. Steps of a
// few blocks each.
func (e *Engine) ReleaseAffinity(ctx context.Context, p netip.Prefix, o Owner, mustBeEmpty bool) ([]netip.Prefix, error) {
	return e.release.ReleaseAffinity(ctx, p, o, mustBeEmpty)
}

// DisownBlocks takes all its blocks from an owner, as ReleaseAffinity does.
func (e *Engine) DisownBlocks(ctx context.Context, o Owner, mustBeEmpty bool) ([]netip.Prefix, error) {
	return e.release.DisownBlocks(ctx, o, mustBeEmpty)
}

// ReleasePool takes every block of a pool from its owner, as ReleaseAffinity does. It returns [ipalloc.ErrNotFound].
func (e *Engine) ReleasePool(ctx context.Context, name string, mustBeEmpty bool) (released []netip.Prefix, err error) {
	return e.release.ReleasePool(ctx, name, mustBeEmpty)
}
