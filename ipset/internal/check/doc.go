// Package check compares every record with those that it is derived from, reports what is wrong, and repairs
// it.
//
// It imports txn, what txn imports, and release, because a repair can release addresses.
package check

import (
	"github.com/ipalloc/ipalloc/ipset/internal/release"
)

// Checker carries out the calls of this package for one engine.
type Checker struct {
	*release.Releaser
}
