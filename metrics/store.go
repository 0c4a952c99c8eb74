package metrics

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var (
	storeCommits   = define("store_commits_total", counter, "Commits: made, conflict, unknown (the outcome never arrived) or failed.", "outcome")
	storeSeconds   = define("store_operation_seconds", histogram, "Duration of get, list and commit, failed ones included.", "op")
	storeErrors    = define("store_read_errors_total", counter, "Reads that failed.")
	storeRecords   = define("store_records_written_total", counter, "Records put and deleted by commits that were made.")
	storeBytes     = define("store_bytes_written_total", counter, "Bytes of their keys and values.")
	storeInFlight  = define("store_in_flight", gauge, "Calls that the store has not answered yet.", "op")
	storeOldest    = define("store_oldest_in_flight_seconds", gauge, "Time that the oldest of these calls has taken so far; 0 without one.", "op")
	storeUnsettled = define("store_unsettled_commits", gauge, "Commits of unknown outcome that no later commit or conflict has settled.")
	storeWaits     = define("store_retry_waits_total", counter, "Waits before a commit is tried again; see Store.Retry. The first retry does not wait.")
	storeWaited    = define("store_retry_wait_seconds_total", counter, "Time spent in these waits.")
)

// The values of the label "outcome".
var outcomes = []string{"made", "conflict", "unknown", "failed"}

// operations are the values of the label "op".
var operations = [...]string{"get", "list", "commit"}

// flights are when the calls in flight began. The places of those that have ended are zero and used again.
type flights struct {
	mu    sync.Mutex
	began []time.Time
}

// begin notes a call and returns its place.
func (f *flights) begin(at time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.began, time.Time.IsZero)
	if i < 0 {
		i = len(f.began)
		f.began = append(f.began, at)
	}
	f.began[i] = at
	return i
}

func (f *flights) end(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began[i] = time.Time{}
}

// now returns how many calls are in flight, and how long the oldest has taken.
func (f *flights) now() (n int, oldest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, began := range f.began {
		if !began.IsZero() {
			n++
			oldest = max(oldest, time.Since(began))
		}
	}
	return n, oldest
}

// buckets are for latencies from a store in memory to one that is about to time out.
var buckets = []float64{25e-6, 100e-6, 400e-6, 1.6e-3, 3.2e-3, 6.4e-3, 12.5e-3, 25e-3, 50e-3, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4}

// Store is a [store.Store] that passes every call to another one, and a collector of the counts of these calls. [NewStore]
// returns one.
type Store struct {
	inner store.Store

	series            // of what is in flight
	flights           [len(operations)]flights
	commits           map[string]prometheus.Counter // by outcome
	get, list, commit prometheus.Observer
	errors            prometheus.Counter
	records, bytes    prometheus.Counter
	waits, waited     prometheus.Counter
	unsettled         prometheus.Gauge
	mu                sync.Mutex // keeps setting unsettled and the commit that settles in one order
	metrics           []prometheus.Collector
}

var _ store.Store = (*Store)(nil)

// NewStore returns a store that passes all calls to s, and counts and times them. A call costs two readings of the clock
// and no allocation. For an exact ipalloc_store_unsettled_commits give every engine its own Store, because an engine
// settles an unknown outcome before its next commit. NewStore returns nil for a nil store. Every constructor refuses that
// result.
func NewStore(name string, s store.Store) *Store {
	if absent.Is(s) {
		return nil
	}
	w := &Store{inner: s, series: newSeries(name, "", storeInFlight, storeOldest), commits: make(map[string]prometheus.Counter)}
	total := prometheus.NewCounterVec(prometheus.CounterOpts(opts(storeCommits, name)), storeCommits.labels)
	for _, o := range outcomes {
		w.commits[o] = total.WithLabelValues(o)
	}
	o := opts(storeSeconds, name)
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: o.Name, Help: o.Help, ConstLabels: o.ConstLabels, Buckets: buckets},
		storeSeconds.labels)
	w.get, w.list, w.commit = seconds.WithLabelValues("get"), seconds.WithLabelValues("list"), seconds.WithLabelValues("commit")
	w.metrics = []prometheus.Collector{total, seconds}
	for _, c := range []struct {
		f  *family
		to *prometheus.Counter
	}{{storeErrors, &w.errors}, {storeRecords, &w.records}, {storeBytes, &w.bytes}, {storeWaits, &w.waits}, {storeWaited, &w.waited}} {
		*c.to = prometheus.NewCounter(prometheus.CounterOpts(opts(c.f, name)))
		w.metrics = append(w.metrics, *c.to)
	}
	w.unsettled = prometheus.NewGauge(prometheus.GaugeOpts(opts(storeUnsettled, name)))
	w.metrics = append(w.metrics, w.unsettled)
	return w
}

