package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/repair"
)

var (
	servicesClosed = define("services_closed", gauge, "Held outside both bands: reserved, or in ranges that drain.", "pool")
	findings       = define("service_findings", gauge, "Differences that the last Diff found, by kind.", "finding")
	findingOldest  = define("service_finding_oldest_seconds", gauge, "Age of the oldest of them, by kind; absent without one.", "finding")
)

type services struct {
	series
	stats func(send func(pool string, st servicealloc.Stats))
}

func newServices(name string, stats func(send func(pool string, st servicealloc.Stats)), more ...*family) services {
	return services{newSeries(name, "servicealloc", append(more, poolCapacity, poolCount, poolUsable, servicesClosed)...), stats}
}

// NewRange returns a collector of the counts of a range, by band. A scrape costs one call of Stats.
func NewRange(name string, r *servicealloc.Range) prometheus.Collector {
	return newServices(name, func(send func(string, servicealloc.Stats)) { send("range", r.Stats()) })
}

// NewPorts returns a collector of the counts of a range of ports, by band. A scrape costs one call of Stats.
func NewPorts(name string, p *servicealloc.Ports) prometheus.Collector {
	return newServices(name, func(send func(string, servicealloc.Stats)) { send("ports", p.Stats()) })
}

// Collect implements [prometheus.Collector].
func (s services) Collect(out chan<- prometheus.Metric) {
	s.stats(func(pool string, st servicealloc.Stats) {
		for _, b := range []struct {
			name string
			servicealloc.BandStats
		}{{"static", st.Static}, {"dynamic", st.Dynamic}} {
			if b.Capacity > 0 {
				s.pool(out, pool+" "+b.name, float64(b.Capacity), state{"used", float64(b.Used)}, state{"free", float64(b.Free)})
			}
		}
		s.send(out, servicesClosed, float64(st.Closed), pool)
	})
}

// Registry is a collector of the counts of a [servicealloc.Registry] and of its findings. [NewRegistry] returns
// one.
type Registry struct {
	services
	mu    sync.Mutex
	found map[repair.Kind]*finding
}

type finding struct{ count, oldest float64 }

// NewRegistry returns a collector of the counts of a registry, by family and band. A scrape costs one call of Stats.
func NewRegistry(name string, r *servicealloc.Registry) *Registry {
	return &Registry{services: newServices(name, func(send func(string, servicealloc.Stats)) {
		st := r.Stats()
		send("IPv4", st.V4)
		send("IPv6", st.V6)
		send("ports", st.Ports)
	}, findings, findingOldest)}
}

// Found sets the findings of the last [repair.Diff]. Call it after each Diff, also without findings. Before the
// first call there are no metrics of findings.
func (r *Registry) Found(fs []*repair.Finding) {
	found := make(map[repair.Kind]*finding)
	for _, k := range []repair.Kind{repair.Missing, repair.Leaked, repair.Duplicate, repair.OutOfRange, repair.WrongOwner} {
		found[k] = new(finding)
	}
	for _, f := range fs {
		if found[f.Kind] == nil {
			found[f.Kind] = new(finding)
		}
		found[f.Kind].count++
		found[f.Kind].oldest = max(found[f.Kind].oldest, f.Age.Seconds())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = found
}

// Collect implements [prometheus.Collector].
func (r *Registry) Collect(out chan<- prometheus.Metric) {
	r.services.Collect(out)
	r.mu.Lock()
	found := r.found // never changed once it is here
	r.mu.Unlock()
	for k, f := range found {
		r.send(out, findings, f.count, string(k))
		if f.count > 0 {
			r.send(out, findingOldest, f.oldest, string(k))
		}
	}
}
