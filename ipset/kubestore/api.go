package kubestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const (
	apiVersion = "store.ipalloc.dev/v1"
	resource   = "storeobjects"
	kind       = "StoreObject"
	nameLabel  = "store.ipalloc.dev/name" // the store that an object is part of
	roleLabel  = "store.ipalloc.dev/role"
	touchLabel = "store.ipalloc.dev/waits" // a process waits for its turn; gone with the next write of the slot

	roleHead, roleLog, roleSnapshot = "Head", "Log", "Snapshot"
)

// object is an object of the API server, with the fields that the store uses.
type object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Continue        string            `json:"continue,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

type spec struct {
	Store string `json:"store"` // the id of the store, chosen when it is made
	Role  string `json:"role"`
	Seq   uint64 `json:"seq"` // the last commit object that this one covers
	Data  []byte `json:"data,omitempty"`

	// Of the head.
	Version  int       `json:"version,omitempty"`
	Slots    int       `json:"slots,omitempty"`
	Ready    bool      `json:"ready,omitempty"`
	Snapshot *snapshot `json:"snapshot,omitempty"`
}

// snapshot is the head's reference to the objects of a snapshot.
type snapshot struct {
	Generation uint64 `json:"generation"`
	ID         string `json:"id"`
	Parts      int    `json:"parts"`
}

// client sends requests for the objects of one namespace.
type client struct {
	http   *http.Client
	base   *url.URL
	access access

	quiet time.Duration // how long a silence is that makes the past doubtful
	last  atomic.Int64  // when the last answer of an unbroken sequence came, in nanoseconds since start; 0 after an error
}

// silence is after how much of it the cluster may have been set back unnoticed: stopping an etcd, changing its data and
// starting it takes longer.
const silence = time.Second

// start is long before any answer. Time since then is monotonic: a clock that steps hides no silence.
var start = time.Now().Add(-time.Hour)

// calm reports whether requests were answered without error, and without a silence between them, since settle was called.
func (c *client) calm() bool {
	return time.Since(start)-time.Duration(c.last.Load()) < c.quiet
}

// settle begins a sequence of answers.
func (c *client) settle() { c.last.Store(int64(time.Since(start))) }

// answered continues the sequence, or breaks it.
func (c *client) answered(begin time.Time, last int64, ok bool) {
	switch now := time.Now(); {
	case !ok:
		c.last.Store(0)
	case begin.Sub(start)-time.Duration(last) < c.quiet && now.Sub(begin) < c.quiet:
		c.last.CompareAndSwap(last, int64(now.Sub(start))) // not after an error of another request
	}
}

func newClient(config *rest.Config, namespace string) (*client, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &schema.GroupVersion{Group: "store.ipalloc.dev", Version: "v1"}
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	base, path, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, err
	}
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	out := &client{http: h, base: base.JoinPath(path, "namespaces", namespace, resource), quiet: silence}
	out.settle()
	return out, nil
}

// callLimit bounds one request: an answer that takes longer is lost.
const callLimit = 10 * time.Second

// open sends a request and returns its answer; the caller closes the body. An answer that is no success is a *statusError.
func (c *client) open(ctx context.Context, method, name string, query url.Values, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	u := c.base.JoinPath(name)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	if query.Get("metadataOnly") != "" {
		req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	}
	req.GetBody = nil // the transport repeats no request by itself
	verb := verbOf(method, name, query)
	begin, last := time.Now(), c.last.Load()
	resp, err := c.http.Do(req)
	c.answered(begin, last, err == nil && resp.StatusCode < http.StatusInternalServerError)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		c.access.granted(verb)
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	status := &statusError{}
	if err != nil || json.Unmarshal(text, status) != nil {
		status.Message = strings.TrimSpace(string(text))
	}
	status.Code = resp.StatusCode
	status.passing = method == http.MethodPost && status.Code == http.StatusConflict && !exists(status)
	if status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden {
		status.passing = c.access.refused(verb)
	}
	return nil, status
}

// errForeign means that an answer is not the API server's: of a proxy or a login page on the way.
var errForeign = errors.New("the answer is not that of an API server")

// object sends a request whose answer is the object of that name.
func (c *client) object(ctx context.Context, method, path, name string, query url.Values, in any) (*object, error) {
	out := &object{}
	if err := c.do(ctx, method, path, query, in, out); err != nil {
		return nil, err
	}
	if out.Kind != kind || out.Metadata.Name != name {
		return nil, fmt.Errorf("%w: it is %q, a %q", errForeign, out.Metadata.Name, out.Kind)
	}
	return out, nil
}

// do sends a request and decodes its answer.
func (c *client) do(ctx context.Context, method, name string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	resp, err := c.open(ctx, method, name, query, in)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(out)
}

// manager names the program in the objects that it writes.
var manager = url.Values{"fieldManager": {"ipalloc"}}

// get reads an object. Without a resource version in the request this is a linearizable read.
func (c *client) get(ctx context.Context, name string) (*object, error) {
	return c.object(ctx, http.MethodGet, name, name, nil, nil)
}

func (c *client) create(ctx context.Context, o *object) (*object, error) {
	return c.object(ctx, http.MethodPost, "", o.Metadata.Name, manager, o)
}

// update replaces an object if it has the resource version of o.
func (c *client) update(ctx context.Context, o *object) (*object, error) {
	return c.object(ctx, http.MethodPut, o.Metadata.Name, o.Metadata.Name, manager, o)
}

func (c *client) delete(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, name, nil, nil, &struct{}{})
}

type objectList struct {
	Kind     string   `json:"kind"`
	Metadata metadata `json:"metadata"`
	Items    []object `json:"items"`
}

// listKinds are what answers to lists are.
var listKinds = []string{kind + "List", "PartialObjectMetadataList"}

// pageSize is how many objects one answer to a list holds.
const pageSize = 64

// list calls f for the objects of a store in one consistent view, page by page.
func (c *client) list(ctx context.Context, store, role string, metadataOnly bool, f func(*object) error) error {
	query := url.Values{"labelSelector": {nameLabel + "=" + store + "," + roleLabel + "=" + role}, "limit": {fmt.Sprint(pageSize)}}
	if metadataOnly {
		query.Set("metadataOnly", "true") // the API server ignores it; open turns it into a header
	}
	for {
		var page objectList
		if err := c.do(ctx, http.MethodGet, "", query, nil, &page); err != nil {
			return err
		}
		if !slices.Contains(listKinds, page.Kind) {
			return fmt.Errorf("%w: it is a %q", errForeign, page.Kind)
		}
		for i := range page.Items {
			if err := f(&page.Items[i]); err != nil {
				return err
			}
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// event is one line of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watchFor is how long one request of a watch lasts.
const watchFor = 60 * time.Second

// watch calls f for the changes to objects of a store until the request ends. It calls ready when no later change can be
// missed.
func (c *client) watch(ctx context.Context, store string, ready func() error, f func(event) error) error {
	selector := nameLabel + "=" + store
	var head objectList
	if err := c.do(ctx, http.MethodGet, "", url.Values{"labelSelector": {selector}, "limit": {"1"}, "metadataOnly": {"true"}}, nil, &head); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, watchFor+callLimit)
	defer cancel()
	resp, err := c.open(ctx, http.MethodGet, "", url.Values{"labelSelector": {selector}, "watch": {"true"},
		"resourceVersion": {head.Metadata.ResourceVersion}, "timeoutSeconds": {fmt.Sprint(int(watchFor.Seconds()))}}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := ready(); err != nil {
		return err
	}
	for d := json.NewDecoder(resp.Body); ; {
		var ev event
		if err := d.Decode(&ev); err != nil {
			return err
		}
		if err := f(ev); err != nil {
			return err
		}
	}
}
