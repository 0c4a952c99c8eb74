package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	clientmetrics "k8s.io/client-go/tools/metrics"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// entryAnnotation records the ClusterCIDR that a node's CIDRs came from.
const entryAnnotation = "node-ipam-controller.ipalloc.dev/cluster-cidr"

// toNode returns what the controller needs to know of a node.
func toNode(n *v1.Node) nodeipam.Node {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	node := nodeipam.ParseNode(n.Name, texts...)
	node.UID = string(n.UID)
	node.Labels = n.Labels
	node.Entry = n.Annotations[entryAnnotation]
	node.Terminating = n.DeletionTimestamp != nil
	return node
}

// slim drops what the controller never looks at, which is most of a node.
func slim(obj any) (any, error) {
	if n, ok := obj.(*v1.Node); ok {
		var annotations map[string]string
		if entry, ok := n.Annotations[entryAnnotation]; ok {
			annotations = map[string]string{entryAnnotation: entry}
		}
		return &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels,
				Annotations: annotations, DeletionTimestamp: n.DeletionTimestamp},
			Spec: v1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs},
		}, nil
	}
	return obj, nil
}

// nodeSource is a controller.Source over an informer.
type nodeSource struct {
	client   kubernetes.Interface
	first    []func(context.Context) error // starts before the nodes are listed
	guess    func(*nodeipam.Node)          // completes the record of a listed node; may be nil
	informer atomic.Pointer[cache.SharedIndexInformer]
}

// Start begins with a consistent list of the nodes.
func (s *nodeSource) Start(ctx context.Context, changed func(name string)) error {
	for _, start := range s.first {
		if err := start(ctx); err != nil {
			return err
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTransform(slim), informers.WithTweakListOptions(upToDate))
	informer := factory.Core().V1().Nodes().Informer()
	s.informer.Store(&informer)
	return observe(ctx, factory, func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			changed(key)
		}
	}, informer)
}

// upToDate makes an informer begin with a consistent list. Otherwise, if the API server does
// not stream objects, the informer lists from the server's cache, which can lack the last
// writes of the previous leader.
func upToDate(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

// observe starts informers of a factory, and returns when they know all objects. It calls changed
// for each object that is new, another one or gone, until ctx ends.
func observe(ctx context.Context, factory interface{ Start(<-chan struct{}) }, changed func(obj any), all ...cache.SharedIndexInformer) error {
	var synced []cache.InformerSynced
	for _, i := range all {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed}); err != nil {
			return err
		}
		synced = append(synced, i.HasSynced)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return context.Cause(ctx)
	}
	return nil
}

func (s *nodeSource) List() (nodes []nodeipam.Node) {
	for _, obj := range (*s.informer.Load()).GetStore().List() {
		n := toNode(obj.(*v1.Node))
		if s.guess != nil {
			s.guess(&n)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (s *nodeSource) Get(name string) (nodeipam.Node, bool) {
	obj, ok, err := (*s.informer.Load()).GetStore().GetByKey(name)
	if err != nil || !ok {
		return nodeipam.Node{}, false
	}
	return toNode(obj.(*v1.Node)), true
}

// nodeWriter is a controller.Writer over the API.
type nodeWriter struct {
	client  kubernetes.Interface
	timeout time.Duration // of one request

	fence     func() (time.Duration, error)     // how long no other process may work; may be nil
	durations *prometheus.HistogramVec          // of writes, by result; may be nil
	recorded  func(string, nodeipam.Assignment) // called after a write; may be nil
}

// Write sets podCIDR, podCIDRs and the entry in one patch. Because the patch has the
// UID, the API server refuses another node of that name. The client's own retries are
// off, because a retry that hides a lost answer would make the next answer look
// definite.
func (w *nodeWriter) Write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	start := time.Now()
	err := w.write(ctx, n, as)
	if w.durations != nil {
		w.durations.WithLabelValues(result(err)).Observe(time.Since(start).Seconds())
	}
	if err == nil && w.recorded != nil {
		w.recorded(n.Name, as)
	}
	return err
}

// result returns the label of the outcome of a write.
func result(err error) string {
	switch {
	case err == nil:
		return "recorded"
	case errors.As(err, &delayed{}):
		return "delayed"
	case errors.Is(err, ipalloc.ErrConflict), errors.Is(err, ipalloc.ErrNotFound):
		return "rejected"
	}
	return "unknown"
}

// write waits for the client's limit of requests, then asks the fence, then sends. The
// request ends, here and in the API server, before another process may work.
func (w *nodeWriter) write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	data, err := patch(n, as)
	if err != nil {
		return fmt.Errorf("%w: %w", ipalloc.ErrConflict, err)
	}
	client := w.client.CoreV1().RESTClient()
	request := client.Patch(types.StrategicMergePatchType).Resource("nodes").Name(n.Name).MaxRetries(0).Body(data)
	if limiter := client.GetRateLimiter(); limiter != nil {
		begin := time.Now()
		if err := limiter.Wait(ctx); err != nil {
			return fmt.Errorf("%w: %w", ipalloc.ErrConflict, err)
		}
		clientmetrics.RateLimiterLatency.Observe(ctx, http.MethodPatch, *request.URL(), time.Since(begin))
		request.Throttle(nil)
	}
	timeout := w.timeout
	if w.fence != nil {
		left, err := w.fence()
		if err != nil {
			return fmt.Errorf("%w: %w", ipalloc.ErrConflict, err)
		}
		timeout = min(timeout, left)
	}
	var got v1.Node
	if err = request.Timeout(timeout).Do(ctx).Into(&got); err != nil {
		return classify(err)
	}
	if node := toNode(&got); !slices.Equal(node.Prefixes, as.Prefixes) {
		return fmt.Errorf("the API server answers with CIDRs %v", got.Spec.PodCIDRs)
	}
	return nil
}

func patch(n nodeipam.Node, as nodeipam.Assignment) ([]byte, error) {
	metadata := map[string]any{}
	if n.UID != "" {
		metadata["uid"] = n.UID
	}
	if as.Entry != "" {
		metadata["annotations"] = map[string]string{entryAnnotation: as.Entry}
	}
	return json.Marshal(map[string]any{
		"metadata": metadata,
		"spec":     map[string]any{"podCIDR": as.Prefixes[0].String(), "podCIDRs": texts(as.Prefixes)},
	})
}

func texts(ps []netip.Prefix) (out []string) {
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

func (w *nodeWriter) Read(ctx context.Context, name string) (nodeipam.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nodeipam.Node{}, classify(err)
	}
	return toNode(n), nil
}

// classify says what an error of the API server means for a write: the server refused
// the request and changed nothing; it refused it for now and names a delay; or, any other
// error of the server or of the way to it, the outcome is unknown.
func classify(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ipalloc.ErrNotFound, err)
	case apierrors.IsTooManyRequests(err):
		return delayed{fmt.Errorf("%w: %w", ipalloc.ErrConflict, err), delay(err)}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err),
		apierrors.IsConflict(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: %w", ipalloc.ErrConflict, err)
	}
	if d, ok := apierrors.SuggestsClientDelay(err); ok && d > 0 {
		return delayed{err, delay(err)}
	}
	return err
}

// delayed is an error that names the time to wait before the request is repeated.
type delayed struct {
	error
	after time.Duration
}

func (d delayed) Unwrap() error             { return d.error }
func (d delayed) RetryAfter() time.Duration { return d.after }

// delay returns the delay that the API server names, 1 s if it names none.
func delay(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return max(time.Duration(seconds)*time.Second, time.Second)
}
