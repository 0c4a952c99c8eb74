package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/dynamic"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// objects is an API server of ClusterCIDRs and an allocator that follows it, in a bubble
// of synctest.
type objects struct {
	*testing.T
	client *fakedynamic.FakeDynamicClient
	api    *entryAPI
	log    strings.Builder
	added  int
	mu     sync.Mutex
	events []string
}

func newObjects(t *testing.T, texts ...string) *objects {
	o := &objects{T: t}
	kinds := map[schema.GroupVersionResource]string{entryResources[0]: clusterCIDRKind + "List", entryResources[1]: configKind + "List"}
	o.client = fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	for _, text := range texts {
		o.create(text)
	}
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true})
	if err != nil {
		t.Fatal(err)
	}
	d := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		{GroupVersion: "networking.x-k8s.io/v1", APIResources: []metav1.APIResource{{Name: "clustercidrs"}}},
		{GroupVersion: "networking.ipalloc.dev/v1", APIResources: []metav1.APIResource{{Name: "clustercidrconfigs"}}},
	}}}
	log := slog.New(slog.NewTextHandler(&o.log, nil))
	o.api = &entryAPI{entrySet: &entrySet{allocator: a, log: log}, client: o.client, discovery: d, period: time.Second, added: func() { o.added++ }}
	o.api.events.write = func(of *object, kind, reason, message string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.events = append(o.events, fmt.Sprintf("%s %s %s: %s", of.GetName(), kind, reason, message))
	}
	return o
}

func (o *objects) start() {
	o.Helper()
	ctx, cancel := context.WithCancel(o.Context())
	if err := o.api.start(ctx); err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { cancel(); o.api.group.Wait() })
}

func (o *objects) create(text string) {
	o.Helper()
	u := &unstructured.Unstructured{}
	if err := sigsyaml.Unmarshal([]byte(text), &u.Object); err != nil {
		o.Fatal(err)
	}
	u.SetUID(types.UID(u.GetKind() + u.GetName()))
	if _, err := o.client.Resource(o.resource(u.GetKind())).Create(o.Context(), u, metav1.CreateOptions{}); err != nil {
		o.Fatal(err)
	}
}

func (o *objects) resource(kind string) schema.GroupVersionResource {
	if kind == configKind {
		return entryResources[1]
	}
	return entryResources[0]
}

func (o *objects) get(kind, name string) *unstructured.Unstructured {
	o.Helper()
	u, err := o.client.Resource(o.resource(kind)).Get(o.Context(), name, metav1.GetOptions{})
	if err != nil {
		o.Fatal(err)
	}
	return u
}

// remove does what an API server does with an object that has finalizers.
func (o *objects) remove(kind, name string) {
	o.Helper()
	u := o.get(kind, name)
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
	if _, err := o.client.Resource(o.resource(kind)).Update(o.Context(), u, metav1.UpdateOptions{}); err != nil {
		o.Fatal(err)
	}
}

// want checks the finalizers of an object and its status.
func (o *objects) want(kind, name string, held bool, want string) {
	o.Helper()
	u := o.get(kind, name)
	if got := slices.Contains(u.GetFinalizers(), entryFinalizer); got != held {
		o.Errorf("%s has finalizers %v", name, u.GetFinalizers())
	}
	nodes, _, _ := unstructured.NestedInt64(u.Object, "status", "nodes")
	free, _, _ := unstructured.NestedInt64(u.Object, "status", "ipv4", "free")
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	got := fmt.Sprintf("%d nodes, %d free", nodes, free)
	if len(conditions) == 1 {
		c := conditions[0].(map[string]any)
		got += fmt.Sprintf(", %s %s", c["reason"], c["message"])
	}
	if !strings.HasPrefix(got, want) {
		o.Errorf("%s: %s, want %s", name, got, want)
	}
}

func clusterCIDR(name, spec string) string {
	return "apiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\nmetadata: {name: " + name + "}\nspec: " + spec
}

