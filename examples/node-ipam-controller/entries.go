package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// manifest is a ClusterCIDR as people write it, in both forms in use:
//
//	spec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: "fd00::/64"}
//	spec: {ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}, ipv6: {...}}
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string       `json:"name"`
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
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

// fileEntry is a ClusterCIDR of a file.
type fileEntry struct {
	nodeipam.Entry
	deleted bool // serves nobody any more
}

// parseEntries reads ClusterCIDRs, documents with --- between. A file without any is
// refused: it is rather one that is being written.
func parseEntries(data []byte) ([]fileEntry, error) {
	var entries []fileEntry
	names := map[string]bool{}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if blank(document) {
			continue
		}
		e, err := parseEntry(document)
		if err == nil && names[e.Name] {
			err = fmt.Errorf("%s: metadata.name: a second entry of that name", e.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", len(entries)+1, err)
		}
		names[e.Name] = true
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil, errors.New("no ClusterCIDR in it")
	}
	return entries, nil
}

// blank says whether there is nothing but comments in a document.
func blank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

func parseEntry(data []byte) (c fileEntry, err error) {
	var m manifest
	if err := sigsyaml.Unmarshal(data, &m); err != nil {
		return c, err
	}
	fail := func(field string, err error) (fileEntry, error) {
		return c, fmt.Errorf("%s: %s: %w", m.Metadata.Name, field, err)
	}
	switch m.Kind {
	case "ClusterCIDR", "ClusterCIDRConfig":
	default:
		return fail("kind", fmt.Errorf("%q, want ClusterCIDR or ClusterCIDRConfig", m.Kind))
	}
	c.Name, c.HostBits, c.deleted = m.Metadata.Name, m.Spec.PerNodeHostBits, m.Metadata.DeletionTimestamp != nil
	if c.IPv4, c.MaskIPv4, err = m.Spec.IPv4.pool(); err != nil {
		return fail("spec.ipv4", err)
	}
	if c.IPv6, c.MaskIPv6, err = m.Spec.IPv6.pool(); err != nil {
		return fail("spec.ipv6", err)
	}
	if m.Spec.NodeSelector != nil {
		for _, term := range m.Spec.NodeSelector.NodeSelectorTerms {
			c.Selector = append(c.Selector, nodeipam.Term{
				Labels: requirements(term.MatchExpressions), Fields: requirements(term.MatchFields)})
		}
	}
	return c, nil
}

func requirements(in []v1.NodeSelectorRequirement) (out []nodeipam.Requirement) {
	for _, r := range in {
		out = append(out, nodeipam.Requirement{Key: r.Key, Op: nodeipam.Operator(r.Operator), Values: r.Values})
	}
	return out
}
