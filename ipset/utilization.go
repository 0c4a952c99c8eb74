package ipset

import (
	"context"
)

// Utilization returns the use of every pool, in the order in which they are tried, and of their blocks; blocks outside
// every pool come last, under no name. It reads the records of all blocks, and addresses only of blocks in which a lease or a
// cooldown has ended that no call has met yet.
func (e *Engine) Utilization(ctx context.Context) ([]Utilization, error) {
	return e.query.Utilization(ctx)
}
