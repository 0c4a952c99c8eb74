package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// callRows has a row for each kind of request, with the fields that a patch changes, and says
// which part of the program makes it. A reconciliation that makes another kind needs a row here
// and a step in [cluster.live].
var callRows = map[string]string{
	"list nodes": "the load", "watch nodes": "the node loop",
	"patch nodes metadata spec": "a CIDR is recorded", "patch nodes metadata": "the ClusterCIDR of a node that had CIDRs is recorded",
	"list servicecidrs": "the reservation", "watch servicecidrs": "the reservation",
	"discover v1": "which definitions of ClusterCIDRs there are", "list clustercidrs": "the entries", "watch clustercidrs": "the entries",
	"list clustercidrconfigs": "the entries", "watch clustercidrconfigs": "the entries",
	"patch clustercidrs metadata": "finalizers", "patch clustercidrs/status status": "statuses",
	"patch clustercidrconfigs metadata": "finalizers", "patch clustercidrconfigs/status status": "statuses",
	"get nodes":     "the read after a write of unknown outcome",
	"create events": "conditions", "create selfsubjectaccessreviews": "the metric of rights",
	"get leases": "the election", "create leases": "the election", "update leases": "the election",
}

// failure is what becomes of a request that fails.
type failure string

const (
	refused failure = "is refused"
	broken  failure = "is carried out, and the answer is an error"
	lost    failure = "is carried out, and the answer is lost"
	unheard failure = "is not carried out and gets no answer"
	late    failure = "is carried out 40 s later and gets no answer"
	cut     failure = "ends with a broken connection"
)

// status is the failure of a request that is refused with a status.
func status(code int) failure { return failure(strconv.Itoa(code)) }

// requestLife is when a request without an answer ends, as that of a kube-apiserver does.
const requestLife = time.Minute

// cluster is an API server in memory, behind client-go's own transport, that fails requests.
type cluster struct {
	*apiServer
	fails func(kind string, k int) failure // what becomes of the k-th request of a kind; "" for nothing

	counting sync.Mutex
	calls    map[string]int
}

// RoundTrip carries out a request, or fails it.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte{}
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	kind := kindOf(r, body)
	c.counting.Lock()
	c.calls[kind]++
	failure := c.fails(kind, c.calls[kind])
	c.counting.Unlock()
	switch failure {
	case "":
		return c.carryOut(r.Context(), r, body), nil
	case broken, lost:
		_ = c.carryOut(r.Context(), r, body).Body.Close()
	case late:
		go func() {
			time.Sleep(40 * time.Second)
			_ = c.carryOut(context.Background(), r, body).Body.Close()
		}()
	}
	code, _ := strconv.Atoi(string(failure))
	switch {
	case failure == refused || failure == broken:
		code = http.StatusInternalServerError
	case failure == cut:
		return nil, errors.New("connection reset by peer")
	}
	if code != 0 {
		return answered(r, func(w http.ResponseWriter, _ *http.Request) { refuse(w, code, http.StatusText(code)) }), nil
	}
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(requestLife):
		return nil, errors.New("connection lost")
	}
}

// kindOf returns the row of a request.
func kindOf(r *http.Request, body []byte) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	at, named := path.Base(r.URL.Path), false
	for name := range lists {
		if rest, ok := strings.CutPrefix(r.URL.Path, name+"/"); ok {
			_, subresource, _ := strings.Cut(rest, "/")
			at, named = strings.TrimSuffix(path.Base(name)+"/"+subresource, "/"), true
		}
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodGet: "list"}[r.Method]
	switch {
	case parts[0] == "apis" && len(parts) == 3 && verb == "list":
		verb = "discover"
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	case named && verb == "list":
		verb = "get"
	case verb == "patch":
		at += " " + strings.Join(slices.Sorted(maps.Keys(decoded(body))), " ")
	}
	return verb + " " + at
}

// carryOut serves a request, whose answer may be read while it is written.
func (c *cluster) carryOut(ctx context.Context, r *http.Request, body []byte) *http.Response {
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return answered(r, c.ServeHTTP)
}

// answered returns the answer of a handler.
func answered(r *http.Request, f http.HandlerFunc) *http.Response {
	ctx, hangUp := context.WithCancel(r.Context())
	body, w := io.Pipe()
	answer := &reading{PipeWriter: w, header: http.Header{}, begun: make(chan struct{})}
	go func() {
		f(answer, r.WithContext(ctx))
		answer.Flush()
		_ = w.Close()
	}()
	<-answer.begun
	return &http.Response{StatusCode: answer.code, Header: answer.header, Body: heard{body, hangUp}, ContentLength: -1, Request: r}
}

