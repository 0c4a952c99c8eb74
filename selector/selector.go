package selector

import (
	"slices"
	"strconv"
	"strings"
)

// Operator is the test that a [Requirement] applies to a label. The operators follow the
// node selector of the Kubernetes API. NotIn and DoesNotExist also hold without the
// label. Gt and Lt hold for a label whose value is a decimal integer above or below the
// required one.
type Operator string

// Operator values.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	Gt           Operator = "Gt"
	Lt           Operator = "Lt"
)

// NameField is the only key that a requirement on a field can have.
const NameField = "metadata.name"

// Requirement is one test of one label, or of a field. In and NotIn need at least one value, Gt and Lt one decimal integer,
// Exists and DoesNotExist none.
type Requirement struct {
	Key    string
	Op     Operator
	Values []string
}

// Term is a list of one or more requirements; all must hold.
type Term struct {
	Labels []Requirement
	Fields []Requirement // on NameField, with In or NotIn
}

// Selector is a list of terms; one must hold. Without a term it selects everything.
type Selector []Term

// Compile compiles the selector for matching. It fails with [ipalloc.ErrInvalid], with
// the place of the requirement and the reason, for a selector that can only be a mistake.
// Cost: O(requirements).
func (s Selector) Compile() (*Matcher, error) {
	m := &Matcher{}
	for i := range s {
		t, err := compile(i, &s[i])
		if err != nil {
			return nil, err
		}
		m.terms = append(m.terms, t)
	}
	slices.SortFunc(m.terms, func(a, b term) int {
		if a.positive() != b.positive() {
			return b.positive() - a.positive()
		}
		return strings.Compare(a.text, b.text)
	})
	m.terms = slices.CompactFunc(m.terms, func(a, b term) bool { return a.text == b.text })
	texts := make([]string, len(m.terms))
	for i := range m.terms {
		texts[i] = m.terms[i].text
	}
	m.text = strings.Join(texts, " or ")
	return m, nil
}

// Matches reports whether the selector matches an object with that name and those labels. It compiles the selector each time, and
// fails as Compile does.
func (s Selector) Matches(name string, labels map[string]string) (bool, error) {
	m, err := s.Compile()
	if err != nil {
		return false, err
	}
	_, ok := m.Match(name, labels)
	return ok, nil
}

// Clone returns a selector that shares nothing with s.
func (s Selector) Clone() Selector {
	s = slices.Clone(s)
	for i := range s {
		s[i].Labels, s[i].Fields = cloneAll(s[i].Labels), cloneAll(s[i].Fields)
	}
	return s
}

func cloneAll(rs []Requirement) []Requirement {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Values = slices.Clone(rs[i].Values)
	}
	return rs
}

// Matcher is a compiled [Selector]. The zero and the nil Matcher select everything. It is immutable and safe for concurrent use.
type Matcher struct {
	terms []term // most labels first, then by labels and text
	text  string
}

// term is a compiled Term.
type term struct {
	requirements []requirement
	keys         []string // of the positive requirements on labels, ascending, once each
	named        bool     // the name is required to be one of some
	text         string
}

// requirement is a compiled Requirement.
type requirement struct {
	key    string
	op     Operator
	values []string // of In and NotIn, ascending, once each
	bound  int64    // of Gt and Lt
	field  bool
}

// Empty reports whether the selector has no term and so selects everything.
func (m *Matcher) Empty() bool { return m == nil || len(m.terms) == 0 }

// String returns the canonical form: "a in (x,y), !b or c > 5". Two selectors have the
// same form if, and only if, they have the same requirements in any order. The empty
// selector is "".
func (m *Matcher) String() string {
	if m == nil {
		return ""
	}
	return m.text
}

// compile checks and compiles term i of a selector.
func compile(i int, src *Term) (term, error) {
	var t term
	if len(src.Labels)+len(src.Fields) == 0 {
		return t, wrong("", i, -1, errEmptyTerm)
	}
	for j, r := range src.Labels {
		c, err := compileRequirement(r, false)
		if err != nil {
			return t, wrong(".Labels", i, j, err)
		}
		t.requirements = append(t.requirements, c)
	}
	for j, r := range src.Fields {
		c, err := compileRequirement(r, true)
		if err != nil {
			return t, wrong(".Fields", i, j, err)
		}
		t.requirements = append(t.requirements, c)
	}
	slices.SortFunc(t.requirements, func(a, b requirement) int {
		return strings.Compare(a.String(), b.String())
	})
	t.requirements = slices.CompactFunc(t.requirements, func(a, b requirement) bool {
		return a.String() == b.String()
	})
	texts := make([]string, len(t.requirements))
	for k, r := range t.requirements {
		texts[k] = r.String()
		switch {
		case !r.positive():
		case r.field:
			t.named = true
		default:
			t.keys = append(t.keys, r.key)
		}
	}
	slices.Sort(t.keys)
	t.keys = slices.Compact(t.keys)
	t.text = strings.Join(texts, ", ")
	return t, nil
}

func compileRequirement(r Requirement, field bool) (requirement, error) {
	c := requirement{key: r.Key, op: r.Op, field: field}
	if err := check(r, field); err != nil {
		return c, err
	}
	switch r.Op {
	case In, NotIn:
		c.values = slices.Clone(r.Values)
		slices.Sort(c.values)
		c.values = slices.Compact(c.values)
	case Gt, Lt:
		c.bound, _ = strconv.ParseInt(r.Values[0], 10, 64)
	}
	return c, nil
}

// positive reports whether r requires the label to be present.
func (r *requirement) positive() bool { return r.op != NotIn && r.op != DoesNotExist }

// positive returns how many labels t requires to be present; the name counts as one
// label.
func (t *term) positive() int {
	n := len(t.keys)
	if t.named {
		n++
	}
	return n
}

// String returns the requirement in readable form.
func (r requirement) String() string {
	key := r.key
	if r.field {
		key = "field " + key
	}
	switch r.op {
	case In:
		return key + " in (" + strings.Join(r.values, ",") + ")"
	case NotIn:
		return key + " notin (" + strings.Join(r.values, ",") + ")"
	case DoesNotExist:
		return "!" + key
	case Gt:
		return key + " > " + strconv.FormatInt(r.bound, 10)
	case Lt:
		return key + " < " + strconv.FormatInt(r.bound, 10)
	}
	return key
}
