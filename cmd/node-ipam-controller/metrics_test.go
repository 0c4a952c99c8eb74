package main

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var update = flag.Bool("update", false, "write deploy/metrics.md")

// The list that alert rules and the dashboard are checked against has every metric of
// the program, with its type and its labels.
func TestListOfMetrics(t *testing.T) {
	found := map[string]string{}
	for _, args := range [][]string{{"-cluster-cidr", "10.0.0.0/16", "-service-cluster-ip-range", "10.96.0.0/16"}, {"-cidr-allocator-type", multiCIDRRangeAllocator}} {
		p := served(t, args, apiNode("n", "10.0.0.0/24"))
		if p.chooser.set != nil {
			if err := p.chooser.enter(entryText("e", "10.0.0.0/16", "")); err != nil {
				t.Fatal(err)
			}
		}
		p.handler()
		p.loads(t)
		m := p.chooser.metrics
		m.releases.WithLabelValues(m.labels(p.chooser.pools()[0].prefix, "e")...)
		m.writes.WithLabelValues("recorded")
		m.rights.WithLabelValues("nodes", "get")
		m.requests.WithLabelValues("200", "GET", "h")
		m.retries.WithLabelValues("500", "GET", "h")
		for _, h := range []*prometheus.HistogramVec{m.latency, m.rateLimiter, m.sent, m.received} {
			h.WithLabelValues("GET", "h")
		}
		m.leading.WithLabelValues("lease")
		m.slowPath.WithLabelValues("lease")
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
				continue // of the language and the system
			}
			labels := []string{}
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, "`"+l.GetName()+"`")
			}
			found[f.GetName()] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
		}
	}
	text := "# Metrics\n\nThese are all metrics of `/metrics` except `go_*` and `process_*`. `go test -run TestListOfMetrics -update .` writes this list.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(found)) {
		text += found[name]
	}
	const path = "deploy/metrics.md"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != text {
		t.Errorf("%s is not (%v):\n%s", path, err, text)
	}
}

// A right that the service account lacks is told from the others. It has those of leases in one namespace, as the manifests grant them.
func TestRightsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
			of := review.Spec.ResourceAttributes
			review.Status.Allowed = of.Resource != "nodes" && (of.Resource != "leases" || of.Namespace == metav1.NamespaceSystem)
			return true, review, nil
		})
		p := served(t, []string{"-cluster-cidr", "10.0.0.0/16", "-leader-elect"})
		p.log, p.client = slog.New(slog.DiscardHandler), client
		go p.watchRights(t.Context())
		synctest.Wait()
		_, text := p.get("/metrics")
		for _, r := range p.options.rights() {
			missing := 0
			if r.Resource == "nodes" {
				missing = 1
			}
			if want := fmt.Sprintf("node_ipam_right_missing{resource=%q,verb=%q} %d\n", r.Resource, r.Verb, missing); !strings.Contains(text, want) {
				t.Errorf("%s is not in\n%s", want, text)
			}
		}
	})
}

// What client-go measures of requests is counted.
func TestRequestsAreMeasured(t *testing.T) {
	k := newKubernetesMetrics()
	durations{k.latency}.Observe(t.Context(), "GET", url.URL{Host: "h"}, time.Second)
	sizes{k.sent}.Observe(t.Context(), "GET", "h", 7)
	results{k.requests}.Increment(t.Context(), "200", "GET", "h")
	retries{k.retries}.IncrementRetry(t.Context(), "500", "GET", "h")
	for _, c := range []prometheus.Collector{k.latency, k.sent, k.requests, k.retries} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		if families, err := registry.Gather(); err != nil || len(families) != 1 {
			t.Errorf("%v: %v, %v", c, families, err)
		}
	}
}

// The metrics of the queue have the form that Kubernetes gives them.
func TestQueueMetrics(t *testing.T) {
	p := served(t, []string{"-cluster-cidr", "10.0.0.0/16"})
	p.chooser.metrics.turn(20*time.Millisecond, time.Second)
	out := make(chan prometheus.Metric, 10)
	queue(out, p.controller.Stats(), []time.Time{time.Now().Add(-time.Hour), time.Now().Add(-2 * time.Hour)})
	close(out)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metricList(slices.Collect(func(yield func(prometheus.Metric) bool) {
		for m := range out {
			yield(m)
		}
	})))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		if l := m.GetLabel(); len(l) != 1 || l[0].GetName() != "name" || l[0].GetValue() != "cidrallocator_node" {
			t.Errorf("%s has labels %v", f.GetName(), l)
		}
	}
	if u, l := values["workqueue_unfinished_work_seconds"], values["workqueue_longest_running_processor_seconds"]; u < 10800 || l < 7200 || l > u {
		t.Errorf("unfinished %v, longest %v", u, l)
	}
	if _, text := p.get("/metrics"); !strings.Contains(text, `workqueue_work_duration_seconds_bucket{name="cidrallocator_node",le="1"} 1`) ||
		!strings.Contains(text, `workqueue_queue_duration_seconds_bucket{name="cidrallocator_node",le="0.01"} 0`) {
		t.Error(text)
	}
}

type metricList []prometheus.Metric

func (metricList) Describe(chan<- *prometheus.Desc) {}
func (l metricList) Collect(out chan<- prometheus.Metric) {
	for _, m := range l {
		out <- m
	}
}
