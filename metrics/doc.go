// Package metrics shows the allocators of this module to Prometheus.
//
//	registry := prometheus.NewRegistry()
//	db := metrics.NewStore("pods", file)                // counts and times every commit
//	engine, err := ipset.New(db, ipset.Options{})
//	registry.MustRegister(db, metrics.NewEngine("pods", engine, metrics.EngineOptions{}))
//
// Nothing registers itself, and nothing runs between two scrapes.
//
// # Collectors
//
//	NewSet        a cidrset.Set
//	NewNodes      a nodeipam.Allocator
//	NewRange      a servicealloc.Range
//	NewPorts      a servicealloc.Ports
//	NewRegistry   a servicealloc.Registry, and what repair.Diff finds
//	NewEngine     an ipset.Engine: pools, blocks, shortages, hosts by option
//	NewPrefixes   a prefixes.Allocator
//	NewHostLocal  a hostlocal.Engine
//	NewKept       a kept.Keeper: how many addresses are kept
//	NewLeaks      an ipset.Collector: leak candidates and the age of the oldest
//	NewStore      any store.Store: commits by outcome, latency, unknown outcomes
//	NewFile       the file of a boltstore.Store: size, free pages, time spent writing
//	NewBackups    when the last backup was made
//
// The numbers of package numbers are a space of their store: give NewEngine an engine of that space, which
// [ipset.Engine.InSpace] returns. The refusals of packages numbers, kept and limits go to Engine.Observe.
//
// Every collector has a name, which becomes the label "allocator". A registry refuses
// a second collector of one kind and name.
//
// # Pools
//
// All allocators share ipalloc_pool_capacity and ipalloc_pool_count, so one alert and one panel serve them all. The label kind
// is the package. The label pool names the smallest part that can fill up separately:
//
//	cidrset        the prefix
//	nodeipam       the prefix; with labels, the entry and the prefix
//	servicealloc   "range", "ports", "IPv4" or "IPv6", and the band: "IPv4 dynamic"
//	ipset          the name of the pool; "(none)" for blocks outside every pool; a pool does
//	               not count the addresses of the pools that lie in it
//	prefixes       the prefix; the capacity counts the smallest prefixes that it assigns
//	hostlocal      the range set
//
// ipalloc_pool_count has the states used, cooling, reserved, draining and free, if the kind has
// them. They sum to the capacity. Prometheus stores float64, so a number above 2^53,
// which only IPv6 pools reach, is rounded to 53 significant bits.
//
// # Cardinality
//
// A pool has one series of capacity and up to four of counts. An ipset pool has four more for its blocks, eleven for each
// family of shortages while it exists, and one for borrowed addresses. Hosts are shown only if EngineOptions.Hosts sets their
// number; the others are then summed under one label. Addresses, handles, owners of services and nodes are never labels.
//
// # Cost
//
// A scrape reads the statistics of an allocator. For an engine it calls [ipset.Engine.Utilization]: one pass over the blocks
// of the store, without work for their addresses. Overlapping scrapes share one pass, and EngineOptions.MaxAge keeps its
// result for the next scrapes. EngineOptions.Borrowed reads one more record for each borrowed address. Everything else costs
// microseconds. No lock is held longer than the allocator's own Stats holds it.
//
// All collectors are safe for concurrent use.
//
// README.md lists every metric; alerts.yaml and dashboard.json are ready to load, and
// README.md has a paragraph for each alert.
package metrics
