package prefixes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Sizes are the prefix lengths that a pool allocates, both included. Shortest is the
// length of the largest prefix.
type Sizes struct{ Shortest, Longest int }

// Pool is a prefix that other prefixes are allocated from.
type Pool struct {
	Prefix netip.Prefix
	Sizes  Sizes
}

// Holding is a prefix with its owner.
type Holding struct {
	Prefix netip.Prefix
	Owner  string
	// Pool is the prefix that it is held from: a root pool or another holding.
	Pool netip.Prefix
	// Level is 1 if Pool is a root pool, otherwise one more than the level of Pool.
	Level int
	// Children are the lengths that can be allocated from it in turn. With the zero Sizes
	// the holding is not a pool.
	Children Sizes
	// Attributes is the caller's data, at most MaxAttributes bytes.
	Attributes string
	// Until is the expiry of the lease, in UTC; the zero time means never.
	Until time.Time
}

// Request is the argument of the calls that allocate.
type Request struct {
	// Pool is the prefix to allocate from: a root pool, or a holding with Children.
	Pool netip.Prefix
	// Owner is the future holder: 1 to MaxOwner bytes without NUL.
	Owner string
	// Bits is the prefix length. Occupy ignores it.
	Bits int
	// Children makes the prefix a pool that allocates these lengths.
	Children Sizes
	// Attributes are stored with the holding.
	Attributes string
	// TTL makes the prefix a lease, which expires after that time unless Renew extends
	// it; 0 means no lease. A lease has no Children.
	TTL time.Duration
	// New makes Assign and Occupy fail with ErrExists if the owner already holds the
	// prefix, instead of returning it.
	New bool
}

// Options configure an [Allocator]. The zero Options select the defaults.
type Options struct {
	// Attempts bounds the commits that a call tries while other writers change the same
	// records; 0 means 16. The call waits before the third and each later attempt, at
	// most 100 ms.
	Attempts int
	// Now is the time source of leases; nil is time.Now. Calls that find no lease do not
	// use it.
	Now func() time.Time
	// Skew is the largest difference between the clocks of allocators on one store; every
	// lease expires later by that time.
	Skew time.Duration
}

// Allocator allocates prefixes from pools whose state is in a store. Any number of
// allocators, in any number of processes, may share a store. Make an Allocator with
// [New]. It is safe for concurrent use.
type Allocator struct {
	store store.Store
	tries int
	now   func() time.Time
	skew  int64
	run   *occ.Runner[*txn]
}

// New returns an allocator on a store. It reads nothing. It fails with ErrInvalid if db
// is nil or an option is negative.
func New(db store.Store, o Options) (*Allocator, error) {
	if absent.Is(db) {
		return nil, explain(invalid("db", "is nil"), ipalloc.Error{Op: "new"})
	}
	if o.Attempts < 0 {
		return nil, explain(invalid("Attempts", "negative"), ipalloc.Error{Op: "new"})
	}
	if o.Skew < 0 {
		return nil, explain(invalid("Skew", "negative"), ipalloc.Error{Op: "new"})
	}
	a := &Allocator{store: db, tries: cmp.Or(o.Attempts, 16), now: o.Now, skew: int64(o.Skew)}
	if a.now == nil {
		a.now = time.Now
	}
	a.run = newRunner(a, db, a.tries)
	return a, nil
}

// A plan returns errNoRoots if it needs the record of the root pools.
var errNoRoots = errors.New("prefixes: no record of the root pools")

