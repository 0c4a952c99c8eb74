// Package admin implements the operator's calls: it adds, changes and removes pools, imports blocks, reindexes, and removes a
// space.
//
// It imports txn, what txn imports, and release, because removing a pool or a space gives up its blocks.
package admin

import (
	"github.com/ipalloc/ipalloc/ipset/internal/release"
)

// Admin carries out the calls of this package for one engine.
type Admin struct {
	*release.Releaser
}
