package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// serve answers /healthz, /readyz and /metrics until stop is called.
func (p *program) serve() (stop func(), err error) {
	if p.options.address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", p.options.address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /readyz", p.ready)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, metrics(p.controller.Stats(), p.chooser))
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	p.log.Info("serving health and metrics", "address", listener.Addr().String())
	go func() { _ = server.Serve(listener) }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}, nil
}

// ready says whether the controller works: whether all nodes have been loaded. One
// that waits for the lease is as ready as it can be.
func (p *program) ready(w http.ResponseWriter, _ *http.Request) {
	if p.controller.Synced() {
		_, _ = io.WriteString(w, "ok")
		return
	}
	if p.options.leaderElect {
		_, _ = io.WriteString(w, "not leading, or loading")
		return
	}
	http.Error(w, "loading", http.StatusServiceUnavailable)
}

// metrics returns the counts in the text format of Prometheus.
func metrics(st controller.Stats, c *chooser) string {
	var b strings.Builder
	one := func(kind, name, help string, value any) {
		fmt.Fprintf(&b, "# HELP node_ipam_%s %s\n# TYPE node_ipam_%s %s\nnode_ipam_%s %v\n", name, help, name, kind, name, value)
	}
	one("gauge", "nodes_waiting", "Nodes to be worked on.", st.Waiting)
	one("gauge", "nodes_running", "Nodes being worked on.", st.Running)
	one("gauge", "nodes_delayed", "Nodes that wait for their next try.", st.Delayed)
	one("gauge", "nodes_full", "Nodes without CIDRs because no pool that serves them has a free one.", st.Full)
	one("gauge", "nodes_unmatched", "Nodes without CIDRs because no ClusterCIDR matches them.", st.Unmatched)
	one("gauge", "nodes_unwritten", "Nodes whose last patch was refused, delayed or of unknown outcome.", st.Unwritten)
	one("gauge", "nodes_bad_record", "Nodes with CIDRs that cannot be right.", st.BadRecords)
	one("gauge", "nodes_unsettled", "Nodes that may have CIDRs which the cache does not show yet.", st.Unsettled)
	one("counter", "writes_total", "Writes that succeeded.", st.Assigned)
	one("counter", "writes_rejected_total", "Writes that certainly failed.", st.Rejected)
	one("counter", "writes_unknown_total", "Writes whose outcome was unknown.", st.Unknown)
	one("counter", "reads_total", "Live reads of nodes whose record was unclear.", st.Reads)
	one("counter", "retries_total", "Nodes that had to wait and be tried again.", st.Retries)
	one("counter", "queue_overflows_total", "Nodes that the queue had no room for.", st.Overflows)
	one("counter", "sweeps_total", "Looks at all nodes.", st.Sweeps)
	one("counter", "api_seconds_total", "Time spent in requests to the API server, over all workers.", st.WriterTime.Seconds())
	one("counter", "own_seconds_total", "Time spent on nodes outside of requests, over all workers.", st.OwnTime.Seconds())
	if c.file != nil {
		inForce := 0
		if c.file.inForce() {
			inForce = 1
		}
		one("gauge", "cluster_cidrs_in_force", "1 if all that the file of ClusterCIDRs says is in force.", inForce)
	}
	pools := c.allocator.Stats().Pools
	for _, g := range []struct {
		name, help string
		value      func(nodeipam.PoolStats) uint64
	}{
		{"capacity", "CIDRs for nodes in the pool.", func(p nodeipam.PoolStats) uint64 { return p.Capacity }},
		{"free", "CIDRs of the pool that are left.", func(p nodeipam.PoolStats) uint64 { return p.Free }},
	} {
		fmt.Fprintf(&b, "# HELP node_ipam_pool_%s %s\n# TYPE node_ipam_pool_%s gauge\n", g.name, g.help, g.name)
		for _, p := range pools {
			fmt.Fprintf(&b, "node_ipam_pool_%s{cluster_cidr=%q,pool=\"%v\"} %d\n", g.name, p.Entry, p.Pool, g.value(p))
		}
	}
	return b.String()
}
