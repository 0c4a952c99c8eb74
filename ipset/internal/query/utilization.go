package query

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An alarm rests on these sums, so each address counts once: in the block that has it, in the smallest pool that serves it.

// alloc.Utilization carries out the call of that name.
func (e *Reader) Utilization(ctx context.Context) ([]alloc.Utilization, error) {
	cat, err := e.ReadCatalog(ctx)
	if err != nil {
		return nil, err
	}
	pools := make([]alloc.Utilization, len(cat.Pools), len(cat.Pools)+1)
	for i := range cat.Pools {
		p := &cat.Pools[i]
		pools[i] = alloc.Utilization{Pool: p.Name, Prefix: p.Prefix, Capacity: sizeOf(p.Prefix.Addr(), record.LastAddr(p.Prefix))}
		for _, r := range cat.Pools[i].Inner {
			pools[i].Capacity = pools[i].Capacity.Sub(sizeOf(r.From(), r.To()))
		}
		pools[i].Reserved = reservedIn(cat, i, netipx.RangeOfPrefix(p.Prefix))
	}
	for _, i := range cat.Places {
		if o := cat.Pools[i].Outer; o >= 0 {
			pools[o].Nested = append(pools[o].Nested, cat.Pools[i].Prefix)
		}
	}
	lost := alloc.Utilization{}
	places := make([]place, len(pools))
	err = e.eachHeader(ctx, cat, func(b *block.Block) {
		if b.IsEmpty() && b.Owner().Kind == alloc.Nobody {
			return // time has emptied it, and the next call that meets it deletes it
		}
		at := b.Prefix()
		i := cat.Containing(at.Addr())
		of := &lost
		if i >= 0 {
			of = &pools[i]
		}
		of.Blocks = append(of.Blocks, alloc.Utilization{Pool: of.Pool, Prefix: at, Owner: b.Owner()})
		row := &of.Blocks[len(of.Blocks)-1]
		for from, last := at.Addr(), record.LastAddr(at); ; {
			i, end := cat.Served(from, at)
			r := netipx.IPRangeFrom(from, end)
			u := utilizationOf(b, cat, i, r)
			if i >= 0 && at.Bits() != cat.Pools[i].BlockBits {
				if !b.IsEmpty() && (end != last || from != at.Addr()) { // no pool serves all of it
					settle(&u)
					u.Draining = u.Available
					pools[i].Draining = pools[i].Draining.Add(u.Draining)
				}
				places[i].meet(&pools[i], cat, i, r, b.IsEmpty())
			}
			add(row, u)
			if i < 0 {
				add(&lost, u)
			} else {
				// The block's count of its reserved addresses replaces the pool's.
				p := &pools[i]
				p.Used, p.Cooling, p.Reserved = p.Used.Add(u.Used), p.Cooling.Add(u.Cooling), p.Reserved.Sub(reservedIn(cat, i, r)).Add(u.Reserved)
			}
			if end == last {
				break
			}
			from = end.Next()
		}
		settle(row)
	})
	if err != nil {
		return nil, err
	}
	for i := range pools {
		settle(&pools[i])
	}
	if lost.Capacity != (alloc.Count{}) {
		settle(&lost)
		pools = append(pools, lost)
	}
	return pools, nil
}

// eachHeader calls do with every block, advanced to the present, in address order. The block is of no use after do has returned;
// its addresses need not be loaded.
func (e *Reader) eachHeader(ctx context.Context, cat *pool.Catalog, do func(*block.Block)) error {
	now, err := e.Past()
	if err != nil {
		return err
	}
	headers := make([]block.Block, blocksPage)
	for recs, err := range e.Pages(ctx, store.Range{From: record.KindBlock, To: record.KindBlock + "\xff"}) {
		if err != nil {
			return err
		}
		for part := range slices.Chunk(recs, blocksPage) {
			if err := e.headersOf(ctx, cat, part, now, headers, do); err != nil {
				return err
			}
		}
	}
	return nil
}

// headersOf calls do with the blocks of some records. Those in which time has ended something are read with their addresses, all
// of them together. headers is scratch for the others.
func (e *Reader) headersOf(ctx context.Context, cat *pool.Catalog, recs []store.Record, now int64, headers []block.Block, do func(*block.Block)) error {
	var due []store.Record
	for i, rec := range recs {
		p, ok := record.ParseBlockID(rec.Key[1:])
		if !ok {
			return fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, rec.Key)
		}
		if err := headers[i].Decode(p, rec.Value); err != nil {
			return cause.Wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
		}
		if lease, cooled := headers[i].Due(now); lease || cooled {
			due = append(due, rec)
		}
	}
	var whole map[string]*block.Block
	if len(due) > 0 {
		whole = make(map[string]*block.Block, len(due))
		if _, err := e.blocksOf(ctx, cat, due, func(b *block.Block) bool {
			whole[record.BlockKey(record.KindBlock, b.Prefix())] = b
			return true
		}); err != nil {
			return err
		}
	}
	for i, rec := range recs {
		if len(due) == 0 || rec.Key != due[0].Key {
			do(&headers[i])
			continue
		}
		due = due[1:]
		if b := whole[rec.Key]; b != nil { // else it is gone by now
			do(b)
		}
	}
	return nil
}