func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// An object gets the finalizer before it serves a node, its status shows what it gives,
// and a deleted one goes with its last node.
func TestObjectsBecomeEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}"))
		o.client.PrependReactor("patch", "clustercidrs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if p := action.(clienttesting.PatchAction); strings.Contains(string(p.GetPatch()), "finalizers") && p.GetName() == "b" {
				for e := range o.api.allocator.Entries() {
					if e.Name == "b" {
						t.Error("b is in force without a finalizer")
					}
				}
			}
			return false, nil, nil
		})
		o.start()
		o.want("", "a", true, "0 nodes, 0 free")
		o.api.nodesLoaded()
		later(2 * time.Second)
		o.want("", "a", true, "0 nodes, 4 free, InForce")
		if as, err := o.api.allocator.Allocate(nodeipam.Node{Name: "n"}); err != nil || as.Entry != "a" {
			t.Fatal(as, err)
		}
		later(2 * time.Second)
		o.want("", "a", true, "1 nodes, 3 free, InForce")

		o.create(clusterCIDR("b", "{perNodeHostBits: 8, ipv4: 10.1.0.0/22, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: x, operator: Exists}]}]}}"))
		later(2 * time.Second)
		if o.added != 1 {
			t.Errorf("told of new entries %d times", o.added)
		}
		o.want("", "b", true, "0 nodes, 4 free, InForce")

		o.remove("", "a")
		later(2 * time.Second)
		o.want("", "a", true, "1 nodes, 3 free, Terminating")
		if _, err := o.api.allocator.Allocate(nodeipam.Node{Name: "m"}); err == nil {
			t.Error("a deleted object serves a node")
		}
		o.api.allocator.Release("n")
		later(2 * time.Second)
		o.want("", "a", false, "0 nodes, 0 free, Terminating") // a real one is gone now
		writes := len(o.client.Actions())
		later(time.Minute)
		if n := len(o.client.Actions()) - writes; n > 0 {
			t.Errorf("%d requests while nothing changes", n)
		}
	})
}

// An object that is deleted when the controller starts keeps its nodes and serves no
// other.
func TestDeletedObjectAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := "apiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\nmetadata: {name: a, finalizers: [" + entryFinalizer + "], deletionTimestamp: \"2026-01-02T03:04:05Z\"}\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/22}"
		o := newObjects(t, text)
		o.start()
		n := node("n", "10.0.1.0/24")
		n.Entry = "a"
		if problems := o.api.allocator.Load([]nodeipam.Node{n}); len(problems) > 0 {
			t.Fatal(problems)
		}
		later(10 * time.Second)
		o.want("", "a", true, "")
		o.api.nodesLoaded()
		later(2 * time.Second)
		o.want("", "a", true, "1 nodes, 3 free, Terminating")
		if _, err := o.api.allocator.Allocate(nodeipam.Node{Name: "m"}); err == nil {
			t.Error("a deleted object serves a node")
		}
		o.api.allocator.Release("n")
		later(2 * time.Second)
		o.want("", "a", false, "")
	})
}

// What is wrong with an object is in its status and, once, in the log.
func TestRefusedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t,
			clusterCIDR("typo", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22, nodeSelectr: {}}"),
			clusterCIDR("size", "{perNodeHostBits: 12, ipv4: 10.0.0.0/22}"),
			clusterCIDR("both", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}"),
			"apiVersion: networking.ipalloc.dev/v1\nkind: ClusterCIDRConfig\nmetadata: {name: both}\nspec: {ipv4: {cidr: 10.4.0.0/22, perNodeMaskSize: 24}}",
			"apiVersion: networking.ipalloc.dev/v1\nkind: ClusterCIDRConfig\nmetadata: {name: net}\nspec: {network: other, ipv4: {cidr: 10.4.0.0/22, perNodeMaskSize: 24}}")
		o.start()
		o.api.nodesLoaded()
		later(time.Minute)
		o.want("", "typo", false, "0 nodes, 0 free, Refused unknown field \"spec.nodeSelectr\"")
		o.want("", "size", true, "0 nodes, 0 free, Refused spec.perNodeHostBits: nodeipam: add entry")
		o.want("", "both", true, "0 nodes, 4 free, InForce")
		o.want(configKind, "both", false, "0 nodes, 0 free, Refused metadata.name: ClusterCIDR both has that name")
		o.want(configKind, "net", false, "0 nodes, 0 free, Refused spec.network: \"other\" is another network")
		if n := strings.Count(o.log.String(), "is not in force"); n != 4 {
			t.Errorf("%d complaints:\n%s", n, o.log.String())
		}
	})
}

// One object of three that is refused is enough for the set not to be in force, and one that is changed before the nodes are known
// counts as new.
func TestInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}"), clusterCIDR("b", "{perNodeHostBits: 12, ipv4: 10.4.0.0/22}"),
			clusterCIDR("c", "{perNodeHostBits: 8, ipv4: 10.8.0.0/22}"))
		o.start()
		later(time.Minute)
		if o.api.inForce() {
			t.Error("in force with an object that is refused")
		}
		for _, cidr := range []string{"10.12.0.0/22", "10.16.0.0/22"} {
			entries, err := entriesOf(clusterCIDR("d", "{perNodeHostBits: 8, ipv4: "+cidr+"}"))
			if err != nil {
				t.Fatal(err)
			}
			if added, refused := o.api.apply(entries); !added || len(refused) > 0 {
				t.Errorf("%s: added %v, refused %v", cidr, added, refused)
			}
		}
	})
}

