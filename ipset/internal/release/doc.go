// Package release takes addresses and blocks back: by address, handle, host and time, with leases, affinity and leaks.
//
// It imports query, txn and what txn imports. Check and admin import it.
package release

import (
	"sync/atomic"

	"github.com/ipalloc/ipalloc/ipset/internal/query"
)

// Releaser carries out the calls of this package for one engine.
type Releaser struct {
	*query.Reader
	used atomic.Pointer[releasePlan] // the last plan, for the next call
	idle atomic.Pointer[IdleList]

	Ages   Ages             // of memos
	passed [2]atomic.Uint32 // calls that may have written memos: of requests, of sticky handles
}
