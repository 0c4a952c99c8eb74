package selector

import (
	"slices"
	"strconv"
	"strings"
)

// Match reports whether the selector matches an object with that name and those labels.
// met is the number of labels that the matching term requires to be present; if several
// terms match, met is the highest of their counts. A label in several requirements counts
// once, and so does the name. The empty selector matches everything, with met 0. Match
// does not allocate.
func (m *Matcher) Match(name string, labels map[string]string) (met int, ok bool) {
	if m.Empty() {
		return 0, true
	}
	for i := range m.terms {
		if t := &m.terms[i]; t.failing(name, labels) == nil {
			return t.positive(), true // terms that need more come first
		}
	}
	return 0, false
}

// Labels returns the labels that Match counts, with the object's values: "key=value",
// ascending by key, joined by commas. The name has the key metadata.name and follows a
// label of that key. If several terms match equally well, Labels returns the string that
// sorts lowest. It returns "" if Match counts nothing.
func (m *Matcher) Labels(name string, labels map[string]string) string {
	best, found := "", -1
	if m.Empty() {
		return ""
	}
	for i := range m.terms {
		t := &m.terms[i]
		if found >= 0 && t.positive() < found {
			break
		}
		if t.failing(name, labels) != nil {
			continue
		}
		if text := t.met(name, labels); found < 0 || text < best {
			best, found = text, t.positive()
		}
	}
	return best
}

// met returns the labels that t requires to be present, with their values.
func (t *term) met(name string, labels map[string]string) string {
	var b strings.Builder
	add := func(key, value string) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(key + "=" + value)
	}
	named := !t.named
	for _, key := range t.keys {
		if !named && key > NameField {
			add(NameField, name)
			named = true
		}
		add(key, labels[key])
	}
	if !named {
		add(NameField, name)
	}
	return b.String()
}

// Why returns, for each term, the first requirement that does not hold, with the actual
// value: "zone in (b), but zone=a". It is "" if the selector matches.
func (m *Matcher) Why(name string, labels map[string]string) string {
	var reasons []string
	if m.Empty() {
		return ""
	}
	for i := range m.terms {
		r := m.terms[i].failing(name, labels)
		if r == nil {
			return ""
		}
		value, ok := labels[r.key]
		if r.field {
			value, ok = name, true
		}
		reason := r.String() + ", but " + r.key + "=" + value
		if !ok {
			reason = r.String() + ", but there is no " + r.key
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return strings.Join(reasons, "; or ")
}

// failing returns the first requirement of t that does not hold, nil if all do.
func (t *term) failing(name string, labels map[string]string) *requirement {
	for i := range t.requirements {
		r := &t.requirements[i]
		value, ok := name, true
		if !r.field {
			value, ok = labels[r.key]
		}
		if !r.holds(value, ok) {
			return r
		}
	}
	return nil
}

// holds reports whether r holds for the value of a label; ok is false if the label is
// absent.
func (r *requirement) holds(value string, ok bool) bool {
	switch r.op {
	case In:
		_, found := slices.BinarySearch(r.values, value)
		return ok && found
	case NotIn:
		_, found := slices.BinarySearch(r.values, value)
		return !ok || !found
	case Exists:
		return ok
	case DoesNotExist:
		return !ok
	}
	// The original parses a number with strconv, signs included.
	n, err := strconv.ParseInt(value, 10, 64)
	if !ok || err != nil {
		return false
	}
	return r.op == Gt && n > r.bound || r.op == Lt && n < r.bound
}
