package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
)

// apiServer is an API server over HTTP that keeps objects by their path, for runs of the
// whole program.
type apiServer struct {
	*httptest.Server
	t    *testing.T
	hold func(r *http.Request) int // called before an answer; the status to refuse with, 0 for none

	mu       sync.Mutex
	objects  map[string]map[string]any
	events   []watchEvent // all that ever happened; the index is the version before
	changed  chan struct{}
	requests []apiRequest
}

type watchEvent struct {
	path, kind string
	object     []byte
}

type apiRequest struct {
	method, path string
	body         map[string]any
	at           time.Time
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, objects: map[string]map[string]any{}, changed: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// lists are the collections and the kinds of their lists.
var lists = map[string][2]string{
	"/api/v1/nodes": {"v1", "NodeList"},
	"/apis/networking.k8s.io/v1/servicecidrs":                    {"networking.k8s.io/v1", "ServiceCIDRList"},
	"/apis/networking.x-k8s.io/v1/clustercidrs":                  {"networking.x-k8s.io/v1", "ClusterCIDRList"},
	"/apis/networking.ipalloc.dev/v1/clustercidrconfigs":         {"networking.ipalloc.dev/v1", "ClusterCIDRConfigList"},
	"/api/v1/namespaces/default/events":                          {"v1", "EventList"},
	"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases": {"coordination.k8s.io/v1", "LeaseList"},
}

// put makes an object what it says, with a version and, at first, a UID.
func (s *apiServer) put(at string, o map[string]any) {
	metadata, _ := o["metadata"].(map[string]any)
	kind := "MODIFIED"
	if s.objects[at] == nil {
		kind = "ADDED"
		if metadata["uid"] == nil {
			metadata["uid"] = "uid-" + path.Base(at)
		}
	}
	metadata["resourceVersion"] = strconv.Itoa(len(s.events) + 1)
	s.objects[at] = o
	if finalizers, _ := metadata["finalizers"].([]any); metadata["deletionTimestamp"] != nil && len(finalizers) == 0 {
		kind = "DELETED"
		delete(s.objects, at)
	}
	data, err := json.Marshal(o)
	if err != nil {
		s.t.Error(err)
	}
	s.events = append(s.events, watchEvent{at, kind, data})
	close(s.changed)
	s.changed = make(chan struct{})
}

// node makes a node.
func (s *apiServer) node(name string, labels map[string]any, cidrs ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec := map[string]any{}
	if len(cidrs) > 0 {
		spec["podCIDR"], spec["podCIDRs"] = cidrs[0], cidrs
	}
	s.put("/api/v1/nodes/"+name, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "labels": labels}, "spec": spec})
}

// clusterCIDR makes a ClusterCIDR.
func (s *apiServer) clusterCIDR(name string, spec map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put("/apis/networking.x-k8s.io/v1/clustercidrs/"+name, map[string]any{"apiVersion": "networking.x-k8s.io/v1", "kind": clusterCIDRKind,
		"metadata": map[string]any{"name": name}, "spec": spec})
}

// cidrs returns the CIDRs of a node with spaces between.
func (s *apiServer) cidrs(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, _ := s.objects["/api/v1/nodes/"+name]["spec"].(map[string]any)
	return strings.Trim(fmt.Sprint(spec["podCIDRs"]), "[]<nil>")
}

// served waits until a node has CIDRs, and returns them.
func (s *apiServer) served(name string) string {
	s.t.Helper()
	s.wait(name+" to be served", func() bool { return s.cidrs(name) != "" })
	return s.cidrs(name)
}

// wait waits for what must happen.
func (s *apiServer) wait(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			s.t.Fatalf("no end of waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// asked returns the requests of a method whose path contains a text.
func (s *apiServer) asked(method, part string) (found []apiRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.method == method && strings.Contains(r.path, part) {
			found = append(found, r)
		}
	}
	return found
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data := new(bytes.Buffer)
	_, _ = data.ReadFrom(r.Body)
	body := decoded(data.Bytes())
	s.mu.Lock()
	s.requests = append(s.requests, apiRequest{r.Method, r.URL.Path, body, time.Now()})
	s.mu.Unlock()
	if s.hold != nil {
		if code := s.hold(r); code != 0 {
			refuse(w, code, "Refused")
			return
		}
	}
	list, isList := lists[r.URL.Path]
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		refuse(w, http.StatusUnprocessableEntity, "Invalid") // the client lists instead
	case isList && query.Get("watch") != "":
		s.watch(w, r)
	case isList && r.Method == http.MethodGet:
		s.list(w, r.URL.Path, list)
	case r.URL.Path == "/version":
		reply(w, http.StatusOK, map[string]any{"major": "1", "minor": "36"})
	case strings.HasPrefix(r.URL.Path, "/apis/") && len(strings.Split(r.URL.Path, "/")) == 4:
		s.discover(w, r.URL.Path)
	default:
		s.object(w, r, body)
	}
}

// decoded reads a patch, or an object in JSON or protobuf.
func decoded(data []byte) (body map[string]any) {
	if json.Unmarshal(data, &body) == nil || len(data) == 0 {
		return body
	}
	o, kind, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err == nil {
		o.GetObjectKind().SetGroupVersionKind(*kind)
		if data, err = json.Marshal(o); err == nil {
			_ = json.Unmarshal(data, &body)
		}
	}
	return body
}

