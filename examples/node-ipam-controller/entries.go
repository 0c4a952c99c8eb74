package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/cidrset/clustercidr"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// manifest is a ClusterCIDR as people write it, in both forms in use:
//
//	spec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: "fd00::/64"}
//	spec: {ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}, ipv6: {...}}
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		NodeSelector    *v1.NodeSelector `json:"nodeSelector"`
		PerNodeHostBits int              `json:"perNodeHostBits"`
		IPv4            *family          `json:"ipv4"`
		IPv6            *family          `json:"ipv6"`
	} `json:"spec"`
}

type family struct {
	CIDR            string
	PerNodeMaskSize int
}

func (f *family) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return sigsyaml.UnmarshalStrict(data, &f.CIDR)
	}
	var form struct {
		CIDR            string `json:"cidr"`
		PerNodeMaskSize int    `json:"perNodeMaskSize"`
	}
	err := sigsyaml.UnmarshalStrict(data, &form)
	f.CIDR, f.PerNodeMaskSize = form.CIDR, form.PerNodeMaskSize
	return err
}

// pool returns the CIDR as a prefix, the zero Prefix for a family that there is not.
func (f *family) pool() (p netip.Prefix, mask int, err error) {
	if f == nil || f.CIDR == "" {
		return p, 0, nil
	}
	p, err = netip.ParsePrefix(f.CIDR)
	if err != nil {
		return p, 0, fmt.Errorf("%q is no CIDR", f.CIDR)
	}
	return p.Masked(), f.PerNodeMaskSize, nil
}

// readEntries reads the ClusterCIDRs of a file, documents with --- between.
func readEntries(path string) ([]clustercidr.ClusterCIDR, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var entries []clustercidr.ClusterCIDR
	documents := yaml.NewYAMLReader(bufio.NewReader(file))
	for {
		data, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if strings.TrimSpace(string(data)) == "" {
			continue
		}
		c, err := parseEntry(data)
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", path, len(entries)+1, err)
		}
		entries = append(entries, c)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("%s: no ClusterCIDR in it", path)
	}
	return entries, nil
}

func parseEntry(data []byte) (c clustercidr.ClusterCIDR, err error) {
	var m manifest
	if err := sigsyaml.Unmarshal(data, &m); err != nil {
		return c, err
	}
	fail := func(field string, err error) (clustercidr.ClusterCIDR, error) {
		return c, fmt.Errorf("%s: %s: %w", m.Metadata.Name, field, err)
	}
	switch m.Kind {
	case "ClusterCIDR", "ClusterCIDRConfig":
	default:
		return fail("kind", fmt.Errorf("%q, want ClusterCIDR or ClusterCIDRConfig", m.Kind))
	}
	c.Name, c.HostBits = m.Metadata.Name, m.Spec.PerNodeHostBits
	if c.IPv4, c.MaskIPv4, err = m.Spec.IPv4.pool(); err != nil {
		return fail("spec.ipv4", err)
	}
	if c.IPv6, c.MaskIPv6, err = m.Spec.IPv6.pool(); err != nil {
		return fail("spec.ipv6", err)
	}
	if m.Spec.NodeSelector != nil {
		for _, term := range m.Spec.NodeSelector.NodeSelectorTerms {
			c.Selector = append(c.Selector, clustercidr.Term{
				Labels: requirements(term.MatchExpressions), Fields: requirements(term.MatchFields)})
		}
	}
	return c, nil
}

func requirements(in []v1.NodeSelectorRequirement) (out []clustercidr.Requirement) {
	for _, r := range in {
		out = append(out, clustercidr.Requirement{Key: r.Key, Op: clustercidr.Operator(r.Operator), Values: r.Values})
	}
	return out
}

// newLabelled returns the allocator that chooses by labels, with its entries.
func newLabelled(o *options) (*clustercidr.Allocator, error) {
	var c clustercidr.Config
	var err error
	if c.Reserved, err = prefixes("service-cluster-ip-range", o.serviceCIDRs); err != nil {
		return nil, err
	}
	for _, f := range strings.Split(o.families, ",") {
		switch strings.ToLower(strings.TrimSpace(f)) {
		case "ipv4":
			c.Families = append(c.Families, clustercidr.IPv4)
		case "ipv6":
			c.Families = append(c.Families, clustercidr.IPv6)
		case "":
		default:
			return nil, fmt.Errorf("-families: %q, want IPv4 or IPv6", f)
		}
	}
	entries, err := readEntries(o.clusterCIDRs)
	if err != nil {
		return nil, err
	}
	a, err := clustercidr.New(c)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := a.Add(e); err != nil {
			return nil, fmt.Errorf("%s: %w", o.clusterCIDRs, err)
		}
	}
	return a, nil
}

// labelled is a nodeipam.Engine that chooses by labels.
type labelled struct{ a *clustercidr.Allocator }

func toLabelled(n nodeipam.Node) clustercidr.Node {
	return clustercidr.Node{Name: n.Name, Labels: n.Labels, Entry: n.Entry, Prefixes: n.Prefixes, Texts: n.Texts}
}

func (l labelled) Load(nodes []nodeipam.Node) (ps []nodeipam.Problem) {
	in := make([]clustercidr.Node, len(nodes))
	for i, n := range nodes {
		in[i] = toLabelled(n)
	}
	for _, err := range l.a.Load(in) {
		ps = append(ps, nodeipam.Problem{Node: err.Node, Err: err})
	}
	return ps
}

func (l labelled) Observe(n nodeipam.Node) []nodeipam.Problem { return l.Load([]nodeipam.Node{n}) }

func (l labelled) Allocate(n nodeipam.Node) (nodeipam.Assignment, error) {
	as, err := l.a.Allocate(toLabelled(n))
	return assignment(as), err
}

func assignment(as clustercidr.Assignment) nodeipam.Assignment {
	return nodeipam.Assignment{Prefixes: as.Prefixes, Entry: as.Entry}
}

func (l labelled) Holds(name string) (nodeipam.Assignment, bool) {
	as, ok := l.a.Lookup(name)
	return assignment(as), ok
}

// Terminate has nothing to note: a node keeps what it has until it is released.
func (l labelled) Terminate(string) {}

func (l labelled) Release(name string) bool {
	_, ok := l.a.Release(name)
	return ok
}

func (l labelled) Names() (names []string) {
	for n := range l.a.All() {
		names = append(names, n.Name)
	}
	return names
}
