//go:build e2e && linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// clear deletes all nodes.
func (r *run) clear() {
	old := r.nodes()
	var all []*v1.Node
	for i := range old {
		all = append(all, &old[i])
	}
	r.each(all, r.delete)
}

// replicas stops the leader of two in the middle of its work, as a machine does that
// hangs, and has it go on when the other one leads and new nodes come.
func (r *run) replicas() {
	r.clear()
	first := r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	wait(r.T, "the first to lead", func() bool { return r.get("/readyz") == "ok" })
	q := *r
	q.http = fmt.Sprintf("127.0.0.1:%d", freePort(r.T))
	q.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	wait(r.T, "the second to wait", func() bool { return q.get("/readyz") == "not leading" })
	nodes := made("r", 400)
	created := make(chan struct{})
	go func() {
		defer close(created)
		r.each(nodes[:200], r.create)
	}()
	wait(r.T, "nodes to be served", func() bool { return r.served() > 50 })
	first.signal(syscall.SIGSTOP)
	<-created
	wait(r.T, "the second to serve the rest", func() bool { return r.served() == 200 })
	if got := q.get("/readyz"); got != "ok" {
		r.Errorf("the second is %q", got)
	}
	first.signal(syscall.SIGCONT)
	r.each(nodes[200:], r.create)
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(nodes) })
	r.check()
	q.checkTaken(len(nodes), 0)
}

// fiveThousand counts the requests that 5,000 nodes cost which join at once.
func (r *run) fiveThousand() {
	r.clear()
	const n = 5000
	r.controller(r.direct, "-cluster-cidr", "10.96.0.0/11,"+pool6)
	r.waitMetrics("the controller", func(map[string]float64) bool { return true })
	before := requests(r.metrics())
	r.each(made("m", n), r.create)
	wait(r.T, "all nodes to be served", func() bool {
		return r.metrics()["node_ipam_writes_total"] >= n && r.served() == n
	})
	r.check()
	perNode := (requests(r.metrics()) - before) / n
	r.Logf("%.3f requests for each of %d nodes", perNode, n)
	if perNode < 1 || perNode > 1.1 {
		r.Errorf("%.3f requests for each node, want 1 to 1.1", perNode)
	}
}

// requests returns the number of requests to the API server: all writes but those of the
// lease, and the live reads of nodes. Watches, and what goes on with time, do not count.
func requests(m map[string]float64) (n float64) {
	n = m["node_ipam_reads_total"]
	for name, value := range m {
		if strings.HasPrefix(name, "rest_client_requests_total{") && !slices.ContainsFunc([]string{`method="PUT"`, `method="GET"`}, func(s string) bool {
			return strings.Contains(name, s)
		}) {
			n += value
		}
	}
	return n
}
