package ipset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Retry says how often and how fast a commit that met a conflict is retried.
type Retry struct {
	// Attempts is the number of commits tried, 16 by default.
	Attempts int
	// Base is the longest wait before the second retry; the first does not wait. It doubles for each further retry, up to Max.
	// The defaults are 1 ms and 100 ms. Each wait is drawn at random between half of that and all of it.
	Base, Max time.Duration
	// Sleep waits; by default with a timer. It returns the context's error if that ends first.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Options configure an engine. The zero value is useful.
type Options struct {
	// Now is the clock, time.Now by default. It is read once per commit and must not call the engine. While it is before 1970 or after
	// 2261, every call that depends on the time is refused with [ipalloc.ErrInvalid].
	Now func() time.Time
	// Skew is the largest difference between the clocks of the engines on one store. Leases, cooldowns and the idleness of
	// blocks end Skew later than their time says, because an engine whose clock is ahead must not hand out what another engine
	// still holds.
	Skew time.Duration
	// Rand draws the waits between retries; by default the process's generator.
	Rand rand.Source
	// Labels returns the labels of an owner, a host or a virtual one, by which [Pool].Nodes selects it, and false for an owner
	// that does not exist. Without it all owners exist and have no labels. It is called without a lock held and must not block
	// for long. The map must not change after it was returned.
	Labels func(Owner) (labels map[string]string, ok bool)
	// Retry says how conflicts with other engines are retried.
	Retry Retry
	// Cache is the number of records of each kind that the engine caches, 8,192 by default, and about twice as many at most. Set it
	// to the number of hosts that take turns at one engine: an assignment for a host whose records have left the cache reads twice,
	// first the owner's record, then its blocks.
	Cache int
}

// Engine assigns addresses on a store. [New] makes one. Any number of engines, in any number of processes, may work on one
// store. Safe for concurrent use.
//
// Calls that change something are combined: while a commit is under way they wait and go into the next one together.
type Engine struct {
	db     store.Store // what plans read and commits are made on
	store  store.Store // db for what reads outside of a plan
	limits store.Limits
	now    func() time.Time
	labels func(Owner) (map[string]string, bool)
	skew   int64
	keep   int
	tries  int // of what may meet conflicts
	retry  occ.Retry

	space  string  // its name; "" for the one without
	spaces *spaces // beside it

	decoded atomic.Pointer[decodedCatalog] // the last one that was decoded

	hints hints
	run   *occ.Runner[*txn]
	txn   *txn
	// The last plans used, for the next calls.
	usedAssign  atomic.Pointer[assignPlan]
	usedRelease atomic.Pointer[releasePlan]
	idle        atomic.Pointer[idleList]
}

// New returns an engine on a store. It reads nothing.
func New(db store.Store, o Options) (*Engine, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: no store", errBadArgument)
	}
	e := &Engine{db: db, limits: db.Limits(), now: o.Now, labels: o.Labels, skew: int64(o.Skew), tries: o.Retry.Attempts, keep: o.Cache}
	if o.Skew < 0 {
		return nil, fmt.Errorf("%w: clocks apart by %v", errBadArgument, o.Skew)
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.labels == nil {
		e.labels = func(Owner) (map[string]string, bool) { return nil, true }
	}
	if e.tries < 1 {
		e.tries = 16
	}
	if e.keep <= 0 {
		e.keep = 8192
	}
	if o.Rand != nil {
		if _, locked := o.Rand.(*lockedSource); !locked {
			o.Rand = &lockedSource{src: o.Rand} // the engines of all spaces draw from it
		}
	}
	e.retry = occ.Retry{Base: o.Retry.Base, Max: o.Retry.Max, Sleep: o.Retry.Sleep, Rand: o.Rand}
	e.hints.last = occ.NewRecent[Owner, *[2]netip.Prefix](e.keep)
	e.spaces = &spaces{db: db, options: o, root: e}
	e.start()
	return e, nil
}

// Times that the records keep are nanoseconds since 1970 in 64 bits, above 0.
var (
	firstTime = time.Unix(0, 1)
	lastTime  = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// clock reads the clock. It returns [ipalloc.ErrInvalid] for a time that no record can keep, as of a machine without a battery: one
// that was written would end nothing, or everything at once.
func (e *Engine) clock() (int64, error) {
	now := e.now()
	if now.Before(firstTime) || now.After(lastTime) {
		return 0, wrap(ipalloc.Error{Op: "read clock", Field: "Options.Now", Text: now.UTC().Format(time.RFC3339Nano), Reason: "not from 1970 to 2261", Err: ipalloc.ErrInvalid})
	}
	return block.Stamp(now), nil
}

// past returns the moment that has passed by every engine's clock.
func (e *Engine) past() (int64, error) {
	now, err := e.clock()
	return now - e.skew, err
}
