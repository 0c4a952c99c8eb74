package clustercidr

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Rule is a step of the ranking: what decides between two entries that all steps
// before leave equal.
type Rule uint8

// The rules, in their order. No two entries are equal under all of them.
const (
	// RuleSelector: an entry with a selector that matches comes before the default
	// ones, which have none.
	RuleSelector Rule = iota + 1
	// RuleLabels: more of the node's labels are met by positive requirements, which
	// are In, Exists, Gt, Lt, and In on the name. Of OR-ed terms it is the matching
	// one that needs the most. A label that several requirements ask for is one.
	RuleLabels
	// RuleCapacity: fewer children in all, taken ones included; of two families the
	// one that has fewer children counts.
	RuleCapacity
	// RuleAddresses: fewer addresses for a node.
	RuleAddresses
	// RuleMatched: the labels that RuleLabels counts, as "key=value,key=value" in
	// the order of keys, are the lower string.
	RuleMatched
	// RuleBase: the lower base address, as a number, IPv4 before IPv6; an entry that
	// has a family before one that has not.
	RuleBase
	// RuleLength: the longer prefix, IPv4 before IPv6.
	RuleLength
	// RuleName: the lower name.
	RuleName
)

var ruleNames = [...]string{
	RuleSelector: "selector", RuleLabels: "labels met", RuleCapacity: "capacity", RuleAddresses: "addresses per node",
	RuleMatched: "names of the labels met", RuleBase: "base address", RuleLength: "prefix length", RuleName: "name",
}

// String returns what the rule compares.
func (r Rule) String() string {
	if int(r) >= len(ruleNames) || r == 0 {
		return "no rule"
	}
	return ruleNames[r]
}

// candidate is an entry that matches a node.
type candidate struct {
	*entry
	met     int
	matched string // filled in when a comparison gets as far as RuleMatched
	filled  bool
}

// labels returns the labels of n that c meets.
func (c *candidate) labels(n *Node) string {
	if !c.filled {
		c.matched, c.filled = c.selector.Labels(n.Name, n.Labels), true
	}
	return c.matched
}

// compare orders two candidates for n, the better one first, and says which rule
// decided. CC2
func compare(a, b *candidate, n *Node) (Rule, int) {
	if x, y := a.selector.Empty(), b.selector.Empty(); x != y {
		if y {
			return RuleSelector, -1
		}
		return RuleSelector, 1
	}
	if c := cmp.Compare(b.met, a.met); c != 0 {
		return RuleLabels, c
	}
	if c := cmp.Compare(a.capacity, b.capacity); c != 0 {
		return RuleCapacity, c
	}
	if c := cmp.Compare(a.hostBits, b.hostBits); c != 0 {
		return RuleAddresses, c
	}
	if c := strings.Compare(a.labels(n), b.labels(n)); c != 0 {
		return RuleMatched, c
	}
	if rule, c := compareBase(a.entry, b.entry); c != 0 {
		return rule, c
	}
	return RuleName, strings.Compare(a.spec.Name, b.spec.Name)
}

// rank returns the entries that may serve n, best first, in the allocator's
// scratch. The lock is held.
func (a *Allocator) rank(n *Node) []*candidate {
	found, order := a.scratch.found[:0], a.scratch.order[:0]
	for _, e := range a.entries {
		if e.terminating {
			continue
		}
		if met, ok := e.selector.Match(n.Name, n.Labels); ok {
			found = append(found, candidate{entry: e, met: met})
		}
	}
	for i := range found {
		order = append(order, &found[i])
	}
	slices.SortFunc(order, func(x, y *candidate) int {
		_, c := compare(x, y, n)
		return c
	})
	a.scratch.found, a.scratch.order = found, order
	return order
}

// fitting returns an entry whose children the prefixes are, the best by the rules
// that ask for nothing but the entry, and another that fits as well. The lock is
// held.
func (a *Allocator) fitting(prefixes []netip.Prefix) (best, other *entry) {
	var none Node
	for _, e := range a.entries {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return e.fits(p) != nil }) {
			continue
		}
		if best == nil {
			best = e
			continue
		}
		other = e
		x, y := candidate{entry: e, filled: true}, candidate{entry: best, filled: true}
		if _, c := compare(&x, &y, &none); c < 0 {
			best, other = e, best
		}
	}
	return best, other
}
