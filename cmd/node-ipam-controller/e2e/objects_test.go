//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	clusterCIDRPath = "/apis/networking.x-k8s.io/v1/clustercidrs"
	configPath      = "/apis/networking.ipalloc.dev/v1/clustercidrconfigs"
)

// clusterCIDR is what the scenario looks at in an object of either kind.
type clusterCIDR struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Nodes      int64 `json:"nodes"`
		IPv4       struct{ Capacity, Used, Free int64 }
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// object returns an object, ok is false if there is none.
func (r *run) object(path, name string) (o clusterCIDR, ok bool) {
	r.Helper()
	data, err := r.c.client.RESTClient().Get().AbsPath(path, name).DoRaw(r.Context())
	if apierrors.IsNotFound(err) {
		return o, false
	}
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		r.Fatal(err)
	}
	return o, true
}

// post creates an object; want is a part of the error, "" for none. It asks for no validation of fields, as client-go and
// Terraform do: the API server then drops the fields that a definition does not keep.
func (r *run) post(path, body, want string) {
	r.Helper()
	err := r.c.client.RESTClient().Post().AbsPath(path).
		SetHeader("Content-Type", "application/yaml").Body([]byte(body)).Do(r.Context()).Error()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		r.Fatalf("%s: %v, want %q", body, err, want)
	}
}

// objects starts over with ClusterCIDRs of the API server, in both kinds.
func (r *run) objects() {
	r.clear()
	r.c.apply(r.T, "../deploy/chart/crds/crds.yaml")
	r.waitServed(clusterCIDRPath, configPath)
	config := "apiVersion: networking.ipalloc.dev/v1\nkind: ClusterCIDRConfig\nmetadata: {name: rack1}\nspec:\n  ipv4: {cidr: 10.128.0.0/16, perNodeMaskSize: 26}\n  ipv6: {cidr: \"fd00:30::/64\", perNodeMaskSize: 122}\n"
	r.post(clusterCIDRPath, clusterCIDRText("a"), "ipv4 or ipv6 is needed")
	r.post(configPath, config+"  nodeSelector: {nodeSelectorTerms: []}\n", "an empty selector")
	r.post(configPath, config+"  nodeSelector: {}\n", "an empty selector")
	r.post(clusterCIDRPath, clusterCIDRText("a")+"  ipv4: 10.112.0.0/16\n  nodeSelector: {matchLabels: {rack: r9}}\n", "an empty selector")
	misspelt := []string{
		"nodeSelectr: {nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: In, values: [r9]}]}]}",
		"nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Exists}]}], matchLabels: {rack: r9}}",
		"nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Exists}], matchField: []}]}",
	}
	for i, field := range misspelt {
		r.post(clusterCIDRPath, clusterCIDRText(fmt.Sprint("misspelt", i))+fmt.Sprintf("  ipv4: 10.14%d.0.0/16\n  ipv6: \"fd00:4%d::/64\"\n  %s\n", i, i, field), "")
	}
	r.post(clusterCIDRPath, clusterCIDRText("a")+"  ipv4: 10.112.0.0/16\n  ipv6: \"fd00:20::/64\"\n", "")
	r.post(configPath, config+"  nodeSelector: {matchLabels: {rack: rack1}}\n", "")
	flags := []string{"-cidr-allocator-type", "MultiCIDRRangeAllocator", "-families", "IPv4,IPv6", "-cluster-cidrs-sync-period", "200ms"}
	p := r.controller(r.direct, flags...)
	nodes := made("o", 60)
	for i, n := range nodes {
		if i%3 == 0 {
			n.Labels = map[string]string{"rack": "rack1"}
		}
	}
	r.each(nodes[:30], r.create)
	p.kill()
	p = r.controller(r.direct, flags...)
	for i := range misspelt {
		name := fmt.Sprint("misspelt", i)
		wait(r.T, name+" to be refused", func() bool {
			o, _ := r.object(clusterCIDRPath, name)
			return len(o.Status.Conditions) == 1 && o.Status.Conditions[0].Reason == "Refused" && strings.Contains(o.Status.Conditions[0].Message, "unknown field")
		})
		if err := r.c.client.RESTClient().Delete().AbsPath(clusterCIDRPath, name).Do(r.Context()).Error(); err != nil {
			r.Fatal(err)
		}
	}
	r.each(nodes[30:], r.create)
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(nodes) })
	r.check()
	for _, n := range r.nodes() {
		want := "10.112."
		if n.Labels["rack"] == "rack1" {
			want = "10.128."
		}
		if !strings.HasPrefix(n.Spec.PodCIDR, want) {
			r.Errorf("%s has %s", n.Name, n.Spec.PodCIDR)
		}
	}
	wait(r.T, "the statuses", func() bool {
		a, _ := r.object(clusterCIDRPath, "a")
		b, _ := r.object(configPath, "rack1")
		return a.Status.Nodes == 40 && a.Status.IPv4.Free == 216 && b.Status.Nodes == 20 && b.Status.IPv4.Capacity == 1024
	})
	r.tables()
	r.immutable()
	r.deletedWithNodes(nodes)
	p.kill()
	r.uninstall(flags)
}

