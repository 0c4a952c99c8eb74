package metrics_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/metrics"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/repair"
)

var update = flag.Bool("update", false, "write the table of README.md")

// scrape serves the collectors over HTTP, reads them as Prometheus does, and returns the families by name.
func scrape(t *testing.T, cs ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range cs {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %s", res.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// values returns the series of a family as "label=value,...": value, without the label "allocator" and empty ones, which are none.
func values(f *dto.MetricFamily) map[string]float64 {
	vs := make(map[string]float64)
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			if l.GetName() != "allocator" && l.GetValue() != "" {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
		}
		vs[strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return vs
}

// want compares one family with the series that it should have.
func want(t *testing.T, families map[string]*dto.MetricFamily, name string, series map[string]float64) {
	t.Helper()
	got := values(families["ipalloc_"+name])
	if fmt.Sprint(got) != fmt.Sprint(series) {
		t.Errorf("%s:\n got %v\nwant %v", name, got, series)
	}
}

// sums checks that the states of every pool sum to its capacity.
func sums(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	total := make(map[string]float64)
	for _, m := range families["ipalloc_pool_count"].GetMetric() {
		total[poolOf(m)] += m.GetGauge().GetValue()
	}
	for _, m := range families["ipalloc_pool_capacity"].GetMetric() {
		if got, capacity := total[poolOf(m)], m.GetGauge().GetValue(); math.Abs(got-capacity) > capacity*0x1p-52 {
			t.Errorf("%s: states sum to %v of %v", poolOf(m), got, capacity)
		}
	}
}

func poolOf(m *dto.Metric) string {
	var s string
	for _, l := range m.GetLabel() {
		if l.GetName() != "state" {
			s += l.GetValue() + "/"
		}
	}
	return s
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// must returns v, or ends the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestSet(t *testing.T) {
	now := time.Unix(0, 0)
	s := must(cidrset.New(prefix("10.0.0.0/22"), 24, cidrset.Cooldown(time.Hour, func() time.Time { return now })))(t)
	for range 3 {
		must(s.AllocateNext())(t)
	}
	must(s.Release(prefix("10.0.1.0/24")))(t)
	got := scrape(t, metrics.NewSet("a", s))
	want(t, got, "pool_capacity", map[string]float64{"kind=cidrset,pool=10.0.0.0/22": 4})
	want(t, got, "pool_count", map[string]float64{
		"kind=cidrset,pool=10.0.0.0/22,state=used": 2, "kind=cidrset,pool=10.0.0.0/22,state=cooling": 1, "kind=cidrset,pool=10.0.0.0/22,state=free": 1})
	want(t, got, "pool_largest_free_prefix_length", map[string]float64{"kind=cidrset,pool=10.0.0.0/22": 24})

	must(s.AllocateNext())(t) // nothing is free: there is no largest free prefix
	if f := scrape(t, metrics.NewSet("a", s))["ipalloc_pool_largest_free_prefix_length"]; f != nil {
		t.Error(f)
	}
}

// A pool of 2^64 children is counted as 2^64.
func TestWidePool(t *testing.T) {
	s := must(cidrset.New(prefix("2001:db8::/64"), 128))(t)
	must(s.AllocateNext())(t)
	got := scrape(t, metrics.NewSet("a", s))
	want(t, got, "pool_capacity", map[string]float64{"kind=cidrset,pool=2001:db8::/64": 0x1p64})
	sums(t, got)
}

func TestNodes(t *testing.T) {
	a := must(nodeipam.New(nodeipam.Config{
		Slots:    []nodeipam.Slot{{Bits: 24, Pools: []netip.Prefix{prefix("10.0.0.0/22")}}},
		Reserved: []netip.Prefix{prefix("10.0.3.0/25")},
	}))(t)
	must(a.Allocate(nodeipam.Node{Name: "a"}))(t)
	a.Terminate("a")
	got := scrape(t, metrics.NewNodes("n", a))
	want(t, got, "nodes", map[string]float64{"": 1})
	want(t, got, "nodes_terminating", map[string]float64{"": 1})
	want(t, got, "node_reservations", map[string]float64{"": 1})
	want(t, got, "pool_count", map[string]float64{
		"kind=nodeipam,pool=10.0.0.0/22,state=used": 1, "kind=nodeipam,pool=10.0.0.0/22,state=reserved": 1, "kind=nodeipam,pool=10.0.0.0/22,state=free": 2})
	sums(t, got)
}

// Entries may share a prefix; their series are apart.
func TestNodesByLabels(t *testing.T) {
	a := must(nodeipam.New(nodeipam.Config{ByLabels: true}))(t)
	for _, name := range []string{"x", "y"} {
		if err := a.AddEntry(nodeipam.Entry{Name: name, IPv4: prefix("10.0.0.0/22"), MaskIPv4: 24}); err != nil {
			t.Fatal(err)
		}
	}
	got := scrape(t, metrics.NewNodes("n", a))
	want(t, got, "pool_capacity", map[string]float64{"kind=nodeipam,pool=x 10.0.0.0/22": 4, "kind=nodeipam,pool=y 10.0.0.0/22": 4})
	want(t, got, "node_entries", map[string]float64{"": 2})
	sums(t, got)
}

func TestServices(t *testing.T) {
	r := must(servicealloc.NewRegistry(servicealloc.PortRange{First: 30000, Last: 32767}))(t)
	if err := r.SetRange(servicealloc.RangeInfo{Name: "a", Prefixes: []netip.Prefix{prefix("10.96.0.0/24"), prefix("fd00::/64")}}); err != nil {
		t.Fatal(err)
	}
	must(r.Allocate("web", servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified(), netip.MustParseAddr("fd00::1")}, Ports: []servicealloc.Port{{}}}))(t)
	c := metrics.NewRegistry("s", r)
	got := scrape(t, c)
	want(t, got, "pool_capacity", map[string]float64{
		"kind=servicealloc,pool=IPv4 static": 16, "kind=servicealloc,pool=IPv4 dynamic": 238,
		"kind=servicealloc,pool=IPv6 static": 256, "kind=servicealloc,pool=IPv6 dynamic": 0x1p64,
		"kind=servicealloc,pool=ports static": 86, "kind=servicealloc,pool=ports dynamic": 2682})
	sums(t, got)
	if f := got["ipalloc_service_findings"]; f != nil {
		t.Errorf("findings before the first Diff: %v", f)
	}

	c.Found(repair.Diff(r, nil, nil, time.Now())) // nothing is desired, so all that is held has leaked
	got = scrape(t, c)
	want(t, got, "service_findings", map[string]float64{
		"finding=leaked": 3, "finding=missing": 0, "finding=duplicate": 0, "finding=out of range": 0, "finding=wrong owner": 0})
	want(t, got, "service_finding_oldest_seconds", map[string]float64{"finding=leaked": 0})
}

func TestRangeAndPorts(t *testing.T) {
	r := must(servicealloc.NewRange(prefix("10.96.0.0/28")))(t)
	p := must(servicealloc.NewPorts(servicealloc.PortRange{First: 1000, Last: 1999}))(t)
	must2(t)(r.AllocateNext())
	must2(t)(p.AllocateNext())
	got := scrape(t, metrics.NewRange("r", r), metrics.NewPorts("p", p))
	want(t, got, "pool_capacity", map[string]float64{"kind=servicealloc,pool=range dynamic": 14, // a small range has no static band
		"kind=servicealloc,pool=ports static": 31, "kind=servicealloc,pool=ports dynamic": 969})
	sums(t, got)
}

func must2(t *testing.T) func(any, bool, error) {
	return func(_ any, _ bool, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newEngine returns an engine with one pool of /26 and the wrapper of its store.
func newEngine(t *testing.T, s store.Store, pool string) (*ipset.Engine, *metrics.Store) {
	t.Helper()
	db := metrics.NewStore("pods", s)
	e := must(ipset.New(db, ipset.Options{Retry: db.Retry(ipset.Retry{Base: time.Nanosecond})}))(t)
	if err := e.AddPool(t.Context(), alloc.Pool{Name: "pods", Prefix: prefix(pool), BlockBits: 26, Cooldown: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return e, db
}

func TestEngine(t *testing.T) {
	e, db := newEngine(t, store.NewMemory(), "10.0.0.0/24")
	ctx := t.Context()
	assign := func(host string, n int, handle string) alloc.Assigned {
		return must(e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: n, Handle: handle}))(t)
	}
	assign("a", 64, "full")
	assign("b", 2, "some")
	must(e.ReleaseIPs(ctx, alloc.Release{Address: assign("b", 1, "gone").V4[0].Address}))(t)
	must2claim(t)(e.ClaimAffinity(ctx, prefix("10.0.0.0/24"), alloc.HostOwner("c")))
	c := metrics.NewEngine("pods", e, metrics.EngineOptions{Hosts: 2})
	got := scrape(t, c, db)
	pool := func(state string) string { return "kind=ipset,pool=pods,state=" + state }
	want(t, got, "pool_count", map[string]float64{pool("used"): 66, pool("cooling"): 1, pool("reserved"): 0, pool("draining"): 0, pool("free"): 189})
	want(t, got, "blocks", map[string]float64{"pool=pods,state=orphan": 0, "pool=pods,state=empty": 2, "pool=pods,state=partial": 1, "pool=pods,state=full": 1})
	want(t, got, "hosts", map[string]float64{"": 3})
	want(t, got, "host_blocks", map[string]float64{"host=host:c": 2, "host=host:a": 1, "host=(others)": 1})
	want(t, got, "host_used", map[string]float64{"host=host:c": 0, "host=host:a": 64, "host=(others)": 2})
	want(t, got, "scrape_success", map[string]float64{"kind=ipset": 1})
	if f := got["ipalloc_pool_largest_free_prefix_length"]; f != nil {
		t.Errorf("a largest free prefix of a pool without one: %v", f)
	}
	sums(t, got)

	must(e.DisownBlocks(ctx, alloc.DisownArgs{Owner: alloc.HostOwner("a")}))(t)
	res := must(e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("b"), Num4: 400, Partial: true, Handle: "many"}))(t)
	res.Short = append(res.Short, alloc.Shortage{Family: 6, Pool: "pods", Reason: alloc.ReasonFull})
	c.Observe(res, nil)
	_, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("b"), Num4: 1}) // one is left, and cools
	c.Observe(alloc.Assigned{}, err)
	c.Observe(alloc.Assigned{}, errors.New("of the caller"))
	c.Observe(alloc.Assigned{}, nil)
	c.Observe(alloc.Assigned{Short: []alloc.Shortage{{Family: 4, Pool: "pods", Reason: alloc.ReasonFull}}}, ipalloc.ErrNotFound) // no pool was tried
	got = scrape(t, c)
	want(t, got, "blocks", map[string]float64{"pool=pods,state=orphan": 1, "pool=pods,state=empty": 0, "pool=pods,state=partial": 0, "pool=pods,state=full": 3})
	cooling := alloc.ReasonCoolingLeft.String() // of the call that failed, whose result was not given
	short := noRefusals("pods")
	short["family=4,kind=ipset,pool=pods,reason="+res.Short[0].Reason.String()]++
	short["family=4,kind=ipset,pool=pods,reason="+cooling]++
	short["family=6,kind=ipset,pool=pods,reason="+alloc.ReasonFull.String()]++
	want(t, got, "shortages_total", short)
	want(t, got, "pool_usable", map[string]float64{"kind=ipset,pool=pods": 256})
	want(t, got, "pool_serves", map[string]float64{"pool=pods": 1})
	want(t, got, "assign_failures_total", map[string]float64{"kind=ipset,reason=cooling": 1, "kind=ipset,reason=other": 1, "kind=ipset,reason=not found": 1})
	sums(t, got)
}