func opts(f *family, name string) prometheus.Opts {
	return prometheus.Opts{Name: f.name, Help: f.help, ConstLabels: prometheus.Labels{"allocator": text(name)}}
}

// Describe implements [prometheus.Collector].
func (w *Store) Describe(out chan<- *prometheus.Desc) {
	w.series.Describe(out)
	for _, m := range w.metrics {
		m.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (w *Store) Collect(out chan<- prometheus.Metric) {
	for i, op := range operations {
		n, oldest := w.flights[i].now()
		w.send(out, storeInFlight, float64(n), op)
		w.send(out, storeOldest, oldest.Seconds(), op)
	}
	for _, m := range w.metrics {
		m.Collect(out)
	}
}

// Get implements [store.Store].
func (w *Store) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	began := time.Now()
	defer w.flights[0].end(w.flights[0].begin(began))
	recs, err := w.inner.Get(ctx, dst, keys...)
	w.read(w.get, began, err)
	return recs, err
}

// List implements [store.Store].
func (w *Store) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	began := time.Now()
	defer w.flights[1].end(w.flights[1].begin(began))
	recs, rev, err := w.inner.List(ctx, r)
	w.read(w.list, began, err)
	return recs, rev, err
}

func (w *Store) read(o prometheus.Observer, began time.Time, err error) {
	o.Observe(time.Since(began).Seconds())
	if err != nil {
		w.errors.Inc()
	}
}

// Commit implements [store.Store].
func (w *Store) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	began := time.Now()
	defer w.flights[2].end(w.flights[2].begin(began))
	rev, err := w.inner.Commit(ctx, ops)
	w.commit.Observe(time.Since(began).Seconds())
	outcome := "made"
	switch {
	case errors.Is(err, ipalloc.ErrUnknownOutcome):
		outcome = "unknown"
	case errors.Is(err, ipalloc.ErrConflict):
		outcome = "conflict"
	case err != nil:
		outcome = "failed"
	}
	w.settle(outcome)
	if err == nil {
		w.written(ops)
	}
	return rev, err
}

// settle counts a commit.
func (w *Store) settle(outcome string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits[outcome].Inc()
	switch outcome {
	case "unknown":
		w.unsettled.Inc()
	case "made", "conflict":
		w.unsettled.Set(0)
	}
}

// written counts what a commit wrote.
func (w *Store) written(ops []store.Op) {
	records, size := 0, 0
	for i := range ops {
		switch o := &ops[i]; o.Kind {
		case store.Put:
			records++
			size += len(o.Key) + len(o.Value)
		case store.Delete:
			records++
			size += len(o.Key)
		}
	}
	w.records.Add(float64(records))
	w.bytes.Add(float64(size))
}

// Watch implements [store.Store]. It counts nothing.
func (w *Store) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return w.inner.Watch(ctx, after, prefixes...)
}

// Limits implements [store.Store].
func (w *Store) Limits() store.Limits { return w.inner.Limits() }

// Retry returns r with its waits counted; give it to the engine on this store as Options.Retry.
func (w *Store) Retry(r ipset.Retry) ipset.Retry {
	sleep := r.Sleep
	if sleep == nil {
		sleep = wait
	}
	r.Sleep = func(ctx context.Context, d time.Duration) error {
		began := time.Now()
		err := sleep(ctx, d)
		w.waits.Inc()
		w.waited.Add(time.Since(began).Seconds())
		return err
	}
	return r
}

// wait returns after d, or with the context's error if that ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
