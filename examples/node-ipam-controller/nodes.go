package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

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

// nodeSource is a nodeipam.Source over an informer.
type nodeSource struct {
	client   kubernetes.Interface
	informer atomic.Pointer[cache.SharedIndexInformer]
}

// Start begins with the nodes as they are. An informer whose API server does not
// stream them, which would be as good, takes what a cache of it has, unless told not
// to; and that may lack what the leader before has written.
func (s *nodeSource) Start(ctx context.Context, changed func(name string)) error {
	upToDate := func(o *metav1.ListOptions) {
		if o.ResourceVersion == "0" {
			o.ResourceVersion = ""
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTransform(slim), informers.WithTweakListOptions(upToDate))
	informer := factory.Core().V1().Nodes().Informer()
	notify := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			changed(key)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		UpdateFunc: func(_, obj any) { notify(obj) },
		DeleteFunc: notify,
	}); err != nil {
		return err
	}
	s.informer.Store(&informer)
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

func (s *nodeSource) List() (nodes []nodeipam.Node) {
	for _, obj := range (*s.informer.Load()).GetStore().List() {
		nodes = append(nodes, toNode(obj.(*v1.Node)))
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

// nodeWriter is a nodeipam.Writer over the API.
type nodeWriter struct {
	client  kubernetes.Interface
	timeout time.Duration // of one request
}

// Write sets podCIDR, podCIDRs and the entry in one patch. The UID in it has the API
// server refuse another node of that name. The client's own retries are off: one
// that hides a lost answer would make what comes after it look definite.
func (w *nodeWriter) Write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	data, err := patch(n, as)
	if err != nil {
		return fmt.Errorf("%w: %w", nodeipam.ErrRejected, err)
	}
	var got v1.Node
	err = w.client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).Resource("nodes").Name(n.Name).
		MaxRetries(0).Body(data).Do(ctx).Into(&got)
	if err != nil {
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

// classify says which errors mean that the API server has refused the request and
// changed nothing. All others, an error of the server or of the way to it, leave
// that open.
func classify(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", nodeipam.ErrGone, err)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err),
		apierrors.IsConflict(err), apierrors.IsTooManyRequests(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: %w", nodeipam.ErrRejected, err)
	}
	return err
}