// noRefusals returns the counts of an engine with one pool that has refused nothing: born at 0, so the first refusal is an increase.
func noRefusals(pool string) map[string]float64 {
	short := map[string]float64{}
	for r := alloc.ReasonFull; r <= alloc.ReasonCommitFull; r++ {
		short["family=4,kind=ipset,pool="+pool+",reason="+r.String()] = 0
	}
	for _, r := range []string{"full", "cooling", "reserved", "limit", "foreign"} {
		short["kind=ipset,reason="+r] = 0
	}
	return short
}

// A wait between two tries ends with the caller's context.
func TestWaitEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := metrics.NewStore("pods", store.NewMemory()).Retry(ipset.Retry{}).Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func must2claim(t *testing.T) func([]netip.Prefix, []alloc.ClaimFailure, error) {
	return func(_ []netip.Prefix, _ []alloc.ClaimFailure, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The engines of several spaces may be collected under one name.
func TestSpaces(t *testing.T) {
	e := must(ipset.New(store.NewMemory(), ipset.Options{}))(t)
	red := must(e.InSpace("red"))(t)
	for _, in := range []*ipset.Engine{e, red} {
		if err := in.AddPool(t.Context(), alloc.Pool{Name: "net", Prefix: prefix("10.0.0.0/26")}); err != nil {
			t.Fatal(err)
		}
	}
	must(red.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 3, Handle: "h"}))(t)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metrics.NewEngine("pods", e, metrics.EngineOptions{}), metrics.NewEngine("pods", red, metrics.EngineOptions{}),
		metrics.NewSet("pods", must(cidrset.New(prefix("10.0.0.0/16"), 24))(t)))
	for _, f := range must(r.Gather())(t) {
		if f.GetName() != "ipalloc_pool_count" {
			continue
		}
		got := values(f)
		if got["kind=ipset,pool=net,space=red,state=used"] != 3 || got["kind=ipset,pool=net,state=free"] != 64 || len(got) != 13 {
			t.Errorf("%v", got)
		}
	}
}

