package hostlocal

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Range is a run of addresses of one subnet. Fields other than Subnet may be zero; [Canonical] fills them.
type Range struct {
	// Subnet is what the addresses belong to; its length goes with every address that is handed out.
	Subnet netip.Prefix
	// Start and End are the first and the last address handed out. By default Start is the one after the subnet's base
	// address, and End the subnet's last one, for IPv4 the one before it. Named, they may be any of the subnet, its
	// base and broadcast address included.
	Start, End netip.Addr
	// Gateway is never handed out of this range. It is not required to lie in the subnet. By default it is the one
	// after the subnet's base address.
	Gateway netip.Addr
}

// String returns the first and last address, joined by a dash.
func (r Range) String() string { return r.Start.String() + "-" + r.End.String() }

// Contains reports whether a lies between Start and End. The range must be canonical.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.Start.BitLen() && a.Compare(r.Start) >= 0 && a.Compare(r.End) <= 0
}

// RangeSet is a list of ranges of one family, tried in order: an attachment gets one address of each set.
type RangeSet []Range

// String returns the ranges, joined by commas.
func (s RangeSet) String() string {
	texts := make([]string, len(s))
	for i, r := range s {
		texts[i] = r.String()
	}
	return strings.Join(texts, ",")
}

// RangeOf returns the number of the range that a lies in; -1 if it lies in none.
func (s RangeSet) RangeOf(a netip.Addr) int {
	return slices.IndexFunc(s, func(r Range) bool { return r.Contains(a) })
}

// Canonical returns a copy of the sets in which every field of every range is filled.
//
// It returns an [*Error] that names the set and the range: [ErrTooSmall] for a subnet of less than four addresses and
// for a set without ranges; [ErrBadPrefix]; [ErrBadAddress] for a gateway, start or end; [ErrBadRange]; [ErrFamily];
// [ErrOverlap] for two ranges of one set, and then for two sets. They are looked for in this order, set by set.
func Canonical(sets []RangeSet) ([]RangeSet, error) {
	out := make([]RangeSet, len(sets))
	for i, s := range sets {
		out[i] = slices.Clone(s)
		if err := out[i].canonicalize(); err != nil {
			err.Set = i
			return nil, err
		}
	}
	for i, s := range out {
		for j, q := range out[i+1:] {
			if s.overlaps(q) {
				err := fault("configure", ErrOverlap)
				err.Set, err.Other = i, i+1+j
				return nil, err
			}
		}
	}
	return out, nil
}

func (s RangeSet) canonicalize() *Error {
	if len(s) == 0 {
		err := fault("configure", ErrTooSmall)
		err.Text = "empty range set"
		return err
	}
	for i := range s {
		err := s[i].canonicalize()
		if err == nil && s[i].Start.BitLen() != s[0].Start.BitLen() {
			err = fault("configure", ErrFamily)
		}
		if err != nil {
			err.Range = i
			return err
		}
	}
	for i, r := range s {
		for j, q := range s[i+1:] {
			if r.overlaps(q) {
				err := fault("configure", ErrOverlap)
				err.Range, err.Other = i, i+1+j
				err.Text = fmt.Sprintf("%s and %s", r, q)
				return err
			}
		}
	}
	return nil
}

// mapped are the addresses that have an IPv4 form, too. No range may hold them: the two forms would be two addresses here
// and are one on the wire.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// canonicalize checks a range in the order in which host-local does, and fills what is missing.
func (r *Range) canonicalize() *Error {
	bad := func(sentinel error, a netip.Addr, text string) *Error {
		err := fault("configure", sentinel)
		err.Address, err.Text = a, text
		return err
	}
	if !r.Subnet.IsValid() {
		return bad(ErrBadPrefix, netip.Addr{}, addr.ErrInvalid.Error())
	}
	base := r.Subnet.Addr()
	if r.Subnet.Bits() > base.BitLen()-2 {
		return bad(ErrTooSmall, netip.Addr{}, r.Subnet.String())
	}
	if err := addr.Check(r.Subnet); err != nil {
		return bad(ErrBadPrefix, netip.Addr{}, r.Subnet.String()+" "+err.Error())
	}
	if r.Subnet.Overlaps(mapped) {
		return bad(ErrBadPrefix, netip.Addr{}, r.Subnet.String()+" holds IPv4-mapped addresses")
	}
	named := r.Start.IsValid()
	for _, f := range []struct {
		at   *netip.Addr
		fill netip.Addr
		name string
	}{{&r.Gateway, base.Next(), "gateway"}, {&r.Start, base.Next(), "start"}, {&r.End, defaultEnd(lastAddr(r.Subnet)), "end"}} {
		if !f.at.IsValid() {
			*f.at = f.fill
			continue
		}
		if err := addr.CheckAddr(*f.at); err != nil {
			return bad(ErrBadAddress, *f.at, f.name+" "+err.Error())
		}
	}
	// An end before the start is said of the start if the caller named it, else of the end.
	switch inverted := r.End.BitLen() == r.Start.BitLen() && r.End.Less(r.Start); {
	case !r.Subnet.Contains(r.Start), named && inverted:
		return bad(ErrBadRange, r.Start, "start of "+r.Subnet.String())
	case !r.Subnet.Contains(r.End), inverted:
		return bad(ErrBadRange, r.End, "end of "+r.Subnet.String())
	}
	return nil
}

// defaultEnd returns the last address of a subnet that is handed out unless its range says otherwise.
func defaultEnd(last netip.Addr) netip.Addr {
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// lastAddr returns the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	u := addr.FromAddr(p.Addr()).Or(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
	return toAddr(u, p.Addr().Is6())
}

// toAddr is the inverse of addr.FromAddr.
func toAddr(u addr.U128, v6 bool) netip.Addr {
	if v6 {
		return u.Addr6()
	}
	return u.Addr4()
}

// overlaps reports whether two canonical ranges share an address.
func (r Range) overlaps(q Range) bool {
	return r.Start.BitLen() == q.Start.BitLen() && r.Start.Compare(q.End) <= 0 && q.Start.Compare(r.End) <= 0
}

func (s RangeSet) overlaps(q RangeSet) bool {
	for _, r := range s {
		for _, o := range q {
			if r.overlaps(o) {
				return true
			}
		}
	}
	return false
}
