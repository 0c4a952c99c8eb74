package admin

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// SplitPool carries out the call of that name.
func (e *Admin) SplitPool(ctx context.Context, name string, bits int) error {
	return e.Change(ctx, "split", func(t *txn.Txn, c *pool.Catalog) error {
		i := c.ByName(name)
		if i < 0 {
			return cause.Wrap(ipalloc.Error{Op: "split", Name: name, Err: cause.UnknownPool})
		}
		p := c.Pools[i]
		if bits < 1 || bits > 8 {
			return cause.Wrap(ipalloc.Error{Op: "split", Name: name, Err: cause.Invalid("bits", "%d is not from 1 to 8", bits)})
		}
		for _, q := range c.Pools {
			if q.Prefix.Bits() > p.Prefix.Bits() && q.Prefix.Bits() <= p.Prefix.Bits()+bits && p.Prefix.Overlaps(q.Prefix) {
				return cause.Wrap(ipalloc.Error{Op: "split", Name: name, InTheWay: q.Prefix, Holder: q.Name, Err: cause.Overlap})
			}
		}
		for _, size := range append([]int{p.BlockBits}, p.Draining...) {
			if p.Prefix.Bits()+bits > size {
				return cause.Wrap(ipalloc.Error{Op: "split", Name: name, Err: cause.Invalid("bits", "a /%d part is smaller than a /%d block", p.Prefix.Bits()+bits, size)})
			}
		}
		if p.Subnet { // the ends of the whole stay what they are, those of the parts are addresses like others
			free, err := p.FreeRanges()
			if err != nil {
				return err
			}
			p.Ranges, p.Subnet = free, false
		}
		c.Pools = slices.Delete(c.Pools, i, i+1)
		first := record.OrdinalOf(netip.PrefixFrom(p.Prefix.Addr(), p.Prefix.Bits()+bits))
		for n := range uint64(1) << bits {
			part := p.Clone()
			part.Name = fmt.Sprintf("%s-%d", name, n)
			at := first
			at.Lo |= n
			part.Prefix = record.BlockAt(p.Prefix.Addr().Is6(), p.Prefix.Bits()+bits, at)
			if part.Ranges = pool.Cut(p.Ranges, part.Prefix); len(part.Ranges) == 0 {
				part.Ranges = slices.Clone(p.Ranges) // all outside of the part: none of its addresses is assigned automatically
			}
			c.Pools = append(c.Pools, part)
		}
		return nil
	})
}

// MergePools carries out the call of that name.
func (e *Admin) MergePools(ctx context.Context, name string, parts ...string) error {
	parts = slices.Clone(parts) // the plan may run after the caller has left
	return e.Change(ctx, "merge", func(_ *txn.Txn, c *pool.Catalog) error {
		if len(parts) == 0 {
			return cause.Invalid("parts", "no pools to merge")
		}
		var all []pool.Pool
		var merged pool.Pool
		for n, part := range parts {
			i := c.ByName(part)
			if i < 0 {
				return cause.Wrap(ipalloc.Error{Op: "merge", Name: part, Err: cause.UnknownPool})
			}
			p := c.Pools[i]
			if n == 0 {
				merged = p.Clone()
			}
			merged.Closed = merged.Closed || p.Closed
			merged.Drain(append(p.Draining, p.BlockBits)...)
			all = append(all, p)
			c.Pools = slices.Delete(c.Pools, i, i+1)
		}
		whole, free, err := union(all)
		if err != nil {
			return err
		}
		if len(whole) != 1 {
			return cause.Wrap(ipalloc.Error{Op: "merge", Name: name, Err: cause.Invalid("parts", "they make up %d prefixes and not one", len(whole))})
		}
		merged.Name, merged.Prefix, merged.Ranges = name, whole[0], nil
		if !free.ContainsPrefix(whole[0]) {
			merged.Ranges = free.Ranges()
		}
		for _, p := range all {
			if beyond := len(pool.Cut(p.Ranges, whole[0])) == 0; beyond && len(free.Ranges()) == 0 {
				merged.Ranges = append(merged.Ranges, p.Ranges...)
			}
		}
		if len(free.Ranges()) == 0 && len(merged.Ranges) == 0 {
			merged.Disabled = true // no range says that nothing may be taken
		}
		c.Pools = append(c.Pools, merged)
		return nil
	})
}

// union returns the prefixes that pools make up together, and the addresses of their ranges; in a pool that lies in another of them,
// its own ranges count.
func union(pools []pool.Pool) (whole []netip.Prefix, free *netipx.IPSet, err error) {
	slices.SortFunc(pools, func(p, q pool.Pool) int { return p.Prefix.Bits() - q.Prefix.Bits() })
	var all, ranges netipx.IPSetBuilder
	for _, p := range pools {
		all.AddPrefix(p.Prefix)
		if len(p.Ranges) == 0 {
			ranges.AddPrefix(p.Prefix)
			continue
		}
		ranges.RemovePrefix(p.Prefix)
		for _, r := range pool.Cut(p.Ranges, p.Prefix) {
			ranges.AddRange(r)
		}
	}
	set, err := all.IPSet()
	if err != nil {
		return nil, nil, err
	}
	free, err = ranges.IPSet()
	return set.Prefixes(), free, err
}
