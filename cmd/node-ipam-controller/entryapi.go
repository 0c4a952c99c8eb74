package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// The resources that hold ClusterCIDRs. A controller follows those that the API server
// serves.
var entryResources = []schema.GroupVersionResource{
	{Group: "networking.x-k8s.io", Version: "v1", Resource: "clustercidrs"},
	{Group: "networking.ipalloc.dev", Version: "v1", Resource: "clustercidrconfigs"},
}

// entryFinalizer keeps an object until the last node with a CIDR of it is gone. It is the
// one of kubernetes-sigs/node-ipam-controller, so its objects are taken over as they are.
const entryFinalizer = "networking.x-k8s.io/cluster-cidr-finalizer"

// entryAPI keeps the entries of an allocator as the objects of the API server say.
//
// An object serves nodes from when it has the finalizer. A deleted one keeps the
// finalizer until its last node is gone. What an object gives, and why it is not in
// force, is in its status.
type entryAPI struct {
	*entrySet
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
	period    time.Duration // of looking at the counts, which change with the nodes
	added     func()        // called when there are new entries
	readOnly  bool          // for -dry-run: finalizers and statuses stay as they are
	events    entryEvents

	fence   func() (time.Duration, error) // as that of nodeWriter; may be nil
	timeout time.Duration                 // of a patch; entryTimeout by default

	informers map[schema.GroupVersionResource]cache.SharedIndexInformer
	looked    time.Time // when the API server was asked last what it serves
	kick      chan struct{}
	group     sync.WaitGroup
}

// start applies the present objects and follows them until ctx ends. While the API server
// does not say which definitions it serves, start retries every second.
func (e *entryAPI) start(ctx context.Context) error {
	e.kick = make(chan struct{}, 1)
	e.informers = map[schema.GroupVersionResource]cache.SharedIndexInformer{}
	for err := e.followServed(ctx); err != nil; err = e.followServed(ctx) {
		if e.readOnly || ctx.Err() != nil {
			return err
		}
		e.log.Error("no node gets a CIDR before the definitions of ClusterCIDRs are known; retrying", "err", err)
		if !sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	if len(e.informers) == 0 {
		return errors.New("the API server serves no ClusterCIDRs: apply deploy/chart/crds")
	}
	e.sync(ctx)
	e.group.Go(func() { e.follow(ctx) })
	return nil
}

// followServed begins to follow the resources that the API server serves and that are not
// followed yet, and returns when their objects are known.
func (e *entryAPI) followServed(ctx context.Context) error {
	e.looked = time.Now()
	resources, err := e.served()
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(e.client, 0, metav1.NamespaceAll, upToDate)
	kick := func(any) {
		select {
		case e.kick <- struct{}{}:
		default:
		}
	}
	var added []cache.SharedIndexInformer
	for _, r := range resources {
		if e.informers[r] == nil {
			e.informers[r] = factory.ForResource(r).Informer()
			added = append(added, e.informers[r])
			e.log.Info("following", "resource", r.GroupResource().String())
		}
	}
	return observe(ctx, factory, kick, added...)
}

// served returns the resources that the API server serves.
func (e *entryAPI) served() (out []schema.GroupVersionResource, err error) {
	for _, r := range entryResources {
		list, err := e.discovery.ServerResourcesForGroupVersion(r.GroupVersion().String())
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, err
		}
		if slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == r.Resource }) {
			out = append(out, r)
		}
	}
	return out, nil
}

// definitionPeriod is how often the API server is asked for a definition that it lacks.
const definitionPeriod = 30 * time.Second

func (e *entryAPI) follow(ctx context.Context) {
	ticker := time.NewTicker(e.period)
	defer ticker.Stop()
	for {
		select {
		case <-e.kick:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if len(e.informers) < len(entryResources) && time.Since(e.looked) >= definitionPeriod {
			if err := e.followServed(ctx); err != nil {
				e.log.Warn("the definitions of ClusterCIDRs are not known", "err", err)
			}
		}
		if e.sync(ctx) {
			e.added()
		}
	}
}

// object is an object of the API server and the entry that it says.
type object struct {
	*unstructured.Unstructured
	resource schema.GroupVersionResource
	entry    entry
	status   entryStatus // as it was seen
	err      error       // why it is not in force
	pending  bool        // because a request failed, which is made again
}

func (o *object) String() string { return o.GetKind() + " " + o.GetName() }

// sync makes entries, finalizers and statuses what they should be, and reports whether
// there are new entries. What fails is tried again at the next look.
func (e *entryAPI) sync(ctx context.Context) (added bool) {
	objects := e.list()
	var entries []entry
	for _, o := range objects {
		if o.err == nil && o.GetDeletionTimestamp() == nil && !slices.Contains(o.GetFinalizers(), entryFinalizer) {
			err := e.setFinalizers(ctx, o, append(slices.Clone(o.GetFinalizers()), entryFinalizer))
			o.pending = err != nil
			if !e.applied(o.GetName()) {
				o.err = err
			} // else it stays in force: nodes may have CIDRs of it, and an entry that was removed does not come back before they are gone
		}
		if o.err == nil {
			entries = append(entries, o.entry)
		}
	}
	e.mu.Lock()
	added, refused := e.apply(entries)
	loaded := e.loaded
	e.mu.Unlock()
	states := map[string]nodeipam.EntryState{}
	for s := range e.allocator.Entries() {
		states[s.Name] = s
	}
	pools := e.allocator.Stats().Pools
	for _, o := range objects {
		if o.err == nil {
			o.err = refused[o.GetName()]
		}
		state, there := states[o.GetName()]
		if o.GetDeletionTimestamp() != nil && loaded && !there && slices.Contains(o.GetFinalizers(), entryFinalizer) {
			rest := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == entryFinalizer })
			if err := e.setFinalizers(ctx, o, rest); err == nil {
				e.events.released(o)
				continue // gone
			}
		}
		if !loaded || o.pending {
			continue // the counts are not yet those of the nodes, or the condition is not known
		}
		now := o.newStatus(state, there, pools)
		e.events.see(o, now)
		if err := e.setStatus(ctx, o, now); err != nil {
			e.complain(o.String()+" status", err, "a status is not written")
		}
	}
	e.events.forget(objects)
	refusals := 0
	for _, o := range objects {
		e.complain(o.String(), o.err, "a ClusterCIDR is not in force")
		if o.err != nil {
			refusals++
		}
	}
	e.mu.Lock()
	e.refused = refusals > 0
	e.mu.Unlock()
	return added
}