// Borrowed addresses are counted by pool, also those of a pool around another.
func TestBorrowed(t *testing.T) {
	e := must(ipset.New(store.NewMemory(), ipset.Options{}))(t)
	for i, p := range []string{"10.0.8.0/25", "10.0.0.0/26", "fd00::/122", "10.0.8.0/26", "10.0.1.0/26"} {
		if err := e.AddPool(t.Context(), alloc.Pool{Name: fmt.Sprint(i), Prefix: prefix(p), BlockBits: prefix(p).Addr().BitLen() - 6, Manual: i == 3, Disabled: i == 4}); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"a", "b"} { // a gets the three blocks, so b borrows
		must(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: 30, Num6: 3, Handle: host}))(t)
		if host == "a" {
			must2claim(t)(e.ClaimAffinity(t.Context(), prefix("10.0.0.0/26"), alloc.HostOwner("a")))
		}
	}
	c := metrics.NewEngine("pods", e, metrics.EngineOptions{Borrowed: true})
	got := scrape(t, c)
	want(t, got, "borrowed_addresses", map[string]float64{"pool=0": 30, "pool=1": 0, "pool=2": 3, "pool=3": 0, "pool=4": 0})
	want(t, got, "pool_serves", map[string]float64{"pool=0": 1, "pool=1": 1, "pool=2": 1, "pool=3": 0.5, "pool=4": 0})
	if f := scrape(t, metrics.NewEngine("pods", e, metrics.EngineOptions{}))["ipalloc_borrowed_addresses"]; f != nil {
		t.Errorf("without the option: %v", f)
	}
}

