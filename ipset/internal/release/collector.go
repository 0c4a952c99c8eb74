package release

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
)

// A crash between an assignment and its use leaves an address that no program will release. Only the caller knows what is in use,
// and its knowledge may be old; hence the grace period, the second look and the guard of the release.

// Collector finds addresses that are held but not in use, and releases them. An address becomes a candidate when it is first
// seen leaked, and is confirmed after it has been leaked for the grace period; when it is seen alive, the period starts over.
// All addresses of a handle are released together or not at all. Addresses without handle are never touched.
//
// A Collector remembers only candidates. It is not safe for concurrent use.
type Collector struct {
	e     *Releaser
	grace time.Duration
	since map[leakKey]time.Time // candidates
}

// leakKey is one allocation: a later one of the same address is another.
type leakKey struct {
	addr netip.Addr
	seq  uint64
}

// NewCollector carries out the call of that name.
func (e *Releaser) NewCollector(grace time.Duration) *Collector {
	return &Collector{e: e, grace: grace, since: make(map[leakKey]time.Time)}
}

// Candidates returns the number of addresses that were leaked when last seen.
func (c *Collector) Candidates() int { return len(c.since) }

// Collect looks at every address once and releases those confirmed. It calls live for each holder of an address that has a
// handle, and again for the addresses of a confirmed handle just before it releases them. The release is guarded by handle and
// sequence number, so an address that has another holder by then stays held. Collect returns the addresses that it released,
// and the store's error if one ended it.
func (c *Collector) Collect(ctx context.Context, live func(alloc.Allocation) alloc.Liveness) ([]alloc.Allocation, error) {
	now := c.e.Now()
	seen := make(map[leakKey]time.Time)
	confirmed := make(map[string][]alloc.Allocation) // by handle
	for al, err := range c.e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		if al.Handle == "" || al.Cooling {
			continue
		}
		for al := range al.Holders() {
			if keep.Is(al.Handle) {
				continue // what is kept need not be in use
			}
			l := live(al)
			if !ended(l) {
				continue
			}
			key := leakKey{al.Address, al.Seq}
			first, known := c.since[key]
			if !known {
				first = now
			}
			seen[key] = first
			if l == alloc.Gone || c.grace > 0 && now.Sub(first) >= c.grace {
				confirmed[al.Handle] = append(confirmed[al.Handle], al)
			}
		}
	}
	c.since = seen
	return c.release(ctx, confirmed, live)
}

// ended reports whether the caller knows that an allocation is not in use.
func ended(l alloc.Liveness) bool { return l == alloc.Leaked || l == alloc.Gone }

// release gives back the addresses of the handles of which all are confirmed, handle by handle.
func (c *Collector) release(ctx context.Context, confirmed map[string][]alloc.Allocation, live func(alloc.Allocation) alloc.Liveness) ([]alloc.Allocation, error) {
	var done []alloc.Allocation
	for _, h := range slices.Sorted(maps.Keys(confirmed)) {
		als := confirmed[h]
		// The handle may have others, which are not confirmed, and it may be alive by now.
		current, err := c.e.IPsByHandle(ctx, h)
		if err != nil {
			return done, err
		}
		same := func(a, b alloc.Allocation) bool { return a.Address == b.Address && a.Seq == b.Seq }
		alive := func(al alloc.Allocation) bool { return !ended(live(al)) }
		if !slices.EqualFunc(current, als, same) || slices.ContainsFunc(current, alive) {
			continue
		}
		releases := make([]alloc.Release, len(als))
		for i, al := range als {
			releases[i] = alloc.Release{Address: al.Address, Guard: alloc.Guard{Handle: h, Seq: al.Seq}}
		}
		i := 0
		err = c.e.ReleaseIPs(ctx, releases, func(_ netip.Addr, o alloc.Outcome) {
			if o == alloc.Released {
				done = append(done, als[i])
			}
			delete(c.since, leakKey{als[i].Address, als[i].Seq})
			i++
		})
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
