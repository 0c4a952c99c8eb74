package metrics

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

var (
	leakCandidates = define("leak_candidates", gauge, "Addresses that are held and that nothing used at the last run.", "space")
	leakOldest     = define("leak_oldest_seconds", gauge, "Time since the oldest candidate was first seen; 0 without one.", "space")
	leaksReleased  = define("leaks_released_total", counter, "Addresses released.", "space")
	leakFailures   = define("leak_failures_total", counter, "Runs that ended with an error.", "space")
	leakLastRun    = define("leak_last_run_timestamp_seconds", gauge, "When the last run without an error ended; 0 before it.", "space")
)

// Leaks runs an [ipset.Collector] and shows its findings. [NewLeaks] returns one.
type Leaks struct {
	series
	collector *ipset.Collector
	now       func() time.Time

	running sync.Mutex // held by Run
	since   map[allocation]time.Time

	mu sync.Mutex // guards the rest
	leakCounts
}

type leakCounts struct {
	candidates         int
	oldest, last       time.Time
	released, failures float64
}

// allocation is one allocation of an address: a later one of the same address is another.
type allocation struct {
	addr netip.Addr
	seq  uint64
}

// NewLeaks returns a collector of leaks; now is the clock for ages, time.Now if it is nil. Nothing else may use c.
func NewLeaks(name string, c *ipset.Collector, now func() time.Time) *Leaks {
	if now == nil {
		now = time.Now
	}
	return &Leaks{series: newSpaceSeries(name, "", c.Space(), leakCandidates, leakOldest, leaksReleased, leakFailures, leakLastRun),
		collector: c, now: now, since: make(map[allocation]time.Time)}
}

// Run calls [ipset.Collector.Collect], counts the results and remembers the candidates. Calls run one after the
// other.
func (l *Leaks) Run(ctx context.Context, live func(alloc.Allocation) alloc.Liveness) ([]alloc.Allocation, error) {
	l.running.Lock()
	defer l.running.Unlock()
	now, seen := l.now(), make(map[allocation]time.Time)
	done, err := l.collector.Collect(ctx, func(a alloc.Allocation) alloc.Liveness {
		found, key := live(a), allocation{a.Address, a.Seq}
		if found == alloc.Alive {
			delete(seen, key)
		} else if first, known := l.since[key]; known {
			seen[key] = first
		} else {
			seen[key] = now
		}
		return found
	})
	if err != nil { // candidates that were not looked at stay
		for key, first := range l.since {
			if _, known := seen[key]; !known {
				seen[key] = first
			}
		}
	}
	for _, a := range done {
		delete(seen, allocation{a.Address, a.Seq})
	}
	l.since = seen
	l.count(len(done), err)
	return done, err
}

func (l *Leaks) count(released int, err error) {
	var oldest time.Time
	for _, first := range l.since {
		if oldest.IsZero() || first.Before(oldest) {
			oldest = first
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.candidates, l.oldest = len(l.since), oldest
	l.released += float64(released)
	if err != nil {
		l.failures++
	} else {
		l.last = l.now()
	}
}

// Collect implements [prometheus.Collector].
func (l *Leaks) Collect(out chan<- prometheus.Metric) {
	now := l.now()
	l.mu.Lock()
	c := l.leakCounts
	l.mu.Unlock()
	l.send(out, leakCandidates, float64(c.candidates))
	age := 0.0
	if !c.oldest.IsZero() {
		age = now.Sub(c.oldest).Seconds()
	}
	l.send(out, leakOldest, age)
	l.send(out, leaksReleased, c.released)
	l.send(out, leakFailures, c.failures)
	l.send(out, leakLastRun, stamp(c.last))
}

// stamp returns t in seconds since 1970, 0 for the zero time.
func stamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}
