package main

import (
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
	"github.com/ipalloc/ipalloc/cmd/internal/version"
)

// metrics are the program's metrics, in a separate registry. They have the names of the
// originals, spelt as there, so existing alerts work, and also counts and capacities in
// addition to the original ratios.
type metrics struct {
	registry    *prometheus.Registry
	allocations *prometheus.CounterVec
	releases    *prometheus.CounterVec
	writes      *prometheus.HistogramVec
	rights      *prometheus.GaugeVec
	labelled    bool // the names and labels of MultiCIDRRangeAllocator
	*kubernetesMetrics
}

func newMetrics(labelled bool) *metrics {
	prefix, labels := "node_ipam_controller_cidrset_", []string{"clusterCIDR"}
	if labelled {
		prefix, labels = "node_ipam_controller_multicidrset_", []string{"clusterCIDR", "clusterCIDRName"}
	}
	m := &metrics{registry: prometheus.NewRegistry(), labelled: labelled,
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "cidrs_allocations_total",
			Help: "CIDRs that were given to nodes, or found on them."}, labels),
		releases: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "cidrs_releases_total",
			Help: "CIDRs that nodes released."}, labels),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "node_ipam_write_duration_seconds",
			Help: "Duration of patches of nodes.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}, []string{"result"}),
		rights: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "node_ipam_right_missing",
			Help: "1 if the service account lacks a right that the program needs."}, []string{"resource", "verb"}),
		kubernetesMetrics: newKubernetesMetrics(),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "node_ipam_build_info", Help: "1, with the version of this program."}, []string{"version", "goversion"})
	info.WithLabelValues(version.Of()).Set(1)
	m.registry.MustRegister(m.allocations, m.releases, m.writes, m.rights, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.collectors()...)
	return m
}

// labels returns the label values of a pool.
func (m *metrics) labels(pool netip.Prefix, entry string) []string {
	if m.labelled {
		return []string{pool.String(), entry}
	}
	return []string{pool.String()}
}

// change counts a change of the allocator; pools are those that there are.
func (m *metrics) change(c nodeipam.Change, pools func() []poolName) {
	var counter *prometheus.CounterVec
	switch c.Op {
	case nodeipam.OpAllocate, nodeipam.OpOccupy:
		counter = m.allocations
	case nodeipam.OpRelease:
		counter = m.releases
	default:
		return
	}
	all := pools()
	for _, n := range c.Nodes {
		for _, p := range n.Prefixes {
			for _, pool := range all {
				if pool.entry == n.Entry && pool.prefix.Bits() <= p.Bits() && pool.prefix.Contains(p.Addr()) {
					counter.WithLabelValues(m.labels(pool.prefix, pool.entry)...).Inc()
				}
			}
		}
	}
}

type poolName struct {
	prefix netip.Prefix
	entry  string
}

