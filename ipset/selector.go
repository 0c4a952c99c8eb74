package ipset

import (
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc/internal/selector"
)

// Operator says what a [Requirement] asks of a label.
type Operator = selector.Operator

// The operators.
const (
	In           = selector.In
	NotIn        = selector.NotIn
	Exists       = selector.Exists
	DoesNotExist = selector.DoesNotExist
	Gt           = selector.Gt
	Lt           = selector.Lt
)

// Requirement asks one thing of one label, or of the name under the key metadata.name.
type Requirement = selector.Requirement

// Term is requirements that must all hold, at least one in all.
type Term = selector.Term

// Selector is a list of terms, one of which must hold. An empty Selector selects everything.
type Selector []Term

// compile returns the selector ready to match. It returns [ipalloc.ErrInvalid] for one that cannot be meant.
func (s Selector) compile() (*selector.Selector, error) {
	c, err := selector.New(s...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadConfig, err)
	}
	return c, nil
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
