package ipset

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// poolsWorld returns a world with n pools and as many reserved ranges.
func poolsWorld(b testing.TB, n int) *world {
	w := newWorld(b, alloc.Config{})
	many := manyPools(b, n)
	err := w.admin.Change(bg, "add", func(_ *txn.Txn, c *pool.Catalog) error {
		c.Pools, c.Reserved = many.Pools, many.Reserved
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// BenchmarkPools is what a call costs beside 10 and 10,000 pools with as many reserved ranges.
func BenchmarkPools(b *testing.B) {
	for _, n := range []int{10, 10000} {
		w := poolsWorld(b, n)
		run := func(name string, f func() error) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		a := want("h", 1, "p")
		at := w.assign(a).V4[0].Address
		run("assign and release", func() error {
			got, err := w.AutoAssign(bg, a)
			if err == nil {
				_, err = w.ReleaseIPs(bg, alloc.Release{Address: got.V4[0].Address})
			}
			return err
		})
		run("look up", func() error { _, err := w.Lookup(bg, at); return err })
		run("start", func() error {
			_, err := w.engine(w.store).AutoAssign(bg, alloc.AssignArgs{Owner: a.Owner, Num4: 1, Handle: "p", Existing: true})
			return err
		})
		cat, err := w.core.ReadCatalog(bg)
		if err != nil {
			b.Fatal(err)
		}
		all := slices.Clone(cat.Reserved)
		flip := false
		run("reserve", func() error {
			flip = !flip
			rest := all
			if flip {
				rest = all[1:]
			}
			_, err := w.Operator().SetReservations(bg, rest)
			return err
		})
		recs := 0
		for _, r := range w.list(store.Range{}) {
			if r.Key[:1] == record.KindCatalog {
				recs += len(r.Value)
			}
		}
		b.Logf("%d pools: %d bytes", n, recs)
	}
}