// Whichever request of a reconciliation fails, it is made again: no object serves nodes without its finalizer, and in the end all are
// in force and say so.
func TestEveryRequestFailsOnce(t *testing.T) {
	for k, failed := 1, true; failed; k++ {
		failed = false
		synctest.Test(t, func(t *testing.T) {
			o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}"), clusterCIDR("b", "{perNodeHostBits: 8, ipv4: 10.4.0.0/22}"),
				clusterCIDR("c", "{perNodeHostBits: 8, ipv4: 10.8.0.0/22}"))
			n := 0
			o.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				n++
				failed = failed || n == k
				return n == k, nil, apierrors.NewInternalError(errors.New("no answer"))
			})
			o.start()
			for e := range o.api.allocator.Entries() {
				if len(o.get("", e.Name).GetFinalizers()) == 0 {
					t.Errorf("request %d failed, and %s serves nodes without a finalizer", k, e.Name)
				}
			}
			o.api.nodesLoaded()
			later(time.Minute)
			for _, name := range []string{"a", "b", "c"} {
				o.want("", name, true, "0 nodes, 4 free, InForce")
			}
			if !o.api.inForce() {
				t.Errorf("request %d failed, and the set is not in force", k)
			}
		})
		if k > 20 {
			t.Fatal("a reconciliation does not end")
		}
		if !failed && k < 7 {
			t.Errorf("only %d requests", k-1)
		}
	}
}

// An object in force stays so when its finalizer, which somebody took off or which the view does not show yet, cannot be set.
func TestObjectInForceStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}"))
		var refuse atomic.Bool
		var patches atomic.Int32
		o.client.PrependReactor("patch", "clustercidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load() && patches.Add(1) == 1, nil, apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("another version"))
		})
		o.start()
		o.api.nodesLoaded()
		if as, err := o.api.allocator.Allocate(nodeipam.Node{Name: "n"}); err != nil {
			t.Fatal(as, err)
		}
		refuse.Store(true)
		u := o.get("", "a")
		u.SetFinalizers(nil)
		if _, err := o.client.Resource(entryResources[0]).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if as, err := o.api.allocator.Allocate(nodeipam.Node{Name: "m"}); err != nil || patches.Load() == 0 || !o.api.inForce() {
			t.Errorf("%v %v, in force %v", as, err, o.api.inForce())
		}
		later(time.Minute)
		o.want("", "a", true, "2 nodes, 2 free, InForce")
	})
}

// A condition of another controller stays in the status.
func TestConditionOfAnotherStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}")+
			"\nstatus: {conditions: [{type: Theirs, status: 'True', reason: R, message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}]}")
		o.start()
		o.api.nodesLoaded()
		later(2 * time.Second)
		conditions, _, _ := unstructured.NestedSlice(o.get("", "a").Object, "status", "conditions")
		var types []any
		for _, c := range conditions {
			types = append(types, c.(map[string]any)["type"])
		}
		if fmt.Sprint(types) != "[Theirs Ready]" {
			t.Errorf("conditions %v", types)
		}
		writes := len(o.client.Actions())
		later(time.Minute)
		if n := len(o.client.Actions()) - writes; n > 0 {
			t.Errorf("%d requests while nothing changes", n)
		}
	})
}

// A dry run writes nothing; a server without the resources is an error.
func TestObjectsReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}"))
		o.api.readOnly = true
		o.start()
		o.api.nodesLoaded()
		later(time.Minute)
		for _, a := range o.client.Actions() {
			if verb := a.GetVerb(); verb != "list" && verb != "watch" && verb != "create" {
				t.Errorf("it has done a %s", verb)
			}
		}
		if as, err := o.api.allocator.Allocate(nodeipam.Node{Name: "n"}); err != nil {
			t.Fatal(as, err)
		}
		o.api.discovery = &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
		if err := o.api.start(t.Context()); err == nil || !strings.Contains(err.Error(), "serves no ClusterCIDRs") {
			t.Error(err)
		}
	})
}

