package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// entriesOf reads the objects of a text.
func entriesOf(text string) (entries []entry, err error) {
	all, err := documents([]byte(text))
	if err != nil {
		return nil, err
	}
	for _, data := range all {
		var head metav1.TypeMeta
		if err := json.Unmarshal(data, &head); err != nil {
			return nil, err
		}
		e, err := parseEntry(head.Kind, data)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// enter puts the objects of a text in force.
func (c *chooser) enter(text string) error {
	entries, err := entriesOf(text)
	if err != nil {
		return err
	}
	var errs []error
	_, refused := c.set.apply(entries)
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		errs = append(errs, fmt.Errorf("%s: %w", name, refused[name]))
	}
	return errors.Join(errs...)
}

// labelled returns a chooser with the objects of a text in force.
func labelled(t *testing.T, text string, args ...string) (*chooser, error) {
	t.Helper()
	o, err := parse(t, append(args, "-cidr-allocator-type", multiCIDRRangeAllocator)...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChooser(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c, c.enter(text)
}

// entryText is an object: a default one, or one for nodes labelled size.
func entryText(name, pool, size string) string {
	selector := ""
	if size != "" {
		selector = "\n  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: size, operator: In, values: [" + size + "]}]}]}"
	}
	return fmt.Sprintf("---\napiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\nmetadata: {name: %s}\nspec:\n  perNodeHostBits: 8\n  ipv4: %s%s\n", name, pool, selector)
}

func TestEntriesInBothForms(t *testing.T) {
	const text = `
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
`
	entries, err := entriesOf(text)
	if err != nil {
		t.Fatal(err)
	}
	want := "[{bits [{[{pool In [a b]} {rack Exists []}] []} {[] [{metadata.name In [n1]}]}] 10.0.0.0/16 fd00::/64 8 0 0} {masks [] 10.1.0.0/16 fd01::/64 0 24 120}]"
	if got := fmt.Sprint([]nodeipam.Entry{entries[0].Entry, entries[1].Entry}); got != want || entries[0].deleted || !entries[1].deleted {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	c, err := labelled(t, text, "-families", "IPv6, ipv4", "-service-cluster-ip-range", "10.0.0.0/24")
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
	head := func(kind, spec string) string {
		return "apiVersion: x/v1\nkind: " + kind + "\nmetadata:\n  name: x\nspec:\n" + spec
	}
	const good = "  perNodeHostBits: 8\n  ipv4: 10.0.0.0/16\n"
	for text, want := range map[string]string{
		"{": "yaml",
		"apiVersion: v1\nkind: Node\nmetadata: {name: x}":                                                                                             `kind "Node", want ClusterCIDR`,
		"apiVersion: x/v1\nkind: ClusterCIDR\nspec: {}":                                                                                               "no metadata.name",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {name: x}\nspec: ":                                                                            "no spec",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {name: 7}":                                                                                    "metadata.name: want a string",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {nam: x}":                                                                                     "unknown field \"metadata.nam\"",
		"apiVersion: x/v1\nkind: ClusterCIDR\nmetadata: {name: x}\nsepc: {}":                                                                          "unknown field \"sepc\"",
		head("ClusterCIDR", "  perNodeHostBits: 8\n  ipv4: 10.0.0\n"):                                                                                 `spec.ipv4: "10.0.0" is no CIDR`,
		head("ClusterCIDR", "  perNodeHostBits: \"8\"\n"):                                                                                             "spec.perNodeHostBits: want an integer",
		head("ClusterCIDR", "  perNodeHostBits: 8.5\n"):                                                                                               "spec.perNodeHostBits: want an integer",
		head("ClusterCIDR", "  ipv4: {cidr: 10.0.0.0/16}\n"):                                                                                          "spec.ipv4: want a string",
		head("ClusterCIDR", good+"  ipv4: 10.1.0.0/16\n"):                                                                                             `line 8: key "ipv4" already set`,
		head("ClusterCIDR", good+"  nodeSelectr: {}\n"):                                                                                               "unknown field \"spec.nodeSelectr\"",
		head("ClusterCIDR", good+"  network: n\n"):                                                                                                    "unknown field \"spec.network\"",
		head("ClusterCIDR", good+"  nodeSelector:\n    matchLabels: {a: b}\n"):                                                                        "unknown field \"spec.nodeSelector.matchLabels\"",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerm: []\n"):                                                                       "unknown field \"spec.nodeSelector.nodeSelectorTerm\"",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerms: {}\n"):                                                                      "spec.nodeSelector.nodeSelectorTerms: want a list",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerms: [{}]\n"):                                                                    "spec.nodeSelector: nodeipam: add entry",
		head("ClusterCIDR", good+"  nodeSelector:\n    nodeSelectorTerms:\n    - matchExpressions:\n      - {key: a, operator: Near}\n"):              `Selector[0].Labels[0]: unknown operator: "Near"`,
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [1]}]}]}\n"):                "matchExpressions.values: want a string",
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, value: [b]}]}]}\n"):                 "nodeSelectorTerms[0].matchExpressions[0].value\"",
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: Exists}]}]}\n"):                  `Selector[0].Fields[0]: unknown operator: "Exists"`,
		head("ClusterCIDR", good+"  nodeSelector: {}\n"):                                                                                              "spec.nodeSelector: an empty selector",
		head("ClusterCIDR", good+"  nodeSelector: {nodeSelectorTerms: []}\n"):                                                                         "spec.nodeSelector: an empty selector",
		head("ClusterCIDRConfig", "  ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}\n  nodeSelector: {matchLabels: {}, matchExpressions: }\n"):        "spec.nodeSelector: an empty selector",
		"&t\napiVersion: v1\nkind: List\nitems: [*t]\n":                                                                                               "anchor 't' value contains itself",
		"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + bomb(6):                                                                                            "excessive aliasing",
		head("ClusterCIDR", "  ipv4: 10.0.0.0/16\n"):                                                                                                  "spec.perNodeHostBits: nodeipam: add entry",
		head("ClusterCIDRConfig", good):                                                                                                               "spec.ipv4: want a mapping of fields, not string",
		head("ClusterCIDRConfig", "  ipv4: 10.0.0.0/16\n"):                                                                                            "spec.ipv4: want a mapping of fields",
		head("ClusterCIDRConfig", "  ipv4: {cidr: z, perNodeMaskSize: 24}\n"):                                                                         `spec.ipv4.cidr: "z" is no CIDR`,
		head("ClusterCIDRConfig", "  ipv4: {cidr: 10.0.0.0/16}\n"):                                                                                    "spec.ipv4: no perNodeMaskSize",
		head("ClusterCIDRConfig", "  ipv4: {cidr: 10.0.0.0/16, mask: 24}\n"):                                                                          "unknown field \"spec.ipv4.mask\"",
		head("ClusterCIDRConfig", "  network: other\n"):                                                                                               `spec.network: "other" is another network`,
		head("ClusterCIDRConfig", "  nodeSelector:\n    nodeSelectorTerms: []\n"):                                                                     "unknown field \"spec.nodeSelector.nodeSelectorTerms\"",
		head("ClusterCIDRConfig", "  nodeSelector:\n    matchLabels: {a: true}\n"):                                                                    "spec.nodeSelector.matchLabels: want a string",
		head("ClusterCIDRConfig", "  nodeSelector:\n    matchLabels: [a]\n"):                                                                          "spec.nodeSelector.matchLabels: want a mapping",
		head("ClusterCIDRConfig", "  nodeSelector:\n    matchExpressions: [{key: a, operator: Gt, values: ['1']}]\n"):                                 `spec.nodeSelector: unknown operator "Gt"`,
		head("ClusterCIDRConfig", "  ipv4:\n    cidr: 10.0.0.0/16\n    perNodeMaskSize: 24\n  ipv6:\n    cidr: fd00::/64\n    perNodeMaskSize: 96\n"): "spec.ipv6.perNodeMaskSize: nodeipam: add entry",
	} {
		if _, err := labelled(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	o, err := parse(t, "-cidr-allocator-type", multiCIDRRangeAllocator)
	if err != nil {
		t.Fatal(err)
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
		entries, err := entriesOf("apiVersion: x/v1\nkind: ClusterCIDRConfig\nmetadata: {name: x}\nspec: {ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}, nodeSelector: " + text + "}")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(entries[0].Selector); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
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
		got := ""
		if chosen, err := labelled(t, c.text, "-cluster-cidr", c.cluster); err != nil {
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
