package prefixes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
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
			err = a.Release(t.Context(), h.Prefix, h.Owner)
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
				err = a.Release(t.Context(), h.Prefix, h.Owner)
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

// TestUtilizationCosts: the utilization of a pool takes one list, of its pages alone.
func TestUtilizationCosts(t *testing.T) {
	a, db := mixed(t, 1000)
	pages, _, err := db.Memory.List(t.Context(), pagesRange(prefix("10.0.0.0/8")))
	if err != nil {
		t.Fatal(err)
	}
	*db = counting{Memory: db.Memory}
	if u, err := a.Utilization(t.Context(), prefix("10.0.0.0/8")); err != nil || u.Held[28] == 0 || db.listed != len(pages) {
		t.Errorf("%+v, %v: %d records listed, of %d pages", u, err, db.listed, len(pages))
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
	all := 0
	for h, err := range a.All(t.Context(), pool) {
		if all++; err != nil || h.Owner != "o" {
			t.Fatal(h, err)
		}
	}
	if held, err := a.Owned(t.Context(), "o"); err != nil || all != n || len(held) != n {
		t.Errorf("%d in all, %d owned, want %d, %v", all, len(held), n, err)
	}
	if h, err := a.Assign(t.Context(), Request{Pool: pool, Owner: "o", Bits: 32}); err != nil || h.Prefix != prefix("10.0.46.224/32") {
		t.Errorf("%v, %v", h, err)
	}
	if h, err := a.Assign(t.Context(), Request{Pool: pool, Owner: "o", Bits: 32}); err != nil || h.Prefix != prefix("10.0.46.224/32") {
		t.Errorf("behind %d others: %v, %v", n, h, err)
	}
	if err := a.Release(t.Context(), prefix("10.0.46.224/32"), "o"); err != nil {
		t.Fatal(err)
	}
	*db = counting{Memory: db.Memory}
	released, err := a.ReleaseByOwner(t.Context(), "o")
	if err != nil || len(released) != n || db.commits < 2 || db.listed > 2*n+1000 {
		t.Errorf("%d released, %v, %+v", len(released), err, db)
	}
}

// TestColdCosts: an allocator that knows nothing yet reads all pages on the way to a prefix at once, and expects nothing of holdings
// that earlier commits have written.
func TestColdCosts(t *testing.T) {
	s := store.NewMemory()
	pool, at := prefix("fd00::/32"), prefix("fd00:0:1:2:3::/80")
	a := allocator(t, s)
	if err := a.AddPool(t.Context(), Pool{pool, Sizes{48, 80}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Occupy(t.Context(), at, Request{Pool: pool, Owner: "o"}); err != nil {
		t.Fatal(err)
	}
	f := faults.NewFaulty(s)
	a = allocator(t, f)
	if err := a.Release(t.Context(), at, "o"); err != nil || f.Counts().Calls() != 3 {
		t.Errorf("a cold Release: %v, %+v, want one read for the holding, one for the pages, and a commit", err, f.Counts())
	}
	f.Script(nil)
	a = allocator(t, f)
	if _, err := a.Occupy(t.Context(), at, Request{Pool: pool, Owner: "o"}); err != nil || f.Counts().Calls() > 4 {
		t.Errorf("a cold Occupy: %v, %+v", err, f.Counts())
	}
	guards := 0
	for i := range 20 {
		f.Script(nil)
		if _, err := a.Assign(t.Context(), Request{Pool: pool, Owner: fmt.Sprint("node", i), Bits: 64}); err != nil {
			t.Fatal(err)
		}
		if guards == 0 {
			guards = f.Counts().Guards
		} else if f.Counts().Guards > guards {
			t.Errorf("Assign %d expects %d records that it does not write, the first one %d", i, f.Counts().Guards, guards)
		}
	}
}

// TestLastPrefixOfAll: the error for a full pool names the largest free prefix, at every length of it.
func TestLastPrefixOfAll(t *testing.T) {
	for _, pool := range []netip.Prefix{prefix("::/0"), prefix("10.0.0.0/24"), prefix("fd00::/41")} {
		a := allocator(t, store.NewMemory())
		if err := a.AddPool(t.Context(), Pool{pool, Sizes{pool.Bits(), pool.Addr().BitLen()}}); err != nil {
			t.Fatal(err)
		}
		for bits := pool.Bits() + 1; bits <= pool.Addr().BitLen(); bits++ {
			if _, err := a.Allocate(t.Context(), Request{Pool: pool, Owner: "o", Bits: bits}); err != nil {
				t.Fatal(err)
			}
			_, err := a.Fits(t.Context(), pool, bits-1)
			if want := fmt.Sprintf("(largest is /%d)", bits); !errors.Is(err, ipalloc.ErrFull) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %s", pool, err, want)
			}
		}
		if _, err := a.Allocate(t.Context(), Request{Pool: pool, Owner: "o", Bits: pool.Addr().BitLen()}); err != nil {
			t.Fatal(err)
		}
		_, err := a.Fits(t.Context(), pool, pool.Addr().BitLen())
		if !errors.Is(err, ipalloc.ErrFull) || strings.Contains(err.Error(), "largest") {
			t.Errorf("%v: %v", pool, err)
		}
	}
}

// TestStepsFitACommit: calls of several steps stay within every limit of a store that one step fits.
func TestStepsFitACommit(t *testing.T) {
	pool := prefix("fd00::/8")
	for ops := maxDepth + 8; ops <= 64; ops++ {
		f := faults.NewLimited(store.NewMemory(), store.Limits{Ops: ops})
		a := allocator(t, f)
		if err := a.AddPool(t.Context(), Pool{pool, Sizes{48, 128}}); err != nil {
			t.Fatal(err)
		}
		for i := range 12 { // with no page in common but the first
			at := netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(i) << 4, 1}), 64+5*i)
			if _, err := a.Occupy(t.Context(), at, Request{Pool: pool, Owner: "o"}); err != nil {
				t.Fatal(ops, err)
			}
		}
		if released, err := a.ReleaseByOwner(t.Context(), "o"); err != nil || len(released) != 12 {
			t.Errorf("a commit of %d: %d released, %v", ops, len(released), err)
		}
	}
}

