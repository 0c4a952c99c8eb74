package kubestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
)

const (
	apiVersion = "store.ipalloc.dev/v1"
	resource   = "storeobjects"
	kind       = "StoreObject"
	nameLabel  = "store.ipalloc.dev/name" // the store that an object is part of
	roleLabel  = "store.ipalloc.dev/role"

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

// statusError is an answer of the API server that is no success.
type statusError struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Kind              string `json:"kind"`
		RetryAfterSeconds int    `json:"retryAfterSeconds"`
	} `json:"details"`
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d %s: %s", e.Code, e.Reason, e.Message)
}

// is reports whether err is an answer of the API server with the given code.
func is(err error, code int) bool {
	var e *statusError
	return errors.As(err, &e) && e.Code == code
}

// traceless reports whether a request that failed with err certainly changed nothing: it was never sent, or was refused.
func traceless(err error) bool {
	var e *statusError
	if errors.As(err, &e) {
		return e.Code < http.StatusInternalServerError
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// transient reports whether the same request can succeed later. What is no answer of the API server is a failure of the
// way to it, or of a server on that way.
func transient(err error) bool {
	var e *statusError
	var ours *ipalloc.Error
	if !errors.As(err, &e) {
		return !errors.As(err, &ours)
	}
	return e.Code == http.StatusTooManyRequests || e.Code == http.StatusGone || e.Code >= http.StatusInternalServerError
}

// client sends requests for the objects of one namespace.
type client struct {
	http *http.Client
	base *url.URL
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
	return &client{http: h, base: base.JoinPath(path, "namespaces", namespace, resource)}, nil
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
	resp, err := c.http.Do(req)
	if err != nil || resp.StatusCode < http.StatusMultipleChoices {
		return resp, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	status := &statusError{}
	if err != nil || json.Unmarshal(text, status) != nil {
		status.Message = strings.TrimSpace(string(text))
	}
	status.Code = resp.StatusCode
	return nil, status
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

// get reads an object. Without a resource version in the request this is a linearizable read.
func (c *client) get(ctx context.Context, name string) (*object, error) {
	out := &object{}
	return out, c.do(ctx, http.MethodGet, name, nil, nil, out)
}

func (c *client) create(ctx context.Context, o *object) (*object, error) {
	out := &object{}
	return out, c.do(ctx, http.MethodPost, "", url.Values{"fieldManager": {"ipalloc"}}, o, out)
}

// update replaces an object if it has the resource version of o.
func (c *client) update(ctx context.Context, o *object) (*object, error) {
	out := &object{}
	return out, c.do(ctx, http.MethodPut, o.Metadata.Name, url.Values{"fieldManager": {"ipalloc"}}, o, out)
}

func (c *client) delete(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, name, nil, nil, &struct{}{})
}

type objectList struct {
	Metadata metadata `json:"metadata"`
	Items    []object `json:"items"`
}

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
