package ipset

import (
	"context"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Pools returns all pools, in the order in which they are tried.
func (e *Engine) Pools(ctx context.Context) ([]alloc.Pool, error) {
	pools, err := e.admin.Pools(ctx)
	return pools, cause.Op("pools", err)
}

// AddPool adds a pool. If it lies in another pool, it takes over the addresses of its prefix; if others lie in it, they keep
// theirs. Blocks that exist in its prefix are served by it; those of another size drain, and empty
// ones of these are deleted at once. If the store has an equal pool, nothing is written, so a program may add its pools at each start. For a pool that has been changed since, for example by ipamctl,
// AddPool fails with [ipalloc.ErrExists]: ignore the error to keep the change, or call [Engine.UpdatePool] to undo it.
//
// It returns [ipalloc.ErrInvalid] for a pool with an impossible name, prefix, block size, range, use, limit or selector, and for
// a nested pool that is not made of whole blocks of the pool around it; [ipalloc.ErrExists] if another pool has its prefix, which
// the error names, or its name, with the first field that differs in Field. After these errors nothing has changed.
func (e *Engine) AddPool(ctx context.Context, p alloc.Pool) error {
	return cause.Op("add pool", e.admin.AddPool(ctx, p))
}

// UpdatePool replaces the pool of p's name by p. The prefix may become one that contains the present one. If BlockBits changes, the
// blocks that exist keep their size and are used like all others; new ones have the new size, see [Engine.AutoAssign]. The pool
// reaches its new size as blocks are left empty. The engine maintains Draining; the next update removes sizes that no block has.
//
// A pool of one block that grows as one block gives nothing of the new part until the old block is empty: a /28 that becomes a /27
// gives 16 addresses. Leave BlockBits at 0 instead: the pool then has two blocks and gives all 32 at once, and
// [alloc.From] gives the lowest of the whole pool.
//
// If nothing differs, nothing is written.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, [ipalloc.ErrInvalid] for a prefix that does not contain the present
// one, or the errors of AddPool. After these errors nothing has changed.
func (e *Engine) UpdatePool(ctx context.Context, p alloc.Pool) error {
	return cause.Op("update pool", e.admin.UpdatePool(ctx, p))
}

// RemovePool removes a pool from the catalog even if addresses of it are held; [Operator.ChangePools] can refuse that. Its blocks stay
// until they are released; [Operator.Drain] lists the addresses that are still held. The pool around it, if there is one, serves
// its addresses from then on.
//
// It returns [ipalloc.ErrNotFound] if there is no such pool, and [ipalloc.ErrInvalid] if a nested pool would then be a part of a
// block of the outer pool. After these errors nothing has changed.
func (e *Engine) RemovePool(ctx context.Context, name string) error {
	return cause.Op("remove pool", e.admin.RemovePool(ctx, name))
}

// ChangePools makes several changes of pools and reservations in one commit, so a mirror of another system's pools has no
// intermediate state. If nothing differs, nothing is written.
//
// Errors, nothing changed: those of [Engine.AddPool] and [Engine.UpdatePool]; with IfEmpty [ipalloc.ErrInUse], with pool, address
// and holder; [ipalloc.ErrInvalid] for a range that cannot be reserved; the store's.
func (o Operator) ChangePools(ctx context.Context, a alloc.PoolChanges) error {
	return cause.Op("change pools", o.e.admin.ChangePools(ctx, a))
}
