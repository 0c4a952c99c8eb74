//go:build e2e && linux

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

const (
	peerSteps = 300  // creations and deletions, one at a time
	peerNodes = 3000 // at once
	peerFlags = "--service-cluster-ip-range=10.128.4.0/22,fd00:10::/62 --node-cidr-mask-size-ipv4=24 --node-cidr-mask-size-ipv6=64"
)

// side is one of the two controllers.
type side struct {
	name    string
	command []string
	http    string   // where its metrics are
	steps   []string // what each step of the sequence gave
	elapsed time.Duration
	cpu     time.Duration
	counts  map[string]int
}

// The controller and the one in kube-controller-manager give the same nodes the same CIDRs,
// and the controller sends the API server no more requests.
func TestBesideKubeControllerManager(t *testing.T) {
	peer, err := servers.KubeProgram(t.Context(), "kube-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{T: t, http: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	r.image()
	r.c = newCluster(t, "10.0.0.0/24")
	proxy := newCountingProxy(t, r.c.url, r.c.admin)
	config := r.c.kubeconfig(t, "peer.kubeconfig", proxy.URL)
	sides := []*side{
		{name: "kube-controller-manager", command: append([]string{peer, "--kubeconfig", config, "--controllers=node-ipam-controller", "--allocate-node-cidrs",
			"--leader-elect=false", "--secure-port=0", "--kube-api-qps=2000", "--kube-api-burst=2000"}, strings.Fields(peerFlags)...)},
		{name: "node-ipam-controller", http: r.http, command: append([]string{r.program, "-kubeconfig", config, "-allocate-node-cidrs",
			"-leader-elect=false", "-http-address", r.http, "-kube-api-qps=2000", "-kube-api-burst=2000"}, strings.Fields(peerFlags)...)},
	}
	for _, s := range sides {
		r.sequence(s)
	}
	for i, step := range sides[0].steps {
		if got := sides[1].steps[i]; got != step {
			t.Fatalf("step %d: %s gives %q, %s %q", i, sides[0].name, step, sides[1].name, got)
		}
	}
	for _, s := range sides {
		r.together(s, proxy)
		perNode := float64(s.counts["PATCH nodes"]) / peerNodes
		t.Logf("%s: %d nodes in %.1f s, %.2f s of CPU, %.3f patches a node; requests: %v", s.name, peerNodes, s.elapsed.Seconds(), s.cpu.Seconds(), perNode, s.counts)
		if perNode != 1 {
			t.Errorf("%s: %.3f patches a node", s.name, perNode)
		}
	}
	if a, b := total(sides[1].counts), total(sides[0].counts); a > b {
		t.Errorf("%d requests, the peer sends %d", a, b)
	}
}

func total(counts map[string]int) (n int) {
	for v := range maps.Values(counts) {
		n += v
	}
	return n
}

// start starts the controller of a side; end is kill -9.
func (r *run) start(s *side, cidrs string) (cmd *exec.Cmd, end func()) {
	r.Helper()
	log := filepath.Join(r.c.dir, s.name+".log")
	cmd, err := launch(log, s.command[0], append(s.command[1:], "--cluster-cidr="+cidrs)...)
	if err != nil {
		r.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r.Cleanup(func() {
		end()
		if r.Failed() {
			r.Logf("the end of %s:\n%s", log, tail(log))
		}
	})
	return cmd, end
}

// sequence creates and deletes nodes one at a time, out of pools of 32 CIDRs, so that freed
// ones are given again. Halfway the controller is killed.
func (r *run) sequence(s *side) {
	r.Helper()
	const pools = "10.128.0.0/19,fd00:10::/59"
	_, end := r.start(s, pools)
	rng := rand.New(rand.NewPCG(5, 0))
	var live []*v1.Node
	for step := range peerSteps {
		if step == peerSteps/2 {
			end()
			_, end = r.start(s, pools)
		}
		if len(live) == 24 || len(live) > 8 && rng.IntN(2) == 0 {
			i := rng.IntN(len(live))
			r.each(live[i:i+1], r.delete)
			live = slices.Delete(live, i, i+1)
			if s.http != "" { // the peer frees within the event, which comes before that of the next node
				r.waitMetrics("the CIDR to be free", func(m map[string]float64) bool {
					return m[pool("free", "", "10.128.0.0/19")] == float64(28-len(live))
				})
			}
			s.steps = append(s.steps, "")
			continue
		}
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("step-%03d", step)}}
		r.each([]*v1.Node{n}, r.create)
		live = append(live, n)
		var cidrs []string
		wait(r.T, s.name+" to serve "+n.Name, func() bool {
			got, err := r.c.client.CoreV1().Nodes().Get(r.Context(), n.Name, metav1.GetOptions{})
			if err != nil {
				r.Fatal(err)
			}
			cidrs = got.Spec.PodCIDRs
			return len(cidrs) == 2
		})
		s.steps = append(s.steps, n.Name+" "+strings.Join(cidrs, " "))
	}
	end()
	r.each(live, r.delete)
}

// together has the controller serve many nodes that join at once.
func (r *run) together(s *side, proxy *countingProxy) {
	r.Helper()
	cmd, end := r.start(s, "10.128.0.0/11,fd00:10::/48")
	defer end()
	first := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "first"}}
	r.each([]*v1.Node{first}, r.create)
	wait(r.T, s.name+" to serve a first node", func() bool { return r.served() == 1 })
	proxy.take()
	cpu, begin := cpuTime(r.T, cmd.Process.Pid), time.Now()
	nodes := made("peer", peerNodes)
	r.each(nodes, r.create)
	wait(r.T, s.name+" to serve all nodes", func() bool { return r.served() == peerNodes+1 })
	s.elapsed, s.cpu, s.counts = time.Since(begin), cpuTime(r.T, cmd.Process.Pid)-cpu, proxy.take()
	r.check()
	end()
	r.each(append(nodes, first), r.delete)
}

// cpuTime returns the CPU time of a process, of which Linux counts hundredths of a second.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * time.Second / 100
}