// list returns the objects by name. Of two kinds of one name the ClusterCIDR counts.
func (e *entryAPI) list() (objects []*object) {
	for resource, informer := range e.informers {
		for _, obj := range informer.GetStore().List() {
			o := &object{Unstructured: obj.(*unstructured.Unstructured), resource: resource}
			data, err := o.MarshalJSON()
			if err == nil {
				o.entry, err = parseEntry(o.GetKind(), data)
			}
			o.err = err
			if old, ok := o.Object["status"].(map[string]any); ok {
				_ = runtime.DefaultUnstructuredConverter.FromUnstructured(old, &o.status) // another form counts as none
			}
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b *object) int {
		return cmp.Or(strings.Compare(a.GetName(), b.GetName()), strings.Compare(a.GetKind(), b.GetKind()))
	})
	for i, o := range objects {
		if i > 0 && objects[i-1].GetName() == o.GetName() {
			o.err = fmt.Errorf("metadata.name: %s has that name", objects[i-1])
		}
	}
	return objects
}

// setFinalizers fails with a conflict if the object is not the one that was looked at.
func (e *entryAPI) setFinalizers(ctx context.Context, o *object, finalizers []string) error {
	if e.readOnly {
		return nil
	}
	err := e.patch(ctx, o, map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": o.GetResourceVersion()}})
	if err != nil {
		return fmt.Errorf("set finalizers: %w", err)
	}
	return nil
}

// entryTimeout bounds one patch of an object, so one that gets no answer does not keep the
// others waiting for long.
const entryTimeout = 5 * time.Second

// patch changes an object while no other process may lead.
func (e *entryAPI) patch(ctx context.Context, o *object, change map[string]any, subresources ...string) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	ctx, cancel, err := fenced(ctx, e.fence, cmp.Or(e.timeout, entryTimeout))
	if err != nil {
		return err
	}
	defer cancel()
	_, err = e.client.Resource(o.resource).Patch(ctx, o.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	return err
}

// setStatus patches the status if it is another one. A server whose definition of the
// resource has no status is left alone.
func (e *entryAPI) setStatus(ctx context.Context, o *object, now entryStatus) error {
	if e.readOnly || equality.Semantic.DeepEqual(o.status, now) {
		return nil
	}
	err := e.patch(ctx, o, map[string]any{"status": now}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// entryStatus is the status of an object. The null of a field removes it.
type entryStatus struct {
	Conditions []metav1.Condition `json:"conditions"`
	Nodes      *int64             `json:"nodes"`
	IPv4       *poolCounts        `json:"ipv4"`
	IPv6       *poolCounts        `json:"ipv6"`
}

// poolCounts are CIDRs of a pool.
type poolCounts struct {
	Capacity int64 `json:"capacity"`
	Used     int64 `json:"used"`
	Free     int64 `json:"free"`
}

// newStatus returns the status that an object should have: counts, and whether it is in force.
func (o *object) newStatus(state nodeipam.EntryState, there bool, pools []nodeipam.PoolStats) entryStatus {
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "InForce", ObservedGeneration: o.GetGeneration()}
	switch {
	case o.err != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Refused", o.err.Error()
	case o.GetDeletionTimestamp() != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Terminating", "serves no further node; waits for its last one"
	}
	s := entryStatus{Conditions: slices.Clone(o.status.Conditions)}
	meta.SetStatusCondition(&s.Conditions, ready)
	if !there || o.err != nil {
		return s
	}
	nodes := int64(state.Nodes)
	s.Nodes = &nodes
	for _, p := range pools {
		if p.Entry != state.Name {
			continue
		}
		counts := &poolCounts{count(p.Capacity), count(p.Used + p.Reserved), count(p.Free)}
		if p.Pool.Addr().Is4() {
			s.IPv4 = counts
		} else {
			s.IPv6 = counts
		}
	}
	return s
}

// count returns n as the API can hold it.
func count(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
