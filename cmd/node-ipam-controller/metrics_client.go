package main

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection"
	clientmetrics "k8s.io/client-go/tools/metrics"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// kubernetesMetrics are those that every component of Kubernetes has, under the names,
// labels and buckets of k8s.io/component-base, which registers them for a whole process
// and so is not used itself.
type kubernetesMetrics struct {
	requests    *prometheus.CounterVec
	retries     *prometheus.CounterVec
	latency     *prometheus.HistogramVec
	rateLimiter *prometheus.HistogramVec
	sent        *prometheus.HistogramVec
	received    *prometheus.HistogramVec
	leading     *prometheus.GaugeVec
	slowPath    *prometheus.CounterVec
	queued      prometheus.Histogram
	worked      prometheus.Histogram
}

// queueName is the label of the queue's metrics, as in kube-controller-manager.
const queueName = "cidrallocator_node"

func newKubernetesMetrics() *kubernetesMetrics {
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0}
	bytes := []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	request := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rest_client_" + name, Help: help, Buckets: buckets}, []string{"verb", "host"})
	}
	queue := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "workqueue_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10), ConstLabels: prometheus.Labels{"name": queueName}})
	}
	return &kubernetesMetrics{
		requests:    counter("rest_client_requests_total", "Requests to the API server by status code, method and host.", "code", "method", "host"),
		retries:     counter("rest_client_request_retries_total", "Retries of requests to the API server by status code, verb and host.", "code", "verb", "host"),
		latency:     request("request_duration_seconds", "Duration of requests to the API server.", seconds),
		rateLimiter: request("rate_limiter_duration_seconds", "Wait of requests for -kube-api-qps.", seconds),
		sent:        request("request_size_bytes", "Size of requests to the API server.", bytes),
		received:    request("response_size_bytes", "Size of answers of the API server.", bytes),
		leading: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leader_election_master_status",
			Help: "1 if this process holds the lease."}, []string{"name"}),
		slowPath: counter("leader_election_slowpath_total", "Renewals of the lease that had to read it first.", "name"),
		queued:   queue("queue_duration_seconds", "Wait of nodes for a worker."),
		worked:   queue("work_duration_seconds", "Duration of the work on nodes."),
	}
}

func (k *kubernetesMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{k.requests, k.retries, k.latency, k.rateLimiter, k.sent, k.received, k.leading, k.slowPath, k.queued, k.worked}
}

// install makes client-go report to the metrics. It is for the whole process.
func (k *kubernetesMetrics) install() {
	clientmetrics.Register(clientmetrics.RegisterOpts{
		RequestLatency: durations{k.latency}, RateLimiterLatency: durations{k.rateLimiter},
		RequestSize: sizes{k.sent}, ResponseSize: sizes{k.received},
		RequestResult: results{k.requests}, RequestRetry: retries{k.retries},
	})
	leaderelection.SetProvider(k)
}

type (
	durations struct{ of *prometheus.HistogramVec }
	sizes     struct{ of *prometheus.HistogramVec }
	results   struct{ of *prometheus.CounterVec }
	retries   struct{ of *prometheus.CounterVec }
)

func (d durations) Observe(_ context.Context, verb string, u url.URL, t time.Duration) {
	d.of.WithLabelValues(verb, u.Host).Observe(t.Seconds())
}

func (s sizes) Observe(_ context.Context, verb, host string, size float64) {
	s.of.WithLabelValues(verb, host).Observe(size)
}

func (r results) Increment(_ context.Context, code, method, host string) {
	r.of.WithLabelValues(code, method, host).Inc()
}

func (r retries) IncrementRetry(_ context.Context, code, method, host string) {
	r.of.WithLabelValues(code, method, host).Inc()
}

// NewLeaderMetric implements leaderelection.MetricsProvider.
func (k *kubernetesMetrics) NewLeaderMetric() leaderelection.LeaderMetric { return leader{k} }

type leader struct{ *kubernetesMetrics }

func (l leader) On(name string)                { l.leading.WithLabelValues(name).Set(1) }
func (l leader) Off(name string)               { l.leading.WithLabelValues(name).Set(0) }
func (l leader) SlowpathExercised(name string) { l.slowPath.WithLabelValues(name).Inc() }

// turn counts one turn of a node in the queue.
func (k *kubernetesMetrics) turn(waited, took time.Duration) {
	k.queued.Observe(waited.Seconds())
	k.worked.Observe(took.Seconds())
}

// queue collects the state of the queue.
func queue(out chan<- prometheus.Metric, st controller.Stats, begun []time.Time) {
	var unfinished, longest time.Duration
	for _, t := range begun {
		unfinished += time.Since(t)
		longest = max(longest, time.Since(t))
	}
	one := func(kind prometheus.ValueType, name, help string, value float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("workqueue_"+name, help, nil, prometheus.Labels{"name": queueName}), kind, value)
	}
	one(prometheus.GaugeValue, "depth", "Nodes that wait for a worker.", float64(st.Waiting))
	one(prometheus.CounterValue, "adds_total", "Times that a node began to wait for a worker.", float64(st.Added))
	one(prometheus.CounterValue, "retries_total", "Times that a node had to be tried again.", float64(st.Retries))
	one(prometheus.GaugeValue, "unfinished_work_seconds", "Time spent so far on the nodes being worked on, over all workers.", unfinished.Seconds())
	one(prometheus.GaugeValue, "longest_running_processor_seconds", "Time spent so far on the node that is worked on longest.", longest.Seconds())
}
