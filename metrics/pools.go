package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

var (
	poolCapacity = define("pool_capacity", gauge, "Capacity of the pool in prefixes, addresses or ports.", "kind", "space", "pool")
	poolCount    = define("pool_count", gauge, "Parts of the capacity that are used, cooling, reserved, draining or free; they add up to the capacity.", "kind", "space", "pool", "state")
	poolUsable   = define("pool_usable", gauge, "Part of the capacity that is not reserved; with ranges, the addresses in them and the held ones.", "kind", "space", "pool")
	poolLargest  = define("pool_largest_free_prefix_length", gauge, "Length of the largest free prefix, in ipset of the largest one without blocks; absent without one, and for other kinds.", "kind", "space", "pool")

	nodesHolding     = define("nodes", gauge, "Nodes that hold prefixes.")
	nodesTerminating = define("nodes_terminating", gauge, "Of these, nodes that are being deleted.")
	nodesForeign     = define("nodes_foreign", gauge, "Of these, nodes whose prefixes belong to no entry.")
	nodeReservations = define("node_reservations", gauge, "Prefixes reserved for other uses.")
	nodeEntries      = define("node_entries", gauge, "Entries, terminating ones included.")
	nodeEntriesGoing = define("node_entries_terminating", gauge, "Of these, entries that wait for their last node.")
)

// state is one value of the label "state" and its count.
type state struct {
	name string
	n    float64
}

// pool sends the capacity and the states of one pool.
func (s series) pool(out chan<- prometheus.Metric, name string, capacity float64, states ...state) {
	s.send(out, poolCapacity, capacity, name)
	usable := capacity
	for _, st := range states {
		s.send(out, poolCount, st.n, name, st.name)
		if st.name == "reserved" {
			usable -= st.n
		}
	}
	s.send(out, poolUsable, usable, name)
}

type set struct {
	series
	set *cidrset.Set
}

// NewSet returns a collector of the counts of a set. A scrape costs one call of Stats.
func NewSet(name string, s *cidrset.Set) prometheus.Collector {
	return &set{newSeries(name, "cidrset", poolCapacity, poolCount, poolUsable, poolLargest), s}
}

// Collect implements [prometheus.Collector].
func (s *set) Collect(out chan<- prometheus.Metric) {
	st, pool := s.set.Stats(), s.set.Pool().String()
	s.pool(out, pool, float64(st.Capacity), state{"used", float64(st.Used)}, state{"cooling", float64(st.Cooling)}, state{"free", float64(st.Free)})
	if st.LargestFree >= 0 {
		s.send(out, poolLargest, float64(st.LargestFree), pool)
	}
}

type nodes struct {
	series
	allocator *nodeipam.Allocator
}

// NewNodes returns a collector of the counts of an allocator of node prefixes. A scrape costs one call of Stats.
func NewNodes(name string, a *nodeipam.Allocator) prometheus.Collector {
	return &nodes{newSeries(name, "nodeipam", poolCapacity, poolCount, poolUsable, nodesHolding, nodesTerminating, nodesForeign,
		nodeReservations, nodeEntries, nodeEntriesGoing), a}
}

// Collect implements [prometheus.Collector].
func (n *nodes) Collect(out chan<- prometheus.Metric) {
	st := n.allocator.Stats()
	n.send(out, nodesHolding, float64(st.Nodes))
	n.send(out, nodesTerminating, float64(st.Terminating))
	n.send(out, nodesForeign, float64(st.Foreign))
	n.send(out, nodeReservations, float64(st.Reserved))
	n.send(out, nodeEntries, float64(st.Entries))
	n.send(out, nodeEntriesGoing, float64(st.Leaving))
	for _, p := range st.Pools {
		pool := p.Pool.String()
		if p.Entry != "" {
			pool = p.Entry + " " + pool
		}
		n.pool(out, pool, float64(p.Capacity),
			state{"used", float64(p.Used)}, state{"reserved", float64(p.Reserved)}, state{"free", float64(p.Free)})
	}
}
