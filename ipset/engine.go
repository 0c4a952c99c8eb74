package ipset

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/admin"
	"github.com/ipalloc/ipalloc/ipset/internal/assign"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/check"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/query"
	"github.com/ipalloc/ipalloc/ipset/internal/release"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
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
	// Rand draws the waits between retries and the seeds of pools; by default the process's generator.
	Rand rand.Source
	// Labels returns the labels of an owner, a host or a virtual one, by which [alloc.Pool].Nodes selects it, and false for an owner
	// that does not exist. Without it all owners exist and have no labels. It is called without a lock held and must not block
	// for long. The map must not change after it was returned.
	Labels func(alloc.Owner) (labels map[string]string, ok bool)
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
	space  string  // its name; "" for the one without
	spaces *spaces // beside it

	// The rooms, on one core.
	core    *txn.Engine
	assign  *assign.Assigner
	release *release.Releaser
	query   *query.Reader
	check   *check.Checker
	admin   *admin.Admin
}

// New returns an engine on a store. It reads nothing.
func New(db store.Store, o Options) (*Engine, error) {
	if db == nil {
		return nil, cause.Op("new", cause.Invalid("store", "is nil"))
	}
	if o.Skew < 0 {
		return nil, cause.Op("new", cause.Invalid("Skew", "%v is negative", o.Skew))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Labels == nil {
		o.Labels = func(alloc.Owner) (map[string]string, bool) { return nil, true }
	}
	if o.Retry.Attempts < 1 {
		o.Retry.Attempts = 16
	}
	if o.Cache <= 0 {
		o.Cache = 8192
	}
	if o.Rand != nil {
		if _, locked := o.Rand.(*lockedSource); !locked {
			o.Rand = &lockedSource{src: o.Rand} // the engines of all spaces draw from it
		}
	}
	e := &Engine{}
	e.spaces = &spaces{db: db, options: o, root: e}
	e.build(db)
	return e, nil
}

// build makes the rooms of an engine on a store.
func (e *Engine) build(db store.Store) {
	o := e.spaces.options
	e.core = txn.NewEngine(txn.Config{
		Store: db, Now: o.Now, Skew: o.Skew, Labels: o.Labels, Keep: o.Cache, Tries: o.Retry.Attempts,
		Retry: occ.Retry{Base: o.Retry.Base, Max: o.Retry.Max, Sleep: o.Retry.Sleep, Rand: o.Rand},
	})
	e.assign = &assign.Assigner{Engine: e.core}
	e.query = &query.Reader{Engine: e.core}
	e.release = &release.Releaser{Reader: e.query}
	e.check = &check.Checker{Releaser: e.release}
	e.admin = &admin.Admin{Releaser: e.release}
}

// spaces are the engines of the named spaces of one store, made on first use.
type spaces struct {
	db      store.Store
	options Options
	root    *Engine // of the space without a name
	of      *spaces // for dry engines, those that they stand for
	mu      sync.Mutex
	engines map[string]*Engine
}

// lockedSource is a random source that several engines share.
type lockedSource struct {
	mu  sync.Mutex
	src rand.Source
}

// Uint64 implements [rand.Source].
func (l *lockedSource) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}
