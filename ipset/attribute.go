package ipset

import (
	"context"
)

// IPsByAttribute returns the addresses whose active attributes have a value under a key, in address order, of an address with
// several holders those of them that have it. It finds addresses of pools whose [Pool].Index lists the key; none is no error. Values
// of more than 1,024 bytes, or with a NUL byte, are not found. Errors: [ipalloc.ErrInvalid] for a key that cannot be indexed; those
// of the store. Cost: two round trips, and the number of addresses found.
func (e *Engine) IPsByAttribute(ctx context.Context, key, value string) ([]Allocation, error) {
	return e.query.IPsByAttribute(ctx, key, value)
}

// Reindex brings the index records of the addresses of a pool in line with its Index and returns the number of addresses that it
// changed. Call it after [Engine.UpdatePool] has changed Index. It reads every address of the pool and goes in steps of a commit
// each; repeat one that was interrupted. It returns [ipalloc.ErrNotFound] if there is no such pool, or an error of the store.
func (e *Engine) Reindex(ctx context.Context, pool string) (changed int, err error) {
	return e.admin.Reindex(ctx, pool)
}
