package plugin

import (
	"fmt"
	"net/netip"
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

// exclude takes spans out of the ranges of sets, of which each must keep an address.
func exclude(sets []hostlocal.RangeSet, spans []netipx.IPRange) error {
	for n, set := range sets {
		var left netipx.IPSetBuilder
		for _, r := range set {
			left.AddRange(netipx.IPRangeFrom(r.First, r.Last))
		}
		for _, s := range spans {
			left.RemoveRange(s)
		}
		if rest, err := left.IPSet(); err != nil || len(rest.Ranges()) == 0 {
			return badConf("ipam.exclude leaves no address of range set %d", n)
		}
		for i := range set {
			subnet := netipx.RangeOfPrefix(set[i].Subnet)
			for _, s := range spans {
				if s.Overlaps(subnet) {
					s = netipx.IPRangeFrom(maxAddr(s.From(), subnet.From()), minAddr(s.To(), subnet.To()))
					set[i].Exclude = append(set[i].Exclude, s.Prefixes()...)
				}
			}
		}
	}
	return nil
}

func maxAddr(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func minAddr(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}
