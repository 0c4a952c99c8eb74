package nodeipam

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Verdict values of a [Candidate].
const (
	verdictChosen      = "chosen"      // Allocate takes this one, or would if the node held nothing
	verdictBehind      = "behind"      // matches and has room, but a better one is chosen
	verdictFull        = "full"        // matches, but has no room in one of its families
	verdictNoMatch     = "no match"    // the selector does not match
	verdictTerminating = "terminating" // deleted; serves no further node
)

// Candidate is one entry in an [Explanation].
type Candidate struct {
	Entry string
	Rank  int // 1 for the best match; 0 if the entry cannot serve the node at all
	// Verdict is "chosen" for the entry that Allocate takes, or would take if the node
	// held nothing. It is "behind" for an entry that has room but ranks lower, and "full"
	// for an entry without room in a family. Other verdicts are "no match", and
	// "terminating" for a deleted entry.
	Verdict string
	// Rule is the rule that ranked the entry behind the one before it, such as "labels
	// met" or "base address". It is "" for the first entry and for entries without a
	// rank.
	Rule string
	// Reason explains in words which values decided, and why the entry is full or does
	// not match.
	Reason string
}

// Explanation tells which entry serves a node, and why no other one does.
type Explanation struct {
	Node       string
	Labels     map[string]string
	Held       *Assignment // what the node holds already; nil if nothing
	Chosen     string      // the entry that serves the node; "" if none does
	Candidates []Candidate // those with a rank in its order, then the others by name
}

// Explain returns the prefixes that [Allocator.Allocate] would give n if n held nothing,
// and the reasons. It lists every entry with its rank and the rule that put it behind the
// one before, or with the reason why it cannot serve n. It changes nothing. Without
// entries, or if the allocator has slots, there are no candidates. O(entries) times O(log
// n).
func (a *Allocator) Explain(n Node) Explanation {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := Explanation{Node: n.Name, Labels: maps.Clone(n.Labels)}
	if o := a.owners[n.Name]; o != nil {
		as := o.assignment()
		x.Held = &as
	}
	l, ok := a.policy.(*labels)
	if !ok {
		return x
	}
	var before *candidate
	for i, c := range l.rank(&n) {
		out := Candidate{Entry: c.spec.Name, Rank: i + 1, Verdict: verdictBehind}
		reason := "the best match"
		if before != nil {
			out.Rule, _ = compare(before, c, &n)
			reason = behind(out.Rule, before, c, &n)
		}
		holds := x.Held != nil && x.Held.Entry == c.spec.Name // without which there would be room
		if _, full := l.room(c.entry, nil); full != nil && !holds {
			out.Verdict = verdictFull
			reason = fmt.Sprintf("no free /%d in %v; %s", full.size, full.prefix, reason)
		} else if x.Chosen == "" {
			x.Chosen, out.Verdict = c.spec.Name, verdictChosen
		}
		out.Reason, before = reason, c
		x.Candidates = append(x.Candidates, out)
	}
	for _, e := range l.entries {
		out := Candidate{Entry: e.spec.Name, Verdict: verdictNoMatch, Reason: e.selector.Why(n.Name, n.Labels)}
		if e.terminating {
			out.Verdict, out.Reason = verdictTerminating, "deleted; nodes still to go: "+strconv.Itoa(l.nodes[e.spec.Name])
		}
		if out.Reason != "" {
			x.Candidates = append(x.Candidates, out)
		}
	}
	return x
}

// behind returns the text for an entry b that ranks behind a.
func behind(r string, a, b *candidate, n *Node) string {
	var mine, its string
	switch r {
	case ruleSelector:
		return "has no selector; " + a.spec.Name + " has one"
	case ruleLabels:
		mine, its = fmt.Sprintf("%d (%s)", b.met, b.labels(n)), fmt.Sprintf("%d (%s)", a.met, a.labels(n))
	case ruleCapacity:
		mine, its = power(b.capacity)+" children", power(a.capacity)+" children"
	case ruleAddresses:
		mine, its = power(b.hostBits), power(a.hostBits)
	case ruleMatched:
		mine, its = strconv.Quote(b.labels(n)), strconv.Quote(a.labels(n))
	case ruleName:
		mine, its = b.spec.Name, a.spec.Name
	default:
		mine, its = b.String(), a.String()
	}
	return fmt.Sprintf("%v: %s, %s has %s", r, mine, a.spec.Name, its)
}

// power returns 2^order as a number if that is short.
func power(order int) string {
	if order <= 20 {
		return strconv.Itoa(1 << order)
	}
	return "2^" + strconv.Itoa(order)
}

// String returns the explanation as a table, one line for each entry.
func (x Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", x.Node)
	if len(x.Labels) > 0 {
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(x.Labels)) {
			pairs = append(pairs, k+"="+x.Labels[k])
		}
		fmt.Fprintf(&b, " {%s}", strings.Join(pairs, ", "))
	}
	switch {
	case x.Held != nil && x.Held.Entry == "":
		fmt.Fprintf(&b, " holds %v, of no entry\n", x.Held.Prefixes)
	case x.Held != nil:
		fmt.Fprintf(&b, " holds %v of %s\n", x.Held.Prefixes, x.Held.Entry)
	case x.Chosen == "":
		b.WriteString(" cannot be served\n")
	default:
		fmt.Fprintf(&b, " gets %s\n", x.Chosen)
	}
	if len(x.Candidates) == 0 {
		b.WriteString("  there are no entries\n")
	}
	width := 0
	for _, c := range x.Candidates {
		width = max(width, len(c.Entry))
	}
	for _, c := range x.Candidates {
		rank := "-"
		if c.Rank > 0 {
			rank = strconv.Itoa(c.Rank)
		}
		fmt.Fprintf(&b, "%3s  %-*s  %-11v  %s\n", rank, width, c.Entry, c.Verdict, c.Reason)
	}
	return b.String()
}
