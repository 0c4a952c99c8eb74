package metrics

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

var (
	blocks     = define("blocks", gauge, "Blocks: orphan without an owner, else empty, partial or full.", "space", "pool", "state")
	borrowed   = define("borrowed_addresses", gauge, "Addresses held by hosts that did not own the block when they got them; only with EngineOptions.Borrowed.", "space", "pool")
	poolServes = define("pool_serves", gauge, "1 if the pool serves every caller, 0.5 if it is manual and serves callers that name it, 0 if it is disabled or drained.", "space", "pool")
	hostCount  = define("hosts", gauge, "Owners of blocks; only with EngineOptions.Hosts.", "space")
	hostBlocks = define("host_blocks", gauge, "Blocks of the hosts that have most; all others under the host \"(others)\".", "space", "host")
	hostUsed   = define("host_used", gauge, "Addresses held in these blocks.", "space", "host")
)

// EngineOptions are the options of [NewEngine]; the zero value is useful.
type EngineOptions struct {
	// Timeout bounds the reading of the statistics; 0 is 10 s. A scrape whose reading fails has no pools, and
	// ipalloc_scrape_success is 0.
	Timeout time.Duration
	// MaxAge is the largest age of the statistics that a scrape shows; 0 reads them for each scrape. Set it if several
	// servers scrape an engine whose store is far away.
	MaxAge time.Duration
	// Hosts is the number of hosts shown. The hosts with the most blocks are shown; the others are summed under "(others)". 0 shows
	// none.
	Hosts int
	// Borrowed counts the borrowed addresses of each pool. It reads one more index record of the store for each such address.
	Borrowed bool
}

// Engine is a collector of the pools and blocks of an [ipset.Engine]. [NewEngine] returns one.
type Engine struct {
	series
	engine *ipset.Engine
	opts   EngineOptions

	reading sync.Mutex // held while the statistics are read
	view    view

	refusals refusals
}

// view is what a scrape shows of one reading. It holds no block.
type view struct {
	at    time.Time
	took  time.Duration
	err   error
	pools []poolView
	hosts []hostView
	count int // owners

	serves map[string]float64          // by pool
	kept   map[string][]netipx.IPRange // by pool: what automatic assignment never takes
}

type poolView struct {
	name string
	use  alloc.Utilization // without blocks
	by   [4]int            // blocks by state
	free int               // length of the largest prefix without blocks, -1 for none
	// borrowed is the number of borrowed addresses, if they are counted.
	borrowed int
}

type hostView struct {
	owner        alloc.Owner // the zero Owner stands for all others
	blocks, used float64
}

// NewEngine returns a collector of an engine. Each scrape calls [ipset.Engine.Utilization], unless EngineOptions.MaxAge lets
// it reuse the last result.
//
// Engines on the same store show the same pools: register only one, or give them different names. Engines of different spaces may
// share a name: the label space tells them apart. Each space adds a time series for each of its pools and states, so register only
// the spaces that you watch.
func NewEngine(name string, e *ipset.Engine, o EngineOptions) *Engine {
	if o.Timeout <= 0 {
		o.Timeout = scrapeTime
	}
	return &Engine{
		series: newSpaceSeries(name, "ipset", e.Space(), poolCapacity, poolCount, poolUsable, poolLargest, blocks, borrowed, poolServes, hostCount, hostBlocks, hostUsed, shortages,
			assignFailures, scrapeSuccess, scrapeSeconds),
		engine: e, opts: o,
	}
}

// Observe counts the shortages of a call that assigns, or the reason of its failure. Pass it the results of
// [ipset.Engine.AutoAssign]. For every other call pass an empty result and the error: for Assign, AssignIP, RenewIP, and calls of
// packages kept, limits and numbers.
func (e *Engine) Observe(a alloc.Assigned, err error) {
	if err == nil {
		e.refusals.short(a.Short)
		return
	}
	e.refusals.observe(err)
}

// Collect implements [prometheus.Collector].
func (e *Engine) Collect(out chan<- prometheus.Metric) {
	v := e.read()
	ok := 1.0
	if v.err != nil {
		ok = 0
	}
	e.send(out, scrapeSuccess, ok)
	e.send(out, scrapeSeconds, v.took.Seconds())
	for i := range v.pools {
		p := &v.pools[i]
		e.pool(out, p.name, p.use.Capacity.Float64(), state{"used", p.use.Used.Float64()}, state{"cooling", p.use.Cooling.Float64()},
			state{"reserved", p.use.Reserved.Float64()}, state{"draining", p.use.Draining.Float64()}, state{"free", p.use.Available.Float64()})
		if p.free >= 0 {
			e.send(out, poolLargest, float64(p.free), p.name)
		}
		if serves, known := v.serves[p.name]; known {
			e.send(out, poolServes, serves, p.name)
		}
		if e.opts.Borrowed {
			e.send(out, borrowed, float64(p.borrowed), p.name)
		}
		for s, n := range p.by {
			e.send(out, blocks, float64(n), p.name, blockStates[s])
		}
	}
	if e.opts.Hosts > 0 && v.err == nil {
		e.send(out, hostCount, float64(v.count))
		for _, h := range v.hosts {
			name := "(others)"
			if h.owner != (alloc.Owner{}) {
				name = h.owner.String()
			}
			e.send(out, hostBlocks, h.blocks, name)
			e.send(out, hostUsed, h.used, name)
		}
	}
	if v.err == nil {
		e.refusals.keep(v.at, func(yield func(string, int)) {
			for i := range v.pools {
				if p := v.pools[i].use.Prefix; p.IsValid() {
					yield(v.pools[i].name, family4or6(p.Addr()))
				}
			}
		})
	}
	e.refusals.send(e.series, out)
}

