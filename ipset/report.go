package ipset

import (
	"context"
)

// Hosts returns a report for every owner of a block and every borrower, those with the most addresses in use first, then by name.
// It reads the records of all blocks and of borrowed addresses, not those of the others: O(blocks + borrowed addresses). Like
// Utilization it is no consistent snapshot.
func (e *Engine) Hosts(ctx context.Context) ([]HostReport, error) { return e.query.Hosts(ctx) }
