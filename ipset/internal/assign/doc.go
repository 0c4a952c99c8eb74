// Package assign assigns addresses: the best free ones, those that the caller names, consecutive ones, those of repeated requests
// and of sticky handles. A plan picks places first and changes no block; when the picks are complete, it carries them out.
//
// It imports txn and what txn imports, but not release: the part of a release that an assignment needs is in
// txn.
package assign

import (
	"sync/atomic"

	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Assigner carries out the calls of this package for one engine.
type Assigner struct {
	*txn.Engine
	used atomic.Pointer[AssignPlan] // the last plan, for the next call
}
