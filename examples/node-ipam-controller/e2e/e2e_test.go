//go:build e2e && linux

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/retry"
)

const (
	clusterCIDRs = "10.96.0.0/13,fd00:10::/48"
	serviceCIDRs = "10.96.0.0/16,fd00:10::/108" // inside of the cluster CIDRs
	nodeCount    = 1213
	trace        = "../../../../shared/traces/openb_node_list_gpu_node.yaml" // beside the repository
)

// run is a cluster, the controller's program, and what has been seen of the nodes.
type run struct {
	*testing.T
	c       *cluster
	program string
	direct  string // kubeconfig without anything between
	health  string

	mu   sync.Mutex
	seen map[types.UID]string // the CIDRs that a node was seen to have first
}

func TestEndToEnd(t *testing.T) {
	bin := binaries(t)
	r := &run{T: t, seen: map[types.UID]string{}}
	r.program = filepath.Join(t.TempDir(), "node-ipam-controller")
	if out, err := exec.Command("go", "build", "-o", r.program, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.c = newCluster(t, bin, serviceCIDRs)
	r.direct = r.c.kubeconfig(t, "direct.kubeconfig", r.c.url)
	r.health = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	go r.follow()
	for _, scenario := range []struct {
		name string
		f    func(*run)
	}{
		{"storm with three kills", (*run).storm},
		{"delete and add again", (*run).churn},
		{"lost answers", (*run).lostAnswers},
		{"bad records", (*run).badRecords},
		{"chosen by labels", (*run).byLabels},
	} {
		begin := time.Now()
		if !t.Run(scenario.name, func(t *testing.T) {
			q := &run{T: t, c: r.c, program: r.program, direct: r.direct, health: r.health}
			scenario.f(q)
		}) {
			return // the next one builds on it
		}
		t.Logf("%s: %v", scenario.name, time.Since(begin).Round(time.Second))
	}
}

// follow watches all nodes: the CIDRs of one must never change.
func (r *run) follow() {
	for r.Context().Err() == nil {
		w, err := r.c.client.CoreV1().Nodes().Watch(r.Context(), metav1.ListOptions{})
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		for e := range w.ResultChan() {
			if n, ok := e.Object.(*v1.Node); ok && len(n.Spec.PodCIDRs) > 0 {
				r.note(n)
			}
		}
	}
}

func (r *run) note(n *v1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := strings.Join(n.Spec.PodCIDRs, ",")
	if before, ok := r.seen[n.UID]; ok && before != now {
		r.Errorf("%s had %s and has %s", n.Name, before, now)
	}
	r.seen[n.UID] = now
}

// controller starts the program.
func (r *run) controller(kubeconfig string, more ...string) *supervised {
	r.Helper()
	args := append([]string{"-kubeconfig", kubeconfig, "-allocate-node-cidrs", "-bind-address", r.health, "-kube-api-qps", "2000", "-kube-api-burst", "2000",
		"-leader-elect-lease-duration", "6s", "-leader-elect-renew-deadline", "4s", "-leader-elect-retry-period", "500ms",
		"-service-cluster-ip-range", serviceCIDRs}, more...)
	log := filepath.Join(r.c.dir, "controller.log")
	p := supervise(r.T, log, r.program, args...)
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("the end of %s:\n%s", log, tail(log))
		}
	})
	return p
}

// metric returns a metric of the controller, -1 if it does not answer.
func (r *run) metric(name string) float64 {
	resp, err := http.Get("http://" + r.health + "/metrics")
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				return v
			}
		}
	}
	return -1
}

// traceNodes returns the nodes of the trace, or as many others.
func traceNodes(t *testing.T) (nodes []*v1.Node) {
	file, err := os.Open(trace)
	if err != nil {
		t.Logf("%v: making nodes up", err)
		for i := range nodeCount {
			nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}})
		}
		return nodes
	}
	defer func() { _ = file.Close() }()
	for d := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var n v1.Node
		if err := d.Decode(&n); err == io.EOF {
			return nodes
		} else if err != nil {
			t.Fatal(err)
		}
		if n.Name != "" {
			nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
		}
	}
}

// each calls f for every node, some at a time.
func (r *run) each(nodes []*v1.Node, f func(context.Context, *v1.Node) error) {
	r.Helper()
	work := make(chan *v1.Node)
	var group sync.WaitGroup
	for range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range work {
				if err := f(r.Context(), n); err != nil {
					r.Error(err)
				}
			}
		}()
	}
	for _, n := range nodes {
		work <- n
	}
	close(work)
	group.Wait()
	if r.Failed() {
		r.FailNow()
	}
}

func (r *run) create(ctx context.Context, n *v1.Node) error {
	_, err := r.c.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	return err
}

