package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// served returns a program over the given objects of an API server.
func served(t *testing.T, args []string, objects ...runtime.Object) *program {
	t.Helper()
	o, err := parse(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChooser(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{options: o, chooser: c, api: apiCheck{ask: func(context.Context) error { return nil }}}
	p.controller, err = controller.New(controller.Config{Allocator: c.allocator, Loaded: c.loaded, Source: &nodeSource{client: fake.NewClientset(objects...)}, Writer: &nodeWriter{}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// loads runs the controller until the test ends and returns when it has loaded the nodes.
func (p *program) loads(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.controller.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	for !p.controller.Synced() {
		time.Sleep(time.Millisecond)
	}
}

func apiNode(name string, cidrs ...string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs}}
}

func (p *program) get(path string) (int, string) {
	w := httptest.NewRecorder()
	p.handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// Counts and capacities apart, beside the names of the originals. The text is what
// Prometheus reads.
func TestMetrics(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{[]string{"-cidr-allocator-type", multiCIDRRangeAllocator, "-service-cluster-ip-range", "10.0.128.0/17"}, []string{
			`node_ipam_pool_capacity{cluster_cidr="e",family="IPv4",pool="10.0.0.0/16"} 256`,
			`node_ipam_pool_used{cluster_cidr="e",family="IPv4",pool="10.0.0.0/16"} 1`,
			`node_ipam_pool_reserved{cluster_cidr="e",family="IPv4",pool="10.0.0.0/16"} 128`,
			`node_ipam_pool_free{cluster_cidr="e",family="IPv4",pool="10.0.0.0/16"} 127`,
			`node_ipam_cluster_cidr_nodes{cluster_cidr="e",terminating="false"} 1`,
			"node_ipam_cluster_cidrs_in_force 1",
			`node_ipam_controller_multicidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/16",clusterCIDRName="e"} 2`,
			`node_ipam_controller_multicidrset_cidrs_releases_total{clusterCIDR="10.0.0.0/16",clusterCIDRName="e"} 1`,
			`node_ipam_controller_multicidrset_max_cidrs{clusterCIDR="10.0.0.0/16",clusterCIDRName="e"} 256`,
			`node_ipam_controller_multicidrset_usage_cidrs{clusterCIDR="10.0.0.0/16",clusterCIDRName="e"} 0.50390625`,
		}},
		{[]string{"-cluster-cidr", "10.0.0.0/16,172.16.0.0/17"}, []string{
			`node_ipam_pool_capacity{cluster_cidr="",family="IPv4",pool="10.0.0.0/16"} 256`,
			`node_ipam_controller_cidrset_cidrs_allocations_total{clusterCIDR="172.16.0.0/17"} 1`,
			`node_ipam_controller_cidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/16"} 2`,
			`node_ipam_controller_cidrset_cidrs_releases_total{clusterCIDR="10.0.0.0/16"} 1`,
			`node_ipam_controller_cirdset_max_cidrs{clusterCIDR="10.0.0.0/16"} 256`, // spelt so there
			`node_ipam_controller_cidrset_usage_cidrs{clusterCIDR="10.0.0.0/16"} 0.00390625`,
			"node_ipam_nodes_unmatched 0",
			"node_ipam_writes_total 0",
			"# TYPE node_ipam_writes_total counter",
			"node_ipam_build_info{",
			"go_goroutines ",
		}},
	} {
		p := served(t, c.args, apiNode("n", "10.0.0.0/24"), apiNode("foreign", "172.16.0.0/24"))
		if p.chooser.set != nil {
			if err := p.chooser.enter(entryText("e", "10.0.0.0/16", "")); err != nil {
				t.Fatal(err)
			}
		}
		if _, text := p.get("/metrics"); strings.Contains(text, "node_ipam_pool_") || strings.Contains(text, "in_force") {
			t.Errorf("pools are counted before the nodes are loaded:\n%s", text)
		}
		p.chooser.metrics = newMetrics(p.chooser.set != nil) // each handler registers its own
		p.loads(t)
		if _, err := p.chooser.allocator.Allocate(node("m")); err != nil {
			t.Fatal(err)
		}
		p.chooser.allocator.Release("m")
		code, text := p.get("/metrics")
		parser := expfmt.NewTextParser(model.LegacyValidation)
		if _, err := parser.TextToMetricFamilies(strings.NewReader(text + "\n")); err != nil || code != 200 {
			t.Fatal(code, err)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no %s in\n%s", c.args, want, text)
			}
		}
	}
}

// Each of several pools has its counts, and so has each of several ClusterCIDRs.
func TestMetricsOfEveryPool(t *testing.T) {
	text := entryText("a", "10.1.0.0/16\n  ipv6: fd01::/104", "") + entryText("b", "10.2.0.0/16\n  ipv6: fd02::/104", "") + entryText("c", "10.3.0.0/16\n  ipv6: fd03::/104", "")
	for _, c := range []struct {
		args           []string
		pools, entries int
		node           []string // of which each CIDR is counted
	}{
		{[]string{"-cluster-cidr", "10.1.0.0/16,fd01::/48,10.2.0.0/16"}, 3, 0, []string{"10.2.0.0/24", "fd01::/64"}},
		{[]string{"-cidr-allocator-type", multiCIDRRangeAllocator}, 6, 3, []string{"10.3.0.0/24", "fd03::/120"}},
	} {
		p := served(t, c.args, apiNode("n", c.node...))
		if p.chooser.set != nil {
			if err := p.chooser.enter(text); err != nil {
				t.Fatal(err)
			}
		}
		p.loads(t)
		_, text := p.get("/metrics")
		if pools, entries := strings.Count(text, "\nnode_ipam_pool_capacity{"), strings.Count(text, "\nnode_ipam_cluster_cidr_nodes{"); pools != c.pools || entries != c.entries || strings.Count(text, "cidrs_allocations_total{") != len(c.node) {
			t.Errorf("%v: %d pools and %d ClusterCIDRs in\n%s", c.args, pools, entries, text)
		}
	}
}

func TestResultsOfWrites(t *testing.T) {
	for want, err := range map[string]error{"recorded": nil, "delayed": delayed{ipalloc.ErrConflict, time.Second},
		"rejected": ipalloc.ErrConflict, "unknown": errors.New("lost")} {
		if got := result(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// A program is ready when it has loaded the nodes, or waits for the lease, and the API
// server answers. It is unhealthy when it has not renewed its lease in time.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := served(t, []string{"-cluster-cidr", "10.0.0.0/16"})
		down := false
		p.api.ask = func(context.Context) error {
			if down {
				return errors.New("down")
			}
			return nil
		}
		want := func(path string, code int, text string) {
			t.Helper()
			time.Sleep(4 * time.Second)
			if gotCode, got := p.get(path); gotCode != code || got != text {
				t.Errorf("%s: %d %s, want %d %s", path, gotCode, got, code, text)
			}
			p.chooser.metrics = newMetrics(false) // each handler registers its own
		}
		want("/readyz", 200, "not leading")
		p.leading.Store(true)
		want("/readyz", 503, "loading")
		p.options.leaderElect = false
		want("/readyz", 503, "loading")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.controller.Run(ctx) }()
		synctest.Wait()
		want("/readyz", 200, "ok")
		down = true
		want("/readyz", 503, "the API server does not answer")
		want("/healthz", 200, "ok")
		down = false
		want("/readyz", 200, "ok")
		cancel()
		<-ended
	})
}

// The probe of health asks the lease.
func TestHealthAsksTheLease(t *testing.T) {
	p := served(t, []string{"-cluster-cidr", "10.0.0.0/16"})
	p.lease = leaderelection.NewLeaderHealthzAdaptor(time.Second)
	if code, _ := p.get("/healthz"); code != 200 {
		t.Error(code)
	}
}

// The answer about the API server is for all who ask: a client that hangs up does not make the others hear that it does not answer.
func TestReadyKeepsNoCancellation(t *testing.T) {
	p := served(t, []string{"-cluster-cidr", "10.0.0.0/16", "-leader-elect=false"})
	p.loads(t)
	p.api.ask = func(ctx context.Context) error { return ctx.Err() }
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	p.handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/readyz", nil))
	if code, text := p.get("/readyz"); code != 200 {
		t.Errorf("%d %s", code, text)
	}
}

// oneConn is a listener with a single connection.
type oneConn struct {
	net.Conn
	once, closed chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case <-l.once:
		return l.Conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l oneConn) Close() error   { close(l.closed); return nil }
func (l oneConn) Addr() net.Addr { return l.LocalAddr() }

// A client that sends nothing, or no more, is cut off, and so is one that sends too much. None of them keeps the server's memory.
func TestServerBoundsItsClients(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct {
		name, sends, answer string
		after               time.Duration // until the connection is closed
	}{
		{"silent", "", "", 10 * time.Second},
		{"unfinished", request, "", 10 * time.Second},
		{"idle", request + "\r\n", "200 OK", time.Minute},
		{"large", request + "X: " + strings.Repeat("x", 64<<10), "431 ", 500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				listener := oneConn{theirs, make(chan struct{}, 1), make(chan struct{})}
				listener.once <- struct{}{}
				server := newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				go func() { _ = server.Serve(listener) }()
				begun := time.Now()
				go func() { _, _ = io.WriteString(ours, c.sends) }()
				answer, _ := io.ReadAll(ours)
				if took := time.Since(begun); took > c.after || !strings.Contains(string(answer), c.answer) {
					t.Errorf("closed after %v: %q", took, answer)
				}
				_ = ours.Close()
				_ = server.Close()
			})
		})
	}
}
