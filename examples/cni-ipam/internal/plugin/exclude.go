package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// span is a run of addresses of one family.
type span struct{ first, last netip.Addr }

// parseSpan reads an address, a prefix, or two addresses joined by a dash.
func parseSpan(text string) (s span, err error) {
	from, to, isRange := strings.Cut(text, "-")
	switch {
	case isRange:
		if s.first, err = netip.ParseAddr(strings.TrimSpace(from)); err == nil {
			s.last, err = netip.ParseAddr(strings.TrimSpace(to))
		}
	case strings.Contains(text, "/"):
		var p netip.Prefix
		p, err = netip.ParsePrefix(text)
		s = span{p.Masked().Addr(), lastOf(p)}
	default:
		s.first, err = netip.ParseAddr(text)
		s.last = s.first
	}
	if err == nil && (s.first.BitLen() != s.last.BitLen() || s.last.Less(s.first) || s.first.Zone() != "" || s.last.Zone() != "") {
		err = fmt.Errorf("%q is no range of addresses", text)
	}
	s.first, s.last = s.first.Unmap(), s.last.Unmap()
	return s, err
}

// lastOf returns the highest address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit >= 0 && bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// exclude cuts spans out of the ranges of sets. A range that loses its middle becomes two of
// the same subnet and gateway.
func exclude(sets []hostlocal.RangeSet, spans []span) ([]hostlocal.RangeSet, error) {
	if len(spans) == 0 {
		return sets, nil
	}
	sets = slices.Clone(sets)
	for i, set := range sets {
		for _, s := range spans {
			var left hostlocal.RangeSet
			for _, r := range set {
				left = append(left, without(r, s)...)
			}
			set = left
		}
		if sets[i] = set; len(set) == 0 {
			return nil, badConf("ipam.exclude leaves no address of range set %d", i)
		}
	}
	return sets, nil
}

// without returns what is left of a range.
func without(r hostlocal.Range, s span) (left hostlocal.RangeSet) {
	if s.first.BitLen() != r.Start.BitLen() || s.last.Less(r.Start) || r.End.Less(s.first) {
		return hostlocal.RangeSet{r}
	}
	if before := r; r.Start.Less(s.first) {
		before.End = s.first.Prev()
		left = append(left, before)
	}
	if after := r; s.last.Less(r.End) {
		after.Start = s.last.Next()
		left = append(left, after)
	}
	return left
}