// immutable checks that the API server refuses another spec, and that a ServiceCIDR is
// reserved while the controller runs.
func (r *run) immutable() {
	// The spec is immutable.
	for path, patch := range map[string]string{clusterCIDRPath + "/a": `{"spec":{"perNodeHostBits":9}}`, configPath + "/rack1": `{"spec":{"nodeSelector":null}}`} {
		err := r.c.client.RESTClient().Patch(types.MergePatchType).AbsPath(path).Body([]byte(patch)).Do(r.Context()).Error()
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "immutable") {
			r.Errorf("%s: %v", path, err)
		}
	}

	// A ServiceCIDR is reserved while the controller runs: of the 256 CIDRs of a, 40 are
	// taken, and half of those that are left go to services.
	service := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.112.128.0/17"}}}
	if _, err := r.c.client.NetworkingV1().ServiceCIDRs().Create(r.Context(), service, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	wait(r.T, "the ServiceCIDR to be reserved", func() bool {
		a, _ := r.object(clusterCIDRPath, "a")
		return a.Status.IPv4.Free == 88
	})
}

// deletedWithNodes deletes an object that has nodes.
func (r *run) deletedWithNodes(nodes []*v1.Node) {
	// A deleted object stays until its last node is gone, and serves no other. A node
	// that is created again, with another UID, is another.
	if err := r.c.client.RESTClient().Delete().AbsPath(clusterCIDRPath, "a").Do(r.Context()).Error(); err != nil {
		r.Fatal(err)
	}
	wait(r.T, "a to be terminating", func() bool {
		a, ok := r.object(clusterCIDRPath, "a")
		return ok && len(a.Status.Conditions) == 1 && a.Status.Conditions[0].Reason == "Terminating"
	})
	wait(r.T, "an event of a", func() bool {
		events, err := r.c.client.CoreV1().Events("default").List(r.Context(), metav1.ListOptions{FieldSelector: "reason=ClusterCIDRTerminating,involvedObject.name=a"})
		return err == nil && len(events.Items) == 1
	})
	again := []*v1.Node{nodes[1].DeepCopy()}
	r.each(again, r.delete)
	r.each(again, r.create)
	wait(r.T, "an event for the node that no object serves", func() bool {
		events, err := r.c.client.CoreV1().Events("default").List(r.Context(), metav1.ListOptions{FieldSelector: "reason=CIDRNotAvailable,involvedObject.name=" + again[0].Name})
		return err == nil && len(events.Items) > 0
	})
	if n := r.served(); n != len(nodes)-1 {
		r.Errorf("%d nodes have CIDRs", n)
	}
	r.post(clusterCIDRPath, clusterCIDRText("b")+"  ipv4: 10.113.0.0/16\n  ipv6: \"fd00:21::/64\"\n", "")
	wait(r.T, "the node to be served by b", func() bool { return r.served() == len(nodes) })
	r.check()
	if _, ok := r.object(clusterCIDRPath, "a"); !ok {
		r.Error("a is gone before its nodes are")
	}
	var rest []*v1.Node
	for i, n := range nodes {
		if i%3 != 0 && i != 1 {
			rest = append(rest, n)
		}
	}
	r.each(rest, r.delete)
	wait(r.T, "a to be gone with its nodes", func() bool {
		_, ok := r.object(clusterCIDRPath, "a")
		return !ok
	})
}

// clusterCIDRText returns the beginning of a ClusterCIDR.
func clusterCIDRText(name string) string {
	return "apiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\nmetadata: {name: " + name + "}\nspec:\n  perNodeHostBits: 8\n"
}

// made returns nodes that are made up.
func made(prefix string, n int) (nodes []*v1.Node) {
	for i := range n {
		nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", prefix, i)}})
	}
	return nodes
}
