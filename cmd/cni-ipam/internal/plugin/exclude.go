package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// parseSpan reads an address, a prefix, or two addresses joined by a dash.
func parseSpan(text string) (s netipx.IPRange, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange && strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		s = netipx.RangeOfPrefix(p)
		return netipx.IPRangeFrom(s.From().Unmap(), s.To().Unmap()), err
	}
	if !isRange {
		to = from
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil {
		return s, err
	}
	last, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil {
		return s, err
	}
	s = netipx.IPRangeFrom(first.Unmap(), last.Unmap())
	if !s.IsValid() || first.Zone() != "" {
		return s, fmt.Errorf("%q is no range of addresses", text)
	}
	return s, nil
}

// exclude cuts spans out of the ranges of sets. A range that loses its middle becomes two of
// the same subnet and gateway.
func exclude(sets []hostlocal.RangeSet, spans []netipx.IPRange) ([]hostlocal.RangeSet, error) {
	if len(spans) == 0 {
		return sets, nil
	}
	sets = slices.Clone(sets)
	for i, set := range sets {
		sets[i] = nil
		for _, r := range set {
			var left netipx.IPSetBuilder
			left.AddRange(netipx.IPRangeFrom(r.First, r.Last))
			for _, s := range spans {
				left.RemoveRange(s)
			}
			kept, err := left.IPSet()
			if err != nil {
				return nil, badConf("ipam.exclude: %v", err)
			}
			for _, k := range kept.Ranges() {
				r.First, r.Last = k.From(), k.To()
				sets[i] = append(sets[i], r)
			}
		}
		if len(sets[i]) == 0 {
			return nil, badConf("ipam.exclude leaves no address of range set %d", i)
		}
	}
	return sets, nil
}
