//go:build e2e && linux

package e2e

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// storm creates all nodes while the controller is killed three times.
func (r *run) storm() {
	nodes := traceNodes(r.T)
	if text := r.dryRun(); !strings.HasSuffix(text, "\n0 nodes: 0 have CIDRs, 0 would get them, 0 things are wrong\n") {
		r.Error(text)
	}
	p := r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	created := make(chan struct{})
	go func() {
		defer close(created)
		r.each(nodes, r.create)
	}()
	var patches, own, api float64
	count := func() {
		m := r.metrics()
		patches += m["node_ipam_writes_total"]
		own, api = own+m["node_ipam_own_seconds_total"], api+m["node_ipam_api_seconds_total"]
	}
	for kill := range 3 {
		wait(r.T, "nodes to be served", func() bool { return r.served() > (kill+1)*len(nodes)/5 })
		count()
		r.Logf("kill -9 with %d of %d nodes served", r.served(), len(nodes))
		p.kill()
		p = r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	}
	<-created
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(nodes) })
	r.check()
	r.checkTaken(len(nodes), 0)
	count()
	// No bound: on a busy machine the controller's part is mostly its wait for a CPU.
	r.Logf("%.0f patches counted: %.3f s in them, %.4f s besides: %.2f %%", patches, api, own, 100*own/(own+api))
	if patches == 0 {
		r.Error("no patch was counted")
	}
	if text := r.dryRun(); strings.Count(text, "\thas\t") != len(nodes) || !strings.HasSuffix(text, "0 would get them, 0 things are wrong\n") {
		r.Error(text)
	}
}

// churn deletes 300 nodes and adds them again.
func (r *run) churn() {
	r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	some := traceNodes(r.T)[:300]
	r.each(some, r.delete)
	r.each(some, r.create)
	wait(r.T, "all nodes to be served", func() bool { return r.served() == nodeCount })
	r.check()
	r.checkTaken(nodeCount, 0)
}

// lostAnswers does the same with a proxy that loses answers of patches. All but a few
// of the CIDRs that are left are reserved: one that is given back by mistake goes to
// another node soon.
func (r *run) lostAnswers() {
	proxy := newLossyProxy(r.T, r.c.url, r.c.token)
	some := traceNodes(r.T)[300:600]
	r.each(some, r.delete)
	wait(r.T, "the nodes to be gone", func() bool { return len(r.nodes()) == nodeCount-len(some) })
	reserved := r.free()[len(some)+10:]
	r.controller(r.c.kubeconfig(r.T, "lossy.kubeconfig", proxy.URL), "-cluster-cidr", clusterCIDRs,
		"-service-cluster-ip-range", serviceCIDRs+","+strings.Join(reserved, ","))
	r.each(some, r.create)
	wait(r.T, "all nodes to be served", func() bool { return r.served() == nodeCount })
	r.check()
	r.checkTaken(nodeCount, len(reserved))
	var m map[string]float64
	r.waitMetrics("no node to be unsettled", func(now map[string]float64) bool {
		m = now
		return now["node_ipam_nodes_unsettled"] == 0
	})
	r.Logf("%d answers lost after the patch, %d patches lost before, %d told to come later; the controller counts %.0f unknown outcomes and %.0f reads",
		proxy.after.Load(), proxy.before.Load(), proxy.busy.Load(), m["node_ipam_writes_unknown_total"], m["node_ipam_reads_total"])
	if proxy.after.Load() == 0 || proxy.busy.Load() == 0 || m["node_ipam_writes_unknown_total"] == 0 {
		r.Error("nothing was lost")
	}
}

// free returns the IPv4 CIDRs that neither services nor nodes have.
func (r *run) free() (left []string) {
	taken := map[string]bool{}
	for _, n := range r.nodes() {
		taken[n.Spec.PodCIDR] = true
	}
	for i := range 2048 {
		if text := fmt.Sprintf("10.%d.%d.0/24", 96+i/256, i%256); i >= 256 && !taken[text] {
			left = append(left, text)
		}
	}
	return left
}

// badRecords has nodes that say what can't be.
func (r *run) badRecords() {
	node := func(name string, cidrs ...string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs}}
	}
	bad := []*v1.Node{node("bad-twin-1", "10.103.255.0/24"), node("bad-twin-2", "10.103.255.0/24"), node("bad-outside", "172.20.0.0/24")}
	r.each(bad, r.create)
	garbage := node("bad-garbage", "10.0.0/24")
	garbage.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	garbage.UID, garbage.CreationTimestamp = "11111111-2222-3333-4444-555555555555", metav1.Now()
	r.c.put(r.T, "/registry/minions/bad-garbage", garbage) // the API server would not take it
	if text := r.dryRun(); strings.Count(text, "\tWRONG\t") < len(bad) || !strings.Contains(text, "\nbad-garbage\tWRONG\t") {
		r.Error(text[strings.LastIndex(text, "\nbad-"):])
	}
	r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	wait(r.T, "an event for each bad record", func() bool {
		events, err := r.c.client.CoreV1().Events("default").List(r.Context(), metav1.ListOptions{FieldSelector: "reason=CIDRRecordInvalid"})
		if err != nil {
			return false
		}
		found := map[string]bool{}
		for _, e := range events.Items {
			found[e.InvolvedObject.Name] = true
		}
		// Which of the twins is the second one depends on the order of the list.
		return found["bad-outside"] && found["bad-garbage"] && (found["bad-twin-1"] || found["bad-twin-2"])
	})
	after := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "after-bad"}}
	if err := r.create(r.Context(), after); err != nil {
		r.Fatal(err)
	}
	wait(r.T, "the controller to run on", func() bool { return r.served() == nodeCount+len(bad)+2 })
	r.check("bad-twin-1", "bad-twin-2", "bad-outside", "bad-garbage")
	r.checkTaken(nodeCount+1, 1)
	// One of the twins goes; the other's CIDR stays its own.
	r.each([]*v1.Node{bad[0], bad[2], after}, r.delete)
	r.checkTaken(nodeCount, 1)
	r.each(bad[1:2], r.delete)
	r.c.remove(r.T, "/registry/minions/bad-garbage")
	wait(r.T, "the bad nodes to be gone", func() bool { return len(r.nodes()) == nodeCount })
	r.check()
	r.checkTaken(nodeCount, 0)
}