// An IPv6 pool of more than 2^64 addresses is counted without overflow.
func TestEngineWide(t *testing.T) {
	e := must(ipset.New(store.NewMemory(), ipset.Options{}))(t)
	if err := e.AddPool(t.Context(), alloc.Pool{Name: "v6", Prefix: prefix("2001:db8::/32")}); err != nil {
		t.Fatal(err)
	}
	must(e.Assign(t.Context(), alloc.HostOwner("a"), "h"))(t)
	got := scrape(t, metrics.NewEngine("a", e, metrics.EngineOptions{}))
	want(t, got, "pool_capacity", map[string]float64{"kind=ipset,pool=v6": 0x1p96})
	want(t, got, "pool_largest_free_prefix_length", map[string]float64{"kind=ipset,pool=v6": 33})
	sums(t, got)
}

// A scrape of a store that fails has no pools and says so; the next one works.
func TestScrapeFails(t *testing.T) {
	for k := 1; ; k++ { // each call of the store, in turn
		faulty := faults.NewFaulty(store.NewMemory())
		e, _ := newEngine(t, faulty, "10.0.0.0/24")
		must(e.Assign(t.Context(), alloc.HostOwner("a"), "x"))(t)
		c := metrics.NewEngine("pods", e, metrics.EngineOptions{Borrowed: true})
		faulty.Reset()
		faulty.Script(faults.At(k, faults.Fail(faults.ErrInjected)))
		got := scrape(t, c)
		if faulty.Counts().Calls() < k {
			want(t, got, "scrape_success", map[string]float64{"kind=ipset": 1})
			return
		}
		want(t, got, "scrape_success", map[string]float64{"kind=ipset": 0})
		if got["ipalloc_pool_capacity"] != nil {
			t.Error("pools of a scrape that failed")
		}
		want(t, scrape(t, c), "scrape_success", map[string]float64{"kind=ipset": 1})
	}
}

