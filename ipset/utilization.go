package ipset

import (
	"context"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Utilization returns the use of every pool, in the order in which they are tried, and of their blocks; blocks outside
// every pool come last, under no name. It reads and returns all blocks, so blocks of one address make it as
// dear as a list of the addresses; it reads addresses only of blocks in which a lease or a cooldown has ended that no call has met yet.
func (e *Engine) Utilization(ctx context.Context) ([]alloc.Utilization, error) {
	us, err := e.query.Utilization(ctx)
	return us, cause.Op("utilization", err)
}
