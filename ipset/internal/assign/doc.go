// Package assign gives addresses: the search for the best places, addresses that the caller names, neighbours, repeated requests,
// sticky handles. A plan picks places first and changes no block; when the picks are complete, it carries them out.
//
// It imports txn and what txn imports, and no room beside it: what an assignment needs of a release is in txn.
package assign

import (
	"sync/atomic"

	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Assigner is this room of an engine.
type Assigner struct {
	*txn.Engine
	used atomic.Pointer[AssignPlan] // the last plan, for the next call
}