// AddPool adds a root pool. Adding an existing pool with the same sizes changes nothing,
// so the call can be repeated. The first pool of a store takes two commits.
//
// It fails with ErrInvalid for a prefix that is not masked or is 4-in-6, and for sizes
// that are shorter than the prefix. It fails with ErrExists for a prefix that overlaps
// another root pool, which InTheWay names, and for a root pool that has other sizes;
// Field is then set. It fails with ErrConflict if other allocators were faster each time.
func (a *Allocator) AddPool(ctx context.Context, pool Pool) error {
	call := ipalloc.Error{Op: "add pool", Prefix: pool.Prefix}
	if err := checkPrefix("Prefix", pool.Prefix); err != nil {
		return explain(err, call)
	}
	if reason := pool.Sizes.check(pool.Prefix, true); reason != "" {
		return explain(invalid("Sizes", reason), call)
	}
	add := func(t *txn) error {
		roots, err := t.roots()
		if err == nil && t.rootPools.Get(struct{}{}).Rev == 0 {
			err = errNoRoots
		}
		if err != nil {
			return err
		}
		for _, r := range roots.pools {
			switch {
			case r == pool:
				return nil
			case r.Prefix == pool.Prefix:
				err := fail(ipalloc.ErrExists, fmt.Sprintf("exists and hands out /%d to /%d", r.Sizes.Shortest, r.Sizes.Longest))
				err.Field = "Sizes"
				return err
			case r.Prefix.Overlaps(pool.Prefix):
				err := fail(ipalloc.ErrExists, "overlaps a root pool")
				err.InTheWay = r.Prefix
				return err
			}
		}
		t.setRoots(append(slices.Clip(roots.pools), pool), roots.leases)
		return nil
	}
	for try := 1; ; try++ {
		err := a.run.Do(ctx, occ.Func[*txn](add))
		if !errors.Is(err, errNoRoots) {
			return explain(err, call)
		}
		if try > a.tries { // each time another allocator has removed the last pool
			return explain(store.Conflict(pkg, keyRoots), call)
		}
		// To make a lost commit fail, change a record that it expects at a revision. That
		// does not work for a record that it expects not to exist, because that record
		// may be deleted again. The empty record is therefore written first, in a commit
		// that may safely be made late.
		err = a.run.Write(ctx, []store.Op{{Kind: store.Put, Key: keyRoots, Value: noRoots}})
		if err != nil && !errors.Is(err, ipalloc.ErrConflict) {
			return explain(err, call)
		}
	}
}

// RemovePool removes a root pool. The last root pool leaves no record. It fails with
// ErrNotFound if no root pool has that prefix, and with ErrInUse while a prefix is held
// from it; InTheWay and Holder name one.
func (a *Allocator) RemovePool(ctx context.Context, pool netip.Prefix) error {
	call := ipalloc.Error{Op: "remove pool", Prefix: pool}
	return a.do(ctx, call, checkPrefix("pool", pool), occ.Func[*txn](func(t *txn) error {
		roots, i, err := t.root(pool)
		if err == nil {
			err = t.mustBeEmpty(pool)
		}
		if err == nil {
			t.setRoots(slices.Delete(roots.pools, i, i+1), roots.leases)
		}
		return err
	}))
}

// SetSizes replaces the lengths that a root pool allocates from now on. Prefixes held
// from it stay held. It fails with ErrNotFound if no root pool has that prefix, and with
// ErrInvalid for sizes that AddPool refuses.
func (a *Allocator) SetSizes(ctx context.Context, pool netip.Prefix, sizes Sizes) error {
	call := ipalloc.Error{Op: "set sizes", Prefix: pool}
	bad := checkPrefix("pool", pool)
	if bad == nil {
		if reason := sizes.check(pool, true); reason != "" {
			bad = invalid("sizes", reason)
		}
	}
	return a.do(ctx, call, bad, occ.Func[*txn](func(t *txn) error {
		roots, i, err := t.root(pool)
		if err == nil && roots.pools[i].Sizes != sizes {
			roots.pools[i].Sizes = sizes
			t.setRoots(roots.pools, roots.leases)
		}
		return err
	}))
}

// root returns a copy of the root pools, and the index of the pool with that prefix.
func (t *txn) root(pool netip.Prefix) (roots, int, error) {
	roots, err := t.roots()
	i := slices.IndexFunc(roots.pools, func(r Pool) bool { return r.Prefix == pool })
	if err == nil && i < 0 {
		err = fail(ipalloc.ErrNotFound, "")
	}
	roots.pools = slices.Clone(roots.pools)
	return roots, i, err
}

// Pools returns the root pools in the order of their addition.
func (a *Allocator) Pools(ctx context.Context) ([]Pool, error) {
	return answer(ctx, a, ipalloc.Error{Op: "pools"}, nil, func(t *txn) ([]Pool, error) {
		roots, err := t.roots()
		return slices.Clone(roots.pools), err
	})
}