// reading is an http.ResponseWriter and http.Flusher.
type reading struct {
	*io.PipeWriter
	header http.Header
	code   int
	begun  chan struct{}
}

func (a *reading) Header() http.Header { return a.header }
func (a *reading) Flush()              { a.WriteHeader(http.StatusOK) }

func (a *reading) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
		close(a.begun)
	}
}

func (a *reading) Write(p []byte) (int, error) {
	a.Flush()
	return a.PipeWriter.Write(p)
}

// heard is the body of an answer. A client that closes it ends the request.
type heard struct {
	*io.PipeReader
	hangUp func()
}

func (h heard) Close() error {
	h.hangUp()
	return h.PipeReader.Close()
}

const (
	clusterCIDRs = "/apis/networking.x-k8s.io/v1/clustercidrs/"
	configs      = "/apis/networking.ipalloc.dev/v1/clustercidrconfigs/"
	services     = "/apis/networking.k8s.io/v1/servicecidrs/"
	nodesAt      = "/api/v1/nodes/"
)

// serviceCIDR makes a ServiceCIDR.
func (c *cluster) serviceCIDR(name string, cidrs ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(services+name, map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"cidrs": cidrs}})
}

// clusterSpec returns the specification of a ClusterCIDR.
func clusterSpec(cidr, label string) map[string]any {
	spec := map[string]any{"perNodeHostBits": 8, "ipv4": cidr}
	if label != "" {
		spec["nodeSelector"] = map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
			map[string]any{"key": label, "operator": "Exists"}}}}}
	}
	return spec
}

// live is the life of a cluster in which each reconciliation has work. Objects change during the first minutes; the last step fills
// the pool, so that a CIDR that was lost leaves a node without one.
func (c *cluster) live() {
	c.serviceCIDR("kubernetes", "10.0.0.0/24")
	c.clusterCIDR("all", clusterSpec("10.0.0.0/21", ""))
	c.clusterCIDR("some", clusterSpec("10.1.0.0/23", "some"))
	c.node("old", nil, "10.0.2.0/24")
	c.node("last", map[string]any{"some": ""}, "10.1.0.0/24")
	c.node("n1", nil)
	c.node("n2", nil)
	time.Sleep(10 * time.Second)
	c.serviceCIDR("more", "10.0.7.0/24")
	c.remove(clusterCIDRs + "some")
	c.mu.Lock()
	c.put(configs+"config", map[string]any{"apiVersion": "networking.ipalloc.dev/v1", "kind": configKind, "metadata": map[string]any{"name": "config"},
		"spec": map[string]any{"ipv4": map[string]any{"cidr": "10.2.0.0/24", "perNodeMaskSize": 24}, "nodeSelector": map[string]any{"matchLabels": map[string]any{"own": ""}}}})
	c.mu.Unlock()
	c.remove(nodesAt + "n1")
	time.Sleep(200 * time.Second)
	c.node("own", map[string]any{"own": ""})
	for i := range 5 {
		c.node(fmt.Sprint("m", i), nil) // for four CIDRs
	}
	time.Sleep(10 * time.Second)
	c.node("full", nil)
	c.remove(services + "kubernetes")
	time.Sleep(10 * time.Second)
	c.remove(nodesAt + "n2")
	c.remove(nodesAt + "last")
	time.Sleep(10 * time.Minute)
}

// check compares the cluster in the end with what it should be.
func (c *cluster) check(p *program) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for at, o := range c.objects {
		name, u := path.Base(at), unstructured.Unstructured{Object: o}
		switch path.Dir(at) + "/" {
		case nodesAt:
			cidrs, _, _ := unstructured.NestedSlice(o, "spec", "podCIDRs")
			entry := u.GetAnnotations()[entryAnnotation]
			got = append(got, fmt.Sprint(cidrs, entry))
			if as, _ := p.chooser.allocator.Lookup(name); fmt.Sprint(as.Prefixes) != fmt.Sprint(cidrs) || as.Entry != entry {
				c.t.Errorf("%s has %v of %q, and the allocator says %v", name, cidrs, entry, as)
			}
		case clusterCIDRs, configs:
			status, _, _ := unstructured.NestedMap(o, "status")
			conditions, _ := status["conditions"].([]any)
			got = append(got, fmt.Sprint(name, u.GetFinalizers(), status["nodes"], status["ipv4"], len(conditions)))
			for _, condition := range conditions {
				got = append(got, fmt.Sprint(name, condition.(map[string]any)["reason"]))
			}
		}
	}
	slices.Sort(got)
	want := []string{"[10.0.0.0/24]all", "[10.0.1.0/24]all", "[10.0.2.0/24]all", "[10.0.3.0/24]all", "[10.0.4.0/24]all", "[10.0.5.0/24]all", "[10.0.6.0/24]all",
		"[10.2.0.0/24]config", "allInForce", "all[" + entryFinalizer + "] 7 map[capacity:8 free:0 used:8] 1", "configInForce", "config[" + entryFinalizer + "] 1 map[capacity:1 free:0 used:1] 1"}
	if !slices.Equal(got, want) {
		c.t.Errorf("the cluster is %q", got)
	}
	if st := p.controller.Stats(); st.Unsettled+st.Waiting+st.Running+st.Delayed+st.Full+st.Unmatched+st.Unwritten+st.BadRecords > 0 {
		c.t.Errorf("still to do: %+v", st)
	}
	if err := p.chooser.allocator.Check(); err != nil || !p.chooser.set.inForce() {
		c.t.Error(err, p.chooser.set.inForce())
	}
}

