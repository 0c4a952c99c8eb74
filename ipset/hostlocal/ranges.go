package hostlocal

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Range is a run of addresses of one subnet. Subnet is required; [Canonical] fills the
// other fields if they are zero.
type Range struct {
	// Subnet contains the addresses. Add returns every address with its prefix length.
	Subnet netip.Prefix
	// First and Last are the first and the last address that may be allocated. The
	// default of First is the address after the subnet's base. The default of Last is the
	// subnet's last address, or for IPv4 the address before it. If set, they may be any
	// address of the subnet, its base and broadcast address included.
	First, Last netip.Addr
	// Gateway is never allocated from this range. It may be outside the subnet. The
	// default is the address after the subnet's base.
	Gateway netip.Addr
	// Exclude lists prefixes of the subnet that are never allocated. If an excluded
	// address is held, it stays held.
	Exclude []netip.Prefix
}

// String returns the first and last address, joined by a dash.
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// Contains reports whether a is between First and Last, both included. The range must be
// canonical.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && a.Compare(r.First) >= 0 && a.Compare(r.Last) <= 0
}

// excluding returns the prefix of Exclude that contains a, the zero Prefix if none does.
func (r Range) excluding(a netip.Addr) netip.Prefix {
	for _, p := range r.Exclude {
		if p.Contains(a) {
			return p
		}
	}
	return netip.Prefix{}
}

// RangeSet is a list of ranges of one family, tried in order. An attachment gets one
// address of each set.
type RangeSet []Range

// String returns the ranges, joined by commas.
func (s RangeSet) String() string {
	texts := make([]string, len(s))
	for i, r := range s {
		texts[i] = r.String()
	}
	return strings.Join(texts, ",")
}

// RangeOf returns the index of the range that contains a, or -1.
func (s RangeSet) RangeOf(a netip.Addr) int {
	return slices.IndexFunc(s, func(r Range) bool { return r.Contains(a) })
}

// Contains reports whether a is in a range of the set, which must be canonical.
func (s RangeSet) Contains(a netip.Addr) bool { return s.RangeOf(a) >= 0 }

// Canonical returns a copy of the sets with all fields of every range filled in.
//
// Its errors wrap a [SetError]. It fails with ErrInvalid if a range is invalid, or if a
// set has no ranges or both families; Error.Field names the place. It fails with
// ErrExists if two ranges overlap. It checks each set in order, then each pair of sets.
func Canonical(sets []RangeSet) ([]RangeSet, error) {
	out := make([]RangeSet, len(sets))
	for i, s := range sets {
		out[i] = slices.Clone(s)
		if err := out[i].canonicalize(i); err != nil {
			return nil, err
		}
	}
	for i, s := range out {
		for j, q := range out[i+1:] {
			if slices.ContainsFunc(s, func(r Range) bool { return slices.ContainsFunc(q, r.overlaps) }) {
				err, in := setFault(ipalloc.ErrExists, i, netip.Addr{}, fmt.Sprintf("overlaps Sets[%d]", i+1+j))
				err.Op, in.Other = "canonical", i+1+j
				return nil, err
			}
		}
	}
	return out, nil
}

func (s RangeSet) canonicalize(set int) error {
	refuse := func(sentinel error, i int, field, reason string) (*ipalloc.Error, *SetError) {
		err, in := setFault(sentinel, set, netip.Addr{}, reason)
		err.Op, in.Range = "canonical", i
		if i >= 0 {
			err.Field += fmt.Sprintf("[%d]", i) + field
		}
		return err, in
	}
	if len(s) == 0 {
		err, _ := refuse(ipalloc.ErrInvalid, -1, "", "no ranges")
		return err
	}
	for i := range s {
		field, a, reason := s[i].canonicalize()
		if reason == "" && s[i].First.BitLen() != s[0].First.BitLen() {
			reason = "mixed address families"
		}
		if reason != "" {
			err, _ := refuse(ipalloc.ErrInvalid, i, field, reason)
			err.Addr = a
			if field == ".Subnet" {
				err.Prefix = s[i].Subnet
			}
			return err
		}
	}
	for i, r := range s {
		if j := slices.IndexFunc(s[i+1:], r.overlaps); j >= 0 {
			err, in := refuse(ipalloc.ErrExists, i, "", fmt.Sprintf("%s overlaps %s", r, s[i+1+j]))
			in.Other = i + 1 + j
			return err
		}
	}
	return nil
}

// mapped is the prefix of the addresses that also have an IPv4 form. No range may contain
// them, because the two forms would be two addresses here and are one on the wire.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// canonicalize checks a range in host-local's order and fills in missing fields. It
// returns the wrong field, the address in it, and the reason; an empty reason means that
// the range is valid.
func (r *Range) canonicalize() (field string, a netip.Addr, reason string) {
	base := r.Subnet.Addr()
	bad := addr.Check(r.Subnet)
	switch {
	case !r.Subnet.IsValid():
		return ".Subnet", a, addr.ErrInvalid.Error()
	case r.Subnet.Bits() > base.BitLen()-2:
		return ".Subnet", a, "too small to allocate from"
	case bad != nil:
		return ".Subnet", a, bad.Error()
	case r.Subnet.Overlaps(mapped):
		return ".Subnet", a, "holds IPv4-mapped addresses"
	}
	named := r.First.IsValid()
	for _, f := range []struct {
		at    *netip.Addr
		fill  netip.Addr
		field string
	}{{&r.Gateway, base.Next(), ".Gateway"}, {&r.First, base.Next(), ".First"}, {&r.Last, defaultEnd(r.Subnet), ".Last"}} {
		if !f.at.IsValid() {
			*f.at = f.fill
		} else if err := addr.CheckAddr(*f.at); err != nil {
			return f.field, *f.at, err.Error()
		}
	}
	// If the caller set First, an end before the start is an error of First.
	switch inverted := r.Last.BitLen() == r.First.BitLen() && r.Last.Less(r.First); {
	case !r.Subnet.Contains(r.First), named && inverted:
		return ".First", r.First, "not in " + r.Subnet.String() + " or after the last"
	case !r.Subnet.Contains(r.Last), inverted:
		return ".Last", r.Last, "not in " + r.Subnet.String() + " or before the first"
	}
	r.Exclude = slices.Clone(r.Exclude)
	for _, p := range r.Exclude {
		if bad := addr.Check(p); bad != nil {
			return ".Exclude", p.Addr(), bad.Error()
		}
		if !r.Subnet.Overlaps(p) || p.Bits() < r.Subnet.Bits() {
			return ".Exclude", p.Addr(), p.String() + " is not in " + r.Subnet.String()
		}
	}
	return "", a, ""
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	return toAddr(addr.FromAddr(p.Addr()).Or(addr.Low(uint(p.Addr().BitLen()-p.Bits()))), p.Addr().Is6())
}

// defaultEnd returns the default of Last in a subnet.
func defaultEnd(p netip.Prefix) netip.Addr {
	if last := lastOf(p); last.Is6() {
		return last
	}
	return lastOf(p).Prev()
}

// overlaps reports whether two canonical ranges share an address.
func (r Range) overlaps(q Range) bool {
	return r.First.BitLen() == q.First.BitLen() && r.First.Compare(q.Last) <= 0 && q.First.Compare(r.Last) <= 0
}