// Pages that another allocator has changed, however deep, cost one conflict: the next attempt reads each page of its way again.
func TestStalePagesCostOneConflict(t *testing.T) {
	for pool, bits := range map[string]int{"10.0.0.0/8": 30, "fd00::/32": 96, "fd00::/24": 128, "::/0": 128} {
		pool := netip.MustParsePrefix(pool)
		f := faults.NewFaulty(store.NewMemory())
		a, err := New(f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.AddPool(t.Context(), Pool{Prefix: pool, Sizes: Sizes{Shortest: pool.Bits() + 1, Longest: bits}}); err != nil {
			t.Fatal(err)
		}
		first := netip.PrefixFrom(pool.Addr(), bits)
		if _, err := a.Occupy(t.Context(), first, Request{Pool: pool, Owner: "a"}); err != nil {
			t.Fatal(err)
		}
		if err := a.Release(t.Context(), first, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Occupy(t.Context(), first, Request{Pool: pool, Owner: "b"}); err != nil {
			t.Fatal(err)
		}
		f.Reset()
		if _, err := a.Fits(t.Context(), pool, bits); err != nil || f.Counts().Commits > 2 {
			t.Errorf("/%d in %s: %v, %+v", bits, pool, err, f.Counts())
		}
		if _, err := a.Allocate(t.Context(), Request{Pool: pool, Bits: bits, Owner: "a"}); err != nil {
			t.Errorf("/%d in %s: %v", bits, pool, err)
		}
		if r, err := a.Check(t.Context()); err != nil || len(r.Problems) > 0 {
			t.Errorf("/%d in %s: %+v, %v", bits, pool, r, err)
		}
	}
}
