package assign

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A sequential server asks for the next free address at or after one. It asks for the order of addresses, so a search from there takes
// each block as it comes, whosever it is: free blocks and those with room are merged by address.

// onward reports whether the addresses of the family of a prefix are searched from an address on.
func (a *args) onward(p netip.Prefix) bool {
	return a.From.IsValid() && a.From.Is4() == p.Addr().Is4()
}

// cuts reports whether the search begins inside a block, so that free addresses of it are passed over.
func (a *args) cuts(at netip.Prefix) bool {
	return a.From.IsValid() && at.Contains(a.From) && at.Addr() != a.From
}

// above returns the avoided spans of a block with those below where the search begins.
func (a *args) above(b *block.Block, avoid []block.Span) []block.Span {
	if !a.cuts(b.Prefix()) {
		return avoid
	}
	x, err := b.Ordinal(a.From)
	if err != nil {
		return avoid
	}
	cut := []block.Span{{Lo: 0, Hi: x - 1}}
	for _, s := range avoid {
		if s.Hi >= x {
			cut = append(cut, block.Span{Lo: max(s.Lo, x), Hi: s.Hi})
		}
	}
	return cut
}

// pickOnward picks from the pools of a tier, one after the other in address order.
func (p *AssignPlan) pickOnward(t *txn.Txn, s *Search) error {
	var tier []int
	for k := 0; ; k++ {
		i, ok := s.Pool(k)
		if !ok {
			break
		}
		tier = append(tier, i)
	}
	slices.SortFunc(tier, func(i, j int) int { return record.ComparePrefix(p.cat.Pools[i].Prefix, p.cat.Pools[j].Prefix) })
	for _, i := range tier {
		if s.want == 0 {
			return nil
		}
		if err := p.pickFromOn(t, s, i); err != nil {
			return err
		}
		if s.reasons[i] == 0 && !s.kept[i].IsValid() && s.want > 0 && p.cat.Pools[i].Prefix.Addr().Less(p.From) {
			s.because(i, alloc.ReasonBelowFrom)
		}
	}
	return nil
}

// pickFromOn picks the lowest addresses of pool i that are not below From.
func (p *AssignPlan) pickFromOn(t *txn.Txn, s *Search, i int) error {
	pool := &p.cat.Pools[i]
	first, last := pool.Prefix.Addr(), record.LastAddr(pool.Prefix)
	if first.Less(p.From) {
		first = p.From
	}
	if last.Less(first) {
		return nil
	}
	at, begin := netip.PrefixFrom(first, pool.BlockBits).Masked(), netip.PrefixFrom(first, pool.BlockBits).Masked()
	if len(pool.Draining) > 0 && pool.Draining[0] < pool.BlockBits {
		begin = netip.PrefixFrom(first, pool.Draining[0]).Masked() // the largest block that may have it
	}
	w := p.walk(t, s, i, record.KindRoom, begin, t.Past)
	for w.ranges[1] = (store.Range{}); w.next(); {
		if record.LastAddr(w.be.At).Less(first) {
			continue
		}
		if at.Addr().Less(w.be.At.Addr()) {
			before := netip.PrefixFrom(w.be.At.Addr().Prev(), pool.BlockBits).Masked()
			if err := p.claimFromOn(t, s, i, at, before); err != nil || s.want == 0 {
				return err
			}
		}
		if err := p.meet(t, s, i, w.be, own|orphan|idle|foreign); err != nil {
			return err
		}
		if at = record.After(w.be.At, record.LastAddr(w.be.At)); !at.IsValid() || s.want == 0 {
			return nil
		}
		at = netip.PrefixFrom(at.Addr(), pool.BlockBits).Masked()
	}
	if w.err != nil {
		return w.err
	}
	return p.claimFromOn(t, s, i, at, netip.PrefixFrom(last, pool.BlockBits).Masked())
}

// claimFromOn claims free blocks of pool i, from one to another, while addresses are wanting.
func (p *AssignPlan) claimFromOn(t *txn.Txn, s *Search, i int, at, to netip.Prefix) error {
	hi := record.OrdinalOf(to)
	for s.want > 0 {
		block, ok, err := p.freeFrom(t, s, i, record.OrdinalOf(at), hi)
		if err != nil || !ok {
			return err
		}
		if may, err := p.mayClaim(t, i); err != nil || !may {
			p.reason(s, i, alloc.ReasonLimitReached)
			return err
		}
		if err := p.claimAt(t, s, i, block); err != nil {
			return err
		}
	}
	return nil
}