func (r *run) delete(ctx context.Context, n *v1.Node) error {
	return r.c.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
}

func (r *run) nodes() []v1.Node {
	r.Helper()
	var list *v1.NodeList
	err := retry.OnError(retry.DefaultBackoff, func(error) bool { return true }, func() (err error) {
		list, err = r.c.client.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return list.Items
}

// served returns how many nodes have CIDRs.
func (r *run) served() (n int) {
	for _, node := range r.nodes() {
		if len(node.Spec.PodCIDRs) > 0 {
			n++
		}
	}
	return n
}

// check checks that every node but those given has a CIDR of both families of its
// own, out of the service ranges, and that the controller has as many children in
// use as there are nodes: nothing is leaked.
func (r *run) check(but ...string) {
	r.Helper()
	var all []netip.Prefix
	for _, text := range strings.Split(serviceCIDRs, ",") {
		all = append(all, netip.MustParsePrefix(text))
	}
	for _, n := range r.nodes() {
		if slices.Contains(but, n.Name) {
			continue
		}
		if len(n.Spec.PodCIDRs) != 2 || n.Spec.PodCIDR != n.Spec.PodCIDRs[0] {
			r.Errorf("%s has %q and %q", n.Name, n.Spec.PodCIDR, n.Spec.PodCIDRs)
			continue
		}
		for i, text := range n.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil || p.Addr().Is4() != (i == 0) {
				r.Errorf("%s has %s for CIDR %d", n.Name, text, i)
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for i := 1; i < len(all); i++ {
		if all[i-1].Overlaps(all[i]) {
			r.Errorf("%v and %v overlap", all[i-1], all[i])
		}
	}
}

// checkLeaks compares what the controller counts as taken with the nodes there are;
// more is how many IPv4 CIDRs are reserved besides those of services.
func (r *run) checkLeaks(more int) {
	r.Helper()
	nodes := float64(len(r.nodes()))
	for pool, reserved := range map[string]float64{"10.96.0.0/13": 256 + float64(more), "fd00:10::/48": 1} {
		label := fmt.Sprintf(`{cluster_cidr="",pool=%q}`, pool)
		taken := func() float64 {
			return r.metric("node_ipam_pool_capacity"+label) - r.metric("node_ipam_pool_free"+label) - reserved
		}
		wait(r.T, fmt.Sprintf("%v of %s to be in use, not %v", nodes, pool, taken()), func() bool { return taken() == nodes })
	}
}

// storm creates all nodes while the controller is killed three times.
func (r *run) storm() {
	nodes := traceNodes(r.T)
	p := r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	created := make(chan struct{})
	go func() {
		defer close(created)
		r.each(nodes, r.create)
	}()
	for kill := range 3 {
		wait(r.T, "nodes to be served", func() bool { return r.served() > (kill+1)*len(nodes)/5 })
		r.Logf("kill -9 with %d of %d nodes served", r.served(), len(nodes))
		p.kill()
		p = r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	}
	<-created
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(nodes) })
	r.check()
	r.checkLeaks(0)
	own, api := r.metric("node_ipam_own_seconds_total"), r.metric("node_ipam_api_seconds_total")
	r.Logf("the last controller: %.0f patches, %.3f s in them, %.4f s besides: %.2f %%",
		r.metric("node_ipam_writes_total"), api, own, 100*own/(own+api))
}

// churn deletes 300 nodes and adds them again.
func (r *run) churn() {
	p := r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	defer p.kill()
	some := traceNodes(r.T)[:300]
	r.each(some, r.delete)
	r.each(some, r.create)
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(r.nodes()) })
	r.check()
	r.checkLeaks(0)
}

