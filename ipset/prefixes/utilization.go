package prefixes

import (
	"context"
	"math"
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Utilization counts the held and free prefixes of a pool, or of all pools of one level
// and family. The index of each array is a prefix length.
type Utilization struct {
	Pools [129]int // the pools
	Held  [129]int // the prefixes held from them
	Free  [129]int // the free prefixes, each as large as possible
}

// Room returns the total number of free prefixes of a length, 0 to 128, at most
// math.MaxUint64.
func (u *Utilization) Room(length int) (n uint64) {
	for l, free := range u.Free[:length+1] {
		if free == 0 {
			continue
		}
		hi, lo := bits.Mul64(uint64(free), 1<<min(length-l, 63))
		if n += lo; hi != 0 || n < lo || length-l > 63 {
			return math.MaxUint64
		}
	}
	return n
}

// LargestFree returns the length of the largest free prefix, -1 if none is free.
func (u *Utilization) LargestFree() int {
	for l, n := range u.Free {
		if n > 0 {
			return l
		}
	}
	return -1
}

// Ratio returns the held part of the pools' addresses, from 0 to 1. It returns 0 if there
// are no pools.
func (u *Utilization) Ratio() float64 {
	held, all := addresses(&u.Held), addresses(&u.Pools)
	if all == 0 {
		return 0
	}
	return held / all
}

// addresses returns the sum of the sizes of prefixes as a fraction of all addresses.
func addresses(counts *[129]int) (sum float64) {
	for l, n := range counts {
		sum += math.Ldexp(float64(n), -l)
	}
	return sum
}

// add counts the prefixes of one page.
func (u *Utilization) add(id pageID, p page) {
	end := id.of().Bits() + pageBits*(id.depth()+1) // the length of a slot
	for order, free := range p.runs() {
		if free != 0 {
			u.Free[end-order] += bits.OnesCount64(free)
		}
	}
	for first := p.first; first != 0; first &= first - 1 {
		u.Held[end-p.order(bits.TrailingZeros64(first))]++
	}
}

// Utilization returns the held and the free prefixes of one pool. It reads only the pages
// of the pool, about one record for 64 prefixes, in one consistent view. It fails with
// ErrNotFound if there is no such pool.
func (a *Allocator) Utilization(ctx context.Context, pool netip.Prefix) (*Utilization, error) {
	levels, err := a.utilization(ctx, ipalloc.Error{Op: "utilization", Pool: pool}, pool, false)
	if err != nil {
		return nil, err
	}
	return levels[0], nil
}

// Levels returns the utilization of a pool, then the sum over all pools held from it,
// then over the pools held from these: region, clusters, nodes. It reads every holding in
// the pool and every page, 1,000 records at a time, so the result is not a consistent
// snapshot. It fails with ErrNotFound if there is no such pool.
func (a *Allocator) Levels(ctx context.Context, pool netip.Prefix) ([]*Utilization, error) {
	return a.utilization(ctx, ipalloc.Error{Op: "levels", Pool: pool}, pool, true)
}

func (a *Allocator) utilization(ctx context.Context, call ipalloc.Error, pool netip.Prefix, deep bool) ([]*Utilization, error) {
	ended, err := answer(ctx, a, call, checkPrefix("pool", pool), func(t *txn) (bool, error) {
		if _, _, err := t.sizes(pool); err != nil {
			return false, err
		}
		return t.hasEnded()
	})
	if err != nil {
		return nil, err
	}
	var levels []*Utilization
	at := map[netip.Prefix]*Utilization{} // of pools
	add := func(pool netip.Prefix, level int) {
		if level == len(levels) {
			levels = append(levels, new(Utilization))
		}
		levels[level].Pools[pool.Bits()]++
		levels[level].Free[pool.Bits()]++ // unless it has a page
		at[pool] = levels[level]
	}
	add(pool, 0)
	within, base := pagesRange(pool), 0
	if deep {
		within.To = pagesRange(lastIn(pool)).To
		for h, err := range a.All(ctx, pool) {
			if err != nil {
				return nil, explain(err, call)
			}
			if h.Prefix == pool {
				base = h.Level
			} else if h.Children != (Sizes{}) {
				add(h.Prefix, h.Level-base)
			}
		}
	}
	visit := func(id pageID, p page) {
		u := at[id.of()]
		if u == nil {
			return // a pool since a moment ago
		}
		if id.depth() == 0 {
			u.Free[id.of().Bits()]--
		}
		u.add(id, p)
	}
	if ended {
		err = a.eachPageNow(ctx, pool, visit)
	} else {
		err = a.eachPage(ctx, within, deep, visit)
	}
	return levels, explain(err, call)
}

// eachPageNow calls f for the pages of a pool and of the pools in it, as they will be
// after expired leases are recorded. It computes them from the holdings.
func (a *Allocator) eachPageNow(ctx context.Context, pool netip.Prefix, f func(pageID, page)) error {
	c := newChecker()
	for rec, err := range a.list(ctx, insideRange(pool), listPart) {
		var r record
		live := false
		if err == nil {
			r, live, err = a.liveRecord(rec)
		}
		if err != nil {
			return err
		}
		if live {
			c.holdings = append(c.holdings, r)
		}
	}
	c.derive()
	for id, p := range c.pages {
		f(id, p)
	}
	return nil
}

// eachPage calls f for every page of a range. It reads all of them in one view, or in
// parts.
func (a *Allocator) eachPage(ctx context.Context, within store.Range, parts bool, f func(pageID, page)) error {
	recs := a.list(ctx, within, listPart)
	if !parts {
		all, _, err := a.store.List(ctx, within)
		if err != nil {
			return err
		}
		recs = func(yield func(store.Record, error) bool) {
			for _, rec := range all {
				if !yield(rec, nil) {
					return
				}
			}
		}
	}
	for rec, err := range recs {
		if err != nil {
			return err
		}
		id, ok := parsePageKey(rec.Key)
		if !ok {
			return corrupt(netip.Prefix{}, "key of a page")
		}
		p, err := decodePage(rec.Value, id)
		if err != nil {
			return err
		}
		f(id, p)
	}
	return nil
}
