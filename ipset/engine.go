package ipset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc/ipset/block"
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
	// Now is the clock, time.Now by default. It is read once per commit and must not call the engine.
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
	// Cache is the number of records of each kind that the engine caches, 8,192 by default.
	Cache int
}

// Engine assigns addresses on a store. [New] makes one. Any number of engines, in any number of processes, may work on one
// store. Safe for concurrent use.
//
// Calls that change something are combined: while a commit is under way they wait and go into the next one together.
type Engine struct {
	store  store.Store
	limits store.Limits
	now    func() time.Time
	labels func(Owner) (map[string]string, bool)
	retry  Retry
	keep   int
	skew   int64

	space  string  // its name; "" for the one without
	spaces *spaces // beside it

	mu      sync.Mutex
	busy    bool    // set while a leader runs; it owns cache, txn, random and lost
	waiting []*call // the next batch
	// doubtful is set while a commit of this engine may still be made after its caller was given ErrUnknownOutcome.
	doubtful atomic.Bool

	decoded atomic.Pointer[decodedCatalog] // the last one that was decoded

	hints  hints
	cache  cache
	txn    txn
	random *rand.Rand
	lost   []fence // commits of unknown outcome that have not been fenced yet
	// The last plans used, for the next calls.
	usedAssign  atomic.Pointer[assignPlan]
	usedRelease atomic.Pointer[releasePlan]
	alone       call     // of a caller that found the engine idle
	one         [1]*call // the batch that it is
}

// New returns an engine on a store. It reads nothing.
func New(db store.Store, o Options) (*Engine, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: no store", errBadArgument)
	}
	e := &Engine{store: db, limits: db.Limits(), now: o.Now, labels: o.Labels, retry: o.Retry, keep: o.Cache, skew: int64(o.Skew), cache: newCache()}
	if o.Skew < 0 {
		return nil, fmt.Errorf("%w: clocks apart by %v", errBadArgument, o.Skew)
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.labels == nil {
		e.labels = func(Owner) (map[string]string, bool) { return nil, true }
	}
	if e.retry.Attempts < 1 {
		e.retry.Attempts = 16
	}
	if e.retry.Base <= 0 {
		e.retry.Base = time.Millisecond
	}
	if e.retry.Max <= 0 {
		e.retry.Max = 100 * time.Millisecond
	}
	if e.retry.Sleep == nil {
		e.retry.Sleep = sleep
	}
	if e.keep <= 0 {
		e.keep = 8192
	}
	src := o.Rand
	if src == nil {
		src = rand.NewPCG(rand.Uint64(), rand.Uint64())
	} else if _, locked := src.(*lockedSource); !locked {
		src = &lockedSource{src: src}
		o.Rand = src // the engines of all spaces draw from it
	}
	e.random = rand.New(src)
	e.txn = newTxn(e)
	e.spaces = &spaces{db: db, options: o, root: e}
	e.hints.last = newKept[Owner, [2]netip.Prefix]()
	return e, nil
}

// past returns the moment that has passed by every engine's clock.
func (e *Engine) past() int64 { return block.Stamp(e.now()) - e.skew }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// again prepares the next attempt after a conflict: what the transaction touched is read afresh, all at once, after a
// wait that grows with the conflicts met so far.
func (e *Engine) again(t *txn, tries int, wait bool, conflict error) error {
	keys := t.forget()
	if tries >= e.retry.Attempts {
		return fmt.Errorf("%w: %w", errContention, conflict)
	}
	if wait && tries > 1 {
		d := min(e.retry.Base<<min(tries-2, 20), e.retry.Max)
		d = d/2 + time.Duration(e.random.Int64N(int64(d/2)+1))
		if err := e.retry.Sleep(t.ctx, d); err != nil {
			return err
		}
	}
	if key, ok := store.ConflictKey(conflict); ok && strings.HasPrefix(key, kindRequest) {
		recs, err := e.store.Get(t.ctx, nil, key)
		if err != nil {
			return err
		}
		t.prior[key] = recs[0]
	}
	return t.load(keys...)
}
