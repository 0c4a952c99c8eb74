package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// fieldTest checks what a field does and how it is refused. The texts are ClusterCIDRs
// whose last line the cases add.
type fieldTest struct {
	add     string
	labels  string // of the node that asks: key=value, with blanks between
	name    string // of the node, "n" if empty
	want    string // its CIDRs, or the end of the error
	refused string // a part of the error with which the text is refused
}

const (
	theirs = "apiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\nmetadata: {name: e}\n"
	ours   = "apiVersion: networking.ipalloc.dev/v1\nkind: ClusterCIDRConfig\nmetadata: {name: e}\n"
	pool8  = theirs + "spec:\n  perNodeHostBits: 8\n  ipv4: 10.0.0.0/16\n"
	pool24 = ours + "spec:\n  ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}\n"
)

// serveField reads objects and has a node ask for CIDRs.
func serveField(text, name, labels string) (string, error) {
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true})
	if err != nil {
		return "", err
	}
	entries, err := entriesOf(text)
	if err != nil {
		return "", err
	}
	set := &entrySet{allocator: a, log: slog.New(slog.DiscardHandler)}
	if _, refused := set.apply(entries); len(refused) > 0 {
		return "", fmt.Errorf("refused: %v", refused)
	}
	set.nodesLoaded()
	n := nodeipam.Node{Name: name, Labels: map[string]string{}}
	for _, l := range strings.Fields(labels) {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	as, err := a.Allocate(n)
	if err != nil {
		return "none", nil
	}
	return strings.Trim(fmt.Sprint(as.Prefixes), "[]"), nil
}

func field(base string, cases ...fieldTest) func(*testing.T) {
	return func(t *testing.T) {
		for _, c := range cases {
			name := c.name
			if name == "" {
				name = "n"
			}
			got, err := serveField(base+c.add, name, c.labels)
			switch {
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("%s: %s %v, want it refused: %s", c.add, got, err, c.refused)
			case c.refused == "" && (err != nil || got != c.want):
				t.Errorf("%s, node with %q: %s %v, want %s", c.add, c.labels, got, err, c.want)
			}
		}
	}
}