// MaxAge keeps the statistics and how long they took to read, so that a scrape makes no call to the store.
func TestMaxAge(t *testing.T) {
	faulty := faults.NewFaulty(store.NewMemory())
	e, _ := newEngine(t, faulty, "10.0.0.0/24")
	c := metrics.NewEngine("pods", e, metrics.EngineOptions{MaxAge: time.Hour})
	first := scrape(t, c)
	faulty.Reset()
	want(t, scrape(t, c), "scrape_seconds", values(first["ipalloc_scrape_seconds"]))
	if n := faulty.Counts().Calls(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestLeaks(t *testing.T) {
	now := time.Unix(1000, 0)
	e := must(ipset.New(store.NewMemory(), ipset.Options{Now: func() time.Time { return now }}))(t)
	ctx := t.Context()
	if err := e.AddPool(ctx, alloc.Pool{Name: "p", Prefix: prefix("10.0.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		must(e.Assign(ctx, alloc.HostOwner("n"), fmt.Sprint(i)))(t)
	}
	l := metrics.NewLeaks("p", e.Operator().NewCollector(time.Hour), func() time.Time { return now })
	want(t, scrape(t, l), "leak_last_run_timestamp_seconds", map[string]float64{"": 0})
	leaked := func(a alloc.Allocation) alloc.Liveness {
		if a.Handle == "7" || now.Unix() > 1000 { // one is older than the others
			return alloc.Leaked
		}
		return alloc.Alive
	}
	for range 2 {
		must(l.Run(ctx, leaked))(t)
		now = now.Add(time.Minute)
	}
	got := scrape(t, l)
	want(t, got, "leak_candidates", map[string]float64{"": 20})
	want(t, got, "leak_oldest_seconds", map[string]float64{"": 120})
	want(t, got, "leak_last_run_timestamp_seconds", map[string]float64{"": 1060})

	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := l.Run(ended, leaked); err == nil {
		t.Error("no error")
	}
	want(t, scrape(t, l), "leak_candidates", map[string]float64{"": 20}) // a run that failed forgets none

	now = now.Add(time.Hour)
	if done := must(l.Run(ctx, leaked))(t); len(done) != 20 {
		t.Errorf("released %v", done)
	}
	got = scrape(t, l)
	want(t, got, "leak_candidates", map[string]float64{"": 0})
	want(t, got, "leak_oldest_seconds", map[string]float64{"": 0})
	want(t, got, "leaks_released_total", map[string]float64{"": 20})
	want(t, got, "leak_failures_total", map[string]float64{"": 1})
}

func TestFileAndBackups(t *testing.T) {
	db := must(boltstore.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), boltstore.Options{}))(t)
	defer db.Close()
	must(db.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a", Value: "1"}}))(t)
	f := metrics.NewFile("pods", func() metrics.FileStats { return metrics.FileStats(db.Stats()) }, 1<<30)
	b := metrics.NewBackups("pods")
	b.Resume(time.Unix(500, 0), 10)
	b.Observe(time.Unix(700, 0), time.Second, 20, nil)
	b.Observe(time.Unix(900, 0), time.Second, 0, ipalloc.ErrClosed)
	got := scrape(t, f, b)
	want(t, got, "file_limit_bytes", map[string]float64{"": 1 << 30})
	want(t, got, "file_records", map[string]float64{"": 1})
	if values(got["ipalloc_file_write_seconds_total"])[""] <= 0 {
		t.Error("no time spent writing")
	}
	want(t, got, "backup_last_success_timestamp_seconds", map[string]float64{"": 700})
	want(t, got, "backup_last_bytes", map[string]float64{"": 20})
	want(t, got, "backups_total", map[string]float64{"outcome=made": 1, "outcome=failed": 1})
}

// A registry refuses a second collector of a kind and name, and accepts one of another name.
func TestNames(t *testing.T) {
	s := must(cidrset.New(prefix("10.0.0.0/22"), 24))(t)
	registry := prometheus.NewRegistry()
	for _, c := range []struct {
		name string
		ok   bool
	}{{"a", true}, {"a", false}, {"b", true}, {"\xff", true}} {
		if err := registry.Register(metrics.NewSet(c.name, s)); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.name, err)
		}
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// The name of a host may be any bytes, and two names that are no UTF-8 stay apart.
func TestStrangeNames(t *testing.T) {
	e, _ := newEngine(t, store.NewMemory(), "10.0.0.0/24")
	for _, host := range []string{"\xff", "\xfe", "a\"b\n\\"} {
		must(e.Assign(t.Context(), alloc.HostOwner(host), "of "+host))(t)
	}
	got := scrape(t, metrics.NewEngine("a", e, metrics.EngineOptions{Hosts: 5}))
	if n := len(values(got["ipalloc_host_blocks"])); n != 3 {
		t.Errorf("%d hosts", n)
	}
}

// README.md lists every metric, and every metric is sent by a collector with the labels that are listed.
func TestTable(t *testing.T) {
	const begin, end = "<!-- metrics: go test -run TestTable -update -->\n", "<!-- end -->"
	text := string(must(os.ReadFile("README.md"))(t))
	before, rest, ok1 := strings.Cut(text, begin)
	listed, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("README.md has no place for the table")
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(before+begin+metrics.Table()+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if listed != metrics.Table() {
		t.Error("the table of README.md is not that of the program: run go test -run TestTable -update")
	}

	families := scrape(t, everything(t)...)
	for _, row := range strings.Split(strings.TrimSpace(metrics.Table()), "\n")[2:] {
		cells := strings.Split(row, "|")
		name, kind := strings.Trim(cells[1], " `"), strings.TrimSpace(cells[2])
		labels := strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		f := families[name]
		if f == nil {
			t.Errorf("no collector sends %s", name)
			continue
		}
		delete(families, name)
		var sent []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() != "allocator" {
				sent = append(sent, l.GetName())
			}
		}
		slices.Sort(labels)
		if strings.ToLower(f.GetType().String()) != kind || !slices.Equal(labels, sent) {
			t.Errorf("%s is a %s with %v, listed as a %s with %v", name, f.GetType(), sent, kind, labels)
		}
	}
	for name := range families {
		t.Errorf("%s is not listed", name)
	}
}

// everything returns collectors that together send every metric.
func everything(t *testing.T) []prometheus.Collector {
	ctx := t.Context()
	s := must(cidrset.New(prefix("10.0.0.0/22"), 24))(t)
	a := must(nodeipam.New(nodeipam.Config{ByLabels: true}))(t)
	r := must(servicealloc.NewRegistry(servicealloc.PortRange{First: 1, Last: 100}))(t)
	services := metrics.NewRegistry("all", r)
	services.Found([]*repair.Finding{{Kind: repair.Leaked}})
	e, db := newEngine(t, store.NewMemory(), "10.0.0.0/24")
	must(e.Assign(ctx, alloc.HostOwner("a"), "h"))(t)
	pods := metrics.NewEngine("all", e, metrics.EngineOptions{Hosts: 1, Borrowed: true})
	pods.Observe(alloc.Assigned{Short: []alloc.Shortage{{Family: 4, Pool: "p"}}}, ipalloc.ErrFull)
	keeper := must(kept.New(db, alloc.VirtualOwner("keeper"), ipset.Options{}))(t)
	return []prometheus.Collector{metrics.NewKept("all", "", keeper), metrics.NewSet("all", s), metrics.NewNodes("all", a), services, pods, db,
		metrics.NewLeaks("all", e.Operator().NewCollector(0), nil), metrics.NewBackups("all"),
		metrics.NewFile("all", func() metrics.FileStats { return metrics.FileStats{} }, 1)}
}

// A scrape allocates nothing for an address: blocks that hold 60 addresses cost what blocks with one cost.
func TestScrapeAllocations(t *testing.T) {
	const n = 256
	cost := func(held int) uint64 {
		e, _ := newEngine(t, store.NewMemory(), "10.0.0.0/16")
		for i := range n {
			must(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("host", i)), Num4: held,
				Handle: fmt.Sprint("handle", i)}))(t)
		}
		c := metrics.NewEngine("pods", e, metrics.EngineOptions{Hosts: 10})
		collect := func() {
			out := make(chan prometheus.Metric, 100)
			c.Collect(out)
		}
		return uint64(testing.AllocsPerRun(5, collect))
	}
	few, many := cost(1), cost(60)
	t.Logf("%d allocations for %d blocks with 1 address, %d with 60", few, n, many)
	if many > few+8 {
		t.Errorf("%d allocations with 60 addresses in a block, %d with 1", many, few)
	}
}