// lostAnswers does the same with a proxy that loses answers of patches. All but a few
// of the CIDRs that are left are reserved: one that is given back by mistake goes to
// another node soon.
func (r *run) lostAnswers() {
	proxy := newLossyProxy(r.T, r.c.url)
	some := traceNodes(r.T)[300:600]
	r.each(some, r.delete)
	wait(r.T, "the nodes to be gone", func() bool { return len(r.nodes()) == nodeCount-len(some) })
	reserved := r.free()[len(some)+10:]
	p := r.controller(r.c.kubeconfig(r.T, "lossy.kubeconfig", proxy.URL), "-cluster-cidr", clusterCIDRs,
		"-service-cluster-ip-range", serviceCIDRs+","+strings.Join(reserved, ","))
	defer p.kill()
	r.each(some, r.create)
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(r.nodes()) })
	r.check()
	r.checkLeaks(len(reserved))
	wait(r.T, "no node to be unsettled", func() bool { return r.metric("node_ipam_nodes_unsettled") == 0 })
	r.Logf("%d answers lost after the patch, %d patches lost before; the controller counts %.0f unknown outcomes and %.0f reads",
		proxy.after.Load(), proxy.before.Load(), r.metric("node_ipam_writes_unknown_total"), r.metric("node_ipam_reads_total"))
	if proxy.after.Load() == 0 || r.metric("node_ipam_writes_unknown_total") == 0 {
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
	bad := []*v1.Node{node("bad-twin-1", "10.103.0.0/24"), node("bad-twin-2", "10.103.0.0/24"), node("bad-outside", "172.20.0.0/24")}
	r.each(bad, r.create)
	garbage := node("bad-garbage", "10.0.0/24")
	garbage.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	garbage.UID, garbage.CreationTimestamp = "11111111-2222-3333-4444-555555555555", metav1.Now()
	r.c.put(r.T, "/registry/minions/bad-garbage", garbage) // the API server would not take it
	p := r.controller(r.direct, "-cluster-cidr", clusterCIDRs)
	defer p.kill()
	want := map[string]bool{"bad-outside": true, "bad-garbage": true}
	wait(r.T, "an event for each bad record", func() bool {
		events, err := r.c.client.CoreV1().Events("default").List(r.Context(), metav1.ListOptions{FieldSelector: "reason=CIDRRecordInvalid"})
		if err != nil {
			return false
		}
		found, twins := map[string]bool{}, 0
		for _, e := range events.Items {
			found[e.InvolvedObject.Name] = true
			if strings.HasPrefix(e.InvolvedObject.Name, "bad-twin") {
				twins++
			}
		}
		for name := range want {
			if !found[name] {
				return false
			}
		}
		return twins > 0
	})
	if err := r.create(r.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "after-bad"}}); err != nil {
		r.Fatal(err)
	}
	wait(r.T, "the controller to run on", func() bool { return r.served() == len(r.nodes()) })
	r.check("bad-twin-1", "bad-outside", "bad-garbage", "bad-twin-2")
	// One of the twins goes; the other's CIDR stays its own.
	free := r.metric(`node_ipam_pool_free{cluster_cidr="",pool="10.96.0.0/13"}`)
	r.each([]*v1.Node{bad[0], bad[2], {ObjectMeta: metav1.ObjectMeta{Name: "after-bad"}}}, r.delete)
	wait(r.T, "one CIDR to be free again", func() bool {
		return r.metric(`node_ipam_pool_free{cluster_cidr="",pool="10.96.0.0/13"}`) == free+1
	})
	r.each(bad[1:2], r.delete)
	r.c.remove(r.T, "/registry/minions/bad-garbage")
	wait(r.T, "the bad nodes to be gone", func() bool { return len(r.nodes()) == nodeCount })
	r.check()
	r.checkLeaks(0)
}

const entries = `
kind: ClusterCIDR
metadata: {name: large}
spec:
  perNodeHostBits: 10
  ipv4: 10.112.0.0/12
  ipv6: fd00:20::/96
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: size, operator: In, values: [large]}]}]}
---
kind: ClusterCIDRConfig
metadata: {name: default}
spec:
  ipv4: {cidr: 10.112.0.0/12, perNodeMaskSize: 24}
  ipv6: {cidr: "fd00:20::/98", perNodeMaskSize: 120}
`

// byLabels starts over with two overlapping ClusterCIDRs of different size.
func (r *run) byLabels() {
	r.each(traceNodes(r.T), r.delete)
	path := filepath.Join(r.c.dir, "entries.yaml")
	if err := os.WriteFile(path, []byte(entries), 0o644); err != nil {
		r.Fatal(err)
	}
	nodes := traceNodes(r.T)
	for i, n := range nodes {
		if i%3 == 0 {
			n.Labels = map[string]string{"size": "large"}
		}
	}
	p := r.controller(r.direct, "-cluster-cidrs", path, "-families", "IPv4,IPv6")
	created := make(chan struct{})
	go func() {
		defer close(created)
		r.each(nodes, r.create)
	}()
	wait(r.T, "nodes to be served", func() bool { return r.served() > len(nodes)/3 })
	p.kill()
	r.controller(r.direct, "-cluster-cidrs", path, "-families", "IPv4,IPv6")
	<-created
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(nodes) })
	r.check()
	for _, n := range r.nodes() {
		want := [2]string{"/24", "/120"}
		if n.Labels["size"] == "large" {
			want = [2]string{"/22", "/118"}
		}
		for i, suffix := range want {
			if !strings.HasSuffix(n.Spec.PodCIDRs[i], suffix) {
				r.Errorf("%s with labels %v has %v", n.Name, n.Labels, n.Spec.PodCIDRs)
			}
		}
	}
}
