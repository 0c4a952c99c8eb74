package ipset

import (
	"context"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Pools returns all pools, in AutoAssign's order.
func (e *Engine) Pools(ctx context.Context) ([]alloc.Pool, error) {
	pools, err := e.admin.Pools(ctx)
	return pools, cause.Op("pools", err)
}

// AddPool adds a pool. If it is inside another pool, it serves the addresses of its
// prefix instead of that pool. If other pools are inside it, they keep their addresses.
// It serves the existing blocks in its prefix. Blocks of another size drain, and the call
// deletes them if they are empty. If the store has an equal pool, AddPool writes nothing,
// so a program may add its pools at each start. If the pool has been changed since, for
// example by ipamctl, AddPool fails with [ipalloc.ErrExists]. Ignore the error to keep
// the change, or call [Engine.UpdatePool] to undo it.
//
// It fails with [ipalloc.ErrInvalid] for a pool with an impossible name, prefix, block
// size, range, use, limit or selector. It also does so for a nested pool that does not
// consist of whole blocks of the outer pool. It fails with [ipalloc.ErrExists] if another
// pool has its prefix, which the error names, or its name; Field is then the first field
// that differs. These errors change nothing.
func (e *Engine) AddPool(ctx context.Context, p alloc.Pool) error {
	return cause.Op("add pool", e.admin.AddPool(ctx, p))
}

// UpdatePool replaces the pool of p's name by p. The new prefix may contain the present
// prefix. If BlockBits changes, existing blocks keep their size and are used like all
// others. New blocks have the new size, see [Engine.AutoAssign]. The pool changes to its
// new size as blocks become empty. The engine maintains Draining: each update removes
// sizes that no block has.
//
// If a pool that is one block grows into one larger block, its new part stays unused
// until the old block is empty. For example, a /28 that becomes a /27 serves 16
// addresses. Leave BlockBits at 0 instead: the pool then has two blocks and serves all 32
// addresses at once, and [alloc.From] assigns the lowest of the whole pool.
//
// If nothing differs, UpdatePool writes nothing.
//
// It fails with [ipalloc.ErrNotFound] if there is no such pool, with [ipalloc.ErrInvalid]
// for a prefix that does not contain the present one, and with the errors of AddPool.
// These errors change nothing.
func (e *Engine) UpdatePool(ctx context.Context, p alloc.Pool) error {
	return cause.Op("update pool", e.admin.UpdatePool(ctx, p))
}

// RemovePool removes a pool from the catalog even if addresses of it are held;
// [Operator.ChangePools] can refuse that. Its blocks stay until they are released;
// [Operator.Drain] lists the addresses that are still held. The pool around it, if any,
// serves its addresses from then on.
//
// It fails with [ipalloc.ErrNotFound] if there is no such pool. It fails with
// [ipalloc.ErrInvalid] if a nested pool would then be a part of a block of the outer
// pool. These errors change nothing.
func (e *Engine) RemovePool(ctx context.Context, name string) error {
	return cause.Op("remove pool", e.admin.RemovePool(ctx, name))
}

// ChangePools makes several changes of pools and reservations in one commit, so a mirror
// of another system's pools has no intermediate state. If nothing differs, it writes
// nothing.
//
// On error nothing changes. The call fails as [Engine.AddPool] and [Engine.UpdatePool]
// do. With IfEmpty it fails with [ipalloc.ErrInUse] and pool, address and holder. It
// fails with [ipalloc.ErrInvalid] for a range that cannot be reserved, and with any error
// of the store.
func (o Operator) ChangePools(ctx context.Context, a alloc.PoolChanges) error {
	return cause.Op("change pools", o.e.admin.ChangePools(ctx, a))
}
