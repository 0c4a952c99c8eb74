// Package admin carries out what the operator of the pools asks for: their making, change and end, imports, other indexes, and the
// end of a space.
//
// It imports release, because a pool or a space that ends gives up its blocks, txn and what txn imports.
package admin

import (
	"github.com/ipalloc/ipalloc/ipset/internal/release"
)

// Admin is this room of an engine.
type Admin struct {
	*release.Releaser
}
