package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Utilization counts the addresses of a pool or a block by state. Capacity = Used + Cooling + Reserved + Available for a block;
// of a pool, too, with the addresses in no block among Available or Reserved.
type Utilization struct {
	// Pool is empty for blocks outside every pool.
	Pool   string
	Prefix netip.Prefix
	Owner  Owner // of a block
	// Capacity is all addresses. Used are held. Cooling are released and not yet free. Reserved are free, and kept from
	// automatic assignment: by a reservation, by the pool's ranges or for the host. Available can be assigned now.
	Capacity, Used, Cooling, Reserved, Available Count
	Blocks                                       []Utilization // of a pool, in address order
}

// Utilization returns the use of every pool, in the order in which they are tried, and of their blocks; blocks outside
// every pool come last, under no name. It reads the records of all blocks, and addresses only of blocks in which a lease or a
// cooldown has ended that no call has met yet.
func (e *Engine) Utilization(ctx context.Context) ([]Utilization, error) {
	cat, err := e.readCatalog(ctx)
	if err != nil {
		return nil, err
	}
	pools := make([]Utilization, len(cat.Pools), len(cat.Pools)+1)
	for i := range cat.Pools {
		p := &cat.Pools[i]
		pools[i] = Utilization{Pool: p.Name, Prefix: p.Prefix, Capacity: sizeOf(p.Prefix)}
		pools[i].Reserved = cat.reservedIn(i, p.Prefix)
	}
	lost := Utilization{}
	err = e.eachHeader(ctx, cat, func(b *block.Block) {
		i := cat.containing(b.Prefix().Addr())
		u := utilizationOf(b, cat, i)
		if i < 0 {
			lost.Blocks = append(lost.Blocks, u)
			lost.add(u)
			lost.Capacity = lost.Capacity.Add(u.Capacity)
			lost.Reserved = lost.Reserved.Add(u.Reserved)
			return
		}
		pools[i].Blocks = append(pools[i].Blocks, u)
		pools[i].add(u)
		if cat.avoid[i] != nil || u.Reserved != (Count{}) {
			// What the block says of its reserved addresses replaces what the pool knew of them.
			pools[i].Reserved = pools[i].Reserved.Sub(cat.reservedIn(i, b.Prefix())).Add(u.Reserved)
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range pools {
		u := &pools[i]
		u.Available = u.Capacity.Sub(u.Used).Sub(u.Cooling).Sub(u.Reserved)
	}
	if len(lost.Blocks) > 0 {
		lost.Available = lost.Capacity.Sub(lost.Used).Sub(lost.Cooling).Sub(lost.Reserved)
		pools = append(pools, lost)
	}
	return pools, nil
}

// eachHeader calls do with every block, advanced to the present, in address order. The block is of no use after do has returned;
// its addresses need not be loaded.
func (e *Engine) eachHeader(ctx context.Context, cat *catalog, do func(*block.Block)) error {
	if err := e.current(ctx); err != nil {
		return err
	}
	var b block.Block
	var bad error
	now := e.past()
	r := store.Range{From: kindBlock, To: kindBlock + "\xff", Limit: readMost}
	err := e.eachPage(ctx, r, func(recs []store.Record) bool {
		for _, rec := range recs {
			p, ok := parseBlockID(rec.Key[1:])
			if !ok {
				bad = fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, rec.Key)
				return false
			}
			if err := b.Decode(p, rec.Value); err != nil {
				bad = wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
				return false
			}
			if lease, cooled := b.Due(now); lease || cooled {
				whole, err := e.readBlock(ctx, cat, p)
				if err != nil {
					bad = err
					return false
				}
				if whole != nil {
					do(whole)
				}
				continue
			}
			do(&b)
		}
		return true
	})
	return errors.Join(bad, err)
}

func (u *Utilization) add(b Utilization) {
	u.Used, u.Cooling = u.Used.Add(b.Used), u.Cooling.Add(b.Cooling)
}

// utilizationOf returns the use of a block of pool i, -1 for none.
func utilizationOf(b *block.Block, cat *catalog, i int) Utilization {
	head, tail := b.Reserved()
	u := Utilization{
		Prefix: b.Prefix(), Owner: b.Owner(), Capacity: sizeOf(b.Prefix()),
		Used: Count{Lo: b.Used()}, Cooling: Count{Lo: b.Cooling()},
		Reserved: Count{Lo: head}.Add(Count{Lo: tail}),
	}
	if i >= 0 {
		u.Pool = cat.Pools[i].Name
		for _, s := range b.Spans(cat.avoid[i]) {
			u.Reserved = u.Reserved.Add(freeIn(b, s))
		}
	}
	u.Available = u.Capacity.Sub(u.Used).Sub(u.Cooling).Sub(u.Reserved)
	return u
}

// freeIn returns the number of queued ordinals in a span.
func freeIn(b *block.Block, s block.Span) Count {
	var n Count
	for _, q := range b.FreeSpans() {
		if lo, hi := max(q.Lo, s.Lo), min(q.Hi, s.Hi); lo <= hi {
			n = n.Add(Count{Lo: hi - lo}).Add(Count{Lo: 1})
		}
	}
	return n
}

// reservedIn returns the number of addresses of p that automatic assignment may not take from pool i.
func (c *catalog) reservedIn(i int, p netip.Prefix) Count {
	var n Count
	first, last := addr.FromAddr(p.Addr()), addr.FromAddr(lastAddr(p))
	for _, r := range c.avoid[i].from(p.Addr()) {
		lo, hi := addr.FromAddr(r.From()), addr.FromAddr(r.To())
		if lo.Cmp(last) > 0 {
			break
		}
		if lo.Cmp(first) < 0 {
			lo = first
		}
		if hi.Cmp(last) > 0 {
			hi = last
		}
		n = n.Add(Count(hi.Sub(lo))).Add(Count{Lo: 1})
	}
	return n
}

// sizeOf returns the number of addresses of a prefix; of ::/0 it is one too few to be represented, 2^128 - 1.
func sizeOf(p netip.Prefix) Count {
	return Count(addr.Low(uint(p.Addr().BitLen() - p.Bits()))).Add(Count{Lo: 1})
}
