package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

func TestEntriesInBothForms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "entries.yaml")
	text := []byte(`
---
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata:
  name: bits
spec:
  perNodeHostBits: 8
  ipv4: 010.000.3.0/16
  ipv6: fd00::/64
  nodeSelector:
    nodeSelectorTerms:
    - matchExpressions: [{key: pool, operator: In, values: [a, b]}, {key: rack, operator: Exists}]
    - matchFields: [{key: metadata.name, operator: In, values: [n1]}]
---
apiVersion: baremetal.cluster.gke.io/v1
kind: ClusterCIDRConfig
metadata: {name: masks, deletionTimestamp: "2026-01-02T03:04:05Z"}
spec:
  ipv4: {cidr: 10.1.7.0/16, perNodeMaskSize: 24}
  ipv6: {cidr: "fd01::/64", perNodeMaskSize: 120}
`)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := parseEntries(text)
	if err != nil {
		t.Fatal(err)
	}
	want := "[{bits [{[{pool In [a b]} {rack Exists []}] []} {[] [{metadata.name In [n1]}]}] 10.0.0.0/16 fd00::/64 8 0 0} {masks [] 10.1.0.0/16 fd01::/64 0 24 120}]"
	if got := fmt.Sprint([]nodeipam.Entry{entries[0].Entry, entries[1].Entry}); got != want || entries[0].deleted || !entries[1].deleted {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	o, err := parse(t, "-cluster-cidrs", path, "-families", "IPv6, ipv4", "-service-cluster-ip-range", "10.0.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChooser(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := c.allocator
	if p := a.Stats().Pools[0]; p.Entry != "bits" || p.Capacity != 256 || p.Free != 255 {
		t.Fatal(p)
	}
	if as, err := a.Allocate(node("n1")); err != nil || as.Entry != "bits" || fmt.Sprint(as.Prefixes) != "[fd00::/120 10.0.1.0/24]" {
		t.Fatal(as, err)
	}
	if as, err := a.Allocate(node("n2")); err != nil || as.Entry != "masks" || a.Stats().Nodes != 2 {
		t.Fatal(as, err)
	}
}

// bomb returns fields of which each has ten aliases of the one before.
func bomb(depth int) (text string) {
	for i := range depth {
		text += fmt.Sprintf("%c: &%[1]c [%s]\n", 'b'+i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", 'a'+i), 10), ", "))
	}
	return text
}

func TestBadEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "entries.yaml")
	o, err := parse(t, "-cluster-cidrs", path)
	if err != nil {
		t.Fatal(err)
	}
	head := func(kind, spec string) string {
		return "apiVersion: x/v1\nkind: " + kind + "\nmetadata:\n  name: x\nspec:\n" + spec
	}
	const good = "  perNodeHostBits: 8\n  ipv4: 10.0.0.0/16\n"
	for text, want := range map[string]string{
		"":                "no ClusterCIDR in it",
		"# nothing yet\n": "no ClusterCIDR in it",
		"{":               "yaml",
		"apiVersion: v1\nkind: Node\nmetadata: {name: x}":                                                                                                    `kind "Node", want ClusterCIDR`,
		"kind: ClusterCIDR\nmetadata: {name: x}":                                                                                                             "no apiVersion",
		"apiVersion: x/v1\nkind: ClusterCIDR\nspec: {}":                                                                                                      "no metadata.name",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {name: x}\nspec: ":                                                                                   "no spec",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {name: 7}":                                                                                           "metadata.name: want a string",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {nam: x}":                                                                                            "unknown field \"metadata.nam\"",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {name: x}\nsepc: {}":                                                                                 "unknown field \"sepc\"",
		head("ClusterCIDR", "  perNodeHostBits: 8\n  ipv4: 10.0.0\n"):                                                                                        `spec.ipv4: "10.0.0" is no CIDR`,
		head("ClusterCIDR", "  perNodeHostBits: \"8\"\n"):                                                                                                    "spec.perNodeHostBits: want an integer",
		head("ClusterCIDR", "  perNodeHostBits: 8.5\n"):                                                                                                      "spec.perNodeHostBits: want an integer",
		head("ClusterCIDR", "  ipv4: {cidr: 10.0.0.0/16}\n"):                                                                                                 "spec.ipv4: want a string",
		head("ClusterCIDR", good+"  ipv4: 10.1.0.0/16\n"):                                                                                                    `line 8: key "ipv4" already set`,
		head("ClusterCIDR", good+"  nodeSelectr: {}\n"):                                                                                                      "unknown field \"spec.nodeSelectr\"",
		head("ClusterCIDR", good+"  network: n\n"):                                                                                                           "unknown field \"spec.network\"",
		head("ClusterCIDR", good+"  nodeSelector:\n    matchLabels: {a: b}\n"):                                                                               "unknown field \"spec.nodeSelector.matchLabels\"",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerm: []\n"):                                                                              "unknown field \"spec.nodeSelector.nodeSelectorTerm\"",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerms: {}\n"):                                                                             "spec.nodeSelector.nodeSelectorTerms: want a list",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerms: [{}]\n"):                                                                           "spec.nodeSelector: nodeipam: add entry",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerms:\n    - matchExpressions:\n      - {key: a, operator: Near}\n"):                     `Selector[0].Labels[0]: unknown operator: "Near"`,
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [1]}]}]}\n"):                       "matchExpressions.values: want a string",
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, value: [b]}]}]}\n"):                        "nodeSelectorTerms[0].matchExpressions[0].value\"",
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: Exists}]}]}\n"):                         `Selector[0].Fields[0]: unknown operator: "Exists"`,
		head("ClusterCIDR", good+"  nodeSelector: {}\n"):                                                                                                     "spec.nodeSelector: an empty selector",
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: []}\n"):                                                                                "spec.nodeSelector: an empty selector",
		head("ClusterCIDRConfig", "  ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}\n  nodeSelector: {matchLabels: {}, matchExpressions: }\n"):               "spec.nodeSelector: an empty selector",
		"&t\napiVersion: v1\nkind: List\nitems: [*t]\n":                                                                                                      "anchor 't' value contains itself",
		"&t\napiVersion: v1\nkind: ClusterCIDRList\nitems: [{kind: List, apiVersion: v1, <<: *t}]\n":                                                         "contains itself",
		"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + bomb(6):                                                                                                   "excessive aliasing",
		"kind: " + strings.Repeat("x", maxFile):                                                                                                              "more than 4194304 bytes",
		head("ClusterCIDR", "  ipv4: 10.0.0.0/16\n"):                                                                                                         "spec.perNodeHostBits: nodeipam: add entry",
		head("ClusterCIDRConfig", good):                                                                                                                      "spec.ipv4: want a mapping of fields, not string",
		head("ClusterCIDRConfig", "  ipv4: 10.0.0.0/16\n"):                                                                                                   "spec.ipv4: want a mapping of fields",
		head("ClusterCIDRConfig", "  ipv4: {cidr: z, perNodeMaskSize: 24}\n"):                                                                                `spec.ipv4.cidr: "z" is no CIDR`,
		head("ClusterCIDRConfig", "  ipv4: {cidr: 10.0.0.0/16}\n"):                                                                                           "spec.ipv4: no perNodeMaskSize",
		head("ClusterCIDRConfig", "  ipv4: {cidr: 10.0.0.0/16, mask: 24}\n"):                                                                                 "unknown field \"spec.ipv4.mask\"",
		head("ClusterCIDRConfig", "  network: other\n"):                                                                                                      `spec.network: "other" is another network`,
		head("ClusterCIDRConfig", "  nodeSelector:\n    nodeSelectorTerms: []\n"):                                                                            "unknown field \"spec.nodeSelector.nodeSelectorTerms\"",
		head("ClusterCIDRConfig", "  nodeSelector:\n    matchLabels: {a: true}\n"):                                                                           "spec.nodeSelector.matchLabels: want a string",
		head("ClusterCIDRConfig", "  nodeSelector:\n    matchLabels: [a]\n"):                                                                                 "spec.nodeSelector.matchLabels: want a mapping",
		head("ClusterCIDRConfig", "  nodeSelector:\n    matchExpressions: [{key: a, operator: Gt, values: ['1']}]\n"):                                        `spec.nodeSelector: unknown operator "Gt"`,
		head("ClusterCIDRConfig", "  ipv4:\n    cidr: 10.0.0.0/16\n    perNodeMaskSize: 24\n  ipv6:\n    cidr: fd00::/64\n    perNodeMaskSize: 96\n"):        "spec.ipv6.perNodeMaskSize: nodeipam: add entry",
		head("ClusterCIDR", good) + "---\n" + head("ClusterCIDR", good):                                                                                      "metadata.name: a second entry of the name x",
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: x/v1\n  kind: ClusterCIDR\n  metadata: {name: x}\n  spec:\n    perNodeHostBits: 8\n    ipv5: x\n": "unknown field \"spec.ipv5\"",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newChooser(o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	o.families = "IPv4,IPv6,IPv5"
	if _, _, err := newLabelled(o, nil); err == nil || !strings.Contains(err.Error(), "-families") {
		t.Error(err)
	}
}

