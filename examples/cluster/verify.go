package main

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
)

// This file knows nothing of how the engine works. It starts from what the nodes hold, sorts and
// adds up with net/netip and netipx, and compares.

// claim is a prefix that a node holds, and the length it should have.
type claim struct {
	node   string
	prefix netip.Prefix
	bits   int
}

// view is what an engine says of itself.
type view struct {
	used, free []netip.Prefix
	stats      cidrset.Stats
	check      error
}

func viewOf(s *cidrset.Set) view {
	return view{slices.Collect(s.UsedPrefixes()), slices.Collect(s.FreePrefixes()), s.Stats(), s.Check()}
}

// verify compares every family with what the given nodes, and no others, hold.
func (p *nodePhase) verify(when string, nodes []trace.Node) error {
	p.report.checks++
	if len(p.held) != len(nodes) {
		return wording.Broken(when, []string{fmt.Sprintf("%d nodes hold something, there are %d", len(p.held), len(nodes))})
	}
	for i, f := range p.families {
		claims := make([]claim, len(nodes))
		for j := range nodes {
			n := &nodes[j]
			if len(p.held[n.Name]) != len(p.families) {
				return wording.Broken(when, []string{fmt.Sprintf("node %q holds %v, one prefix of each family is right", n.Name, p.held[n.Name])})
			}
			claims[j] = claim{n.Name, p.held[n.Name][i], f.sizes[p.class(n)]}
		}
		found := checkClaims(f.pool, claims)
		if len(found) == 0 {
			found = checkView(f.pool, f.childBits(), claims, viewOf(f.set))
		}
		if err := wording.Broken(f.name+" "+when, found); err != nil {
			return err
		}
	}
	return nil
}

// checkClaims says what is wrong with the prefixes themselves: one that is no prefix, has the wrong
// length, lies outside the pool or overlaps another.
func checkClaims(pool netip.Prefix, claims []claim) []string {
	var found []string
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, c := range claims {
		switch {
		case !c.prefix.IsValid():
			fault("node %q holds no valid prefix", c.node)
		case c.prefix != c.prefix.Masked():
			fault("node %q holds %v, which has host bits set", c.node, c.prefix)
		case c.prefix.Bits() != c.bits:
			fault("node %q holds %v, a /%d is right", c.node, c.prefix, c.bits)
		case !pool.Contains(c.prefix.Addr()) || c.prefix.Bits() < pool.Bits():
			fault("node %q holds %v, which is outside the pool %v", c.node, c.prefix, pool)
		}
	}
	if len(found) > 0 {
		return found // what follows needs sound prefixes
	}
	sorted := slices.SortedFunc(slices.Values(claims), func(a, b claim) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
	// Sorted by first address, a prefix overlaps an earlier one exactly when it starts before the
	// furthest end so far.
	for i, furthest := 1, 0; i < len(sorted); i++ {
		if last(sorted[furthest].prefix).Compare(sorted[i].prefix.Addr()) >= 0 {
			fault("%v of node %q overlaps %v of node %q", sorted[i].prefix, sorted[i].node, sorted[furthest].prefix, sorted[furthest].node)
		}
		if last(sorted[furthest].prefix).Less(last(sorted[i].prefix)) {
			furthest = i
		}
	}
	return found
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr { return netipx.PrefixLastIP(p) }

// checkView says where an engine's account of a pool differs from what the claims, which are sound,
// make of it.
func checkView(pool netip.Prefix, childBits int, claims []claim, v view) []string {
	var found []string
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if v.check != nil {
		fault("the engine's own check: %v", v.check)
	}
	held := make([]netip.Prefix, len(claims))
	var taken uint64
	for i, c := range claims {
		held[i] = c.prefix
		taken = addSaturating(taken, children(c.prefix, childBits))
	}
	used, free := setOf(held, nil), setOf([]netip.Prefix{pool}, held)
	largest := -1
	for _, p := range free.Prefixes() {
		if largest < 0 || p.Bits() < largest {
			largest = p.Bits()
		}
	}
	if got := setOf(v.used, nil); got == nil || !got.Equal(used) {
		fault("taken are %v, the nodes hold %v", v.used, used.Prefixes())
	}
	if got := setOf(v.free, nil); got == nil || !got.Equal(free) {
		fault("free are %v, the nodes leave %v", v.free, free.Prefixes())
	}
	if want := children(pool, childBits); v.stats.Capacity != want {
		fault("the capacity is said to be %d, it is %d", v.stats.Capacity, want)
	}
	if v.stats.Used != taken {
		fault("%d /%d are said to be taken, the nodes hold %d", v.stats.Used, childBits, taken)
	}
	if v.stats.Cooling != 0 {
		fault("%d are said to be cooling, this pool has no cooldown", v.stats.Cooling)
	}
	if v.stats.LargestFree != largest {
		fault("the largest free prefix is said to be a /%d, it is a /%d", v.stats.LargestFree, largest)
	}
	return found
}

// setOf returns the addresses of some prefixes without those of others. It returns nil for an
// invalid prefix, which only a broken engine would name.
func setOf(with, without []netip.Prefix) *netipx.IPSet {
	var builder netipx.IPSetBuilder
	for _, p := range with {
		builder.AddPrefix(p)
	}
	for _, p := range without {
		builder.RemovePrefix(p)
	}
	set, err := builder.IPSet()
	if err != nil {
		return nil
	}
	return set
}

// children returns how many prefixes of childBits p holds; 2^64 counts as the largest number, as in
// cidrset.
func children(p netip.Prefix, childBits int) uint64 {
	if order := childBits - p.Bits(); order < 64 {
		return 1 << order
	}
	return math.MaxUint64
}

// addSaturating returns a + b, at most the largest number.
func addSaturating(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return math.MaxUint64
	}
	return sum
}
