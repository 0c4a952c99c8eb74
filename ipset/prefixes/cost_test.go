package prefixes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// counting is a store that counts what it commits and reads.
type counting struct {
	*store.Memory
	commits, records, bytes, listed, read int
}

func (c *counting) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	c.commits++
	c.records += len(ops)
	for _, op := range ops {
		c.bytes += len(op.Key) + len(op.Value)
	}
	return c.Memory.Commit(ctx, ops)
}

func (c *counting) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	recs, rev, err := c.Memory.List(ctx, r)
	c.listed += len(recs)
	return recs, rev, err
}

func (c *counting) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	c.read += len(keys)
	return c.Memory.Get(ctx, dst, keys...)
}

// mixed returns an allocator with n prefixes of /28 to /32 held from 10.0.0.0/8, with holes.
func mixed(t *testing.T, n int) (*Allocator, *counting) {
	t.Helper()
	db := &counting{Memory: store.NewMemory()}
	a := allocator(t, db)
	if err := a.AddPool(t.Context(), Pool{prefix("10.0.0.0/8"), Sizes{28, 32}}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		h, err := a.Allocate(t.Context(), Request{Pool: prefix("10.0.0.0/8"), Owner: fmt.Sprint("node-", i), Bits: 28 + rng.IntN(5)})
		if err == nil && rng.IntN(3) == 0 {
			err = a.Release(t.Context(), h.Owner, h.Prefix)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, db
}

// TestPairCosts: to allocate a prefix and to release it takes two commits of few records and bytes, no read, and few allocations,
// whatever is held: two plans, two strings of the commits, and the slots of each page that changes.
func TestPairCosts(t *testing.T) {
	for _, held := range []int{100, 3000} {
		a, db := mixed(t, held)
		rng := rand.New(rand.NewPCG(3, 4))
		pair := func() {
			h, err := a.Allocate(t.Context(), Request{Pool: prefix("10.0.0.0/8"), Owner: "a-node-with-a-name", Bits: 28 + rng.IntN(5)})
			if err == nil {
				err = a.Release(t.Context(), h.Owner, h.Prefix)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			pair() // its pages and holdings are cached from then on
		}
		const pairs = 1000
		*db = counting{Memory: db.Memory}
		allocs := testing.AllocsPerRun(pairs-1, pair)
		if db.commits != 2*pairs || db.read != 0 || db.listed != 0 {
			t.Errorf("%d held: %+v", held, db)
		}
		if allocs > 12 || db.records > 13*pairs || db.bytes > 470*pairs {
			t.Errorf("%d held: %.1f allocations, %.1f records, %d bytes for a pair", held, allocs, float64(db.records)/pairs, db.bytes/pairs)
		}
	}
}

// TestOwnerOfMany: what an owner holds is listed once to release it all, however many commits that takes, and Assign lists no more
// of it than up to the first prefix of the length.
func TestOwnerOfMany(t *testing.T) {
	const n = 3000
	db := &counting{Memory: store.NewMemory()}
	a := allocator(t, db)
	pool := prefix("10.0.0.0/8")
	if err := a.AddPool(t.Context(), Pool{pool, Sizes{28, 32}}); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := a.Allocate(t.Context(), Request{Pool: pool, Owner: "o", Bits: 30}); err != nil {
			t.Fatal(err)
		}
	}
	*db = counting{Memory: db.Memory}
	if h, err := a.Assign(t.Context(), Request{Pool: pool, Owner: "o", Bits: 30}); err != nil || h.Prefix != prefix("10.0.0.0/30") || db.listed > ownedPart {
		t.Errorf("%v, %v, %d listed", h, err, db.listed)
	}
	*db = counting{Memory: db.Memory}
	released, err := a.ReleaseByOwner(t.Context(), "o")
	if err != nil || len(released) != n || db.commits < 2 || db.listed > 2*n+1000 {
		t.Errorf("%d released, %v, %+v", len(released), err, db)
	}
}
