package pool

import (
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc/internal/selector"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Operator says what a [Requirement] asks of a label. The operators are those of the node selector of the Kubernetes API:
// NotIn and DoesNotExist also hold without the label; Gt and Lt hold for a label whose value is a decimal integer above or
// below the required one.
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

// Requirement asks one thing of one label. Among the Fields of a [Term] it asks for the name: Key is "metadata.name" then, and Op
// is In or NotIn.
type Requirement struct {
	Key    string
	Op     Operator
	Values []string // one or more for In and NotIn, one integer for Gt and Lt
}

// Term is a list of one or more requirements, all of which must hold.
type Term struct {
	Labels []Requirement // on labels
	Fields []Requirement // on the name
}

// Selector is a list of terms, one of which must hold. An empty Selector selects everything.
type Selector []Term

// Matches reports whether the selector selects what has that name and those labels, as a [Pool] matches hosts by its Nodes and
// namespaces, which have no name here, by its Namespaces. It returns [ipalloc.ErrInvalid] for a selector that no pool could
// have. It compiles the selector each time, in O(requirements).
func (s Selector) Matches(name string, labels map[string]string) (bool, error) {
	c, err := s.compile()
	if err != nil {
		return false, err
	}
	_, ok := c.Match(name, labels)
	return ok, nil
}

// compile returns the selector ready to match. It returns [ipalloc.ErrInvalid] for one that cannot be meant.
func (s Selector) compile() (*selector.Selector, error) {
	terms := make([]selector.Term, len(s))
	for i, t := range s {
		terms[i] = selector.Term{Labels: compileRequirements(t.Labels), Fields: compileRequirements(t.Fields)}
	}
	c, err := selector.New(terms...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cause.BadConfig, err)
	}
	return c, nil
}

func compileRequirements(rs []Requirement) []selector.Requirement {
	out := make([]selector.Requirement, len(rs))
	for i, r := range rs {
		out[i] = selector.Requirement{Key: r.Key, Op: selector.Operator(r.Op), Values: r.Values}
	}
	return out
}

// clone returns a selector that shares nothing that can change.
func (s Selector) clone() Selector {
	s = slices.Clone(s)
	for i := range s {
		s[i].Labels, s[i].Fields = cloneRequirements(s[i].Labels), cloneRequirements(s[i].Fields)
	}
	return s
}

func cloneRequirements(rs []Requirement) []Requirement {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Values = slices.Clone(rs[i].Values)
	}
	return rs
}
