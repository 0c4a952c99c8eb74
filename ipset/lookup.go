package ipset

import (
	"context"
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Lookup returns the allocation of an address as it is in the store. For a shared address it is the first holder's;
// [alloc.Allocation.Holders] yields all. It returns [ipalloc.ErrNotHeld] for an address that is not held,
// [ipalloc.ErrCooling] with the allocation for a cooling one, and [ipalloc.ErrInvalid]. One round trip.
func (e *Engine) Lookup(ctx context.Context, a netip.Addr) (alloc.Allocation, error) {
	al, err := e.query.Lookup(ctx, a)
	return al, cause.Op("lookup", err)
}

// IPsByHandle returns the addresses of a handle in address order. It returns [ipalloc.ErrInvalid] for an
// empty handle. Cost: two round trips.
func (e *Engine) IPsByHandle(ctx context.Context, handle string) ([]alloc.Allocation, error) {
	held, err := e.query.IPsByHandle(ctx, handle)
	return held, cause.Of("IPs by handle", handle, err)
}

// IPsByAttribute returns the allocations whose active attributes have a value under a key, in address order; for a shared address
// those of the holders that have it. It finds addresses only in pools whose [alloc.Pool].Index lists the key. Values of more than
// 1,024 bytes, or with a NUL byte, are not found. Errors: [ipalloc.ErrInvalid] for a key that cannot be indexed; the store's.
// Cost: two round trips, and the number of addresses found.
func (e *Engine) IPsByAttribute(ctx context.Context, key, value string) ([]alloc.Allocation, error) {
	held, err := e.query.IPsByAttribute(ctx, key, value)
	return held, cause.Op("IPs by attribute", err)
}

// IPsByShare returns the addresses that are shared under a key, in address order, with an allocation for each holder. It returns
// [ipalloc.ErrInvalid] for an empty key. Cost: two round trips, and the number of holders found.
func (e *Engine) IPsByShare(ctx context.Context, key string) ([]alloc.Allocation, error) {
	held, err := e.query.IPsByShare(ctx, key)
	return held, cause.Op("IPs by share", err)
}

// Allocations yields the held and cooling addresses in p, in address order, each address once, with its first holder; an error is
// the last thing it yields, such as [ipalloc.ErrInvalid] for a prefix with host bits. It reads a few at a time, so the result is
// not a consistent snapshot. The zero prefix is every address of both families.
func (e *Engine) Allocations(ctx context.Context, p netip.Prefix) iter.Seq2[alloc.Allocation, error] {
	return cause.Each("allocations", e.query.Allocations(ctx, p))
}