// run lives a life of the cluster beside the program, which is started again when it ends.
func (c *cluster) run() (starts int) {
	o, err := parseOptions([]string{"-allocate-node-cidrs", "-cidr-allocator-type", multiCIDRRangeAllocator, "-http-address", ""}, io.Discard)
	if err != nil {
		c.t.Fatal(err)
	}
	var log output
	var p *program
	ctx, stop := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; starts++ {
			p = c.program(o, slog.New(slog.NewTextHandler(&log, nil)))
			if err := work(ctx, p); ctx.Err() == nil {
				p.log.Error("ended", "err", err)
			}
			sleep(ctx, 10*time.Second)
		}
	}()
	c.live()
	c.check(p)
	stop()
	<-ended
	if c.t.Failed() {
		c.t.Log(log.String())
	}
	return starts
}

// program is a process that begins.
func (c *cluster) program(o *options, log *slog.Logger) *program {
	config := &rest.Config{Host: "http://cluster", Transport: c, QPS: float32(o.qps), Burst: o.burst}
	chooser, err := newChooser(o, log)
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	if chooser.set != nil {
		chooser.api = &entryAPI{entrySet: chooser.set, client: objects, discovery: client.Discovery(), period: o.syncPeriod}
	}
	chooser.services.client = client
	return &program{options: o, log: log, client: client, config: config, chooser: chooser}
}

// Whichever request fails, and however, the program goes on or begins anew, and in the end every node has a CIDR that no other node and no
// service has, no CIDR is lost, and the objects say what is in force.
func TestEveryRequestFails(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // one of them sleeps until a time that it keeps from bubble to bubble
	defer func() { utilruntime.ErrorHandlers = handlers }()
	failures := []failure{broken, late, refused, lost, unheard}
	if testing.Short() {
		failures = failures[:2]
	}
	for kind, of := range callRows {
		t.Run(strings.ReplaceAll(kind, "/", " "), func(t *testing.T) { // the Makefile selects by first and later below it
			for _, f := range failures {
				more := true
				t.Run("first "+string(f), func(t *testing.T) { more = fail(t, kind, 1, f) })
				t.Run("later "+string(f), func(t *testing.T) {
					for k := 2; more && !t.Failed() && k <= 10; k++ { // the lease is renewed, and rights are asked for, again and again
						more = fail(t, kind, k, f)
					}
				})
			}
			if t.Failed() {
				t.Log(of)
			}
		})
	}
}

// fail has the k-th request of a kind fail, and reports whether there was one.
func fail(t *testing.T, kind string, k int, f failure) (was bool) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{apiServer: &apiServer{t: t, objects: map[string]map[string]any{}, changed: make(chan struct{})}, calls: map[string]int{}}
		c.fails = func(of string, n int) failure {
			switch {
			case of == kind && n >= k && n < k+3: // as often as a write is attempted in a row
				was = true
				return f
			case of == "patch nodes metadata spec" && kind == "get nodes":
				return []failure{unheard, lost, ""}[n%3]
			}
			return ""
		}
		starts := c.run()
		for made := range c.calls {
			if callRows[made] == "" {
				t.Errorf("%q has no row", made)
			}
		}
		if !was && k == 1 {
			t.Error("no such request")
		}
		if t.Failed() {
			t.Logf("%q, number %d, %s; %d starts", kind, k, f, starts)
		}
	})
	return was
}

// Each right of the service account has a row, so that a reconciliation that needs another one has its requests failed.
func TestEveryRightHasARow(t *testing.T) {
	o, err := parse(t, labelledRun("-leader-elect")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range o.rights() {
		right := strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")
		if right != "patch events" && !slices.ContainsFunc(slices.Collect(maps.Keys(callRows)), func(row string) bool { return row == right || strings.HasPrefix(row, right+" ") }) {
			t.Errorf("%q has no row", right)
		}
	}
}
