package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

func node(name string, cidrs ...string) nodeipam.Node { return nodeipam.ParseNode(name, cidrs...) }

func newWriter(t *testing.T, handler http.HandlerFunc) *nodeWriter {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &nodeWriter{client: client, timeout: 200 * time.Millisecond}
}

// The fence is asked when the request is sent, after the wait for the client's limit, and
// the request ends before another process may work, in the API server too.
func TestTheFenceBoundsAWrite(t *testing.T) {
	var timeouts []string
	handler := func(w http.ResponseWriter, r *http.Request) {
		timeouts = append(timeouts, r.URL.Query().Get("timeout"))
		answer(w, 200, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24"}}})
	}
	server := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: 10, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	var asked []time.Time
	w := &nodeWriter{client: client, timeout: 5 * time.Second, fence: func() (time.Duration, error) {
		asked = append(asked, time.Now())
		return time.Duration(len(asked)) * 3 * time.Second, nil
	}}
	begin := time.Now()
	for range 2 {
		if err := w.Write(t.Context(), node("n"), nodeipam.Assignment{Prefixes: node("n", "10.0.0.0/24").Prefixes}); err != nil {
			t.Fatal(err)
		}
	}
	if d := asked[1].Sub(begin); d < 50*time.Millisecond {
		t.Errorf("asked after %v, before the wait for the limit", d)
	}
	if want := []string{"3s", "5s"}; !slices.Equal(timeouts, want) {
		t.Errorf("timeouts %v, want %v", timeouts, want)
	}
}

// A write whose turn at the client's limit does not come before it has to end is refused, and nothing is sent.
func TestAWriteEndsAtTheLimit(t *testing.T) {
	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent++
		answer(w, 200, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24"}}})
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: 1e-3, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := &nodeWriter{client: client, timeout: time.Second}
	as := nodeipam.Assignment{Prefixes: node("n", "10.0.0.0/24").Prefixes}
	if err := w.Write(t.Context(), node("n"), as); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), node("n"), as); !errors.Is(err, ipalloc.ErrConflict) || sent != 1 {
		t.Errorf("%v, %d requests", err, sent)
	}
}

func answer(w http.ResponseWriter, code int, obj any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(obj)
}

func TestOnePatchWritesBothFieldsAndTheUID(t *testing.T) {
	var body, path string
	w := newWriter(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		body, path = string(data), r.Method+" "+r.URL.Path
		answer(w, 200, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24", "fd00::/64"}}})
	})
	n := node("n")
	n.UID = "u"
	as := nodeipam.Assignment{Prefixes: node("n", "10.0.0.0/24", "fd00::/64").Prefixes, Entry: "e"}
	if err := w.Write(t.Context(), n, as); err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"annotations":{"` + entryAnnotation + `":"e"},"uid":"u"},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64"]}}`
	if body != want || path != "PATCH /api/v1/nodes/n" {
		t.Fatalf("%s: %s", path, body)
	}
	as.Prefixes = as.Prefixes[:1] // an answer that is not what was asked for
	if err := w.Write(t.Context(), n, as); err == nil || errors.Is(err, ipalloc.ErrConflict) {
		t.Fatal(err)
	}
}

// Which failures are definite: the API server has looked at the request and refused
// it. All else leaves open what happened, and the client must not try by itself.
func TestFailuresOfAWrite(t *testing.T) {
	status := func(code int, reason metav1.StatusReason) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason})
		}
	}
	for _, c := range []struct {
		name string
		f    http.HandlerFunc
		want error // nil: unknown
	}{
		{"not found", status(404, metav1.StatusReasonNotFound), ipalloc.ErrNotFound},
		{"invalid", status(422, metav1.StatusReasonInvalid), ipalloc.ErrConflict},
		{"forbidden", status(403, metav1.StatusReasonForbidden), ipalloc.ErrConflict},
		{"unauthorized", status(401, metav1.StatusReasonUnauthorized), ipalloc.ErrConflict},
		{"another UID", status(409, metav1.StatusReasonConflict), ipalloc.ErrConflict},
		{"bad request", status(400, metav1.StatusReasonBadRequest), ipalloc.ErrConflict},
		{"too many", status(429, metav1.StatusReasonTooManyRequests), ipalloc.ErrConflict},
		{"internal", status(500, metav1.StatusReasonInternalError), nil},
		{"unavailable", status(503, metav1.StatusReasonServiceUnavailable), nil},
		{"server timeout", status(504, metav1.StatusReasonTimeout), nil},
		{"bad gateway", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, nil},
		{"connection lost", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil},
		{"half an answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "{")
		}, nil},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, nil},
	} {
		var calls atomic.Int32
		w := newWriter(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			c.f(w, r)
		})
		err := w.Write(t.Context(), node("n"), nodeipam.Assignment{Prefixes: node("n", "10.0.0.0/24").Prefixes})
		definite := errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, ipalloc.ErrNotFound)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && definite {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if calls.Load() != 1 {
			t.Errorf("%s: %d requests", c.name, calls.Load())
		}
	}
}

