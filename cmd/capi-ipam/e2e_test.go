//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc/internal/test/kubetest"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
)

const (
	claimsPath    = "/apis/ipam.cluster.x-k8s.io/v1beta2/namespaces/default/ipaddressclaims"
	addressesPath = "/apis/ipam.cluster.x-k8s.io/v1beta2/namespaces/default/ipaddresses"
	poolsPath     = "/apis/ipam.ipalloc.dev/v1alpha1/namespaces/default/ippools"
	globalPath    = "/apis/ipam.ipalloc.dev/v1alpha1/globalippools"
	clustersPath  = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters"
)

// cluster is a real API server with two replicas of the program, which run with the rights in deploy/rbac.yaml.
type cluster struct {
	*testing.T
	server     *kubetest.Server
	program    string
	kubeconfig string
	replicas   [2]*exec.Cmd
	engine     *ipset.Engine // beside the replicas, to look into the store
}

// begin starts everything but the replicas, with flags of the API server.
func begin(t *testing.T, flags ...string) *cluster {
	c := &cluster{T: t, server: kubetest.New(t, kubetest.Config{Flags: flags}), program: filepath.Join(t.TempDir(), "capi-ipam")}
	if out, err := exec.Command("go", "build", "-o", c.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for file, paths := range map[string][]string{
		"../../ipset/kubestore/config/crd.yaml": {"/apis/store.ipalloc.dev/v1/storeobjects"},
		"deploy/crd.yaml":                       {poolsPath, globalPath}, "testdata/capi.yaml": {claimsPath, addressesPath, clustersPath},
	} {
		if err := c.server.Define(t.Context(), file, paths...); err != nil {
			t.Fatal(err)
		}
	}
	c.apply("deploy/rbac.yaml")
	var token struct{ Status struct{ Token string } }
	answer := c.request(http.MethodPost, "/api/v1/namespaces/capi-ipam/serviceaccounts/capi-ipam/token", "apiVersion: authentication.k8s.io/v1\nkind: TokenRequest\nspec: {}\n")
	if err := json.Unmarshal([]byte(answer), &token); err != nil {
		t.Fatal(err)
	}
	admin, err := c.server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(c.kubeconfig, []byte(strings.Replace(string(text), c.server.Token, token.Status.Token, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := kubestore.Open(t.Context(), &rest.Config{Host: c.server.URL, BearerToken: c.server.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"capi-ipam", "capi-ipam", kubestore.Options{Slots: 16})
	if err != nil {
		t.Fatal(err)
	}
	if c.engine, err = ipset.New(s, ipset.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i := range c.replicas {
			c.kill(i)
		}
	})
	return c
}

// apply creates what a manifest of several documents holds.
func (c *cluster) apply(file string) {
	c.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		c.Fatal(err)
	}
	paths := map[string]string{
		"Namespace": "/api/v1/namespaces", "ServiceAccount": "/api/v1/namespaces/capi-ipam/serviceaccounts",
		"ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/capi-ipam/roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/capi-ipam/rolebindings",
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		_, rest, _ := strings.Cut(document, "\nkind: ")
		kind, _, _ := strings.Cut(rest, "\n")
		c.request(http.MethodPost, paths[kind], document)
	}
}

// request sends a request of an administrator until it succeeds: the API server is killed on the way.
func (c *cluster) request(method, path, body string) string {
	c.Helper()
	var answer string
	var err error
	for range 200 {
		if answer, err = c.server.Request(c.Context(), method, path, body); err == nil ||
			method == http.MethodPost && strings.Contains(err.Error(), "AlreadyExists") || method == http.MethodDelete && strings.Contains(err.Error(), "NotFound") {
			return answer
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.Fatal(err)
	return ""
}

func (c *cluster) start(i int) {
	c.Helper()
	cmd := exec.Command(c.program, "-kubeconfig", c.kubeconfig)
	log, err := os.OpenFile(filepath.Join(c.server.Dir, "replica.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.replicas[i] = cmd
}

// kill ends a replica by SIGKILL.
func (c *cluster) kill(i int) {
	if cmd := c.replicas[i]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		c.replicas[i] = nil
	}
}

// claim creates claims on the pool "machines" from number first to last.
func (c *cluster) claim(first, last int) {
	c.Helper()
	c.each(first, last, func(i int) {
		c.request(http.MethodPost, claimsPath, fmt.Sprintf("apiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddressClaim\nmetadata: {name: m%d}\n"+
			"spec: {poolRef: {apiGroup: ipam.ipalloc.dev, kind: IPPool, name: machines}}\n", i))
	})
}

func (c *cluster) unclaim(first, last int) {
	c.Helper()
	c.each(first, last, func(i int) { c.request(http.MethodDelete, fmt.Sprintf("%s/m%d", claimsPath, i), "") })
}

func (c *cluster) each(first, last int, f func(int)) {
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := first + w; i <= last; i += 4 {
				f(i)
			}
		})
	}
	group.Wait()
}

// view is what there is.
type view struct {
	claims, refs int                   // claims, and those with a reference to an address
	reasons      map[string]int        // of the Ready conditions
	addresses    map[string]netip.Addr // of the IPAddresses, by the UIDs of their claims
}

func (c *cluster) look() view {
	c.Helper()
	v := view{reasons: map[string]int{}, addresses: map[string]netip.Addr{}}
	var cs struct{ Items []claim }
	var as struct{ Items []address }
	for path, into := range map[string]any{claimsPath: &cs, addressesPath: &as} {
		if err := json.Unmarshal([]byte(c.request(http.MethodGet, path, "")), into); err != nil {
			c.Fatal(err)
		}
	}
	v.claims = len(cs.Items)
	for _, cl := range cs.Items {
		if cl.Status.AddressRef.Name != "" {
			v.refs++
		}
		for _, cond := range cl.Status.Conditions {
			v.reasons[cond.Reason]++
		}
	}
	taken := map[netip.Addr]bool{}
	for _, a := range as.Items {
		addr := netip.MustParseAddr(a.Spec.Address)
		if taken[addr] {
			c.Errorf("%v is given twice", addr)
		}
		taken[addr] = true
		if a.Namespace != "default" {
			continue
		}
		v.addresses[string(a.OwnerReferences[0].UID)] = addr
		if a.Spec.Prefix != 24 || a.Spec.Gateway != "10.20.0.1" || a.Spec.ClaimRef.Name != a.Name || addr == netip.MustParseAddr("10.20.0.1") {
			c.Errorf("%+v", a)
		}
	}
	return v
}

// allocations yields what the store holds in the spaces of all pools.
func (c *cluster) allocations() iter.Seq[alloc.Allocation] {
	return func(yield func(alloc.Allocation) bool) {
		for name, err := range c.engine.Operator().Spaces(context.Background()) {
			if err != nil {
				c.Fatal(err)
			}
			engine, err := c.engine.InSpace(name)
			if err != nil {
				c.Fatal(err)
			}
			for al, err := range engine.Allocations(context.Background(), netip.Prefix{}) {
				if err != nil {
					c.Fatal(err)
				}
				if !yield(al) {
					return
				}
			}
		}
	}
}

// settled waits until what there is satisfies ok and the store holds exactly that.
func (c *cluster) settled(what string, ok func(view) bool) {
	c.Helper()
	var v view
	held := map[string]netip.Addr{}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if v = c.look(); !ok(v) {
			continue
		}
		clear(held)
		for al := range c.allocations() {
			held[al.Handle] = al.Address
		}
		if fmt.Sprint(held) == fmt.Sprint(v.addresses) {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(c.server.Dir, "replica.log"))
	c.Fatalf("%s: %d claims, %d with addresses, %v; the IPAddresses are %v, the store has %v\n%s", what, v.claims, v.refs, v.reasons, v.addresses, held, log[max(0, len(log)-4000):])
}

// Claims get addresses and give them back while replicas and the API server are killed: nothing twice, nothing lost, and in
// the end the claims, the IPAddresses and the store agree.
func TestClaims(t *testing.T) {
	c := begin(t)
	c.start(0)
	c.start(1)
	c.request(http.MethodPost, poolsPath, "apiVersion: ipam.ipalloc.dev/v1alpha1\nkind: IPPool\nmetadata: {name: machines}\n"+
		"spec: {addresses: [10.20.0.1-10.20.0.101], prefix: 24, gateway: 10.20.0.1}\n")

	c.claim(1, 30)
	c.kill(0) // in the middle of the work
	c.claim(31, 60)
	c.start(0)
	c.kill(1)
	c.settled("60 claims", func(v view) bool { return v.claims == 60 && v.refs == 60 && len(v.addresses) == 60 })
	before := c.look()

	c.start(1)
	c.unclaim(1, 20)
	c.server.Kill()
	if err := c.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.kill(0)
	c.unclaim(21, 30)
	c.start(0)
	c.settled("30 deleted", func(v view) bool { return v.claims == 30 && v.refs == 30 && len(v.addresses) == 30 })
	for uid, a := range c.look().addresses {
		if before.addresses[uid] != a {
			t.Errorf("a claim that stayed has %v, had %v", a, before.addresses[uid])
		}
	}

	// The pool has 100 addresses beside the gateway: one claim too many waits until another is gone.
	c.claim(100, 170)
	c.settled("a full pool", func(v view) bool {
		return v.claims == 101 && len(v.addresses) == 100 && v.reasons["PoolExhausted"] == 1
	})
	c.unclaim(60, 60)
	c.settled("room again", func(v view) bool { return v.claims == 100 && v.refs == 100 && v.reasons["Ready"] == 100 })

	// An IPAddress that is deleted by hand stays while its claim does, and comes back if its finalizer is taken away.
	c.request(http.MethodDelete, addressesPath+"/m59", "")
	c.settled("an address stays", func(v view) bool { return len(v.addresses) == 100 })
	c.request(http.MethodPatch, addressesPath+"/m59", `{"metadata": {"finalizers": []}}`)
	c.settled("an address comes back", func(v view) bool { return len(v.addresses) == 100 })

	// Foreign owner references free nothing, and IPAddresses of another namespace take nothing away.
	c.request(http.MethodPost, "/api/v1/namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: evil}\n")
	before = c.look()
	for _, owner := range []string{"apiVersion: v1, kind: ConfigMap, name: x", "apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, controller: true, name: stray"} {
		refs := ""
		for uid := range before.addresses {
			if refs == "" || !strings.Contains(owner, "controller") { // there is one controller at most
				refs += "  - {" + owner + ", uid: " + uid + "}\n"
			}
		}
		evil := strings.Replace(addressesPath, "default", "evil", 1)
		c.request(http.MethodPost, evil, "apiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddress\nmetadata:\n  name: stray\n  ownerReferences:\n"+refs+
			"spec: {address: 10.20.0.7, prefix: 24, claimRef: {name: stray}, poolRef: {apiGroup: ipam.ipalloc.dev, kind: IPPool, name: machines}}\n")
		for end := time.Now().Add(time.Minute); strings.Contains(c.request(http.MethodGet, evil, ""), `"name":"stray"`); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the IPAddress stays")
			}
		}
	}
	c.settled("every address is where it was", func(v view) bool { return fmt.Sprint(v.addresses) == fmt.Sprint(before.addresses) })

	// An IPAddress of a claim that is gone, as a replica leaves behind that is killed between two steps, goes.
	c.request(http.MethodPost, addressesPath, "apiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddress\nmetadata:\n  name: gone\n"+
		"  ownerReferences: [{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, name: gone, uid: 00000000-0000-4000-8000-000000000000}]\n"+
		"spec: {address: 10.20.0.200, prefix: 24, gateway: 10.20.0.1, claimRef: {name: gone}, poolRef: {apiGroup: ipam.ipalloc.dev, kind: IPPool, name: machines}}\n")
	c.settled("a stray IPAddress goes", func(v view) bool { return v.claims == 100 && len(v.addresses) == 100 })

	// A deleted pool goes with its last claim.
	c.request(http.MethodDelete, poolsPath+"/machines", "")
	c.unclaim(31, 59)
	c.unclaim(100, 170)
	c.settled("nothing is left", func(v view) bool { return v.claims == 0 && len(v.addresses) == 0 })
	for end := time.Now().Add(time.Minute); strings.Contains(c.request(http.MethodGet, poolsPath, ""), "machines"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pool stays")
		}
	}
	for name, err := range c.engine.Operator().Spaces(t.Context()) {
		t.Errorf("space %s is left, %v", name, err)
	}
}

