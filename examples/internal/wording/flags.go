package wording

import (
	"fmt"
	"net/netip"
)

// Prefix reads a flag that names a prefix of an IP version, 4 or 6; none is not ok. People write
// prefixes with host bits (10.128.3.1/13): they are masked here, as the engines refuse them.
func Prefix(flag, value string, version int) (p netip.Prefix, ok bool, err error) {
	if value == "none" {
		return p, false, nil
	}
	if p, err = netip.ParsePrefix(value); err != nil {
		return p, false, fmt.Errorf("%s %s: not a prefix, and not none", flag, value)
	}
	p = p.Masked()
	if p.Addr().Is4() != (version == 4) || p.Addr().Is4In6() {
		return p, false, fmt.Errorf("%s %s: not an IPv%d prefix", flag, value, version)
	}
	return p, true, nil
}