// An event says when a condition of an object begins, changes and ends, once each, and
// another leader does not say it again.
func TestEventsOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t,
			clusterCIDR("a", "{perNodeHostBits: 8, ipv6: 'fd00::/119'}"),
			clusterCIDR("typo", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22, nodeSelectr: {}}"))
		want := func(want ...string) {
			t.Helper()
			later(time.Minute)
			o.mu.Lock()
			defer o.mu.Unlock()
			if len(o.events) != len(want) {
				t.Errorf("events %q, want %q", o.events, want)
			}
			for i := range min(len(o.events), len(want)) {
				if !strings.HasPrefix(o.events[i], want[i]) {
					t.Errorf("event %q, want %q", o.events[i], want[i])
				}
			}
			o.events = nil
		}
		o.start()
		want()
		o.api.nodesLoaded()
		want("typo Warning ClusterCIDRRefused: unknown field \"spec.nodeSelectr\"")
		for _, name := range []string{"m", "n"} {
			if _, err := o.api.allocator.Allocate(nodeipam.Node{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		want("a Warning ClusterCIDRFull: none of 2 CIDRs of ipv6 is free")

		// Another leader reads the conditions from the statuses.
		o.api.events.last, o.api.events.successes = nil, true
		o.api.kick <- struct{}{}
		want()
		o.api.events.successes = false

		o.api.allocator.Release("m")
		want("a Normal ClusterCIDRReady: in force and with free CIDRs again")
		o.remove("", "a")
		want("a Normal ClusterCIDRTerminating: ")
		o.api.allocator.Release("n")
		want("a Normal ClusterCIDRReleased: ")

		o.create(clusterCIDR("quiet", "{perNodeHostBits: 8, ipv4: 10.4.0.0/23}"))
		want()
		o.api.events.successes = true
		o.create(clusterCIDR("b", "{perNodeHostBits: 8, ipv4: 10.3.0.0/23}"))
		want("b Normal ClusterCIDRReady: in force")
	})
}

// A request that fails is made again and is no condition of the object.
func TestFailedFinalizerIsNoCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/23}"))
		failures := 3
		o.client.PrependReactor("patch", "clustercidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("conflict")
		})
		o.start()
		o.api.nodesLoaded()
		later(time.Minute)
		o.want("", "a", true, "0 nodes, 2 free, InForce")
		if len(o.events) > 0 {
			t.Errorf("events %q", o.events)
		}
	})
}

// A process that lost the lease writes neither a finalizer nor a status: it may have missed a node that another leader served.
func TestObjectsWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22}"))
		leads := true
		o.api.fence = func() (time.Duration, error) {
			if !leads {
				return 0, errors.New("the lease is not held")
			}
			return time.Second, nil
		}
		o.start()
		o.api.nodesLoaded()
		later(2 * time.Second)
		o.want("", "a", true, "0 nodes, 4 free, InForce")
		leads = false
		o.remove("", "a")
		o.create(clusterCIDR("b", "{perNodeHostBits: 8, ipv4: 10.1.0.0/22}"))
		later(time.Minute)
		o.want("", "a", true, "0 nodes, 4 free, InForce")
		o.want("", "b", false, "0 nodes, 0 free")
	})
}

// lateDiscovery does not know a group before it is installed.
type lateDiscovery struct {
	discovery.DiscoveryInterface
	mu      sync.Mutex
	missing string
}

func (d *lateDiscovery) install() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing = ""
}

func (d *lateDiscovery) ServerResourcesForGroupVersion(group string) (*metav1.APIResourceList, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if group == d.missing {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, group)
	}
	return d.DiscoveryInterface.ServerResourcesForGroupVersion(group)
}

// A definition that is installed while the program runs is followed.
func TestDefinitionInstalledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObjects(t, clusterCIDR("a", "{perNodeHostBits: 8, ipv4: 10.0.0.0/22, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: x, operator: Exists}]}]}}"))
		d := &lateDiscovery{DiscoveryInterface: o.api.discovery, missing: "networking.ipalloc.dev/v1"}
		o.api.discovery = d
		o.start()
		o.api.nodesLoaded()
		later(time.Minute)
		d.install()
		later(time.Minute)
		o.create("apiVersion: networking.ipalloc.dev/v1\nkind: ClusterCIDRConfig\nmetadata: {name: c}\nspec: {ipv4: {cidr: 10.4.0.0/22, perNodeMaskSize: 24}}")
		later(2 * time.Second)
		o.want(configKind, "c", true, "0 nodes, 4 free, InForce")
		if as, err := o.api.allocator.Allocate(nodeipam.Node{Name: "n"}); err != nil || as.Entry != "c" {
			t.Error(as, err)
		}
	})
}

// A patch that gets no answer does not keep other objects from coming into force.
func TestObjectWithoutAnAnswer(t *testing.T) {
	s := newAPIServer(t)
	s.clusterCIDR("a", map[string]any{"perNodeHostBits": 8, "ipv4": "10.0.0.0/22"})
	s.clusterCIDR("b", map[string]any{"perNodeHostBits": 8, "ipv4": "10.1.0.0/22"})
	s.hold = func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/clustercidrs/a") {
			<-r.Context().Done()
			return http.StatusGatewayTimeout
		}
		return 0
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	o := newObjects(t)
	o.api.client, o.api.timeout = client, 20*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- o.api.start(ctx) }()
	t.Cleanup(func() { cancel(); <-started; o.api.group.Wait() })
	s.wait("the other object to be in force", func() bool {
		for e := range o.api.allocator.Entries() {
			if e.Name == "b" {
				return true
			}
		}
		return false
	})
}
