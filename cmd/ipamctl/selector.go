package main

import (
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/selector"
)

// selectorText writes a selector as parseSelector reads it: requirements joined by commas, terms by
// semicolons.
func selectorText(s selector.Selector) string {
	terms := make([]string, len(s))
	for i, t := range s {
		var reqs []string
		for _, r := range slices.Concat(t.Labels, t.Fields) {
			reqs = append(reqs, requirementText(r))
		}
		terms[i] = strings.Join(reqs, ",")
	}
	return strings.Join(terms, "; ")
}

func requirementText(r selector.Requirement) string {
	switch r.Op {
	case selector.Exists:
		return r.Key
	case selector.DoesNotExist:
		return "!" + r.Key
	case selector.Gt:
		return r.Key + ">" + strings.Join(r.Values, "")
	case selector.Lt:
		return r.Key + "<" + strings.Join(r.Values, "")
	case selector.NotIn:
		if len(r.Values) == 1 {
			return r.Key + "!=" + r.Values[0]
		}
		return r.Key + " notin (" + strings.Join(r.Values, ",") + ")"
	}
	if len(r.Values) == 1 {
		return r.Key + "=" + r.Values[0]
	}
	return r.Key + " in (" + strings.Join(r.Values, ",") + ")"
}

// nameField is the key by which a requirement is about the name.
const nameField = "metadata.name"

// parseSelector reads "zone=a,disk in (ssd,nvme),!spot; role" as two terms, of which one must hold.
// The empty text selects everything.
func parseSelector(text string) (selector.Selector, error) {
	var s selector.Selector
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	for _, term := range strings.Split(text, ";") {
		var t selector.Term
		for _, part := range splitOutside(term) {
			r, ok := parseRequirement(strings.TrimSpace(part))
			if !ok {
				return nil, fail(exitUsage, "selector %q: %q is no requirement; the forms are k=v, k!=v, k, !k, k>1, k<1, k in (a,b), k notin (a,b)",
					text, strings.TrimSpace(part))
			}
			if r.Key == nameField {
				t.Fields = append(t.Fields, r)
			} else {
				t.Labels = append(t.Labels, r)
			}
		}
		s = append(s, t)
	}
	return s, nil
}

// splitOutside splits at commas that are not in parentheses.
func splitOutside(s string) (parts []string) {
	depth, from := 0, 0
	for i, r := range s {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

func parseRequirement(s string) (r selector.Requirement, ok bool) {
	if list, found := strings.CutSuffix(s, ")"); found {
		head, values, _ := strings.Cut(list, "(")
		f := strings.Fields(head)
		if len(f) != 2 {
			return r, false
		}
		r = selector.Requirement{Key: f[0], Op: selector.In}
		if f[1] == "notin" {
			r.Op = selector.NotIn
		} else if f[1] != "in" {
			return r, false
		}
		for _, v := range strings.Split(values, ",") {
			r.Values = append(r.Values, strings.TrimSpace(v))
		}
		return r, true
	}
	for _, o := range []struct {
		sign string
		op   selector.Operator
	}{{"!=", selector.NotIn}, {"==", selector.In}, {"=", selector.In}, {">", selector.Gt}, {"<", selector.Lt}} {
		if k, v, found := strings.Cut(s, o.sign); found {
			return selector.Requirement{Key: strings.TrimSpace(k), Op: o.op, Values: []string{strings.TrimSpace(v)}}, k != ""
		}
	}
	if k, found := strings.CutPrefix(s, "!"); found {
		return selector.Requirement{Key: k, Op: selector.DoesNotExist}, k != ""
	}
	return selector.Requirement{Key: s, Op: selector.Exists}, s != "" && !strings.ContainsAny(s, " ()")
}

// useNames are the uses by name.
var useNames = []struct {
	name string
	use  alloc.Use
}{{"workload", alloc.Workload}, {"tunnel", alloc.Tunnel}, {"loadbalancer", alloc.LoadBalancer}}

// usesOf names uses.
func usesOf(u alloc.Use) (names []string) {
	for _, n := range useNames {
		if u&n.use != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// parseUses reads names of uses.
func parseUses(names []string) (u alloc.Use, err error) {
next:
	for _, name := range names {
		for _, n := range useNames {
			if n.name == strings.ToLower(strings.TrimSpace(name)) {
				u |= n.use
				continue next
			}
		}
		return 0, fail(exitUsage, "there is no use %q; the uses are workload, tunnel and loadbalancer", name)
	}
	return u, nil
}
