package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// fullCatalog returns a catalog with every field set in some pool and in none.
func fullCatalog(t *testing.T) *pool.Catalog {
	sel := func(z string) selector.Selector {
		return selector.Selector{{Labels: []selector.Requirement{{Key: "zone", Op: selector.In, Values: []string{z}}}}}
	}
	full := pool.Pool{Pool: alloc.Pool{
		Name: "π", Note: "why", Prefix: netip.MustParsePrefix("fd00::/16"), BlockBits: 120, Nodes: sel("a"), Namespaces: sel("b"), Uses: alloc.LoadBalancer,
		Disabled: true, Manual: true, Order: alloc.Random, Priority: -7, Ranges: ranges("fd00::/64", "fd00:1::/64").Ranges(), MaxBlocksPerHost: 3,
		Subnet: true, Cooldown: time.Hour, Draining: []int{64, 112, 128},
	}}
	c := &pool.Catalog{
		Generation: 77, Config: alloc.Config{Strict: true, NoAutoBlocks: true, MaxBlocksPerHost: 9},
		Pools: []pool.Pool{full, pool.Pool{Pool: poolOf("plain", "10.0.0.0/24", 26)}, pool.Pool{Pool: poolOf("nested", "10.0.0.64/26", 28)}}, Reserved: []alloc.Reservation{{Range: netipx.MustParseIPRange("10.0.0.0-10.0.0.3"), Note: "why", By: "ann", Since: t0.UTC()}, {Range: netipx.MustParseIPRange("fd00::-fd00::1")}},
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCatalogCodec(t *testing.T) {
	c := fullCatalog(t)
	s, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	d, err := pool.DecodeCatalog(s)
	if err != nil || d.Generation != c.Generation || d.Config != c.Config || !reflect.DeepEqual(d.Pools, c.Pools) || !reflect.DeepEqual(d.Reserved, c.Reserved) {
		t.Errorf("%+v, %v, want %+v", d, err, c)
	}
	if again, err := d.Encode(); err != nil || again != s {
		t.Errorf("%q, %v, want %q", again, err, s)
	}
	for n := 1; n < len(s); n++ {
		if _, err := pool.DecodeCatalog(s[:n]); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
	}
	for i := range len(s) {
		for bit := range 8 {
			b := []byte(s)
			b[i] ^= 1 << bit
			if d, err := pool.DecodeCatalog(string(b)); err == nil && d.Prepare() != nil {
				t.Fatalf("bit %d of byte %d", bit, i)
			}
		}
	}
	if _, err := pool.DecodeCatalog(s + "x"); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Error(err)
	}
}

// TestManyPoolsFitOneValue: 10,000 pools and as many reserved ranges are less than a value of etcd can be.
func TestManyPoolsFitOneValue(t *testing.T) {
	s, err := manyPools(t, 10000).Encode()
	if err != nil || len(s) > 1<<20 {
		t.Errorf("%d bytes, %v", len(s), err)
	}
}

// TestCatalogHalvesMustAgree: pools that are lost, or not those of the root, are damage, not an empty catalog.
func TestCatalogHalvesMustAgree(t *testing.T) {
	for name, op := range map[string]store.Op{
		"no pools":     {Kind: store.Delete, Key: record.PoolsKey, Expect: store.AnyRevision},
		"other pools":  {Kind: store.Put, Key: record.PoolsKey, Value: "\x01\x00\x00\x00\x00\x00", Expect: store.AnyRevision},
		"another root": {Kind: store.Put, Key: record.CatalogKey, Value: pool.RootOf(1, "x"), Expect: store.AnyRevision},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		w.leaves()
		w.assign(want("h", 1, "p"))
		if _, err := w.store.Commit(bg, []store.Op{op}); err != nil {
			t.Fatal(err)
		}
		e := w.engine(w.store)
		_, err := e.AutoAssign(bg, want("h", 1, "q"))
		_, readErr := e.Pools(bg)
		_, lookErr := e.Lookup(bg, ip("10.0.0.0"))
		for _, err := range []error{err, readErr, lookErr} {
			if !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if rep, err := w.Operator().Check(bg, nil); err != nil || len(rep.Problems) == 0 || rep.Problems[0].Kind != audit.Damaged {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
}

// poolReads is a store that counts the reads of the record of the pools.
type poolReads struct {
	store.Store
	n *int
}

func (s poolReads) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if slices.Contains(keys, record.PoolsKey) {
		*s.n++
	}
	return s.Store.Get(ctx, dst, keys...)
}

// TestPoolsAreReadOnce: an engine reads the record of the pools once for every change of it, and a query reads the root alone.
func TestPoolsAreReadOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	at := w.assign(want("h", 1, "p")).V4[0].Address
	reads := 0
	e := w.engine(poolReads{w.store, &reads})
	for i := range 3 {
		for range 3 {
			if _, err := e.AutoAssign(bg, want("h", 1, "q")); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Lookup(bg, at); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Pools(bg); err != nil {
				t.Fatal(err)
			}
		}
		if reads != i+1 {
			t.Errorf("after %d changes the pools were read %d times", i, reads)
		}
		if err := w.Operator().SetConfig(bg, alloc.Config{MaxBlocksPerHost: 10 + i}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCatalogIsLimited: a pool for which the store's value has no room is refused with ErrLimit, and nothing changes.
func TestCatalogIsLimited(t *testing.T) {
	w := newWorld(t, alloc.Config{})
	e := w.engine(faults.NewLimited(w.store, store.Limits{Value: 2000}))
	for n := 0; ; n++ {
		rev := w.rev()
		err := e.AddPool(bg, poolOf(fmt.Sprint("p", n), fmt.Sprintf("10.0.%d.0/24", n), 28))
		if err == nil && n < 200 {
			continue
		}
		pools, _ := e.Pools(bg)
		if !errors.Is(err, ipalloc.ErrLimit) || n == 0 || len(pools) != n || w.rev() != rev {
			t.Errorf("after %d pools: %v, %d pools, revision %d, was %d", n, err, len(pools), w.rev(), rev)
		}
		return
	}
}
