package addr

import (
	"errors"
	"net/netip"
)

// The reasons for which [CheckAddr] and [Check] refuse an argument. The packages above
// put their texts into the Reason of an ipalloc.Error.
var (
	ErrInvalid  = errors.New("not a valid address or prefix")
	ErrMapped   = errors.New("IPv4-mapped IPv6 (4-in-6); use the IPv4 form")
	ErrZone     = errors.New("has a zone")
	ErrUnmasked = errors.New("has host bits set")
)

// CheckAddr returns nil if a is an IPv4 or IPv6 address without a zone and not 4-in-6;
// otherwise it returns an error of this package with the reason.
func CheckAddr(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return ErrInvalid
	case a.Is4In6():
		return ErrMapped
	case a.Zone() != "":
		return ErrZone
	}
	return nil
}

// Check returns nil if p is valid, masked and not 4-in-6; otherwise it returns an
// error of this package with the reason. A [netip.Prefix] never has a zone.
func Check(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return ErrInvalid
	case p.Addr().Is4In6():
		return ErrMapped
	case p != p.Masked():
		return ErrUnmasked
	}
	return nil
}
