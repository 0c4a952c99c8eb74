package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var createOptions = metav1.CreateOptions{}

func uid(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

// A new claim costs three requests and one commit of the store, one that is ready nothing, also in a new process.
func TestRequestsOfAClaim(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "machines", "10.20.0.10-10.20.0.99")
	w.serve()
	for i := range 10 {
		w.claim("default", fmt.Sprint("m", i), "machines")
	}
	w.look()
	for i := range 10 {
		if i == 1 { // the first one reads the pool and its block
			w.asked = nil
			w.db.Reset()
		}
		if err := w.one(key{claims, "default", fmt.Sprint("m", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if c := w.db.Counts(); len(w.asked) > 27 || c.Commits > 9 || c.Gets+c.Lists > 0 {
		t.Errorf("%d requests for 9 claims, %+v: %v", len(w.asked), c, w.asked)
	}
	if got := w.given(); len(got) != 10 || w.condition(claims, "default", "m0") != "True Ready" {
		t.Fatalf("%v, %s", got, w.condition(claims, "default", "m0"))
	}
	w.serve()
	for range 2 {
		w.asked = nil
		for i := range 10 {
			if err := w.one(key{claims, "default", fmt.Sprint("m", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if len(w.asked) > 0 {
			t.Errorf("claims that are ready cost %v", w.asked)
		}
		w.restart()
		w.look()
		w.asked = nil
		if err := w.one(key{claims, "default", "m0"}); err != nil || len(w.asked) > 0 {
			t.Errorf("a claim that is ready costs %v before its pool is in force, %v", w.asked, err)
		}
		if err := w.one(key{pools, "default", "machines"}); err != nil {
			t.Fatal(err)
		}
	}
}

// A claim that could not be served to the end has one address when it is served again, also by another process and after its
// finalizer was removed by hand.
func TestClaimServedAgainKeepsItsAddress(t *testing.T) {
	for _, broken := range []string{"create ipaddresses", "patch ipaddressclaims/status", "removed by hand"} {
		w := newWorld(t)
		w.pool("default", "machines", "10.20.0.10-10.20.0.14")
		w.serve()
		w.claim("default", "m0", "machines")
		verb, resource, _ := strings.Cut(broken, " ")
		end := w.fail(verb, capi.WithResource(resource))
		w.serve()
		end()
		if strings.HasSuffix(broken, "hand") {
			w.change(claims, "default", "m0", func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
			w.delete(addresses, "default", "m0")
		} else {
			w.restart()
		}
		w.serve()
		if n, c := w.held(key{pools, "default", "machines"}), w.condition(claims, "default", "m0"); n != 1 || c != "True Ready" {
			t.Errorf("%s: %d addresses are held, the claim is %s", broken, n, c)
		}
	}
}

// Whoever may create an IPAddress chooses its owner references. They free the address of no other claim: not by another kind or
// name, not as the controller, and not from another namespace, nor if the claim named exists.
func TestForeignOwnersFreeNothing(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "machines", "10.20.0.10-10.20.0.14")
	w.pool("evil", "machines", "10.30.0.10-10.30.0.14")
	w.pool("", "all", "10.40.0.10-10.40.0.14")
	victim, global := w.claim("default", "m0", "machines"), w.claim("default", "m1", "/all")
	w.serve()
	at := key{pools, "default", "machines"}
	i := 0
	for _, namespace := range []string{"evil", "default"} {
		for _, of := range []string{victim, global} {
			for _, pool := range []string{"machines", "/all"} {
				for _, owner := range []map[string]any{
					{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": of},
					{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": of, "controller": true},
					{"apiVersion": capi.String(), "kind": claimKind, "name": "m0", "uid": of},
					controllerRef("m0", of), controllerRef("its own", of),
				} {
					i++
					name := fmt.Sprint("y", i)
					if owner["name"] == "its own" {
						owner["name"] = name
					}
					w.address(namespace, name, pool, "10.30.0.12", owner)
					if err := w.dropStray(t.Context(), key{claims, namespace, name}); err != nil {
						t.Fatal(err)
					}
					if w.held(at) != 1 || w.held(key{globalPools, "", "all"}) != 1 {
						t.Fatalf("%v of %s in pool %s took an address away", owner, namespace, pool)
					}
				}
			}
		}
	}
	if got := slices.Sorted(maps.Keys(w.given())); fmt.Sprint(got) != "[default/m0 default/m1]" {
		t.Errorf("%v", got)
	}
}

// The IPAddress of a claim that is gone goes, and its address is free.
func TestStrayAddressGivesBackItsOwn(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "machines", "10.20.0.10-10.20.0.14")
	w.claim("default", "m0", "machines")
	w.serve()
	w.delete(claims, "default", "m0") // its finalizer was removed by hand
	w.look()
	if err := w.one(key{claims, "default", "m0"}); err != nil {
		t.Fatal(err)
	}
	if n := w.held(key{pools, "default", "machines"}); n != 0 || len(w.given()) != 0 {
		t.Fatalf("%d held, %v", n, w.given())
	}
}

// A claim that the cache does not show keeps its IPAddress and its address.
func TestClaimOutsideTheCacheKeepsItsAddress(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "machines", "10.20.0.10-10.20.0.14")
	w.claim("default", "m0", "machines")
	w.serve()
	if err := w.caches[claims].Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.one(key{claims, "default", "m0"}); err != nil {
		t.Fatal(err)
	}
	if n := w.held(key{pools, "default", "machines"}); n != 1 || len(w.given()) != 1 {
		t.Errorf("%d held, %v", n, w.given())
	}
}

// Nothing is collected on the word of a cache. A claim that the cache does not show keeps its address if the API server has it or
// does not answer.
func TestCollectorAsksTheServer(t *testing.T) {
	for _, broken := range []string{"", "get", "list"} {
		t.Run(broken, func(t *testing.T) {
			w := newWorld(t)
			w.pool("default", "machines", "10.20.0.10-10.20.0.14")
			w.claim("default", "m0", "machines")
			w.claim("default", "gone", "machines")
			w.serve()
			w.delete(claims, "default", "gone")
			w.delete(addresses, "default", "gone")
			at := key{pools, "default", "machines"}
			uid := w.serving[at].uid
			w.collectors[string(uid)] = w.serving[at].engine.Operator().NewCollector(time.Nanosecond)
			if err := w.caches[claims].Replace(nil, ""); err != nil {
				t.Fatal(err)
			}
			end := func() {}
			if broken != "" {
				end = w.fail(broken, claims)
			}
			for range 3 {
				released, err := w.collectAll(t.Context())
				if (err == nil) != (broken == "") || broken != "" && released > 0 {
					t.Fatalf("released %d, %v", released, err)
				}
			}
			end()
			for range 2 {
				if _, err := w.collectAll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := w.held(at); n != 1 {
				t.Fatalf("%d addresses are held, want that of the claim which exists", n)
			}
		})
	}
}

// An IPAddress that exists is taken over before anything is given out: with a new store, and when the objects were moved, which
// gives claims other UIDs.
func TestExistingAddressesAreTakenOver(t *testing.T) {
	for _, namespace := range []string{"default", ""} {
		w := newWorld(t)
		pool := "machines"
		if namespace == "" {
			pool = "/machines"
		}
		w.pool(namespace, "machines", "10.20.0.10-10.20.0.14")
		for i := range 3 {
			name := fmt.Sprint("old", i)
			owner := w.claim("default", name, pool)
			if i == 2 {
				owner = "0000" // a reference to a claim of another time
			}
			w.address("default", name, pool, fmt.Sprint("10.20.0.1", i), controllerRef(name, owner))
		}
		w.claim("default", "new0", pool)
		w.claim("default", "new1", pool)
		w.claim("default", "one too many", pool)
		w.serve()
		got := w.given()
		if len(got) != 5 || got["default/old0"] != "10.20.0.10" || got["default/old1"] != "10.20.0.11" || got["default/old2"] != "10.20.0.12" {
			t.Fatalf("%v", got)
		}
		for _, name := range []string{"old0", "old1", "old2", "new0", "new1"} {
			if c := w.condition(claims, "default", name); c != "True Ready" {
				t.Errorf("%s is %s", name, c)
			}
		}
		if c := w.condition(claims, "default", "one too many"); c != "False PoolExhausted" {
			t.Errorf("the last one is %s", c)
		}
	}
}

// An IPAddress that comes after the pool was opened is the claim's address; what was assigned before is free again.
func TestLaterAddressIsTakenOver(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "machines", "10.20.0.10-10.20.0.14")
	w.serve()
	owner := w.claim("default", "m0", "machines")
	w.look()
	w.address("default", "m0", "machines", "10.20.0.13", controllerRef("m0", owner)) // the cache does not show it
	if err := w.one(key{claims, "default", "m0"}); err != nil {
		t.Fatal(err)
	}
	w.serve()
	if got := w.given(); got["default/m0"] != "10.20.0.13" || w.held(key{pools, "default", "machines"}) != 1 || w.condition(claims, "default", "m0") != "True Ready" {
		t.Fatalf("%v, %d held", got, w.held(key{pools, "default", "machines"}))
	}
}

// Pools are of their namespace. Two of one namespace may have one subnet, but no address in common.
func TestPoolsDoNotMeet(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "a", "10.20.0.10-10.20.0.49")
	w.pool("default", "b", "10.20.0.50-10.20.0.99")
	w.pool("default", "inner", "10.20.0.64/28")
	w.pool("evil", "a", "10.21.0.10-10.21.0.49")
	for _, pool := range []string{"a", "b", "inner"} {
		w.claim("default", "of-"+pool, pool)
	}
	w.claim("evil", "of-b", "b") // of the other namespace
	w.claim("evil", "of-a", "a")
	w.serve()
	got := w.given()
	if len(got) != 3 || !strings.HasPrefix(got["evil/of-a"], "10.21.") {
		t.Errorf("%v", got)
	}
	for name, want := range map[string]string{"a": "True InForce", "b": "True InForce", "inner": "False Overlaps"} {
		if got := w.condition(pools, "default", name); got != want {
			t.Errorf("pool %s is %s, want %s", name, got, want)
		}
	}
	if a, b := w.condition(claims, "default", "of-inner"), w.condition(claims, "evil", "of-b"); a != "False PoolNotReady" || b != a {
		t.Errorf("claims without a pool are %q and %q", a, b)
	}
}

// A published address says what Cluster API's contract asks for. Conditions of others stay.
func TestContract(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "machines", "10.20.0.10-10.20.0.14")
	w.put(claims, "default", "m0", map[string]any{"spec": map[string]any{"poolRef": refTo("machines"), "clusterName": "c"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Theirs", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}})
	w.serve()
	if got := w.given(); len(got) != 0 {
		t.Fatalf("the cluster does not exist, and %v were given", got)
	}
	paused := w.put(clusters, "default", "c", map[string]any{"spec": map[string]any{"paused": true}})
	w.serve()
	if got := w.given(); len(got) != 0 {
		t.Fatalf("the cluster is paused, and %v were given", got)
	}
	if err := unstructured.SetNestedField(paused.Object, false, "spec", "paused"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Tracker().Update(clusters, paused, "default"); err != nil {
		t.Fatal(err)
	}
	w.serve()
	a, err := cached[address](w.caches[addresses], "default", "m0")
	if err != nil || a == nil {
		t.Fatal(a, err)
	}
	var refs []string
	for _, o := range a.OwnerReferences {
		refs = append(refs, fmt.Sprint(o.Kind, " ", o.Name, " ", o.UID != "", " ", *o.Controller, " ", *o.BlockOwnerDeletion))
	}
	if want := "[IPAddressClaim m0 true true true IPPool machines true false true]"; fmt.Sprint(refs) != want || !slices.Contains(a.Finalizers, protection) || a.Labels[clusterLabel] != "c" {
		t.Errorf("owners %v, %+v", refs, a)
	}
	c, err := cached[claim](w.caches[claims], "default", "m0")
	if err != nil || len(c.Status.Conditions) != 2 || c.Status.AddressRef.Name != "m0" {
		t.Errorf("%+v, %v", c.Status, err)
	}
	o, err := cached[pool](w.caches[pools], "default", "machines")
	if err != nil || o.Status.Addresses != (counts{Total: 5, Used: 1, Free: 4}) {
		t.Errorf("%+v, %v", o.Status, err)
	}
}

// A claim that is deleted gives its address to the one that waits for it; its pool goes with the last.
func TestDeletedClaim(t *testing.T) {
	w := newWorld(t)
	w.pool("default", "machines", "10.20.0.10")
	w.claim("default", "m0", "machines")
	w.serve()
	w.claim("default", "m1", "machines")
	w.serve()
	if c := w.condition(claims, "default", "m1"); c != "False PoolExhausted" {
		t.Fatal(c)
	}
	deleted := func(k key) {
		now := metav1.Now()
		w.change(k.resource, k.namespace, k.name, func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&now) })
	}
	deleted(key{claims, "default", "m0"})
	w.serve()
	if got := w.given(); fmt.Sprint(got) != "map[default/m1:10.20.0.10]" {
		t.Fatal(got)
	}
	at := key{pools, "default", "machines"}
	deleted(at)
	w.serve()
	if c := w.condition(pools, "default", "machines"); c != "False Terminating" {
		t.Fatal(c)
	}
	deleted(key{claims, "default", "m1"})
	w.serve()
	o, err := cached[pool](w.caches[pools], "default", "machines")
	if err != nil || len(o.Finalizers) != 0 {
		t.Fatalf("%+v, %v", o, err)
	}
	for name, err := range w.engine.Operator().Spaces(context.Background()) {
		t.Errorf("space %s is left, %v", name, err)
	}
	if recs, err := w.db.Get(t.Context(), nil, rangesKey(at)); err != nil || recs[0].Rev != 0 {
		t.Errorf("%+v, %v", recs, err)
	}
}
