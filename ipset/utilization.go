package ipset

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/query"
)

// Utilization counts the addresses of a pool or a block by state. Capacity = Used + Cooling + Reserved + Available for a block;
// of a pool, too, with the addresses in no block among Available or Reserved. A pool does not count the addresses of the pools that
// lie in it, so that the sum over all pools counts every address once.
type Utilization struct {
	// Pool is empty for blocks outside every pool.
	Pool   string
	Prefix netip.Prefix
	Owner  alloc.Owner // of a block
	// Capacity is all addresses that it serves. Used are held. Cooling are released and not yet free. Reserved are free, and kept from
	// automatic assignment: by a reservation, by the pool's ranges or for the host. Available can be assigned now.
	Capacity, Used, Cooling, Reserved, Available alloc.Count
	Blocks                                       []Utilization // of a pool, in address order
	// Nested are the prefixes of the pools that lie directly in this one, in address order. Their addresses do not count here.
	Nested []netip.Prefix
}

// Utilization returns the use of every pool, in the order in which they are tried, and of their blocks; blocks outside
// every pool come last, under no name. It reads the records of all blocks, and addresses only of blocks in which a lease or a
// cooldown has ended that no call has met yet.
func (e *Engine) Utilization(ctx context.Context) ([]Utilization, error) {
	us, err := e.query.Utilization(ctx)
	return utilizations(us), cause.Op("report", err)
}

func utilizations(us []query.Utilization) (all []Utilization) {
	for _, u := range us {
		all = append(all, Utilization{
			Pool: u.Pool, Prefix: u.Prefix, Owner: u.Owner, Capacity: u.Capacity, Used: u.Used, Cooling: u.Cooling,
			Reserved: u.Reserved, Available: u.Available, Blocks: utilizations(u.Blocks), Nested: u.Nested,
		})
	}
	return all
}