// handler serves the metrics of the program.
func (m *metrics) handler(c *controller.Controller, pools *chooser) http.Handler {
	m.registry.MustRegister(&stateCollector{m, c, pools})
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// stateCollector collects the counts of the controller and of the allocator.
type stateCollector struct {
	*metrics
	controller *controller.Controller
	chooser    *chooser
}

// Describe sends nothing: the pools come and go.
func (s *stateCollector) Describe(chan<- *prometheus.Desc) {}

func (s *stateCollector) Collect(out chan<- prometheus.Metric) {
	st, c := s.controller.Stats(), s.chooser
	queue(out, st, s.controller.Begun())
	one := func(kind prometheus.ValueType, name, help string, value float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("node_ipam_"+name, help, nil, nil), kind, value)
	}
	for _, m := range []struct {
		name, help string
		value      int
	}{
		{"nodes_waiting", "Nodes to be worked on.", st.Waiting},
		{"nodes_running", "Nodes being worked on.", st.Running},
		{"nodes_delayed", "Nodes that wait for their next try.", st.Delayed},
		{"nodes_full", "Nodes without CIDRs because no pool that serves them has a free one.", st.Full},
		{"nodes_unmatched", "Nodes without CIDRs because no ClusterCIDR matches them.", st.Unmatched},
		{"nodes_unwritten", "Nodes whose last patch was refused, delayed or of unknown outcome.", st.Unwritten},
		{"nodes_bad_record", "Nodes with CIDRs that cannot be right.", st.BadRecords},
		{"nodes_missing_family", "Nodes with a bad record whose only fault is that a family which every node needs is missing.", st.MissingFamily},
		{"nodes_unsettled", "Nodes that may have CIDRs which the cache does not show yet.", st.Unsettled},
	} {
		one(prometheus.GaugeValue, m.name, m.help, float64(m.value))
	}
	for _, m := range []struct {
		name, help string
		value      uint64
	}{
		{"writes_total", "Patches that succeeded.", st.Assigned},
		{"writes_rejected_total", "Patches that certainly failed.", st.Rejected},
		{"writes_unknown_total", "Patches whose outcome was unknown.", st.Unknown},
		{"reads_total", "Live reads of nodes whose record was unclear.", st.Reads},
	} {
		one(prometheus.CounterValue, m.name, m.help, float64(m.value))
	}
	one(prometheus.CounterValue, "api_seconds_total", "Time spent in requests to the API server, over all workers.", st.WriterTime.Seconds())
	one(prometheus.CounterValue, "own_seconds_total", "Time spent on nodes outside of requests, over all workers.", st.OwnTime.Seconds())
	loaded := 0.0
	if s.controller.Synced() {
		loaded = 1
	}
	one(prometheus.GaugeValue, "loaded", "1 if all nodes of the start have been loaded, which is when nodes get CIDRs.", loaded)
	if c.set != nil && s.controller.Synced() {
		inForce := 0.0
		if c.set.inForce() {
			inForce = 1
		}
		one(prometheus.GaugeValue, "cluster_cidrs_in_force", "1 if all ClusterCIDRs are in force.", inForce)
	}
	if s.controller.Synced() { // before that, no CIDR of a node counts as used
		s.pools(out, c.allocator)
		c.services.each(func(p netip.Prefix, reserved bool) {
			value := 0.0
			if reserved {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc("node_ipam_service_cidr_reserved",
				"1 if no node gets a CIDR in the range of services.", []string{"cidr"}, nil), prometheus.GaugeValue, value, p.String())
		})
	}
}

// pools collects the counts of pools and entries.
func (s *stateCollector) pools(out chan<- prometheus.Metric, a *nodeipam.Allocator) {
	gauge := func(name, help string, value float64, labels []string, values ...string) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, value, values...)
	}
	ours := []string{"cluster_cidr", "family", "pool"}
	prefix, maximum, theirs := "node_ipam_controller_cidrset_", "node_ipam_controller_cirdset_max_cidrs", []string{"clusterCIDR"}
	if s.labelled {
		prefix, theirs = "node_ipam_controller_multicidrset_", []string{"clusterCIDR", "clusterCIDRName"}
		maximum = prefix + "max_cidrs"
	}
	for _, p := range a.Stats().Pools {
		pool, family := p.Pool.String(), "IPv6"
		if p.Pool.Addr().Is4() {
			family = "IPv4"
		}
		gauge("node_ipam_pool_capacity", "CIDRs for nodes in the pool.", float64(p.Capacity), ours, p.Entry, family, pool)
		gauge("node_ipam_pool_used", "CIDRs of the pool that nodes have.", float64(p.Used), ours, p.Entry, family, pool)
		gauge("node_ipam_pool_reserved", "CIDRs of the pool that are reserved for services.", float64(p.Reserved), ours, p.Entry, family, pool)
		gauge("node_ipam_pool_free", "CIDRs of the pool that are left.", float64(p.Free), ours, p.Entry, family, pool)
		values := s.labels(p.Pool, p.Entry)
		gauge(maximum, "CIDRs for nodes in the pool.", float64(p.Capacity), theirs, values...)
		gauge(prefix+"usage_cidrs", "Part of the pool that is in use or reserved, 0 to 1.", float64(p.Used+p.Reserved)/float64(p.Capacity), theirs, values...)
	}
	for e := range a.Entries() {
		terminating := "false"
		if e.Terminating {
			terminating = "true"
		}
		gauge("node_ipam_cluster_cidr_nodes", "Nodes with CIDRs of the ClusterCIDR.", float64(e.Nodes), []string{"cluster_cidr", "terminating"}, e.Name, terminating)
	}
}
