//go:build e2e && linux

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestRights runs the controller with accounts that lack one right each, beside ServiceCIDRs that change, and dry on a ClusterCIDR.
func TestRights(t *testing.T) {
	r := &run{T: t}
	r.image()
	r.c = newCluster(t, "10.96.0.0/24,fd00:10::/112")
	r.c.apply(t, "../deploy/chart/crds/crds.yaml")
	r.c.apply(t, "../deploy/chart/base/rbac.yaml")
	r.c.login(t)
	r.direct = r.c.kubeconfig(t, "direct.kubeconfig", r.c.url)
	r.log = filepath.Join(r.c.dir, "controller.log")
	for _, part := range []struct {
		name string
		f    func(*run)
	}{{"dry run", (*run).dryRunOfObjects}, {"one less", (*run).oneRightLess}, {"service ranges", (*run).serviceRanges}} {
		t.Run(part.name, func(t *testing.T) {
			q := *r
			q.T = t
			q.http = fmt.Sprintf("127.0.0.1:%d", freePort(t))
			part.f(&q)
		})
	}
}

// shippedRights returns the rights that the manifests grant, one rule each.
func shippedRights(t *testing.T) (rules []rbacv1.PolicyRule) {
	text, err := os.ReadFile("../deploy/chart/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if err != nil {
			return rules
		}
		var role rbacv1.Role
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rules = append(rules, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: rule.ResourceNames})
				}
			}
		}
	}
}

// Whichever right an account lacks, the metric of the alert NodeIPAMForbidden says so, also before a request needs the right, and
// names no other.
func (r *run) oneRightLess() {
	rules := shippedRights(r.T)
	if len(rules) < 19 {
		r.Fatalf("the manifests grant %d rights", len(rules))
	}
	for i, missing := range rules {
		name := fmt.Sprint("less-", i)
		rest := append(append([]rbacv1.PolicyRule(nil), rules[:i]...), rules[i+1:]...)
		kubeconfig := r.account(name, rest)
		p := r.controller(kubeconfig, "-cidr-allocator-type", "MultiCIDRRangeAllocator")
		want := fmt.Sprintf("node_ipam_right_missing{resource=%q,verb=%q} 1\n", missing.Resources[0], missing.Verbs[0])
		wait(r.T, want, func() bool { return strings.Contains(r.get("/metrics"), want) })
		wait(r.T, "all rights", func() bool { return strings.Count(r.get("/metrics"), "node_ipam_right_missing{") == len(rules) })
		for line := range strings.Lines(r.get("/metrics")) {
			if strings.HasPrefix(line, "node_ipam_right_missing{") && strings.HasSuffix(line, " 1\n") && line != want {
				r.Errorf("%s lacks %v: %s", name, missing, line)
			}
		}
		p.kill()
	}
}

// account makes a service account with the given rights and returns its kubeconfig, when the API server knows them.
func (r *run) account(name string, rules []rbacv1.PolicyRule) string {
	r.Helper()
	accounts, rbac := r.c.client.CoreV1().ServiceAccounts("kube-system"), r.c.client.RbacV1()
	meta := metav1.ObjectMeta{Name: name}
	_, err := accounts.Create(r.Context(), &v1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.ClusterRoles().Create(r.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = rbac.ClusterRoleBindings().Create(r.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "kube-system"}}}, metav1.CreateOptions{})
	}
	if err != nil {
		r.Fatal(err)
	}
	token, err := accounts.CreateToken(r.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:kube-system:" + name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: rules[0].Verbs[0], Resource: rules[0].Resources[0], Group: rules[0].APIGroups[0]}}}
	wait(r.T, "the rights of "+name, func() bool { return r.c.allowed(r.Context(), r.T, review) })
	account := *r.c
	account.token = token.Status.Token
	return account.kubeconfig(r.T, name+".kubeconfig", r.c.url)
}

