package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// world is an API server in memory with one replica, whose caches follow when the test says so.
type world struct {
	*testing.T
	*provider
	client *fake.FakeDynamicClient
	db     *faults.Faulty
	mu     sync.Mutex
	uids   int
	asked  []string // requests of the replica
}

var resources = map[schema.GroupVersionResource]string{claims: "IPAddressClaimList", addresses: "IPAddressList", clusters: "ClusterList", pools: "IPPoolList", globalPools: "GlobalIPPoolList"}

func newWorld(t *testing.T) *world {
	w := &world{T: t, db: faults.NewFaulty(store.NewMemory()), client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), resources)}
	w.client.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured)
		w.uids++
		if o.GetUID() == "" {
			o.SetUID(uid(w.uids))
		}
		if o.GetGeneration() == 0 {
			o.SetGeneration(1)
		}
		return false, nil, nil
	})
	w.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, fmt.Sprintf("%s %s %s", a.GetVerb(), a.GetResource().Resource, a.GetSubresource()))
		return false, nil, nil
	})
	w.restart()
	return w
}

// restart replaces the replica by a new one with empty caches.
func (w *world) restart() {
	p, err := newProvider(w.client, w.db, slog.New(slog.NewTextHandler(w.Output(), nil)))
	if err != nil {
		w.Fatal(err)
	}
	w.provider = p
	for r := range resources {
		w.caches[r] = cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{})
	}
	for _, r := range []schema.GroupVersionResource{claims, addresses} {
		w.caches[r] = cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, indexers)
	}
}

// look brings the caches up to date.
func (w *world) look() {
	w.Helper()
	for r := range resources {
		all, err := w.client.Tracker().List(r, schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: strings.TrimSuffix(resources[r], "List")}, "")
		if err != nil {
			w.Fatal(err)
		}
		var objs []any
		list := all.(*unstructured.UnstructuredList)
		for i := range list.Items {
			objs = append(objs, &list.Items[i])
		}
		if err := w.caches[r].Replace(objs, ""); err != nil {
			w.Fatal(err)
		}
	}
}

// serve looks and works on everything, and on what that changed, until nothing changes any more.
func (w *world) serve() {
	w.Helper()
	for range 6 {
		w.look()
		for _, r := range []schema.GroupVersionResource{pools, globalPools, claims} {
			for _, name := range slices.Sorted(slices.Values(w.caches[r].ListKeys())) {
				k, _ := poolKey(name)
				if k.resource = r; !strings.Contains(name, "/") {
					k.namespace, k.name = "", name
				}
				if err := w.one(k); err != nil {
					w.Logf("%v: %v", k, err)
				}
			}
		}
	}
	w.look()
}

func (w *world) one(k key) error {
	if k.isPool() {
		return w.servePool(context.Background(), k)
	}
	return w.serveClaim(context.Background(), k)
}

// put creates an object.
func (w *world) put(r schema.GroupVersionResource, namespace, name string, fields map[string]any, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	for k, v := range fields {
		o.Object[k] = v
	}
	o.SetAPIVersion(r.GroupVersion().String())
	o.SetKind(strings.TrimSuffix(resources[r], "List"))
	o.SetNamespace(namespace)
	o.SetName(name)
	for _, f := range change {
		f(o)
	}
	got, err := w.resource(key{r, namespace, name}).Create(context.Background(), o, createOptions)
	if err != nil {
		w.Fatal(err)
	}
	return got
}

func (w *world) pool(namespace, name string, addresses ...any) {
	w.Helper()
	r := pools
	if namespace == "" {
		r = globalPools
	}
	w.put(r, namespace, name, map[string]any{"spec": map[string]any{"addresses": addresses, "prefix": int64(24), "gateway": "10.20.0.1"}})
}

func refTo(pool string) map[string]any {
	kind := poolKind
	if strings.HasPrefix(pool, "/") {
		kind, pool = globalPoolKind, pool[1:]
	}
	return map[string]any{"apiGroup": own.Group, "kind": kind, "name": pool}
}

// claim creates a claim and returns its UID.
func (w *world) claim(namespace, name, pool string) string {
	w.Helper()
	return string(w.put(claims, namespace, name, map[string]any{"spec": map[string]any{"poolRef": refTo(pool)}}).GetUID())
}

// address creates an IPAddress with one owner reference.
func (w *world) address(namespace, name, pool, address string, owner map[string]any) {
	w.Helper()
	w.put(addresses, namespace, name, map[string]any{"metadata": map[string]any{"ownerReferences": []any{owner}},
		"spec": map[string]any{"address": address, "prefix": int64(24), "claimRef": map[string]any{"name": name}, "poolRef": refTo(pool)}})
}

func controllerRef(name, uid string) map[string]any {
	return map[string]any{"apiVersion": capi.String(), "kind": claimKind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true}
}

// given returns the addresses of the IPAddresses by namespace and name, and fails if one is there twice.
func (w *world) given() map[string]string {
	w.Helper()
	out, of := map[string]string{}, map[string]string{}
	w.look()
	for _, obj := range w.caches[addresses].List() {
		a, err := decode[address](obj)
		if err != nil {
			w.Fatal(err)
		}
		name := a.Namespace + "/" + a.Name
		if other, ok := of[a.Spec.Address]; ok {
			w.Errorf("%s is given to %s and %s", a.Spec.Address, other, name)
		}
		of[a.Spec.Address], out[name] = name, a.Spec.Address
	}
	return out
}

func (w *world) condition(r schema.GroupVersionResource, namespace, name string) string {
	w.Helper()
	w.look()
	c, err := cached[claim](w.caches[r], namespace, name)
	if err != nil || c == nil {
		w.Fatalf("%s/%s: %v", namespace, name, err)
	}
	for _, cond := range c.Status.Conditions {
		if cond.Type == "Ready" {
			return string(cond.Status) + " " + cond.Reason
		}
	}
	return ""
}

// held returns how many addresses the store holds in the space of a pool.
func (w *world) held(k key) (n int) {
	w.Helper()
	engine, err := w.spaceOf(context.Background(), k)
	if err != nil || engine == nil {
		w.Fatal(engine, err)
	}
	for _, err := range engine.Allocations(context.Background(), netip.Prefix{}) {
		if err != nil {
			w.Fatal(err)
		}
		n++
	}
	return n
}

func (w *world) delete(r schema.GroupVersionResource, namespace, name string) {
	w.Helper()
	if err := w.client.Tracker().Delete(r, namespace, name); err != nil {
		w.Fatal(err)
	}
}

// change alters an object as a person does.
func (w *world) change(r schema.GroupVersionResource, namespace, name string, do func(*unstructured.Unstructured)) {
	w.Helper()
	obj, err := w.client.Tracker().Get(r, namespace, name)
	if err != nil {
		w.Fatal(err)
	}
	do(obj.(*unstructured.Unstructured))
	if err := w.client.Tracker().Update(r, obj, namespace); err != nil {
		w.Fatal(err)
	}
}

// fail has every request of a verb and a resource answered with an error until the function that it returns is called.
func (w *world) fail(verb string, r schema.GroupVersionResource) (end func()) {
	broken := true
	w.client.PrependReactor(verb, r.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken {
			return true, nil, apierrors.NewInternalError(fmt.Errorf("broken"))
		}
		return false, nil, nil
	})
	return func() { broken = false }
}
