//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/retry"
)

const (
	pool4        = "10.96.0.0/13"
	pool6        = "fd00:10::/48"
	clusterCIDRs = pool4 + "," + pool6
	serviceCIDRs = "10.96.0.0/16,fd00:10::/108" // inside of the cluster CIDRs
	nodeCount    = 1213
)

// run is a cluster and the controller's program.
type run struct {
	*testing.T
	c       *cluster
	program string
	direct  string // kubeconfig without anything between
	http    string
	log     string
	user    []string // of the image
}

func TestEndToEnd(t *testing.T) {
	r := &run{T: t}
	r.image()
	r.c = newCluster(t, serviceCIDRs)
	r.c.tryDeployments(t)
	for _, name := range []string{"rbac", "deployment", "service", "disruption"} {
		r.c.apply(t, "../deploy/chart/base/"+name+".yaml")
	}
	r.c.checkRights(t)
	r.c.login(t)
	r.direct = r.c.kubeconfig(t, "direct.kubeconfig", r.c.url)
	r.http = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r.log = filepath.Join(r.c.dir, "controller.log")
	follow(t, r.c.client)
	for _, scenario := range []struct {
		name string
		f    func(*run)
	}{
		{"image", (*run).runImage},
		{"storm with three kills", (*run).storm},
		{"delete and add again", (*run).churn},
		{"lost answers", (*run).lostAnswers},
		{"bad records", (*run).badRecords},
		{"upgrade", (*run).upgrade},
		{"chosen by labels", (*run).byLabels}, // by the definitions that the upgrade leaves
		{"objects of the API server", (*run).objects},
		{"two replicas", (*run).replicas},
		{"5,000 nodes", (*run).fiveThousand},
	} {
		begin := time.Now()
		if !t.Run(scenario.name, func(t *testing.T) {
			q := *r
			q.T = t
			scenario.f(&q)
			q.checkLog()
		}) {
			return // the next one builds on it
		}
		t.Logf("%s: %v", scenario.name, time.Since(begin).Round(time.Second))
	}
}

// controller starts the program.
func (r *run) controller(kubeconfig string, more ...string) *supervised {
	r.Helper()
	args := []string{"-kubeconfig", kubeconfig, "-allocate-node-cidrs", "-http-address", r.http, "-kube-api-qps", "2000", "-kube-api-burst", "2000",
		"-leader-elect-lease-duration", "6s", "-leader-elect-renew-deadline", "4s", "-leader-elect-retry-period", "500ms",
		"-service-cluster-ip-range", serviceCIDRs}
	p := supervise(r.T, r.log, r.program, slices.Concat(args, more)...)
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("the end of %s:\n%s", r.log, tail(r.log))
		}
	})
	return p
}

// dryRun returns what the program prints with -dry-run.
func (r *run) dryRun() string {
	r.Helper()
	cmd := exec.Command(r.program, "-kubeconfig", r.direct, "-dry-run", "-cluster-cidr", clusterCIDRs, "-service-cluster-ip-range", serviceCIDRs)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	wrong := strings.Contains(string(out), "\tWRONG\t")
	if code := cmd.ProcessState.ExitCode(); code != 0 && !wrong || wrong && code != 3 {
		r.Fatalf("%v\n%s", err, errs.String())
	}
	return string(out)
}

// checkLog checks that the controller was allowed all that it wanted.
func (r *run) checkLog() {
	text, err := os.ReadFile(r.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			r.Errorf("not allowed: %s", line)
		}
	}
}

// metrics returns the metrics of the controller by name and labels, none while it
// does not run, or has not loaded the nodes: what it counts then is not what there is.
func (r *run) metrics() map[string]float64 {
	if r.get("/readyz") != "ok" {
		return nil
	}
	found := map[string]float64{}
	for line := range strings.Lines(r.get("/metrics")) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64); err == nil {
				found[line[:i]] = v
			}
		}
	}
	return found
}

func (r *run) get(path string) string {
	resp, err := http.Get("http://" + r.http + path)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

// waitMetrics waits until the controller runs and its metrics are ok.
func (r *run) waitMetrics(what string, ok func(map[string]float64) bool) {
	r.Helper()
	var last map[string]float64
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("%s: the metrics were last %v", what, last)
		}
	})
	wait(r.T, what, func() bool {
		m := r.metrics()
		if len(m) > 0 {
			last = m
		}
		return len(m) > 0 && ok(m)
	})
}

// pool is the name of a metric of a pool.
func pool(what, entry, prefix string) string {
	family := "IPv4"
	if netip.MustParsePrefix(prefix).Addr().Is6() {
		family = "IPv6"
	}
	return fmt.Sprintf(`node_ipam_pool_%s{cluster_cidr=%q,family=%q,pool=%q}`, what, entry, family, prefix)
}

// tracesEnv names the environment variable with the directory of the traces.
const tracesEnv = "IPALLOC_TRACES"

// traceNodes returns the nodes of the trace, or as many made-up ones if the
// environment names no traces.
func traceNodes(t *testing.T) (nodes []*v1.Node) {
	dir := os.Getenv(tracesEnv)
	if dir == "" {
		t.Logf("%s is not set: making nodes up", tracesEnv)
		for i := range nodeCount {
			nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}})
		}
		return nodes
	}
	file, err := os.Open(filepath.Join(dir, "openb_node_list_gpu_node.yaml"))
	if err != nil {
		t.Fatal(err)
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
// own, out of the service ranges.
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

// checkTaken waits until the controller counts so many CIDRs as taken besides those of
// services: one for each node when nothing is leaked, and more in the IPv4 pool.
func (r *run) checkTaken(nodes, more int) {
	r.Helper()
	r.waitMetrics(fmt.Sprintf("the CIDRs of %d nodes and %d more to be in use", nodes, more), func(m map[string]float64) bool {
		v4 := m[pool("capacity", "", pool4)] - m[pool("free", "", pool4)]
		v6 := m[pool("capacity", "", pool6)] - m[pool("free", "", pool6)]
		return v4 == float64(nodes+more+256) && v6 == float64(nodes+1) // 10.96.0.0/16 in /24, fd00:10::/108 in /64
	})
}
