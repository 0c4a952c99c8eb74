package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

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
	kind    string
	deleted bool // has a deletionTimestamp: serves no further node
	lines   lines
}

// lines are the lines of the fields of an entry, for what the allocator objects to.
type lines map[string]*fieldError

// explain adds to an error of the allocator the line and the field that it is about.
func (e *entry) explain(err error) error {
	var of *ipalloc.Error
	if !errors.As(err, &of) {
		return err
	}
	field := strings.FieldsFunc(of.Field, func(r rune) bool { return r == '[' || r == ',' || r == '.' })
	for _, key := range append(field, "") {
		if at := e.lines[key]; at != nil {
			return fmt.Errorf("line %d: %s: %w", at.line, at.path, err)
		}
	}
	return err
}

// parseEntries reads resources: documents with --- between, and lists as kubectl prints
// them. A file without any is refused, because it is probably still being written.
func parseEntries(data []byte) ([]entry, error) {
	var entries []entry
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		v, err := nextDocument(documents)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if v.isNull() {
			continue
		}
		if err := parseDocument(v, func(e entry) { entries = append(entries, e) }); err != nil {
			return nil, err
		}
	}
	names := map[string]bool{}
	for _, e := range entries {
		if names[e.Name] {
			return nil, fmt.Errorf("%w of that name", e.lines["Name"].with("a second entry"))
		}
		names[e.Name] = true
	}
	if len(entries) == 0 {
		return nil, errors.New("no ClusterCIDR in it")
	}
	return entries, nil
}

func (e *fieldError) with(text string) *fieldError { return &fieldError{e.line, e.path, text} }

// parseDocument reads a resource or a list of resources.
func parseDocument(v value, add func(entry)) error {
	var kind, version string
	spec := map[string]value{}
	keep := func(v value) error { spec[v.path[strings.LastIndexByte(v.path, '.')+1:]] = v; return nil }
	if err := v.object(map[string]func(value) error{
		"apiVersion": text(&version), "kind": text(&kind), "metadata": keep, "spec": keep, "items": keep, "status": ignored,
	}); err != nil {
		return err
	}
	switch items, isList := spec["items"]; {
	case version == "":
		return v.errorf("no apiVersion")
	case (kind == "List" || kind == clusterCIDRKind+"List" || kind == configKind+"List") && isList:
		return items.list(func(v value) error { return parseDocument(v, add) })
	case kind != clusterCIDRKind && kind != configKind:
		return v.errorf("kind %q, want %s, %s or List", kind, clusterCIDRKind, configKind)
	case isList:
		return items.errorf("unknown field")
	}
	e := entry{kind: kind, lines: lines{}}
	if m, ok := spec["metadata"]; ok {
		if err := e.metadata(m); err != nil {
			return err
		}
	}
	if e.Name == "" {
		return v.errorf("no metadata.name")
	}
	s, ok := spec["spec"]
	if !ok || s.isNull() {
		return v.errorf("no spec")
	}
	e.lines[""] = &fieldError{line: s.node.Line, path: s.path}
	if err := e.spec(s); err != nil {
		return err
	}
	add(e)
	return nil
}

// metadata reads the name and whether the resource is deleted. The other fields are
// those that an API server writes.
func (e *entry) metadata(v value) error {
	deletion := ""
	fields := map[string]func(value) error{"name": e.noting("Name", text(&e.Name)), "deletionTimestamp": text(&deletion)}
	for _, name := range []string{"annotations", "labels", "creationTimestamp", "deletionGracePeriodSeconds", "finalizers",
		"generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"} {
		fields[name] = ignored
	}
	err := v.object(fields)
	e.deleted = deletion != ""
	return err
}

// noting reads a field and remembers where it is.
func (e *entry) noting(name string, read func(value) error) func(value) error {
	return func(v value) error {
		e.lines[name] = &fieldError{line: v.node.Line, path: v.path}
		return read(v)
	}
}

