package nodeipam

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// The rules of the ranking, in the order given in the package comment. Each decides
// between two entries that are equal under all earlier rules. No two entries are equal
// under all of them.
const (
	ruleSelector  = "selector"
	ruleLabels    = "labels met"
	ruleCapacity  = "capacity"
	ruleAddresses = "addresses per node"
	ruleMatched   = "names of the labels met" // the name of the node counts as the label metadata.name
	ruleBase      = "base address"            // an entry that has a family precedes one without it
	ruleLength    = "prefix length"
	ruleName      = "name"
)

// candidate is an entry that matches a node.
type candidate struct {
	*entry
	met     int
	matched string // filled in when a comparison gets as far as ruleMatched
	filled  bool
}

// labels returns the labels of n that c meets.
func (c *candidate) labels(n *Node) string {
	if !c.filled {
		c.matched, c.filled = c.selector.Labels(n.Name, n.Labels), true
	}
	return c.matched
}

// compare orders two candidates for n, the better one first, and returns the rule that
// decided.
func compare(a, b *candidate, n *Node) (string, int) {
	if x, y := a.selector.Empty(), b.selector.Empty(); x != y {
		if y {
			return ruleSelector, -1
		}
		return ruleSelector, 1
	}
	if c := cmp.Compare(b.met, a.met); c != 0 {
		return ruleLabels, c
	}
	if c := cmp.Compare(a.capacity, b.capacity); c != 0 {
		return ruleCapacity, c
	}
	if c := cmp.Compare(a.hostBits, b.hostBits); c != 0 {
		return ruleAddresses, c
	}
	if c := strings.Compare(a.labels(n), b.labels(n)); c != 0 {
		return ruleMatched, c
	}
	if rule, c := compareBase(a.entry, b.entry); c != 0 {
		return rule, c
	}
	return ruleName, strings.Compare(a.spec.Name, b.spec.Name)
}

// rank returns the entries that may serve n, best first, in the policy's scratch.
func (l *labels) rank(n *Node) []*candidate {
	found, order := l.scratch.found[:0], l.scratch.order[:0]
	for _, e := range l.entries {
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
	l.scratch.found, l.scratch.order = found, order
	return order
}

// fitting returns the first entry, by the rules that ignore labels, that has all the
// prefixes as children, and another such entry.
func (l *labels) fitting(prefixes ...netip.Prefix) (best, other *entry) {
	var none Node
	for _, e := range l.entries {
		if !e.fit(prefixes...) {
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
