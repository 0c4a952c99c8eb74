package ipset

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc/internal/absent"
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

// Retry sets how often and how fast a commit is retried after a conflict.
type Retry struct {
	// Attempts is the number of commits tried, 16 by default.
	Attempts int
	// Base is the longest wait before the second retry; there is no wait before the
	// first. It doubles for each further retry, up to Max. The defaults are 1 ms and 100
	// ms. Each wait is random, between half of that and all of it.
	Base, Max time.Duration
	// Sleep waits for d; the default uses a timer. It returns the context's error if ctx
	// ends first.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Options configure an engine. The zero value is useful.
type Options struct {
	// Now is the clock, time.Now by default. The engine reads it once per commit; it must
	// not call the engine. While it is before 1970 or after 2261, every call that depends
	// on the time fails with [ipalloc.ErrInvalid].
	Now func() time.Time
	// Skew is the largest difference between the clocks of the engines on one store.
	// Leases, cooldowns and the idle time of blocks end Skew later. Otherwise an engine
	// whose clock is ahead could assign an address that another engine still holds.
	Skew time.Duration
	// Rand draws the waits between retries and the seeds of pools; the default is the
	// process's generator.
	Rand rand.Source
	// Labels returns the labels of an owner (a host or a virtual owner) for
	// [alloc.Pool].Nodes, and false for an owner that does not exist. Without it all
	// owners exist and have no labels. The engine calls it without holding a lock; it
	// must not block for long. The returned map must not be modified afterwards.
	Labels func(alloc.Owner) (labels map[string]string, ok bool)
	// Retry sets how conflicts with other engines are retried.
	Retry Retry
	// Cache is the number of records of each kind that the engine caches, 8,192 by
	// default; it may cache up to about twice as many. Set it to the number of hosts that
	// one engine serves. If a host's records are not in the cache, an assignment reads
	// twice, first the owner's record, then its blocks.
	Cache int
	// RequestsAfter is the age at which answers to request keys are deleted, by
	// [Operator.Sweep] and by every 32nd call of the engine with a request key. Such a
	// call deletes up to 64, after its own commit and in a few more round trips; a call in
	// [store.Together], and so one of packages kept and limits, deletes none. 0 means a
	// day; a negative value keeps the answers. Use one value for all engines on a store.
	// It must exceed the time during which callers repeat a request.
	RequestsAfter time.Duration
	// StickyAfter is the time after which the last addresses of sticky handles that hold
	// nothing are deleted, by Sweep and by every 32nd call with Sticky, in the same way. 0
	// means 30 days; a negative value keeps them.
	StickyAfter time.Duration
}

// Engine assigns addresses and keeps them in a store. Make an Engine with [New]. Any
// number of engines, in any number of processes, may work on one store. It is safe for
// concurrent use. [Engine.Follow] keeps its cache fresh if other engines serve the same
// hosts.
//
// # Calls
//
//	assign        Assign, of any pool or of named ones; AutoAssign with all options; AssignIP for a named address, or to share it
//	release       ReleaseByHandle, ReleaseIPs, ReleaseByHost a host; Release all or none
//	withdraw      Withdraw, if a call timed out and you want nothing of it
//	hand over     Transfer, one address or all of a handle to another handle
//	leases        Offer, RenewIP, Renew, Decline
//	look up       Lookup, IPsByHandle, IPsByHost, IPsByAttribute, IPsByShare, Allocations, Hosts, Utilization
//	pools         Pools, AddPool, UpdatePool, RemovePool
//	hosts         EnsureBlock, ClaimAffinity, DisownBlocks, RemoveHost
//	follow        Changes, what every commit did; Follow, to keep a cache fresh
//	what if       DryRun: an engine whose calls answer the same and write nothing
//	spaces        InSpace, for pools of tenants that overlap
//
// # Blocks without owner
//
// The commit that empties a block without owner, such as the release of its last address,
// deletes it. After the block's last lease or cooldown expires, the next Sweep deletes
// it, or a call that reads it, or an assignment that searches beyond its owner's blocks.
// Such an assignment first records all expired leases and cooldowns in its pools, so it
// assigns the address that it would assign after a Sweep. Until then the block is listed.
//
// # An unknown outcome
//
// [ipalloc.ErrUnknownOutcome] means that the connection broke, or the context ended,
// while a commit was in flight. The commit may or may not have been made. Then:
//
//   - Repeat [Engine.Assign], or AutoAssign with Existing: they return the addresses of
//     the handle.
//   - Repeat AutoAssign or AssignIP with its request key. The repetition returns the
//     addresses of the first answer that are still held and assigns the rest.
//     The key lasts for Options.RequestsAfter, a day by default.
//   - Otherwise release by handle, on the same engine.
//
// # Rules of a pool
//
// Calls that apply rules to one address ask one function; the table lists the rules that
// each call applies. "yes" means that the rule can refuse the address.
//
//	                          automatic  WithinRules  named      held
//	closed                    yes        yes          yes        yes
//	disabled                  yes        yes          yes        -
//	Uses                      yes        yes          if Use     -
//	Nodes, Namespaces         yes (1)    yes (1)      if Selectors  -
//	Manual                    yes        (2)          -          -
//	Ranges, Subnet, reserved  yes        yes          -          -
//	block of several pools    yes        yes          -          -
//	Strict, others' blocks    yes (3)    yes (3)      yes        to move
//	limits of blocks          yes        new blocks   yes        -
//	Head and Tail             yes        new holders  yes        -
//	cooling                   yes (4)    yes (4)      yes (4)    -
//
// The columns are these calls:
//
//   - automatic: Assign, AutoAssign, EnsureBlock, Explain. The addresses that Prefer and
//     Sticky try first obey the same rules; for Sticky, no block becomes the owner's.
//   - WithinRules: AssignIP, AssignIPs, AutoAssign with Existing, Offer, RenewIP and Renew
//     with that field. A held address must obey the present rules. A drained pool of leases
//     therefore becomes empty.
//   - named: AssignIP and AssignIPs without that field.
//   - held: Existing, Offer, RenewIP and Renew without that field, for a held address. Renew
//     static and kept addresses so.
//
// Notes: (1) AutoAssign and Offer with Pools apply selectors only with Selectors. (2)
// AutoAssign and Offer refuse a Manual pool unless Pools names it; for the other calls, the
// address names its pool. (3) A block without owner, or that its owner left empty for a
// minute, becomes the caller's. (4) The handle that released the address may get it again by
// name, Prefer or Sticky.
//
// # Cost
//
//	AutoAssign from a block, release   O(1), one commit; in blocks above 64 addresses O(spans of the free queue)
//	lowest or random address           O(spans of the free queue, log spans for the lowest), at most some 32 of 64 addresses
//	neighbours (Contiguous)            O(spans log spans) per block examined, the owner's before a free one
//	first block of a host              O(log64 n) page records, two round trips
//	block to borrow                    O(log n)
//	full pool                          O(1)
//	by handle, by host                 O(addresses of the handle or host), a list and a read or commit
//	Utilization                        O(blocks), without their addresses
//	Check                              O(n), in pages; memory O(blocks + problems)
//	Collect                            O(n), in pages; memory O(addresses not in use)
//
// An engine combines its callers' changes: calls that arrive while a commit is in flight
// wait and go into the next commit together, as many as fit. One engine has one commit in
// flight; many engines may share one store. A call whose context ends before the call is
// part of a commit changes nothing.
//
// # Clocks
//
// Leases, cooldowns and the idle time of blocks are compared with the clock of the engine
// that serves the call. If the clocks of engines on one store differ, set [Options].Skew
// to the largest difference; everything then expires later by that time.
//
// # Limits
//
// A block has 1 to 2^64 addresses; at most 2^24 may be held. A name (host, handle,
// request key, pool) has at most 1,024 bytes and no NUL byte. An address has at most 256
// holders. Attributes of one address have at most 64 KiB, and the record of an address
// with several holders at most 256 KiB; beyond that, calls fail with [ipalloc.ErrLimit].
// An owner may have any number of blocks. With more than 64, the order of its addresses
// depends on the blocks that the engine read last.
//
// The record of a block of 2^16 addresses or more grows by about 3 bytes for each stretch
// of its free addresses. Every commit in the block writes it. It takes 72 KB after 25,000
// of 50,000 addresses were released in random order. If the record would exceed the
// store's limit for a value, releases in the block fail with [ipalloc.ErrLimit]. In etcd
// with values of 500 KB, that takes some 165,000 stretches. Use smaller blocks for that
// many addresses.
//
// The pools are one record, which a change of a pool rewrites and an engine then reads
// again. With 10,000 pools and as many reserved ranges, it takes some 320 KB and 5 ms.
// Other calls do not depend on the number of pools.
//
// A store has a limit of 2^24 changes that give a pool more addresses or another block
// size while its family has, or had, blocks of other sizes. That is one change a minute
// for 31 years. After that such a change fails with [ipalloc.ErrLimit]; all other calls
// still work. Other changes of pools do not count. Removed hosts, blocks and pools leave
// 64 records behind for each block size.
//
// A search skips a reserved range in one step, however large it is. A free block that is
// wholly reserved keeps its page from counting as full. The search for a block in an
// otherwise full pool therefore reads one page for each such block. The search skips
// blocks that have been empty for less than a minute, or have only cooling addresses, by
// their index records, 64 to a list. It skips a nested pool in one step, and adjacent
// ones together.
type Engine struct {
	space  string  // its name; "" for the one without
	spaces *spaces // beside it

	// The parts that do the work, on one core.
	core    *txn.Engine
	assign  assign.Assigner
	release release.Releaser
	query   query.Reader
	check   check.Checker
	admin   admin.Admin
}

func (o Options) check() error {
	switch r := o.Retry; {
	case o.Skew < 0:
		return cause.Invalid("Skew", "%v is negative", o.Skew)
	case o.Cache < 0:
		return cause.Invalid("Cache", "%d is negative", o.Cache)
	case r.Attempts < 0 || r.Base < 0 || r.Max < 0:
		return cause.Invalid("Retry", "%d attempts, %v to %v: a negative number", r.Attempts, r.Base, r.Max)
	}
	return nil
}

// New returns an engine on a store. It reads nothing.
func New(db store.Store, o Options) (*Engine, error) {
	if absent.Is(db) {
		return nil, cause.Op("new", cause.Invalid("db", "is nil"))
	}
	if err := o.check(); err != nil {
		return nil, cause.Op("new", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Labels == nil {
		o.Labels = func(alloc.Owner) (map[string]string, bool) { return nil, true }
	}
	if o.Retry.Attempts == 0 {
		o.Retry.Attempts = 16
	}
	if o.Cache == 0 {
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

// build makes the parts of an engine on a store.
func (e *Engine) build(db store.Store) {
	o := e.spaces.options
	e.core = &txn.Engine{
		DB: db, Limits: db.Limits(), Others: store.Published(db), Now: o.Now, Skew: int64(o.Skew), Labels: o.Labels, Keep: o.Cache,
		Tries: o.Retry.Attempts, Retry: occ.Retry{Base: o.Retry.Base, Max: o.Retry.Max, Sleep: o.Retry.Sleep, Rand: o.Rand},
	}
	e.core.Start()
	e.assign.Engine, e.query.Engine = e.core, e.core
	e.release.Reader = &e.query
	e.release.Ages = release.Ages{Requests: cmp.Or(o.RequestsAfter, 24*time.Hour), Sticky: cmp.Or(o.StickyAfter, 30*24*time.Hour)}
	e.check.Releaser, e.admin.Releaser = &e.release, &e.release
}

// spaces are the engines of the named spaces of one store, made on first use.
type spaces struct {
	db      store.Store
	options Options
	root    *Engine // of the space without a name
	of      *spaces // for dry and importing engines, those that they stand for
	dry     bool    // its engines write nothing
	imports bool    // closed pools serve its engines
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