// add adds the counts of a part.
func add(u *alloc.Utilization, p alloc.Utilization) {
	u.Capacity, u.Used, u.Cooling = u.Capacity.Add(p.Capacity), u.Used.Add(p.Used), u.Cooling.Add(p.Cooling)
	u.Reserved, u.Draining = u.Reserved.Add(p.Reserved), u.Draining.Add(p.Draining)
}

// settle derives the available addresses.
func settle(u *alloc.Utilization) {
	u.Available = u.Capacity.Sub(u.Used).Sub(u.Cooling).Sub(u.Reserved).Sub(u.Draining)
}

// place is the place of a block of a pool's size that has smaller blocks in it. While any of these is not empty, the addresses around them
// are kept from every call.
type place struct {
	at    netip.Prefix
	n     int         // the blocks in it so far
	have  alloc.Count // their usable addresses
	keeps bool        // what is around them counts as Draining
}

// meet counts the part r of a block of another size than the pool's. Blocks are met in address order.
func (p *place) meet(u *alloc.Utilization, cat *pool.Catalog, i int, r netipx.IPRange, empty bool) {
	usable := func(r netipx.IPRange) alloc.Count { return sizeOf(r.From(), r.To()).Sub(reservedIn(cat, i, r)) }
	at := netip.PrefixFrom(r.From(), cat.Pools[i].BlockBits).Masked()
	if !at.Contains(r.To()) || at == netip.PrefixFrom(r.From(), at.Bits()) && r.To() == record.LastAddr(at) {
		return // a larger block has all of its places
	}
	if at != p.at {
		*p = place{at: at}
	}
	p.n, p.have = p.n+1, p.have.Add(usable(r))
	switch {
	case p.keeps:
		u.Draining = u.Draining.Sub(usable(r))
	case !empty || p.n > txn.MostReplaced:
		p.keeps = true
		u.Draining = u.Draining.Add(usable(netipx.RangeOfPrefix(at))).Sub(p.have)
	}
}

// utilizationOf returns the use of the addresses r of a block, which pool i serves, -1 for none.
func utilizationOf(b *block.Block, cat *pool.Catalog, i int, r netipx.IPRange) alloc.Utilization {
	u := alloc.Utilization{Capacity: sizeOf(r.From(), r.To())}
	part := block.Span{Hi: math.MaxUint64}
	if at := b.Prefix(); r.From() != at.Addr() || r.To() != record.LastAddr(at) {
		part = b.Spans([]netipx.IPRange{r})[0]
	}
	held, cooling, reserved := b.Count(part)
	u.Used, u.Cooling, u.Reserved = alloc.Count{Lo: held}, alloc.Count{Lo: cooling}, alloc.Count{Lo: reserved}
	if i >= 0 {
		for _, s := range b.Spans(cat.Pools[i].Avoid) {
			u.Reserved = u.Reserved.Add(freeIn(b, block.Span{Lo: max(s.Lo, part.Lo), Hi: min(s.Hi, part.Hi)}))
		}
	}
	return u
}

// freeIn returns the number of queued ordinals in a span.
func freeIn(b *block.Block, s block.Span) alloc.Count {
	var n alloc.Count
	for _, q := range b.FreeSpans() {
		if lo, hi := max(q.Lo, s.Lo), min(q.Hi, s.Hi); lo <= hi {
			n = n.Add(alloc.Count{Lo: hi - lo}).Add(alloc.Count{Lo: 1})
		}
	}
	return n
}

// reservedIn returns the number of addresses of a range that automatic assignment may not take from pool i.
func reservedIn(c *pool.Catalog, i int, r netipx.IPRange) alloc.Count {
	var n alloc.Count
	for _, a := range c.Pools[i].Avoid.From(r.From()) {
		if r.To().Less(a.From()) {
			break
		}
		from, to := a.From(), a.To()
		if from.Less(r.From()) {
			from = r.From()
		}
		if r.To().Less(to) {
			to = r.To()
		}
		n = n.Add(sizeOf(from, to))
	}
	return n
}

// sizeOf returns the number of addresses from one to another; of ::/0 it is one too few to be represented, 2^128 - 1.
func sizeOf(from, to netip.Addr) alloc.Count {
	n := addr.FromAddr(to).Sub(addr.FromAddr(from))
	if lo, carry := bits.Add64(n.Lo, 1, 0); n.Hi != ^uint64(0) || carry == 0 {
		return alloc.Count{Hi: n.Hi + carry, Lo: lo}
	}
	return alloc.Count(n)
}
