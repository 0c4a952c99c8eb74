//go:build e2e && linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The definition of ClusterCIDR as kubernetes-sigs/node-ipam-controller documents its
// fields: no status, no columns, immutable field by field.
const theirDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clustercidrs.networking.x-k8s.io}
spec:
  group: networking.x-k8s.io
  scope: Cluster
  names: {kind: ClusterCIDR, listKind: ClusterCIDRList, plural: clustercidrs, singular: clustercidr}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [perNodeHostBits]
            properties:
              perNodeHostBits: {type: integer, format: int32, x-kubernetes-validations: [{rule: oldSelf == self}]}
              ipv4: {type: string, x-kubernetes-validations: [{rule: oldSelf == self}]}
              ipv6: {type: string, x-kubernetes-validations: [{rule: oldSelf == self}]}
              nodeSelector:
                type: object
                x-kubernetes-map-type: atomic
                required: [nodeSelectorTerms]
                properties:
                  nodeSelectorTerms:
                    type: array
                    x-kubernetes-list-type: atomic
                    items:
                      type: object
                      properties:
                        matchExpressions: {type: array, items: {type: object, required: [key, operator], properties: {key: {type: string}, operator: {type: string}, values: {type: array, items: {type: string}}}}}
                        matchFields: {type: array, items: {type: object, required: [key, operator], properties: {key: {type: string}, operator: {type: string}, values: {type: array, items: {type: string}}}}}
`

// theirObject returns a ClusterCIDR as it is after the other controller has seen it.
func theirObject(name string, bits int, ipv4, ipv6, key string) string {
	return fmt.Sprintf(`apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: %s, finalizers: [networking.x-k8s.io/cluster-cidr-finalizer]}
