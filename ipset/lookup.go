package ipset

import (
	"context"
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Lookup returns the allocation of an address as it is in the store. For a shared address
// it returns the first holder's; [alloc.Allocation.Holders] yields all. It fails with
// [ipalloc.ErrNotHeld] if the address is not held, with [ipalloc.ErrCooling] and the
// allocation if it is cooling, and with [ipalloc.ErrInvalid]. Cost: one round trip.
func (e *Engine) Lookup(ctx context.Context, a netip.Addr) (alloc.Allocation, error) {
	al, err := e.query.Lookup(ctx, a)
	return al, cause.Op("lookup", err)
}

// IPsByHandle returns the addresses of a handle in address order. It fails with
// [ipalloc.ErrInvalid] for an empty handle. Cost: two round trips.
func (e *Engine) IPsByHandle(ctx context.Context, handle string) ([]alloc.Allocation, error) {
	held, err := e.query.IPsByHandle(ctx, handle)
	return held, cause.Of("IPs by handle", handle, err)
}

// IPsByAttribute returns the allocations whose active attributes have that value under
// that key, in address order. For a shared address it returns the holders that have it.
// It finds addresses only in pools whose [alloc.Pool].Index lists the key. Values of more
// than 1,024 bytes, or with a NUL byte, are not found. It fails with [ipalloc.ErrInvalid]
// for a key that cannot be indexed, and with any error of the store. Cost: two round
// trips, plus the number of addresses found.
func (e *Engine) IPsByAttribute(ctx context.Context, key, value string) ([]alloc.Allocation, error) {
	held, err := e.query.IPsByAttribute(ctx, key, value)
	return held, cause.Op("IPs by attribute", err)
}

// IPsByShare returns the addresses that are shared under a key, in address order, with an
// allocation for each holder. It fails with [ipalloc.ErrInvalid] for an empty key. Cost:
// two round trips, plus the number of holders found.
func (e *Engine) IPsByShare(ctx context.Context, key string) ([]alloc.Allocation, error) {
	held, err := e.query.IPsByShare(ctx, key)
	return held, cause.Op("IPs by share", err)
}

// Allocations yields the held and cooling addresses in p, in address order. It yields
// each address once, with its first holder. An error is the last value that it yields,
// such as [ipalloc.ErrInvalid] for a prefix with host bits. It reads a few addresses at a
// time, so the result is not a consistent snapshot. The zero prefix stands for all
// addresses of both families.
func (e *Engine) Allocations(ctx context.Context, p netip.Prefix) iter.Seq2[alloc.Allocation, error] {
	return cause.Each("allocations", e.query.Allocations(ctx, p))
}
