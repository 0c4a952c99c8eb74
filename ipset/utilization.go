package ipset

import (
	"context"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Utilization returns the use of every pool, in AutoAssign's order, and of their blocks.
// Blocks outside every pool come last, under no name. It reads and returns all blocks, so
// with blocks of one address it costs as much as a list of the addresses. It reads the
// addresses of a block only if a lease or cooldown has expired there and no call has
// recorded that yet.
func (e *Engine) Utilization(ctx context.Context) ([]alloc.Utilization, error) {
	us, err := e.query.Utilization(ctx)
	return us, cause.Op("utilization", err)
}