// A dry run leaves a ClusterCIDR as it is, without a finalizer and a status.
func (r *run) dryRunOfObjects() {
	client := r.c.client.RESTClient()
	const path = "/apis/networking.x-k8s.io/v1/clustercidrs"
	body := `{"apiVersion":"networking.x-k8s.io/v1","kind":"ClusterCIDR","metadata":{"name":"dry"},"spec":{"perNodeHostBits":8,"ipv4":"10.200.0.0/16"}}`
	if err := client.Post().AbsPath(path).Body([]byte(body)).Do(r.Context()).Error(); err != nil {
		r.Fatal(err)
	}
	out, err := exec.Command(r.program, "-kubeconfig", r.direct, "-dry-run", "-cidr-allocator-type", "MultiCIDRRangeAllocator").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "0 things are wrong") {
		r.Errorf("%v\n%s", err, out)
	}
	data, err := client.Get().AbsPath(path, "dry").DoRaw(r.Context())
	if err != nil || strings.Contains(string(data), "finalizers") || strings.Contains(string(data), `"status"`) {
		r.Errorf("%v: %s", err, data)
	}
	if err := client.Delete().AbsPath(path, "dry").Do(r.Context()).Error(); err != nil {
		r.Error(err)
	}
}

// ServiceCIDRs that come, grow by a family and go: no node gets a CIDR in one that is there, nodes keep what they have, and what is free
// again is given to the nodes that wait.
func (r *run) serviceRanges() {
	args := []string{"-kubeconfig", r.direct, "-allocate-node-cidrs", "-http-address", r.http, "-cluster-cidr", "10.96.0.0/22,fd00:20::/62",
		"-leader-elect=false"}
	p := supervise(r.T, r.log, r.program, args...)
	defer p.kill()
	defer func() {
		if r.Failed() {
			r.Log(tail(r.log))
		}
	}()
	made := 0
	nodes := func(n int) {
		r.Helper()
		for range n {
			if err := r.create(r.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("range-", made)}}); err != nil {
				r.Fatal(err)
			}
			made++
		}
	}
	reserved := func(cidrs ...string) {
		r.Helper()
		wait(r.T, fmt.Sprint("the reservation of ", cidrs), func() bool {
			text := r.get("/metrics")
			for _, c := range cidrs {
				if !strings.Contains(text, fmt.Sprintf("node_ipam_service_cidr_reserved{cidr=%q} 1\n", c)) {
					return false
				}
			}
			return strings.Count(text, "node_ipam_service_cidr_reserved{") == len(cidrs)
		})
	}
	holders := func() map[netip.Prefix]string {
		out := map[netip.Prefix]string{}
		for _, n := range r.nodes() {
			for _, c := range n.Spec.PodCIDRs {
				if other := out[netip.MustParsePrefix(c)]; other != "" {
					r.Errorf("%s and %s have %s", n.Name, other, c)
				}
				out[netip.MustParsePrefix(c)] = n.Name
			}
		}
		return out
	}
	const first4, first6 = "10.96.0.0/24", "fd00:10::/112"
	reserved(first4, first6)
	nodes(1)
	wait(r.T, "a node to be served", func() bool { return r.served() == 1 })
	cidrs := r.c.client.NetworkingV1().ServiceCIDRs()
	_, err := cidrs.Create(r.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.2.0/24"}}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	reserved(first4, first6, "10.96.2.0/24")
	_, err = cidrs.Patch(r.Context(), "more", types.MergePatchType, []byte(`{"spec":{"cidrs":["10.96.2.0/24","fd00:20:0:1::/112"]}}`), metav1.PatchOptions{})
	if err != nil {
		r.Fatal(err)
	}
	reserved(first4, first6, "10.96.2.0/24", "fd00:20:0:1::/112")
	nodes(3) // of which two wait: 10.96.1.0/24 and 10.96.3.0/24 are all that is left
	wait(r.T, "a second node to be served", func() bool { return r.served() == 2 })
	r.waitMetrics("two nodes to wait", func(m map[string]float64) bool { return m["node_ipam_nodes_full"] == 2 })
	before := holders()
	for p, name := range before {
		for _, s := range []string{first4, "10.96.2.0/24", "fd00:20:0:1::/112"} {
			if p.Overlaps(netip.MustParsePrefix(s)) {
				r.Errorf("%s has %v of the services' %s", name, p, s)
			}
		}
	}
	if err := cidrs.Delete(r.Context(), "more", metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	reserved(first4, first6)
	wait(r.T, "a third node to be served", func() bool { return r.served() == 3 })
	after := holders()
	for p, name := range before {
		if after[p] != name {
			r.Errorf("%v of %s went to %q", p, name, after[p])
		}
	}
}