// A LabelSelector is the conjunction of its labels and expressions. Without one the entry
// is a default entry.
func TestLabelSelectors(t *testing.T) {
	for text, want := range map[string]string{
		"{matchLabels: {rack: rack1, 'node.kubernetes.io/instance-type': medium}}":             "[{[{node.kubernetes.io/instance-type In [medium]} {rack In [rack1]}] []}]",
		"{matchLabels: {a: b}, matchExpressions: [{key: c, operator: NotIn, values: [d, e]}]}": "[{[{a In [b]} {c NotIn [d e]}] []}]",
		"{matchExpressions: [{key: c, operator: DoesNotExist}]}":                               "[{[{c DoesNotExist []}] []}]",
		"{matchLabels: {a: ''}}": "[{[{a In []}] []}]",
		"{matchExpressions: [{key: c, operator: Exists}, {key: d, operator: Exists}, {key: e, operator: Exists}]}": "[{[{c Exists []} {d Exists []} {e Exists []}] []}]",
		"null": "[]",
	} {
		entries, err := parseEntries([]byte("apiVersion: x/v1\nkind: ClusterCIDRConfig\nmetadata: {name: x}\nspec: {ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}, nodeSelector: " + text + "}"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(entries[0].Selector); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// What kubectl get -o yaml prints is read as it is, status and all that an API server
// adds to the metadata.
func TestListsAsKubectlPrintsThem(t *testing.T) {
	entries, err := parseEntries([]byte(`apiVersion: v1
items:
- apiVersion: networking.x-k8s.io/v1
  kind: ClusterCIDR
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"networking.x-k8s.io/v1"}
    creationTimestamp: "2026-01-02T03:04:05Z"
    finalizers:
    - networking.x-k8s.io/cluster-cidr-finalizer
    generation: 1
    name: a
    resourceVersion: "123"
    uid: 11111111-2222-3333-4444-555555555555
  spec:
    ipv4: 10.244.0.0/16
    perNodeHostBits: 8
  status: {}
- apiVersion: networking.x-k8s.io/v1
  kind: ClusterCIDR
  metadata: {name: b}
  spec: {ipv6: "fd00::/64", perNodeHostBits: 8}
kind: List
metadata:
  resourceVersion: ""
`))
	if err != nil || len(entries) != 2 || entries[0].Name != "a" || entries[1].Name != "b" {
		t.Fatal(entries, err)
	}
}

// With -cluster-cidr, every ClusterCIDR needs the families of the cluster, in its order,
// and IPv4 pools lie inside of the cluster's.
func TestClusterWideRules(t *testing.T) {
	spec := func(fields string) string {
		return "apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {name: x}\nspec: {perNodeHostBits: 8, " + fields + "}"
	}
	for _, c := range []struct{ cluster, text, want string }{
		{"", spec("ipv4: 10.0.0.0/16"), "[10.0.0.0/24]"},
		{"fd00::/48,10.0.0.0/8", spec("ipv4: 10.0.0.0/16, ipv6: 'fd01::/64'"), "[fd01::/120 10.0.0.0/24]"},
		{"10.0.0.0/8,fd00::/48", spec("ipv4: 10.0.0.0/16"), "spec"},
		{"10.0.0.0/8", spec("ipv4: 11.0.0.0/16"), "spec.ipv4: node-ipam-controller: add entry 11.0.0.0/16 in \"x\": IPv4"},
		{"10.0.0.0/16", spec("ipv4: 10.0.0.0/16"), "[10.0.0.0/24]"},
		{"10.0.0.0/16", spec("ipv4: 10.0.0.0/8"), "outside of the pod CIDRs"},
		{"10.0.0.0/16", entryText("a", "10.0.0.0/8", "") + entryText("b", "10.0.0.0/8", "") + entryText("c", "10.0.0.0/8", ""), "\nc: "},
		{"10.0.0.0/16,11.0.0.0/16", spec("ipv4: 11.0.8.0/21"), "[11.0.8.0/24]"},
	} {
		path := filepath.Join(t.TempDir(), "entries.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := parse(t, "-cluster-cidrs", path, "-cluster-cidr", c.cluster)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if chosen, err := newChooser(o, slog.New(slog.DiscardHandler)); err != nil {
			got = err.Error()
		} else if as, err := chosen.allocator.Allocate(node("n")); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(as.Prefixes)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("-cluster-cidr %s, %s: %s, want %s", c.cluster, c.text, got, c.want)
		}
	}
}