// fieldTests has a test of each field of the two kinds of ClusterCIDR.
var fieldTests = map[string]func(*testing.T){
	"apiVersion": field("kind: ClusterCIDR\nmetadata: {name: e}\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16}\n",
		fieldTest{add: "apiVersion: networking.x-k8s.io/v1", want: "10.0.0.0/24"},
		fieldTest{add: "apiVersion: 1", refused: "apiVersion"}),
	"metadata.name": field("apiVersion: x/v1\nkind: ClusterCIDR\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16}\n",
		fieldTest{add: "metadata: {name: e}", want: "10.0.0.0/24"},
		fieldTest{add: "metadata: {}", refused: "no metadata.name"},
		fieldTest{add: "metadata: {nmae: e}", refused: "unknown field \"metadata.nmae\""}),
	"metadata.deletionTimestamp": field("apiVersion: x/v1\nkind: ClusterCIDR\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16}\n",
		fieldTest{add: "metadata: {name: e, deletionTimestamp: 2026-01-02T03:04:05Z}", want: "none"},
		fieldTest{add: "metadata: {name: e, deletionTimestamp: null}", want: "10.0.0.0/24"}),
	"spec.perNodeHostBits": field(theirs+"spec:\n  ipv4: 10.0.0.0/16\n",
		fieldTest{add: "  perNodeHostBits: 8", want: "10.0.0.0/24"},
		fieldTest{add: "  perNodeHostBits: 4\n  ipv6: fd00::/112", want: "10.0.0.0/28 fd00::/124"},
		fieldTest{add: "  perNodeHostBits: 17", refused: "spec.perNodeHostBits"},
		fieldTest{add: "  perNodeHostBits: \"8\"", refused: "spec.perNodeHostBits: want an integer"},
		fieldTest{add: "", refused: "spec"}),
	"spec.ipv4": field(theirs+"spec:\n  perNodeHostBits: 8\n",
		fieldTest{add: "  ipv4: 010.1.2.3/16", want: "10.1.0.0/24"},
		fieldTest{add: "  ipv4: 10.1.0.0", refused: "spec.ipv4: \"10.1.0.0\" is no CIDR"},
		fieldTest{add: "  ipv4: fd00::/64", refused: "spec.ipv4"},
		fieldTest{add: "  ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}", refused: "spec.ipv4: want a string"},
		fieldTest{add: "  ipv4: ''", refused: "spec"}),
	"spec.ipv6": field(theirs+"spec:\n  perNodeHostBits: 8\n",
		fieldTest{add: "  ipv6: fd00::7/64", want: "fd00::/120"},
		fieldTest{add: "  ipv6: 10.0.0.0/16", refused: "spec.ipv6"},
		fieldTest{add: "  ipv6: 5", refused: "spec.ipv6: want a string"}),
	"spec.ipv4.cidr": field(ours+"spec:\n",
		fieldTest{add: "  ipv4: {cidr: 10.1.2.3/16, perNodeMaskSize: 26}", want: "10.1.0.0/26"},
		fieldTest{add: "  ipv4: {cdir: 10.1.2.3/16, perNodeMaskSize: 26}", refused: "unknown field \"spec.ipv4.cdir\""},
		fieldTest{add: "  ipv4: 10.1.0.0/16", refused: "spec.ipv4: want a mapping"}),
	"spec.ipv6.cidr": field(ours+"spec:\n",
		fieldTest{add: "  ipv6: {cidr: \"fd00::/98\", perNodeMaskSize: 120}", want: "fd00::/120"},
		fieldTest{add: "  ipv6: {cidr: x, perNodeMaskSize: 120}", refused: "spec.ipv6.cidr: \"x\" is no CIDR"}),
	"spec.ipv4.perNodeMaskSize": field(ours+"spec:\n",
		fieldTest{add: "  ipv4: {cidr: 10.1.0.0/16, perNodeMaskSize: 20}", want: "10.1.0.0/20"},
		fieldTest{add: "  ipv4: {cidr: 10.1.0.0/16}", refused: "spec.ipv4: no perNodeMaskSize"},
		fieldTest{add: "  ipv4: {cidr: 10.1.0.0/16, perNodeMaskSize: 8}", refused: "spec.ipv4"},
		fieldTest{add: "  perNodeHostBits: 8", refused: "unknown field \"spec.perNodeHostBits\""}),
	"spec.ipv6.perNodeMaskSize": field(pool24,
		fieldTest{add: "  ipv6: {cidr: \"fd00::/98\", perNodeMaskSize: 120}", want: "10.0.0.0/24 fd00::/120"},
		fieldTest{add: "  ipv6: {cidr: \"fd00::/98\", perNodeMaskSize: 119}", refused: "spec.ipv"},
		fieldTest{add: "  ipv6: {cidr: \"fd00::/98\", perNodeMaskSize: 12x}", refused: "spec.ipv6.perNodeMaskSize: want an integer"}),
	"spec.nodeSelector": func(t *testing.T) {
		field(pool8,
			fieldTest{add: "", want: "10.0.0.0/24"},
			fieldTest{add: "  nodeSelector: {}", refused: "an empty selector"},
			fieldTest{add: "  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [x]}]}, {matchExpressions: [{key: b, operator: Exists}]}]}", labels: "b=", want: "10.0.0.0/24"},
			fieldTest{add: "  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [x]}, {key: b, operator: Exists}]}]}", labels: "b=", want: "none"},
			fieldTest{add: "  nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [m]}]}]}", name: "m", want: "10.0.0.0/24"},
			fieldTest{add: "  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: [\"5\"]}]}]}", labels: "a=6", want: "10.0.0.0/24"},
			fieldTest{add: "  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: in}]}]}", refused: "unknown operator: \"in\""},
			fieldTest{add: "  nodeSelectr: {}", refused: "unknown field \"spec.nodeSelectr\""},
			fieldTest{add: "  nodeSelector: {matchLabels: {a: b}}", refused: "unknown field \"spec.nodeSelector.matchLabels\""})(t)
		field(pool24,
			fieldTest{add: "", want: "10.0.0.0/24"},
			fieldTest{add: "  nodeSelector: {}", refused: "an empty selector"},
			fieldTest{add: "  nodeSelector: {matchLabels: {a: x, b: z}}", labels: "a=x b=z", want: "10.0.0.0/24"},
			fieldTest{add: "  nodeSelector: {matchLabels: {a: x, b: z}}", labels: "a=x", want: "none"},
			fieldTest{add: "  nodeSelector: {matchExpressions: [{key: a, operator: NotIn, values: [x]}]}", labels: "a=z", want: "10.0.0.0/24"},
			fieldTest{add: "  nodeSelector: {matchExpressions: [{key: a, operator: Gt, values: [\"5\"]}]}", refused: "operator"},
			fieldTest{add: "  nodeSelector: {nodeSelectorTerms: []}", refused: "unknown field \"spec.nodeSelector.nodeSelectorTerms\""})(t)
	},
	"spec.network": func(t *testing.T) {
		field(pool24,
			fieldTest{add: "  network: ''", want: "10.0.0.0/24"},
			fieldTest{add: "  network: storage", refused: "spec.network: \"storage\" is another network"})(t)
		field(pool8, fieldTest{add: "  network: ''", refused: "unknown field \"spec.network\""})(t)
	},
}
