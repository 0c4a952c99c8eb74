package prefixes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// fill returns an allocator with n prefixes of mixed sizes held from a pool, one in ten
// released again.
func fill(b *testing.B, pool string, shortest, longest, n int) (*prefixes.Allocator, netip.Prefix) {
	b.Helper()
	return fillOn(b, store.NewMemory(), pool, shortest, longest, n)
}

func fillOn(b *testing.B, db store.Store, pool string, shortest, longest, n int) (*prefixes.Allocator, netip.Prefix) {
	b.Helper()
	ctx := context.Background()
	a, err := prefixes.New(db, prefixes.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p := netip.MustParsePrefix(pool)
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: p, Sizes: prefixes.Sizes{Shortest: shortest, Longest: longest}}); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var holes []prefixes.Holding
	for i := range n {
		h, err := a.Allocate(ctx, prefixes.Request{Pool: p, Owner: fmt.Sprint("node-", i), Bits: shortest + rng.IntN(longest-shortest+1)})
		if err != nil {
			b.Fatal(err)
		}
		if rng.IntN(10) == 0 {
			holes = append(holes, h)
		}
	}
	for _, h := range holes {
		if err := a.Release(ctx, h.Prefix, h.Owner); err != nil {
			b.Fatal(err)
		}
	}
	return a, p
}

// BenchmarkPair allocates a prefix of a random length and releases it, with n prefixes of
// mixed sizes held.
func BenchmarkPair(b *testing.B) {
	for _, c := range []struct {
		name, pool        string
		shortest, longest int
	}{{"v4", "10.0.0.0/8", 28, 32}, {"v6", "2001:db8::/32", 56, 64}} {
		for _, n := range []int{1000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/held=%d", c.name, n), func(b *testing.B) {
				a, pool := fill(b, c.pool, c.shortest, c.longest, n)
				pairs(b, a, pool, c.shortest, c.longest)
			})
		}
	}
}

// noted is a store that keeps the operations of the last commit.
type noted struct {
	store.Store
	last []store.Op
}

func (n *noted) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	n.last = append(n.last[:0], ops...)
	return n.Store.Commit(ctx, ops)
}

// floor is a transaction that writes and guards records as they are.
type floor struct{ occ.Txn }

// BenchmarkFloor makes the two commits of a pair without deciding anything: what occ and the memory store cost for the same records.
func BenchmarkFloor(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("v4/held=%d", n), func(b *testing.B) {
			db := &noted{Store: store.NewMemory()}
			a, pool := fillOn(b, db, "10.0.0.0/8", 28, 32, n)
			ctx := context.Background()
			h, err := a.Allocate(ctx, prefixes.Request{Pool: pool, Owner: "a-node-with-a-name", Bits: 30})
			if err != nil {
				b.Fatal(err)
			}
			allocate := slices.Clone(db.last)
			if err := a.Release(ctx, h.Prefix, h.Owner); err != nil {
				b.Fatal(err)
			}
			release := slices.Clone(db.last)
			run := occ.New(&floor{}, occ.Config{Package: "floor", Store: db.Store, Keep: 100, Fence: func(store.Op) (int, string) { return 0, "" }})
			commit := func(ops []store.Op) occ.Func[*floor] {
				return func(t *floor) error {
					for _, op := range ops {
						switch op.Kind {
						case store.Put:
							t.Put(op.Key, op.Value)
						case store.Delete:
							t.Delete(op.Key)
						default:
							if _, _, err := t.Get(op.Key); err != nil {
								return err
							}
						}
					}
					return nil
				}
			}
			plans := []occ.Func[*floor]{commit(allocate), commit(release)}
			b.ReportAllocs()
			b.ReportMetric(float64(len(allocate)+len(release)), "records/op")
			for b.Loop() {
				for _, p := range plans {
					if err := run.Do(ctx, p); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func pairs(b *testing.B, a *prefixes.Allocator, pool netip.Prefix, shortest, longest int) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(3, 4))
	b.ReportAllocs()
	for b.Loop() {
		h, err := a.Allocate(ctx, prefixes.Request{Pool: pool, Owner: "a-node-with-a-name", Bits: shortest + rng.IntN(longest-shortest+1)})
		if err == nil {
			err = a.Release(ctx, h.Prefix, h.Owner)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTree allocates and releases in pools of the fourth level: regions, clusters,
// nodes, and a million prefixes of nodes in all.
func BenchmarkTree(b *testing.B) {
	ctx := context.Background()
	a, err := prefixes.New(store.NewMemory(), prefixes.Options{})
	if err != nil {
		b.Fatal(err)
	}
	root := netip.MustParsePrefix("fd00::/16")
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: root, Sizes: prefixes.Sizes{Shortest: 20, Longest: 24}}); err != nil {
		b.Fatal(err)
	}
	children := []prefixes.Sizes{{Shortest: 32, Longest: 40}, {Shortest: 48, Longest: 56}, {Shortest: 60, Longest: 64}, {}}
	var nodes []netip.Prefix
	var below func(pool netip.Prefix, level int)
	below = func(pool netip.Prefix, level int) {
		for i := range []int{10, 20, 50, 100}[level] {
			h, err := a.Allocate(ctx, prefixes.Request{Pool: pool, Owner: fmt.Sprint(pool, i), Bits: []int{24, 36, 52, 61 + i%4}[level], Children: children[level]})
			if err != nil {
				b.Fatal(err)
			}
			if level == 2 {
				nodes = append(nodes, h.Prefix)
			}
			if level < 3 {
				below(h.Prefix, level+1)
			}
		}
	}
	below(root, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	b.ReportAllocs()
	for b.Loop() {
		h, err := a.Allocate(ctx, prefixes.Request{Pool: nodes[rng.IntN(len(nodes))], Owner: "a-pod", Bits: 64})
		if err == nil {
			err = a.Release(ctx, h.Prefix, h.Owner)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
