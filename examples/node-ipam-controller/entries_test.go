package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEntriesInBothForms(t *testing.T) { // CC1
	path := filepath.Join(t.TempDir(), "entries.yaml")
	text := []byte(`
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
	if err := os.WriteFile(path, text, 0o600); err != nil {
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

func TestBadEntries(t *testing.T) { // CC1
	path := filepath.Join(t.TempDir(), "entries.yaml")
	o, err := parse(t, "-cluster-cidrs", path)
	if err != nil {
		t.Fatal(err)
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
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}, ipv6: {cidr: 'fd00::/64', perNodeMaskSize: 96}}":                                    "/96 leaves 32 host bits",
		"kind: ClusterCIDR\nmetadata: {name: x}\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near}]}]}}":        "unknown operator",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newChooser(o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	o.families = "IPv5"
	if _, err := newLabelled(o); err == nil || !strings.Contains(err.Error(), "-families") {
		t.Error(err)
	}
}
