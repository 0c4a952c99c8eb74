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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
)

// provider serves claims. Its fields but the first three are set by run.
type provider struct {
	client dynamic.Interface
	engine *ipset.Engine
	log    *slog.Logger

	claims, pools, addresses cache.Store
	queue                    workqueue.TypedRateLimitingInterface[key]
}

// key is an object to look at.
type key struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string
}

const (
	workers = 8
	// retryMax is the longest pause before an object that could not be served is looked at again.
	retryMax = 5 * time.Second
	// leakEvery is how often addresses of claims that do not exist are looked for, leakGrace for how long they are left.
	leakEvery, leakGrace = time.Minute, 5 * time.Minute
)

// run serves claims until ctx ends, or the store is not what it was.
func (p *provider) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](10*time.Millisecond, retryMax))
	factory := dynamicinformer.NewDynamicSharedInformerFactory(p.client, 0)
	for resource, to := range map[schema.GroupVersionResource]*cache.Store{claims: &p.claims, pools: &p.pools, addresses: &p.addresses} {
		informer := factory.ForResource(resource).Informer()
		add := func(obj any) { p.enqueue(resource, obj) }
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add}); err != nil {
			return err
		}
		*to = informer.GetStore()
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

// enqueue has an object looked at. An address stands for its claim, which has the same name.
func (p *provider) enqueue(resource schema.GroupVersionResource, obj any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	k := key{resource: resource}
	if resource == addresses {
		k.resource = claims
	}
	k.namespace, k.name, _ = strings.Cut(name, "/")
	p.queue.Add(k)
}

// work looks at one object. A store that was replaced ends the program, because the engine's memory of it is void.
func (p *provider) work(ctx context.Context, fail context.CancelCauseFunc) bool {
	k, done := p.queue.Get()
	if done {
		return false
	}
	defer p.queue.Done(k)
	serve := p.serveClaim
	if k.resource == pools {
		serve = p.servePool
	}
	err := serve(ctx, k)
	switch {
	case err == nil:
		p.queue.Forget(k)
	case errors.Is(err, kubestore.ErrReplaced) || errors.Is(err, ipalloc.ErrCorrupt):
		fail(err)
	case ctx.Err() == nil:
		p.log.Warn("not served yet", "resource", k.resource.Resource, "name", k.namespace+"/"+k.name, "err", err)
		p.queue.AddRateLimited(k)
	}
	return true
}

// setFinalizer adds the finalizer to an object, or removes it, if it is the one that was looked at.
func (p *provider) setFinalizer(ctx context.Context, k key, o *metav1.ObjectMeta, present bool) error {
	if slices.Contains(o.Finalizers, finalizer) == present {
		return nil
	}
	all := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == finalizer })
	if present {
		all = append(all, finalizer)
	}
	return p.patch(ctx, k, map[string]any{"metadata": map[string]any{"finalizers": all, "resourceVersion": o.ResourceVersion}})
}

func (p *provider) patch(ctx context.Context, k key, change map[string]any, subresources ...string) error {
	data, err := json.Marshal(change)
	if err == nil {
		_, err = p.client.Resource(k.resource).Namespace(k.namespace).Patch(ctx, k.name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	}
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	return nil
}

// collect gives back the addresses of claims that do not exist: their finalizers were removed by hand.
func (p *provider) collect(ctx context.Context) {
	c := p.engine.NewCollector(leakGrace)
	for tick := time.Tick(leakEvery); ctx.Err() == nil; {
		uids := make(map[string]bool)
		for _, obj := range p.claims.List() {
			if cl, err := decode[claim](obj); err == nil {
				uids[handle(cl)] = true
			}
		}
		leaked, err := c.Collect(ctx, func(al ipset.Allocation) ipset.Liveness {
			if uids[al.Handle] {
				return ipset.Alive
			}
			return ipset.Leaked
		})
		if err != nil || len(leaked) > 0 {
			p.log.Info("addresses of claims that are gone", "released", len(leaked), "err", err)
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}