func (e *entry) spec(v value) error {
	fields := map[string]func(value) error{
		"perNodeHostBits": e.noting("HostBits", number(&e.HostBits)),
		"ipv4":            e.noting("IPv4", pool(&e.IPv4)),
		"ipv6":            e.noting("IPv6", pool(&e.IPv6)),
		"nodeSelector":    e.noting("Selector", e.nodeSelector),
	}
	if e.kind == configKind {
		delete(fields, "perNodeHostBits")
		fields["ipv4"] = e.family("IPv4", &e.IPv4, &e.MaskIPv4)
		fields["ipv6"] = e.family("IPv6", &e.IPv6, &e.MaskIPv6)
		fields["nodeSelector"] = e.noting("Selector", e.labelSelector)
		fields["network"] = func(v value) error {
			var network string
			if err := text(&network)(v); err != nil || network == "" {
				return err
			}
			return v.errorf("%q is another network, and this controller serves the pod network alone", network)
		}
	}
	return v.object(fields)
}

// pool reads a CIDR. What people write is masked.
func pool(p *netip.Prefix) func(value) error {
	return func(v value) error {
		var s string
		if err := text(&s)(v); err != nil || s == "" {
			return err
		}
		read, err := parseCIDR(s)
		if err != nil {
			return v.errorf("%v", err)
		}
		*p = read
		return nil
	}
}

// family reads a CIDR with the prefix length of what a node gets.
func (e *entry) family(name string, p *netip.Prefix, mask *int) func(value) error {
	return e.noting(name, func(v value) error {
		if err := v.object(map[string]func(value) error{
			"cidr":            pool(p),
			"perNodeMaskSize": e.noting("Mask"+name, number(mask)),
		}); err != nil {
			return err
		}
		if p.IsValid() && *mask == 0 {
			return v.errorf("no perNodeMaskSize")
		}
		return nil
	})
}

// selecting refuses a selector that is there and empty. It would choose every node, and an API
// server that drops fields which it does not know makes one of a misspelt field.
func (e *entry) selecting(v value, err error) error {
	if err == nil && len(e.Selector) == 0 && !v.isNull() {
		return v.errorf("an empty selector; leave it out if all nodes are meant")
	}
	return err
}

// nodeSelector reads a NodeSelector: terms of which one must hold.
func (e *entry) nodeSelector(v value) error {
	return e.selecting(v, v.object(map[string]func(value) error{"nodeSelectorTerms": func(v value) error {
		return v.list(func(v value) error {
			var t selector.Term
			err := v.object(map[string]func(value) error{
				"matchExpressions": requirements(&t.Labels, selector.In, selector.NotIn, selector.Exists, selector.DoesNotExist, selector.Gt, selector.Lt),
				"matchFields":      requirements(&t.Fields, selector.In, selector.NotIn),
			})
			e.Selector = append(e.Selector, t)
			return err
		})
	}}))
}

// labelSelector reads a LabelSelector: labels and requirements that must all hold.
func (e *entry) labelSelector(v value) error {
	var t selector.Term
	err := v.object(map[string]func(value) error{
		"matchExpressions": requirements(&t.Labels, selector.In, selector.NotIn, selector.Exists, selector.DoesNotExist),
		"matchLabels": func(v value) error {
			return v.pairs(func(key string, v value) error {
				var s string
				t.Labels = append(t.Labels, selector.Requirement{Key: key, Op: selector.In})
				err := text(&s)(v)
				t.Labels[len(t.Labels)-1].Values = []string{s}
				return err
			})
		},
	})
	if len(t.Labels) > 0 {
		e.Selector = selector.Selector{t}
	}
	return e.selecting(v, err)
}

func requirements(out *[]selector.Requirement, ops ...selector.Operator) func(value) error {
	return func(v value) error {
		return v.list(func(v value) error {
			var r selector.Requirement
			err := v.object(map[string]func(value) error{
				"key": text(&r.Key),
				"operator": func(v value) error {
					var op string
					if err := text(&op)(v); err != nil {
						return err
					}
					if r.Op = selector.Operator(op); !slices.Contains(ops, r.Op) {
						return v.errorf("unknown operator %q, want one of %v", op, ops)
					}
					return nil
				},
				"values": func(v value) error {
					return v.list(func(v value) error {
						var s string
						err := text(&s)(v)
						r.Values = append(r.Values, s)
						return err
					})
				},
			})
			*out = append(*out, r)
			return err
		})
	}
}
