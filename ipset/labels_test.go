package ipset

import (
	"github.com/ipalloc/ipalloc/selector"
)

// key returns a selector of what has a label with a value.
func key(k, v string) selector.Selector {
	return selector.Selector{{Labels: []selector.Requirement{{Key: k, Op: selector.In, Values: []string{v}}}}}
}
