package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	return parseOptions(append([]string{"-allocate-node-cidrs"}, args...), io.Discard)
}

func TestRangeConfig(t *testing.T) { // NA1
	for _, c := range []struct {
		args string
		want string // slots and reservations, or the error
	}{
		{"--cluster-cidr=10.0.0.0/16", "[{24 [10.0.0.0/16]}] []"},
		{"--cluster-cidr=10.0.7.0/16", "[{24 [10.0.0.0/16]}] []"}, // X1: masked at the edge
		{"--cluster-cidr=fd00::/48", "[{64 [fd00::/48]}] []"},
		{"--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=26", "[{26 [10.0.0.0/16]}] []"},
		{"--cluster-cidr=fd00::/48,10.0.0.0/16 --node-cidr-mask-size-ipv4=25 --node-cidr-mask-size-ipv6=80", "[{80 [fd00::/48]} {25 [10.0.0.0/16]}] []"},
		{"--cluster-cidr=10.0.0.0/16,fd00::/48,10.8.0.0/16", "[{24 [10.0.0.0/16 10.8.0.0/16]} {64 [fd00::/48]}] []"},
		{"--cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.0.0.0/24,fd00::/108", "[{24 [10.0.0.0/16]}] [10.0.0.0/24 fd00::/108]"},
		{"--cluster-cidr=10.0.0.0", `-cluster-cidr: "10.0.0.0" is no CIDR`},
		{"--cluster-cidr=10.0.0.0/16,", `-cluster-cidr: "" is no CIDR`},
		{"--cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=x", `-service-cluster-ip-range: "x" is no CIDR`},
		{"--cluster-cidr=10.0.0.0/16,fd00::/48 --node-cidr-mask-size=24", "-node-cidr-mask-size is for one family; with two, use -node-cidr-mask-size-ipv4 and -ipv6"},
		{"--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24", "-node-cidr-mask-size goes without -node-cidr-mask-size-ipv4 and -ipv6"},
		{"--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv6=64", "-node-cidr-mask-size-ipv6 without a CIDR of that family"},
	} {
		o, err := parse(t, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		config, err := o.rangeConfig()
		got := fmt.Sprint(config.Slots, config.Reserved)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.args, got, c.want)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"": "one of -cluster-cidr and -cluster-cidrs is needed",
		"-cluster-cidr 10.0.0.0/8 -cluster-cidrs x":      "one of -cluster-cidr and -cluster-cidrs is needed",
		"-cluster-cidr 10.0.0.0/8 x":                     `unexpected argument "x"`,
		"-allocate-node-cidrs=false -cluster-cidr x":     "nothing to do without -allocate-node-cidrs",
		"-cluster-cidrs x -cluster-cidrs-sync-period 0s": "-cluster-cidrs-sync-period: want more than 0",
		"-cidr-allocator-type Cloud -cluster-cidr x":     `-cidr-allocator-type "Cloud": want RangeAllocator`,
		"-cluster-cidrs x -node-cidr-mask-size 24":       "-node-cidr-mask-size and the like",
		"-cluster-cidr x -families IPv4":                 "-families is for -cluster-cidrs",
		"-cluster-cidr x -concurrent-node-syncs 0":       "-concurrent-node-syncs: want 1 or more",
		"-cluster-cidr x -leader-elect-lease-duration x": "invalid value",
	} {
		if _, err := parse(t, strings.Fields(args)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestEntriesInBothForms(t *testing.T) { // CC1
	path := filepath.Join(t.TempDir(), "entries.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`
---
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata:
  name: bits
spec:
  perNodeHostBits: 8
  ipv4: 10.0.3.0/16
  ipv6: fd00::/64
  nodeSelector:
    nodeSelectorTerms:
    - matchExpressions: [{key: pool, operator: In, values: [a, b]}]
    - matchFields: [{key: metadata.name, operator: In, values: [n1]}]
---
kind: ClusterCIDRConfig
metadata: {name: masks, deletionTimestamp: "2026-01-02T03:04:05Z"}
spec:
  ipv4: {cidr: 10.1.0.0/16, perNodeMaskSize: 24}
  ipv6: {cidr: "fd01::/64", perNodeMaskSize: 120}
`)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := parseEntries(text)
	if err != nil {
		t.Fatal(err)
	}
	want := "[{{bits [{[{pool In [a b]}] []} {[] [{metadata.name In [n1]}]}] 10.0.0.0/16 fd00::/64 8 0 0} false}" +
		" {{masks [] 10.1.0.0/16 fd01::/64 0 24 120} true}]"
	if got := fmt.Sprint(entries); got != want {
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
	engine := c.engine
	if got := fmt.Sprint(c.counts()); !strings.Contains(got, "{bits 10.0.0.0/16 256 255}") {
		t.Fatal(got)
	}
	if as, err := engine.Allocate(node("n1")); err != nil || as.Entry != "bits" || fmt.Sprint(as.Prefixes) != "[fd00::/120 10.0.1.0/24]" {
		t.Fatal(as, err)
	}
	if as, err := engine.Allocate(node("n2")); err != nil || as.Entry != "masks" || fmt.Sprint(engine.Names()) != "[n1 n2]" {
		t.Fatal(as, err)
	}
	for text, want := range map[string]string{
		"":                                "no ClusterCIDR in it",
		"kind: Node\nmetadata: {name: x}": `x: kind: "Node"`,
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {ipv4: 10.0.0}":    `x: spec.ipv4: "10.0.0" is no CIDR`,
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {ipv6: {cidr: z}}": `x: spec.ipv6: "z" is no CIDR`,
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {ipv6: {mask: 1}}": "unknown field",
		"{":               "yaml",
		"# nothing yet\n": "no ClusterCIDR in it",
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16}\n---\nkind: ClusterCIDR\nmetadata: {name: x}\nspec: {perNodeHostBits: 8, ipv4: 10.1.0.0/16}": "x: metadata.name: a second entry",
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}, ipv6: {cidr: 'fd00::/64', perNodeMaskSize: 96}}":                                    "x",
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near}]}]}}":        "x",
	} {
		write(text)
		o.families = ""
		if _, err := newChooser(o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	o.families = "IPv5"
	if _, err := newLabelled(o); err == nil || !strings.Contains(err.Error(), "-families") {
		t.Error(err)
	}
}
