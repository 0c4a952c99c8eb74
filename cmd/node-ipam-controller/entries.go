package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/selector"
)

// The kinds of resources that are read, field by field as their projects define them:
//
//	kind: ClusterCIDR       # kubernetes-sigs/node-ipam-controller
//	spec: {perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: "fd00::/64", nodeSelector: {nodeSelectorTerms: [...]}}
//
//	kind: ClusterCIDRConfig
//	spec: {ipv4: {cidr: 10.0.0.0/16, perNodeMaskSize: 24}, nodeSelector: {matchLabels: {...}, matchExpressions: [...]}}
const (
	clusterCIDRKind = "ClusterCIDR"
	configKind      = "ClusterCIDRConfig"
)

// entry is a resource of either kind.
type entry struct {
	nodeipam.Entry
	deleted bool // has a deletionTimestamp: serves no further node
}

// fieldPaths are the fields of resources by those of an entry.
var fieldPaths = map[string]string{
	"Name": "metadata.name", "Selector": "spec.nodeSelector", "HostBits": "spec.perNodeHostBits", "IPv4": "spec.ipv4",
	"IPv6": "spec.ipv6", "MaskIPv4": "spec.ipv4.perNodeMaskSize", "MaskIPv6": "spec.ipv6.perNodeMaskSize",
}

// explain adds to an error of the allocator the field of the resource that it is about.
func (e *entry) explain(err error) error {
	var of *ipalloc.Error
	if !errors.As(err, &of) {
		return err
	}
	field, _, _ := strings.Cut(of.Field, "[")
	path, ok := fieldPaths[field]
	if !ok {
		path = "spec"
	}
	return fmt.Errorf("%s: %w", path, err)
}

// resource is a resource of either kind.
type resource[S specification] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              *S  `json:"spec"`
	Status            any `json:"status"`
}

type specification interface{ fill(*nodeipam.Entry) error }

// parseEntry reads a resource. If it fails, the entry has the name all the same, if there is one.
func parseEntry(kind string, data []byte) (entry, error) {
	switch kind {
	case clusterCIDRKind:
		return parseAs[clusterCIDRSpec](data)
	case configKind:
		return parseAs[configSpec](data)
	}
	return entry{}, fmt.Errorf("kind %q, want %s or %s", kind, clusterCIDRKind, configKind)
}

func parseAs[S specification](data []byte) (e entry, err error) {
	var o resource[S]
	err = decodeStrictly(data, &o)
	e.Name, e.deleted = o.Name, o.DeletionTimestamp != nil
	switch {
	case err != nil:
		return e, err
	case o.Name == "":
		return e, errors.New("no metadata.name")
	case o.Spec == nil:
		return e, errors.New("no spec")
	}
	return e, (*o.Spec).fill(&e.Entry)
}

// clusterCIDRSpec is the specification of a ClusterCIDR.
type clusterCIDRSpec struct {
	HostBits int              `json:"perNodeHostBits"`
	IPv4     string           `json:"ipv4"`
	IPv6     string           `json:"ipv6"`
	Selector *v1.NodeSelector `json:"nodeSelector"`
}

func (s clusterCIDRSpec) fill(e *nodeipam.Entry) (err error) {
	e.HostBits = s.HostBits
	if e.IPv4, err = pool("spec.ipv4", s.IPv4); err != nil {
		return err
	}
	if e.IPv6, err = pool("spec.ipv6", s.IPv6); err != nil || s.Selector == nil {
		return err
	}
	requirements := func(all []v1.NodeSelectorRequirement) (out []selector.Requirement) {
		for _, r := range all {
			out = append(out, selector.Requirement{Key: r.Key, Op: selector.Operator(r.Operator), Values: r.Values})
		}
		return out
	}
	for _, t := range s.Selector.NodeSelectorTerms {
		e.Selector = append(e.Selector, selector.Term{Labels: requirements(t.MatchExpressions), Fields: requirements(t.MatchFields)})
	}
	return notEmpty(e.Selector)
}

// configSpec is the specification of a ClusterCIDRConfig.
type configSpec struct {
	IPv4     *family               `json:"ipv4"`
	IPv6     *family               `json:"ipv6"`
	Selector *metav1.LabelSelector `json:"nodeSelector"`
	Network  string                `json:"network"`
}

// family is a pool with the prefix length of what a node gets.
type family struct {
	CIDR string `json:"cidr"`
	Mask int    `json:"perNodeMaskSize"`
}

func (s configSpec) fill(e *nodeipam.Entry) (err error) {
	if s.Network != "" {
		return fmt.Errorf("spec.network: %q is another network, and this controller serves the pod network alone", s.Network)
	}
	if e.IPv4, e.MaskIPv4, err = s.IPv4.read("spec.ipv4"); err != nil {
		return err
	}
	if e.IPv6, e.MaskIPv6, err = s.IPv6.read("spec.ipv6"); err != nil || s.Selector == nil {
		return err
	}
	var t selector.Term
	for _, key := range slices.Sorted(maps.Keys(s.Selector.MatchLabels)) {
		t.Labels = append(t.Labels, selector.Requirement{Key: key, Op: selector.In, Values: []string{s.Selector.MatchLabels[key]}})
	}
	for _, r := range s.Selector.MatchExpressions {
		op := selector.Operator(r.Operator)
		if op == selector.Gt || op == selector.Lt {
			return fmt.Errorf("spec.nodeSelector: unknown operator %q of a LabelSelector", op)
		}
		t.Labels = append(t.Labels, selector.Requirement{Key: r.Key, Op: op, Values: r.Values})
	}
	if len(t.Labels) > 0 {
		e.Selector = selector.Selector{t}
	}
	return notEmpty(e.Selector)
}

func (f *family) read(path string) (p netip.Prefix, mask int, err error) {
	if f == nil {
		return p, 0, nil
	}
	if p, err = pool(path+".cidr", f.CIDR); err == nil && p.IsValid() && f.Mask == 0 {
		err = fmt.Errorf("%s: no perNodeMaskSize", path)
	}
	return p, f.Mask, err
}

// pool reads a CIDR. Host bits are masked.
func pool(path, text string) (p netip.Prefix, err error) {
	if text == "" {
		return p, nil
	}
	if p, err = parseCIDR(text); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// notEmpty refuses a selector that is there and empty. It would choose every node, and an API server that drops fields which it
// does not know makes one of a misspelt field.
func notEmpty(s selector.Selector) error {
	if len(s) == 0 {
		return errors.New("spec.nodeSelector: an empty selector; leave it out if all nodes are meant")
	}
	return nil
}
