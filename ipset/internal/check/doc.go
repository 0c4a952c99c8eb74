// Package check compares every record with the records that it is derived from, reports the differences, and repairs
// them.
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