// The pools of these overlap, and their nodes need CIDRs of different size.
const (
	largeEntry = `apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: large}
spec:
  perNodeHostBits: 10
  ipv4: 10.112.0.0/12
  ipv6: fd00:20::/96
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: size, operator: In, values: [large]}]}]}
`
	defaultEntry = `apiVersion: networking.ipalloc.dev/v1
kind: ClusterCIDRConfig
metadata: {name: default}
spec:
  ipv4: {cidr: 10.112.0.0/12, perNodeMaskSize: 24}
  ipv6: {cidr: "fd00:20::/98", perNodeMaskSize: 120}
`
	hugeEntry = `apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: huge}
spec:
  perNodeHostBits: 11
  ipv4: 10.112.0.0/12
  ipv6: fd00:20::/96
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: size, operator: In, values: [huge]}]}]}
`
)

// byLabels starts over with overlapping ClusterCIDRs, one kill, and then one ClusterCIDR deleted
// and another created.
func (r *run) byLabels() {
	r.clear()
	r.waitServed(clusterCIDRPath, configPath)
	r.post(clusterCIDRPath, largeEntry, "")
	r.post(configPath, defaultEntry, "")
	remove := func(path, name string) {
		if err := r.c.client.RESTClient().Delete().AbsPath(path, name).Do(r.Context()).Error(); err != nil {
			r.Fatal(err)
		}
	}
	nodes := traceNodes(r.T)
	for i, n := range nodes {
		if i%3 == 0 {
			n.Labels = map[string]string{"size": "large"}
		}
	}
	flags := []string{"-cidr-allocator-type", "MultiCIDRRangeAllocator", "-families", "IPv4,IPv6", "-cluster-cidrs-sync-period", "200ms"}
	p := r.controller(r.direct, flags...)
	created := make(chan struct{})
	go func() {
		defer close(created)
		r.each(nodes, r.create)
	}()
	wait(r.T, "nodes to be served", func() bool { return r.served() > len(nodes)/3 })
	p.kill()
	r.controller(r.direct, flags...)
	<-created
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(nodes) })
	r.check()
	sizes := map[string][2]string{"": {"/24", "/120"}, "large": {"/22", "/118"}, "huge": {"/21", "/117"}}
	r.checkSizes(sizes)

	// Those that are large keep what they have, and one that is new gets what the
	// default entry has.
	remove(clusterCIDRPath, "large")
	r.post(clusterCIDRPath, hugeEntry, "")
	r.waitMetrics("the ClusterCIDRs to be in force", func(m map[string]float64) bool {
		_, huge := m[pool("free", "huge", "10.112.0.0/12")]
		return huge && m["node_ipam_cluster_cidrs_in_force"] == 1
	})
	sizes["late"] = sizes[""]
	late := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: map[string]string{"size": "large", "as": "late"}}}
	huge := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "huge", Labels: map[string]string{"size": "huge"}}}
	r.each([]*v1.Node{late, huge}, r.create)
	wait(r.T, "the new nodes to be served", func() bool { return r.served() == len(nodes)+2 })
	r.check()
	r.checkSizes(sizes)
	var large []*v1.Node
	for _, n := range nodes {
		if n.Labels["size"] == "large" {
			large = append(large, n)
		}
	}
	r.each(large, r.delete)
	r.waitMetrics("the large entry to be gone with its nodes", func(m map[string]float64) bool {
		_, there := m[pool("free", "large", "10.112.0.0/12")]
		return !there
	})
	r.clear()
	for name, path := range map[string]string{"huge": clusterCIDRPath, "default": configPath} {
		remove(path, name)
		wait(r.T, name+" to be gone", func() bool {
			_, ok := r.object(path, name)
			return !ok
		})
	}
}

// checkSizes checks the prefix lengths of all nodes by their label "as", or "size".
func (r *run) checkSizes(sizes map[string][2]string) {
	r.Helper()
	for _, n := range r.nodes() {
		size, ok := n.Labels["as"]
		if !ok {
			size = n.Labels["size"]
		}
		for i, suffix := range sizes[size] {
			if !strings.HasSuffix(n.Spec.PodCIDRs[i], suffix) {
				r.Errorf("%s with labels %v has %v", n.Name, n.Labels, n.Spec.PodCIDRs)
			}
		}
	}
}