// Objects that are there before the store keep their addresses: after a move, or with a store that was lost.
func TestTakeOver(t *testing.T) {
	c := begin(t)
	c.request(http.MethodPost, poolsPath, "apiVersion: ipam.ipalloc.dev/v1alpha1\nkind: IPPool\nmetadata: {name: machines}\n"+
		"spec: {addresses: [10.20.0.10-10.20.0.19], prefix: 24, gateway: 10.20.0.1}\n")
	c.claim(1, 10)
	for i, cl := range c.claimsNow() {
		if i >= 6 {
			break
		}
		c.request(http.MethodPost, addressesPath, fmt.Sprintf("apiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddress\nmetadata:\n  name: %s\n"+
			"  ownerReferences: [{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, name: %s, uid: %s, controller: true, blockOwnerDeletion: true}]\n"+
			"spec: {address: 10.20.0.%d, prefix: 24, gateway: 10.20.0.1, claimRef: {name: %s}, poolRef: {apiGroup: ipam.ipalloc.dev, kind: IPPool, name: machines}}\n",
			cl.Name, cl.Name, cl.UID, 10+i, cl.Name))
	}
	before := c.look()
	c.start(0)
	c.start(1)
	c.settled("10 claims", func(v view) bool { return v.refs == 10 && len(v.addresses) == 10 })
	for uid, a := range before.addresses {
		if now := c.look().addresses[uid]; now != a {
			t.Errorf("%v became %v", a, now)
		}
	}
}

// claimsNow returns the claims of the default namespace.
func (c *cluster) claimsNow() []claim {
	var cs struct{ Items []claim }
	if err := json.Unmarshal([]byte(c.request(http.MethodGet, claimsPath, "")), &cs); err != nil {
		c.Fatal(err)
	}
	return cs.Items
}