// read returns the statistics, read now unless those at hand are young enough.
func (e *Engine) read() view {
	asked := time.Now()
	e.reading.Lock()
	defer e.reading.Unlock()
	// A reading that began after this scrape did is shared.
	if v := &e.view; !v.at.IsZero() && (!v.at.Before(asked) || v.err == nil && asked.Sub(v.at) < e.opts.MaxAge) {
		return *v
	}
	ctx, cancel := scrape(e.opts.Timeout)
	defer cancel()
	at := time.Now()
	v := view{at: at}
	us, err := e.engine.Utilization(ctx)
	if err == nil {
		err = v.settings(ctx, e.engine)
	}
	if err == nil {
		v.summarize(us, e.opts.Hosts)
		if e.opts.Borrowed {
			err = v.borrowings(e.engine.Operator().Borrowings(ctx))
		}
	}
	if err != nil {
		v = view{at: at, err: err}
	}
	v.took = time.Since(at)
	e.view = v
	return v
}

// settings reads which pools serve, and what they keep back.
func (v *view) settings(ctx context.Context, e *ipset.Engine) error {
	pools, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	list, err := e.Operator().Reservations(ctx)
	if err != nil {
		return err
	}
	reserved, err := alloc.ReservedSet(list)
	if err != nil {
		return err
	}
	v.serves, v.kept = make(map[string]float64, len(pools)), make(map[string][]netipx.IPRange)
	for _, p := range pools {
		v.serves[p.Name] = 1
		if p.Manual {
			v.serves[p.Name] = 0.5
		}
		if p.Disabled {
			v.serves[p.Name] = 0
		}
		v.kept[p.Name] = addrmap.KeptBack(p.Prefix, p.Ranges, p.Subnet, reserved, nil)
	}
	return nil
}

// borrowings counts the borrowed addresses of each pool.
func (v *view) borrowings(all iter.Seq2[alloc.Borrowing, error]) error {
	var order []int // pools by address; those outside every pool have no prefix
	for i := range v.pools {
		if v.pools[i].use.Prefix.IsValid() {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		p, q := v.pools[a].use.Prefix, v.pools[b].use.Prefix
		return cmp.Or(p.Addr().Compare(q.Addr()), cmp.Compare(p.Bits(), q.Bits()))
	})
	for b, err := range all {
		if err != nil {
			return err
		}
		at, _ := slices.BinarySearchFunc(order, b.Address, func(i int, a netip.Addr) int {
			return cmp.Or(v.pools[i].use.Prefix.Addr().Compare(a), -1) // the one that begins at a comes before it
		})
		for at--; at >= 0; at-- {
			if p := &v.pools[order[at]]; p.use.Prefix.Contains(b.Address) {
				p.borrowed++
				break
			}
		}
	}
	return nil
}

// blockStates are the values of the label "state" of blocks.
var blockStates = [4]string{"orphan", "empty", "partial", "full"}

func blockState(b *alloc.Utilization) int {
	switch {
	case b.Owner == alloc.Owner{}:
		return 0
	case b.Used.Float64()+b.Cooling.Float64() == 0:
		return 1
	case b.Available.Float64() > 0:
		return 2
	}
	return 3
}

func (v *view) summarize(us []alloc.Utilization, hosts int) {
	var places map[alloc.Owner]int // in v.hosts
	if hosts > 0 {
		places = make(map[alloc.Owner]int)
	}
	for i := range us {
		p := poolView{name: us[i].Pool, use: us[i], free: largestFree(&us[i], v.kept[us[i].Pool])}
		if p.name == "" {
			p.name = "(none)"
		}
		p.use.Blocks = nil
		for j := range us[i].Blocks {
			b := &us[i].Blocks[j]
			p.by[blockState(b)]++
			if places == nil || b.Owner == (alloc.Owner{}) {
				continue
			}
			at, known := places[b.Owner]
			if !known {
				at = len(v.hosts)
				places[b.Owner] = at
				v.hosts = append(v.hosts, hostView{owner: b.Owner})
			}
			v.hosts[at].blocks++
			v.hosts[at].used += b.Used.Float64()
		}
		v.pools = append(v.pools, p)
	}
	v.count = len(v.hosts)
	v.hosts = most(v.hosts, hosts)
}

// most returns the n hosts with most blocks, those with most first, and the sum of the others, if there are others. It keeps the
// best so far in order, which costs one comparison for most of the hosts.
func most(hosts []hostView, n int) []hostView {
	order := func(a, b hostView) int {
		return cmp.Or(cmp.Compare(b.blocks, a.blocks), cmp.Compare(b.used, a.used), cmp.Compare(a.owner.Name, b.owner.Name), cmp.Compare(a.owner.Kind, b.owner.Kind))
	}
	best, others := make([]hostView, 0, min(n, len(hosts))+1), hostView{}
	for _, h := range hosts {
		if len(best) < n || order(h, best[n-1]) < 0 {
			at, _ := slices.BinarySearchFunc(best, h, order)
			best = slices.Insert(best, at, h)
			if len(best) <= n {
				continue
			}
			h, best = best[n], best[:n]
		}
		others.blocks += h.blocks
		others.used += h.used
	}
	if len(hosts) > n {
		best = append(best, others)
	}
	return best
}
