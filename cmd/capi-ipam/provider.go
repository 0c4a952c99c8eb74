package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/workqueue"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// provider serves claims. newProvider makes one.
type provider struct {
	client dynamic.Interface
	store  store.Store
	engine *ipset.Engine // over store; each pool has a space of its own
	log    *slog.Logger

	caches map[schema.GroupVersionResource]cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[key]

	mu         sync.Mutex
	serving    map[key]*serving            // the pools in force
	collectors map[string]*ipset.Collector // by space
	written    map[key]string              // resource versions of claims that this process wrote and its cache may lack
}

const (
	workers = 16 // those that wait for the store share a commit
	// retryMax is the longest pause before an object that could not be served is looked at again.
	retryMax = 5 * time.Second
	// countPause is how long a pool waits before it writes new counts: one patch for many claims.
	countPause = time.Second
)

func newProvider(client dynamic.Interface, s store.Store, log *slog.Logger) (*provider, error) {
	engine, err := ipset.New(s, ipset.Options{})
	if err != nil {
		return nil, err
	}
	return &provider{
		client: client, store: s, engine: engine, log: log,
		caches:  map[schema.GroupVersionResource]cache.Indexer{},
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](10*time.Millisecond, retryMax)),
		serving: map[key]*serving{}, collectors: map[string]*ipset.Collector{}, written: map[key]string{},
	}, nil
}

// run serves claims until ctx ends, or the store is not what it was.
func (p *provider) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(p.client, 0)
	for _, resource := range []schema.GroupVersionResource{claims, addresses, clusters, pools, globalPools} {
		informer := factory.ForResource(resource).Informer()
		if resource == claims || resource == addresses {
			if err := informer.AddIndexers(indexers); err != nil {
				return err
			}
		}
		seen := func(obj any) { p.enqueue(resource, obj) }
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }, DeleteFunc: seen}); err != nil {
			return err
		}
		p.caches[resource] = informer.GetIndexer()
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for p.work(ctx, cancel) {
			}
		})
	}
	group.Go(func() { p.collect(ctx) })
	<-ctx.Done()
	p.queue.ShutDown()
	group.Wait()
	return context.Cause(ctx)
}

// enqueue has an object looked at. An address stands for its claim, which has the same name, and for the counts of its pool; a
// cluster for its claims, which may not be paused any more.
func (p *provider) enqueue(resource schema.GroupVersionResource, obj any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	k := key{resource: resource, name: name}
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		k.namespace, k.name = ns, rest
	}
	switch resource {
	case clusters:
		p.enqueueAll(byCluster, name)
	case addresses:
		k.resource = claims
		p.queue.Add(k)
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if a, err := decode[address](obj); err == nil {
			if at, ok := a.Spec.PoolRef.pool(a.Namespace); ok {
				p.queue.AddAfter(at, countPause)
			}
		}
	default:
		p.queue.Add(k)
	}
}

// enqueueAll has all claims of a cluster or a pool looked at.
func (p *provider) enqueueAll(index, value string) {
	objs, err := p.caches[claims].ByIndex(index, value)
	if err != nil {
		return
	}
	for _, obj := range objs {
		if m, err := meta.Accessor(obj); err == nil {
			p.queue.Add(key{claims, m.GetNamespace(), m.GetName()})
		}
	}
}

// work looks at one object. A store that was replaced ends the program, because the engine's memory of it is void.
func (p *provider) work(ctx context.Context, fail context.CancelCauseFunc) bool {
	k, done := p.queue.Get()
	if done {
		return false
	}
	defer p.queue.Done(k)
	serve := p.serveClaim
	if k.isPool() {
		serve = p.servePool
	}
	err := serve(ctx, k)
	switch {
	case err == nil:
		p.queue.Forget(k)
	case errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, ipalloc.ErrVersion):
		fail(err)
	case ctx.Err() == nil:
		p.log.Warn("not served yet", "resource", k.resource.Resource, "name", k.String(), "err", err)
		p.queue.AddRateLimited(k)
	}
	return true
}

// paused reports whether Cluster API asks to leave an object alone: itself, or the cluster that it belongs to. An object of a
// cluster that is not there is left alone too, unless it is being deleted.
func (p *provider) paused(o *metav1.ObjectMeta, of string) (bool, error) {
	if _, ok := o.Annotations[pausedAnnotation]; ok || of == "" {
		return ok, nil
	}
	c, err := cached[clusterObject](p.caches[clusters], o.Namespace, of)
	if err != nil || c == nil {
		return o.DeletionTimestamp == nil, err
	}
	_, ok := c.Annotations[pausedAnnotation]
	return ok || c.Spec.Paused, nil
}

// setFinalizer adds the finalizer to an object, or removes it, if it is the one that was looked at. It returns the object as it
// is then, nil if nothing was to do.
func (p *provider) setFinalizer(ctx context.Context, k key, o *metav1.ObjectMeta, name string, present bool) (*unstructured.Unstructured, error) {
	if slices.Contains(o.Finalizers, name) == present {
		return nil, nil
	}
	all := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == name })
	if present {
		all = append(all, name)
	}
	return p.patch(ctx, k, o, map[string]any{"metadata": map[string]any{"finalizers": all}})
}

// patch changes an object if it is the one that was looked at, which its UID and its resource version say.
func (p *provider) patch(ctx context.Context, k key, o *metav1.ObjectMeta, change map[string]any, subresources ...string) (*unstructured.Unstructured, error) {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = o.UID, o.ResourceVersion
	data, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	got, err := p.resource(k).Patch(ctx, k.name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	if k.resource == claims {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.written[k] = got.GetResourceVersion()
	}
	return got, nil
}

// behind reports whether the cache has a claim as it was before this process wrote it. The event of that write is still to come.
func (p *provider) behind(k key, c *claim) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(c.ResourceVersion, p.written[k])
	if err == nil && order < 0 {
		return true
	}
	delete(p.written, k)
	return false
}

// forget drops what is remembered of a claim that is gone.
func (p *provider) forget(k key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, k)
}

// resource returns the client of the resource that an object is of, in its namespace if it has one.
func (p *provider) resource(k key) dynamic.ResourceInterface {
	if k.namespace == "" {
		return p.client.Resource(k.resource)
	}
	return p.client.Resource(k.resource).Namespace(k.namespace)
}

// live returns an object as the API server has it, nil if there is none of that name. An answer that there is no such resource
// is an error: a server that does not serve a definition has no word on its objects.
func live[T any](ctx context.Context, p *provider, k key) (*T, error) {
	obj, err := p.resource(k).Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return decode[T](obj)
}

// list calls do with every object of a resource, in one namespace or in all, as the API server has them, not a cache.
func list[T any](ctx context.Context, p *provider, resource schema.GroupVersionResource, namespace string, do func(*T)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return p.resource(key{resource: resource, namespace: namespace}).List(ctx, o)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		o, err := decode[T](obj)
		if err == nil {
			do(o)
		}
		return err
	})
}
