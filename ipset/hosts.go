package ipset

import (
	"context"
	"net/netip"
)

// IPsByHost returns the addresses that are held for a host, in address order: those in its own blocks that no other host has
// borrowed, and those that it has borrowed. None is no error. It returns [ipalloc.ErrInvalid]. Cost: six round trips.
func (e *Engine) IPsByHost(ctx context.Context, o Owner) ([]Allocation, error) {
	return e.release.IPsByHost(ctx, o)
}

// ReleaseAddressesOf gives back every address that is held for a host, in its own blocks and in those that it borrowed from, and
// returns them. Addresses that others borrowed from its blocks stay, and so do the blocks: [Engine.DisownBlocks] takes those.
//
// Each step is a commit of its own. Repeat a call that was interrupted. It returns [ipalloc.ErrInvalid], or an error of the
// store with what was given back so far.
func (e *Engine) ReleaseAddressesOf(ctx context.Context, o Owner) (released []netip.Addr, err error) {
	return e.release.ReleaseAddressesOf(ctx, o)
}

// RemoveHost gives back every address that is held for a host and then all its blocks; those from which others have
// borrowed are left without owner. It is ReleaseAddressesOf and DisownBlocks in this order, and resumed in the same way.
func (e *Engine) RemoveHost(ctx context.Context, o Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	return e.release.RemoveHost(ctx, o)
}
