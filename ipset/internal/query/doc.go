// Package query answers questions from the store: lookups, lists, utilization, changes. Nothing in it writes. Its results show
// the present: an address whose lease has ended is no longer held, even if that is not written yet.
//
// It imports txn and what txn imports. Release, check and admin import it, because they read before they write.
package query

import (
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Reader carries out the calls of this package for one engine.
type Reader struct {
	*txn.Engine
}
