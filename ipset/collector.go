package ipset

import (
	"context"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/release"
)

// Collector finds addresses that are held but not in use, and releases them. An address
// becomes a candidate when Collect first sees it leaked. It is confirmed after it has
// been leaked for the grace period; the period starts over when Collect sees it alive.
// All addresses of a handle are released together or not at all. Addresses without handle
// are never touched.
//
// A Collector remembers only candidates. It is not safe for concurrent use.
type Collector struct {
	room  *release.Collector
	space string
}

// NewCollector returns a collector with that grace period. If grace is 0 or less, the
// collector confirms only addresses that are [alloc.Gone].
func (o Operator) NewCollector(grace time.Duration) *Collector {
	return &Collector{o.e.release.NewCollector(grace), o.e.space}
}

// Space returns the name of the space that c collects in.
func (c *Collector) Space() string { return c.space }

// Candidates returns the number of addresses that the last Collect found leaked.
func (c *Collector) Candidates() int { return c.room.Candidates() }

// Collect examines every address once and releases the confirmed ones. It calls live for
// each holder of an address that has a handle, and again for the addresses of a confirmed
// handle just before it releases them. Handle and sequence number guard the release, so
// an address that has another holder by then stays held. Collect returns the addresses
// that it released, and the store's error if one stopped it.
func (c *Collector) Collect(ctx context.Context, live func(alloc.Allocation) alloc.Liveness) ([]alloc.Allocation, error) {
	if live == nil {
		return nil, cause.Op("collect", cause.Invalid("live", "is nil"))
	}
	released, err := c.room.Collect(ctx, live)
	return released, cause.Op("collect", err)
}
