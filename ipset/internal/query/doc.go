// Package query answers questions from the store: lookups, lists, utilization, changes. Nothing in it writes. What it reads is
// brought to the present, so a lease that has ended is no longer held, whether or not that is written yet.
//
// It imports txn and what txn imports. Release, check and admin stand on it, because they look before they act.
package query

import (
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Reader is this room of an engine.
type Reader struct {
	*txn.Engine
}
