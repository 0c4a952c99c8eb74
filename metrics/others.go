package metrics

import (
	"context"
	"math"
	"math/big"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
)

var keptAddresses = define("kept_addresses", gauge, "Addresses kept for a handle, whether it has them or not.", "space")

// Watched is a collector of an allocator on a store that [NewPrefixes] or [NewHostLocal] returns. Each scrape reads the store, for
// at most 10 s.
type Watched struct {
	series
	refusals refusals
	read     func(ctx context.Context) ([]watchedPool, error)
}

// watchedPool is a pool as a scrape shows it.
type watchedPool struct {
	name                     string
	family                   int
	capacity, used, reserved float64
	largest                  int // free prefix, -1 for none
}

func newWatched(name, kind, space string, read func(ctx context.Context) ([]watchedPool, error)) *Watched {
	return &Watched{series: newSpaceSeries(name, kind, space, poolCapacity, poolCount, poolUsable, poolLargest, shortages, assignFailures,
		scrapeSuccess, scrapeSeconds), read: read}
}

// scrapeTime bounds the reading for a scrape.
const scrapeTime = 10 * time.Second

// scrape returns the context of a scrape, which Prometheus gives no collector.
func scrape(timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), timeout)
}

// NewPrefixes returns a collector of the pools of an allocator of prefixes in a space, "" for the one without a name. The capacity
// of a pool is the number of the smallest prefixes that it assigns. A scrape reads the pages of all pools.
func NewPrefixes(name, space string, a *prefixes.Allocator) *Watched {
	return newWatched(name, "prefixes", space, func(ctx context.Context) (all []watchedPool, err error) {
		pools, err := a.Pools(ctx)
		for _, p := range pools {
			u, err := a.Utilization(ctx, p.Prefix)
			if err != nil {
				return nil, err
			}
			w := watchedPool{name: p.Prefix.String(), family: family4or6(p.Prefix.Addr()), largest: u.LargestFree(),
				capacity: math.Ldexp(1, p.Sizes.Longest-p.Prefix.Bits())}
			for length, n := range u.Free {
				w.used += math.Ldexp(float64(n), p.Sizes.Longest-length)
			}
			w.used = w.capacity - w.used
			all = append(all, w)
		}
		return all, err
	})
}

// NewHostLocal returns a collector of the range sets in the configuration of a network of package hostlocal. A scrape reads all
// attachments of the network.
func NewHostLocal(name string, e *hostlocal.Engine, sets []hostlocal.RangeSet) *Watched {
	return newWatched(name, "hostlocal", "", func(ctx context.Context) (all []watchedPool, err error) {
		state, err := e.Export(ctx)
		if err != nil {
			return nil, err
		}
		for _, set := range sets {
			var whole, kept netipx.IPSetBuilder
			for _, r := range set {
				whole.AddRange(netipx.IPRangeFrom(r.First, r.Last))
				for _, p := range r.Exclude {
					kept.AddPrefix(p)
				}
				if r.Gateway.IsValid() {
					kept.Add(r.Gateway)
				}
			}
			in, err := whole.IPSet()
			if err != nil {
				return nil, err
			}
			kept.Intersect(in)
			w := watchedPool{name: set.String(), capacity: sizeOf(in), largest: -1}
			for _, h := range state.Holdings {
				for _, a := range h.Addresses {
					if in.Contains(a) {
						w.used++
						kept.Remove(a)
					}
				}
			}
			reserved, err := kept.IPSet()
			if err != nil {
				return nil, err
			}
			w.reserved, w.family = sizeOf(reserved), family4or6(set[0].First)
			all = append(all, w)
		}
		return all, nil
	})
}

// sizeOf returns how many addresses a set has.
func sizeOf(s *netipx.IPSet) float64 {
	n := new(big.Int)
	for _, p := range s.Prefixes() {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits())))
	}
	f, _ := new(big.Float).SetInt(n).Float64()
	return f
}

// Observe counts why a call of the allocator failed. Call it with every error of a call that assigns; nil counts nothing.
func (w *Watched) Observe(err error) {
	if err != nil {
		w.refusals.observe(err)
	}
}

// Collect implements [prometheus.Collector].
func (w *Watched) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := scrape(scrapeTime)
	defer cancel()
	at, ok := time.Now(), 1.0
	pools, err := w.read(ctx)
	if err != nil {
		pools, ok = nil, 0
	}
	w.send(out, scrapeSuccess, ok)
	w.send(out, scrapeSeconds, time.Since(at).Seconds())
	for _, p := range pools {
		w.pool(out, p.name, p.capacity, state{"used", p.used}, state{"reserved", p.reserved}, state{"free", p.capacity - p.used - p.reserved})
		if p.largest >= 0 {
			w.send(out, poolLargest, float64(p.largest), p.name)
		}
	}
	if err == nil {
		w.refusals.keep(at, func(yield func(string, int)) {
			for _, p := range pools {
				yield(p.name, p.family)
			}
		})
	}
	w.refusals.send(w.series, out)
}

type keeper struct {
	series
	of *kept.Keeper
}

// NewKept returns a collector of the number of addresses that are kept in a space, "" for the one without a name. A scrape reads
// all holdings of the space. The pools count kept addresses as used.
func NewKept(name, space string, k *kept.Keeper) prometheus.Collector {
	return keeper{newSpaceSeries(name, "", space, keptAddresses), k}
}

// Collect implements [prometheus.Collector]. Without an answer of the store the number is absent.
func (k keeper) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := scrape(scrapeTime)
	defer cancel()
	n := 0
	for _, err := range k.of.All(ctx) {
		if err != nil {
			return
		}
		n++
	}
	k.send(out, keptAddresses, float64(n))
}
