// Package check compares every record with what it follows from, finds what is wrong, and repairs it.
//
// It imports release, because a repair may release, txn and what txn imports.
package check

import (
	"github.com/ipalloc/ipalloc/ipset/internal/release"
)

// Checker is this room of an engine.
type Checker struct {
	*release.Releaser
}
