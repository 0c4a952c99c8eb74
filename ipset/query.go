package ipset

import (
	"context"
	"iter"
	"net/netip"
)

// Lookup returns the allocation of an address as it is in the store. Of a shared one it is that of the first holder, and
// [Allocation.Holders] yields all. It returns [ipalloc.ErrNotHeld] for one that is not held,
// [ipalloc.ErrCooling] with the allocation for one that is cooling, and [ipalloc.ErrInvalid]. One round trip.
func (e *Engine) Lookup(ctx context.Context, a netip.Addr) (Allocation, error) {
	return e.query.Lookup(ctx, a)
}

// BlockOf returns the block that an address is in, the zero BlockInfo if there is none.
func (e *Engine) BlockOf(ctx context.Context, a netip.Addr) (BlockInfo, error) {
	return e.query.BlockOf(ctx, a)
}

// Blocks yields every block in p, in address order; an error is the last thing it yields. It reads a few
// at a time, so the result is not a consistent snapshot. The zero prefix is every block of both families.
func (e *Engine) Blocks(ctx context.Context, p netip.Prefix) iter.Seq2[BlockInfo, error] {
	return e.query.Blocks(ctx, p)
}

// Allocations yields what is held or cooling in p, in address order, each address once, with its first holder; an error is the
// last thing it yields. It reads a few at a
// time, so the result is not a consistent snapshot. The zero prefix is every address of both families.
func (e *Engine) Allocations(ctx context.Context, p netip.Prefix) iter.Seq2[Allocation, error] {
	return e.query.Allocations(ctx, p)
}

// IPsByHandle returns the addresses of a handle in address order; none is no error. It returns [ipalloc.ErrInvalid] for an
// empty handle. Cost: two round trips.
func (e *Engine) IPsByHandle(ctx context.Context, handle string) ([]Allocation, error) {
	return e.query.IPsByHandle(ctx, handle)
}

// BlocksOf returns the blocks of an owner in address order. One round trip.
func (e *Engine) BlocksOf(ctx context.Context, o Owner) ([]netip.Prefix, error) {
	return e.query.BlocksOf(ctx, o)
}