// discover names the resources of a group and version.
func (s *apiServer) discover(w http.ResponseWriter, at string) {
	var resources []any
	for _, collection := range slices.Sorted(maps.Keys(lists)) {
		if path.Dir(collection) == at {
			resources = append(resources, map[string]any{"name": path.Base(collection), "kind": strings.TrimSuffix(lists[collection][1], "List"), "verbs": []string{"list"}})
		}
	}
	reply(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": strings.TrimPrefix(at, "/apis/"), "resources": resources})
}

func (s *apiServer) list(w http.ResponseWriter, at string, kind [2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if path.Dir(name) == at {
			items = append(items, s.objects[name])
		}
	}
	reply(w, http.StatusOK, map[string]any{"apiVersion": kind[0], "kind": kind[1], "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(len(s.events))}})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	next, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	for {
		s.mu.Lock()
		events, changed := s.events[next:], s.changed
		s.mu.Unlock()
		next += len(events)
		for _, e := range events {
			if path.Dir(e.path) == r.URL.Path {
				_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.kind, e.object)
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// object reads or changes one object.
func (s *apiServer) object(w http.ResponseWriter, r *http.Request, body map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := strings.TrimSuffix(r.URL.Path, "/status")
	metadata, _ := body["metadata"].(map[string]any)
	if r.Method == http.MethodPost {
		at += "/" + fmt.Sprint(metadata["name"])
	}
	have := s.objects[at]
	switch {
	case r.Method == http.MethodPost && metadata["name"] == nil: // a review
		reply(w, http.StatusCreated, body)
	case r.Method == http.MethodPost && have != nil:
		refuse(w, http.StatusConflict, "AlreadyExists")
	case r.Method == http.MethodPost:
		s.put(at, body)
		reply(w, http.StatusCreated, body)
	case have == nil:
		refuse(w, http.StatusNotFound, "NotFound")
	case r.Method == http.MethodPut || r.Method == http.MethodPatch:
		if code, reason := refusal(have, body); code != 0 {
			refuse(w, code, reason)
			return
		}
		now := body
		if r.Method == http.MethodPatch {
			now = merged(have, body)
		}
		s.put(at, now)
		reply(w, http.StatusOK, now)
	default:
		reply(w, http.StatusOK, have)
	}
}

// refusal returns why an object is not changed: it has another version or UID than the change
// names, or it is a node that has other CIDRs.
func refusal(have, change map[string]any) (code int, reason string) {
	is, _ := have["metadata"].(map[string]any)
	metadata, _ := change["metadata"].(map[string]any)
	for _, field := range []string{"resourceVersion", "uid"} {
		if want := metadata[field]; want != nil && want != is[field] {
			return http.StatusConflict, "Conflict"
		}
	}
	spec, _ := have["spec"].(map[string]any)
	want, _ := change["spec"].(map[string]any)
	if spec["podCIDRs"] != nil && want["podCIDRs"] != nil && !reflect.DeepEqual(spec["podCIDRs"], want["podCIDRs"]) {
		return http.StatusUnprocessableEntity, "Invalid"
	}
	return 0, ""
}

// remove deletes an object, or marks it as deleted while it has a finalizer.
func (s *apiServer) remove(at string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	metadata := map[string]any{"deletionTimestamp": time.Now().UTC().Format(time.RFC3339)}
	s.put(at, merged(s.objects[at], map[string]any{"metadata": metadata}))
}

// merged applies a merge patch.
func merged(old, patch map[string]any) map[string]any {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		switch inner, ok := v.(map[string]any); {
		case ok:
			before, _ := out[k].(map[string]any)
			out[k] = merged(before, inner)
		case v == nil:
			delete(out, k)
		default:
			out[k] = v
		}
	}
	return out
}

func reply(w http.ResponseWriter, code int, o map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func refuse(w http.ResponseWriter, code int, reason string) {
	reply(w, code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": "refused"})
}

// output is what a program writes, and may be read meanwhile.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// kubeconfig writes a kubeconfig for a URL.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: e, cluster: {server: %q}}]\ncontexts: [{name: e, context: {cluster: e}}]\ncurrent-context: e\n", url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// running is a run of the program: its log and what it prints.
type running struct {
	*output
	out  *output
	cmd  *exec.Cmd
	wait func() (code int)
}

// stop asks the program to stop and returns its exit code.
func (p *running) stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.wait()
}

// runEnv has the test binary be the program; see TestMain. It runs as a process of its
// own because the log and the metrics of client-go are those of a process.
const runEnv = "NODE_IPAM_CONTROLLER_RUN"

// start runs the program, with quick elections, until the test ends. Later arguments win.
func (s *apiServer) start(args ...string) *running {
	s.t.Helper()
	binary, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	all := slices.Concat([]string{"-kubeconfig", kubeconfig(s.t, s.URL), "-http-address", "", "-leader-elect-retry-period", "50ms"}, args)
	p := &running{output: &output{}, out: &output{}, cmd: exec.Command(binary, all...)}
	p.cmd.Env = append(os.Environ(), runEnv+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.output
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	p.wait = sync.OnceValue(func() int {
		_ = p.cmd.Wait()
		return p.cmd.ProcessState.ExitCode()
	})
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait()
		if s.t.Failed() {
			s.t.Logf("%v:\n%s", args, cmp.Or(p.String(), "no log"))
		}
	})
	return p
}

// finish runs a program that ends by itself.
func (s *apiServer) finish(args ...string) (code int, out string) {
	s.t.Helper()
	p := s.start(args...)
	code = p.wait()
	return code, p.out.String() + p.String()
}
