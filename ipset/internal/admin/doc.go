// Package admin carries out what the operator of the pools asks for: their making, change and end, imports, other indexes, and the
// end of a space.
package admin

import (
	"github.com/ipalloc/ipalloc/ipset/internal/release"
)

// Admin is this room of an engine.
type Admin struct {
	*release.Releaser
}
