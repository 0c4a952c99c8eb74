package clustercidr

import (
	"net/netip"
	"slices"
)

// Family is an address family.
type Family uint8

// The address families.
const (
	IPv4 Family = iota + 1
	IPv6
)

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "no family"
}

func familyOf(p netip.Prefix) Family {
	if p.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// ClusterCIDR is an entry: a pool of one or both families, the size of what a node
// gets from it, and the nodes that may. It never changes once it is added.
type ClusterCIDR struct {
	// Name tells the entry from all others and is recorded with its nodes.
	Name string
	// Selector says which nodes the entry is for. Without a term it is a default
	// entry, which is for every node that no other entry can serve.
	Selector Selector
	// IPv4 and IPv6 are the pools; the zero Prefix for a family that there is not.
	// They may overlap those of other entries.
	IPv4, IPv6 netip.Prefix
	// HostBits is the size of what a node gets: 2^HostBits addresses of each family.
	// It may instead, or as well, be said by the masks, of which each has to agree:
	// HostBits == 32 - MaskIPv4 == 128 - MaskIPv6. What is 0 is not said, but if
	// nothing is said the entry is refused: for one address say masks of 32 and 128.
	HostBits           int
	MaskIPv4, MaskIPv6 int
}

// Selector says which nodes an entry is for: those for which all requirements of
// one of the terms hold. Without a term it says nothing.
type Selector []Term

// Term is requirements that must all hold. It needs at least one.
type Term struct {
	Labels []Requirement // on the labels of the node
	Fields []Requirement // on its name: Key "metadata.name", In or NotIn
}

// Requirement asks one thing of one label.
type Requirement struct {
	Key    string
	Op     Operator
	Values []string // one or more for In and NotIn, one integer for Gt and Lt
}

// Operator says what a [Requirement] asks of a label. They are those of the node
// selector of the Kubernetes API: NotIn and DoesNotExist hold for a node without
// the label, Gt and Lt for one whose label is a decimal integer above or below the
// value.
type Operator string

// The operators.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	Gt           Operator = "Gt"
	Lt           Operator = "Lt"
)

// Node is a node as the caller sees it.
type Node struct {
	Name   string
	Labels map[string]string // what [Allocator.Allocate] and [Allocator.Explain] choose by

	// What follows is what the node's record says, for [Allocator.Observe] and
	// [Allocator.Load].

	Entry    string         // the entry that the prefixes came from; "" if that is not recorded
	Prefixes []netip.Prefix // the zero Prefix where the record says something that is no prefix
	Texts    []string       // if not empty, what Prefixes were read from, for messages
}

// Assignment is what a node holds and the entry that it came from. Both are to be
// recorded with the node: together they are all that [Allocator.Load] needs.
type Assignment struct {
	Entry    string         // "" if it is not from any entry
	Prefixes []netip.Prefix // in the order of the configured families if the allocator chose them
}

// clone returns a copy that shares nothing with c.
func (c ClusterCIDR) clone() ClusterCIDR {
	c.Selector = slices.Clone(c.Selector)
	for i, t := range c.Selector {
		c.Selector[i] = Term{Labels: cloneRequirements(t.Labels), Fields: cloneRequirements(t.Fields)}
	}
	return c
}

func cloneRequirements(rs []Requirement) []Requirement {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Values = slices.Clone(rs[i].Values)
	}
	return rs
}