// Nothing is written, and nothing can have been, once another process may work.
func TestAFenceRefusesWrites(t *testing.T) {
	w := newWriter(t, func(http.ResponseWriter, *http.Request) { t.Error("a request") })
	w.fence = func() (time.Duration, error) { return 0, errors.New("the lease is not held") }
	if err := w.Write(t.Context(), node("n"), nodeipam.Assignment{Prefixes: node("n", "10.0.0.0/24").Prefixes}); !errors.Is(err, ipalloc.ErrConflict) {
		t.Error(err)
	}
}

// A delay that the API server names is passed on: of a refusal, as priority and fairness
// answers it, and of an answer that leaves open what happened.
func TestDelaysOfTheServer(t *testing.T) {
	for _, c := range []struct {
		name     string
		code     int
		seconds  string
		body     any
		want     time.Duration
		definite bool
	}{
		{"plain text", 429, "7", "Too many requests, please try again later.", 7 * time.Second, true},
		{"no delay named", 429, "", metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 429,
			Reason: metav1.StatusReasonTooManyRequests}, time.Second, true},
		{"server timeout", 504, "", metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 504,
			Reason: metav1.StatusReasonServerTimeout, Details: &metav1.StatusDetails{RetryAfterSeconds: 3}}, 3 * time.Second, false},
	} {
		w := newWriter(t, func(w http.ResponseWriter, _ *http.Request) {
			if c.seconds != "" {
				w.Header().Set("Retry-After", c.seconds)
			}
			answer(w, c.code, c.body)
		})
		err := w.Write(t.Context(), node("n"), nodeipam.Assignment{Prefixes: node("n", "10.0.0.0/24").Prefixes})
		var d interface{ RetryAfter() time.Duration }
		if !errors.As(err, &d) || d.RetryAfter() != c.want || errors.Is(err, ipalloc.ErrConflict) != c.definite {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestReadAsksTheServer(t *testing.T) {
	w := newWriter(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("resourceVersion") != "" || !strings.HasSuffix(r.URL.Path, "/n") {
			answer(w, 404, metav1.Status{Status: "Failure", Code: 404, Reason: metav1.StatusReasonNotFound})
			return
		}
		now := metav1.Now()
		answer(w, 200, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", DeletionTimestamp: &now, Annotations: map[string]string{entryAnnotation: "e"}},
			Spec: v1.NodeSpec{PodCIDR: "10.0.0.0/24"}})
	})
	n, err := w.Read(t.Context(), "n")
	if err != nil || n.UID != "u" || !n.Terminating || n.Entry != "e" || fmt.Sprint(n.Prefixes) != "[10.0.0.0/24]" {
		t.Fatal(n, err)
	}
	if _, err := w.Read(t.Context(), "m"); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestSourceFollowsTheNodes(t *testing.T) {
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "v"}, Annotations: map[string]string{"big": "x"}}})
	s := &nodeSource{client: client}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	names := make(chan string, 10)
	if err := s.Start(ctx, func(name string) { names <- name }); err != nil {
		t.Fatal(err)
	}
	if n, ok := s.Get("a"); !ok || n.Labels["k"] != "v" || <-names != "a" {
		t.Fatal(n, ok)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1.NodeSpec{PodCIDRs: []string{"x"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if name := <-names; name != "b" {
		t.Fatal(name)
	}
	if n, _ := s.Get("b"); len(n.Prefixes) != 1 || n.Prefixes[0].IsValid() || n.Texts[0] != "x" {
		t.Fatal(n)
	}
	if err := client.CoreV1().Nodes().Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if name := <-names; name != "a" {
		t.Fatal(name)
	}
	if _, ok := s.Get("a"); ok || len(s.List()) != 1 {
		t.Fatal(s.List())
	}
	cancel()
	if err := (&nodeSource{client: client}).Start(ctx, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// The list that a controller starts from has to be what there is, not what an API
// server remembers, which may lack the last writes of the leader before.
func TestSourceListsWhatThereIs(t *testing.T) {
	lists := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("sendInitialEvents") != "" { // an older server
			answer(w, 422, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 422, Reason: metav1.StatusReasonInvalid})
			return
		}
		if q.Get("watch") != "" {
			<-r.Context().Done()
			return
		}
		lists <- q.Get("resourceVersion")
		answer(w, 200, v1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}})
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	starts := 0
	start := func(context.Context) error { starts++; return nil }
	if err := (&nodeSource{client: client, first: []func(context.Context) error{start, start, start}}).Start(ctx, func(string) {}); err != nil || starts != 3 {
		t.Fatal(starts, err)
	}
	if version := <-lists; version != "" {
		t.Errorf("listed as of version %q", version)
	}
	cancel() // ends the watch, which the server waits for
}

func TestReasonsOfEvents(t *testing.T) {
	for want, errs := range map[string][]error{
		notAvailable:     {&ipalloc.Error{Package: "nodeipam", Op: "allocate", Err: ipalloc.ErrFull}},
		recordInvalid:    {&ipalloc.Error{Package: "nodeipam", Op: "record", Err: ipalloc.ErrOccupied}},
		assignmentFailed: {ipalloc.ErrConflict, &ipalloc.Error{Package: "controller", Op: "write", Err: ipalloc.ErrUnknownOutcome}},
	} {
		for _, err := range errs {
			if got := reason(fmt.Errorf("x: %w", err)); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		}
	}
}