spec:
  perNodeHostBits: %d
  ipv4: %s
  ipv6: "%s"
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: %s, operator: Exists}]}]}
`, name, bits, ipv4, ipv6, key)
}

// upgrade takes over a cluster that kubernetes-sigs/node-ipam-controller has served: its
// definition and its objects, two of which overlap and one of which is being deleted, and
// nodes that have CIDRs and no record of where these come from.
func (r *run) upgrade() {
	r.clear()
	r.c.applyAll(r.T, "their definition", strings.NewReader(theirDefinition))
	r.waitServed(clusterCIDRPath)
	r.post(clusterCIDRPath, theirObject("controlplane", 7, "10.120.0.0/16", "fd00:120::/112", "group/control-plane"), "")
	r.post(clusterCIDRPath, theirObject("worker", 8, "10.120.0.0/16", "fd00:120::/112", "group/worker"), "")
	r.post(clusterCIDRPath, theirObject("old", 4, "10.121.0.0/24", "fd00:121::/120", "group/old"), "")
	if err := r.c.client.RESTClient().Delete().AbsPath(clusterCIDRPath, "old").Do(r.Context()).Error(); err != nil {
		r.Fatal(err)
	}
	groups, before := theirNodes()
	all := slices.Concat(slices.Collect(maps.Values(groups))...)
	r.each(all, r.create)

	r.controller(r.direct, "-cidr-allocator-type", "MultiCIDRRangeAllocator", "-families", "IPv4,IPv6", "-cluster-cidrs-sync-period", "200ms")
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(all) })
	r.check()
	entries := map[string]string{"control-plane": "controlplane", "worker": "worker", "old": "old"}
	wait(r.T, "the ClusterCIDRs of nodes to be recorded", func() bool {
		for _, n := range r.nodes() {
			if n.Annotations["node-ipam-controller.ipalloc.dev/cluster-cidr"] != entries[n.Name[:strings.LastIndexByte(n.Name, '-')]] {
				return false
			}
		}
		return true
	})
	for _, n := range r.nodes() {
		if had, ok := before[n.Name]; ok && !slices.Equal(had.PodCIDRs, n.Spec.PodCIDRs) {
			r.Errorf("%s had %v and has %v", n.Name, had.PodCIDRs, n.Spec.PodCIDRs)
		}
	}
	if text := r.get("/metrics"); !strings.Contains(text, "\nnode_ipam_nodes_bad_record 0\n") {
		r.Error("there are bad records")
	}

	// Our definition over theirs: the statuses come, and old is there as long as its nodes.
	r.c.apply(r.T, "../deploy/chart/crds/crds.yaml")
	wait(r.T, "the statuses", func() bool {
		a, _ := r.object(clusterCIDRPath, "controlplane")
		b, _ := r.object(clusterCIDRPath, "worker")
		c, ok := r.object(clusterCIDRPath, "old")
		return a.Status.Nodes == 13 && b.Status.Nodes == 13 && c.Status.Nodes == 12 && ok
	})
	r.each(groups["old"], r.delete)
	wait(r.T, "old to be gone with its nodes", func() bool {
		_, ok := r.object(clusterCIDRPath, "old")
		return !ok
	})
	r.check()
	r.clear()
	for _, name := range []string{"controlplane", "worker"} {
		if err := r.c.client.RESTClient().Delete().AbsPath(clusterCIDRPath, name).Do(r.Context()).Error(); err != nil {
			r.Fatal(err)
		}
		wait(r.T, name+" to be gone", func() bool {
			_, ok := r.object(clusterCIDRPath, name)
			return !ok
		})
	}
}

// theirNodes returns nodes by group as the other controller has left them, with the specs
// of those that have CIDRs.
func theirNodes() (groups map[string][]*v1.Node, before map[string]v1.NodeSpec) {
	groups, before = map[string][]*v1.Node{}, map[string]v1.NodeSpec{}
	node := func(group string, cidrs ...string) {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", group, len(groups[group])), Labels: map[string]string{"group/" + group: ""}}}
		if len(cidrs) > 0 {
			n.Spec = v1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs}
		}
		groups[group] = append(groups[group], n)
	}
	for i := range 12 {
		node("control-plane", fmt.Sprintf("10.120.%d.%d/25", i/2, i%2*128), strings.Replace(fmt.Sprintf("fd00:120::%x/121", i*128), "::0/", "::/", 1))
		node("worker", fmt.Sprintf("10.120.%d.0/24", 8+i), fmt.Sprintf("fd00:120::%x/120", (8+i)*256))
		node("old", fmt.Sprintf("10.121.0.%d/28", i*16), strings.Replace(fmt.Sprintf("fd00:121::%x/124", i*16), "::0/", "::/", 1))
	}
	for _, n := range slices.Concat(slices.Collect(maps.Values(groups))...) {
		before[n.Name] = n.Spec
	}
	node("control-plane")
	node("worker")
	return groups, before
}

// waitServed waits until the API server serves resources.
func (r *run) waitServed(paths ...string) {
	r.Helper()
	wait(r.T, "the definitions to be served", func() bool {
		for _, path := range paths {
			if r.c.client.RESTClient().Get().AbsPath(path).Do(r.Context()).Error() != nil {
				return false
			}
		}
		return true
	})
}

// tables asks for what kubectl get shows of both kinds.
func (r *run) tables() {
	r.Helper()
	for _, want := range []struct{ path, row string }{
		{clusterCIDRPath, "a 10.112.0.0/16 216 fd00:20::/64 72057594037927896 40 True"},
		{configPath, "rack1 10.128.0.0/16 1004 fd00:30::/64 288230376151711724 20 True"},
	} {
		var table metav1.Table
		data, err := r.c.client.RESTClient().Get().AbsPath(want.path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(r.Context())
		if err == nil {
			err = json.Unmarshal(data, &table)
		}
		if err != nil || len(table.Rows) != 1 {
			r.Fatalf("%v: %s", err, data)
		}
		var columns []string
		for _, c := range table.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
		if got := strings.Join(columns, " "); got != "Name IPv4 Free-IPv4 IPv6 Free-IPv6 Nodes Ready Age" {
			r.Errorf("%s: columns %s", want.path, got)
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var exact struct{ Rows []struct{ Cells []any } }
		if err := decoder.Decode(&exact); err != nil {
			r.Fatal(err)
		}
		cells := exact.Rows[0].Cells
		if got := strings.Trim(fmt.Sprint(cells[:len(cells)-1]), "[]"); got != want.row {
			r.Errorf("%s: row %s, want %s", want.path, got, want.row)
		}
		if age := fmt.Sprint(cells[len(cells)-1]); !regexp.MustCompile(`^\d+[sm]`).MatchString(age) {
			r.Errorf("%s: age %s", want.path, age)
		}
	}
}
