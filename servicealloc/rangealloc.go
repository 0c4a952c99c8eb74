package servicealloc

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// maxExport limits the bytes of an exported number. Kubernetes itself stops at 2^20
// addresses for IPv4 and 2^16 for IPv6; this is an IPv4 /4.
const maxExport = 1 << 25

// parseRange parses the range string of a RangeAllocation, which people may have written:
// host bits are masked off. Either r is set, or p with the area of its usable addresses.
func parseRange(spec string) (a area, p netip.Prefix, r PortRange, err error) {
	none := area{none: true}
	if r, ok := parsePortRange(spec); ok {
		return none, p, r, nil
	}
	p, err = netip.ParsePrefix(spec)
	why := "neither a prefix nor a range of ports"
	if err == nil {
		p = p.Masked()
		why = checkPrefix(p)
	}
	if why != "" {
		return none, p, r, &ipalloc.Error{Package: "servicealloc", Op: "read range", Text: spec, Reason: why, Err: ipalloc.ErrInvalid}
	}
	first, last, ok := new(settings).usable(p)
	return areaOf(p, first, last, ok), p, r, nil
}

// Export returns the data of the RangeAllocation object (core/v1) in which Kubernetes
// keeps a range, such as "10.96.0.0/16" or "30000-32767": a big-endian number without
// leading zero bytes, of which bit i says that the i-th usable address or port is taken.
// What grants has outside the range is left out. All that a registry holds is
//
//	Export("10.96.0.0/16", slices.Collect(reg.All())...)
//
// It fails with [ipalloc.ErrInvalid] if spec is no range, and with [ipalloc.ErrLimit] if
// an address lies 2^28 or more behind the first one.
func Export(spec string, grants ...Grant) (data []byte, err error) {
	a, p, r, err := parseRange(spec)
	if err != nil {
		return nil, err
	}
	var most uint64
	var set []uint64
	add := func(x uint64) {
		set = append(set, x)
		most = max(most, x)
	}
	for i := range grants {
		for _, ip := range grants[i].Addrs {
			if x, ok := a.locate(ip); ok {
				add(x)
			}
		}
		for _, q := range grants[i].Ports {
			if r.First != 0 && q.Number >= r.First && q.Number <= r.Last {
				add(uint64(q.Number - r.First))
			}
		}
	}
	if most/8 >= maxExport {
		return nil, &ipalloc.Error{Package: "servicealloc", Op: "export", Pool: p, Reason: "an address too far up", Err: ipalloc.ErrLimit}
	}
	if len(set) == 0 {
		return nil, nil
	}
	data = make([]byte, most/8+1)
	for _, x := range set {
		data[uint64(len(data)-1)-x/8] |= 1 << (x % 8)
	}
	return data, nil
}

// Import returns what the data of a RangeAllocation object says is taken, as a grant of
// an unknown owner, for [Registry.Load]. Ports are of all protocols. Leading zero bytes
// are accepted.
//
// It fails with [ipalloc.ErrInvalid] if spec is no range, and with [ipalloc.ErrCorrupt]
// if data has bits beyond it.
func Import(spec string, data []byte) (Grant, error) {
	a, _, r, err := parseRange(spec)
	if err != nil {
		return Grant{}, err
	}
	var g Grant
	for i, b := range slices.Backward(data) {
		low := uint64(len(data)-1-i) * 8
		for ; b != 0; b &= b - 1 {
			x := low + uint64(bits.TrailingZeros8(b))
			switch {
			case r.First != 0 && x < r.size():
				g.Ports = append(g.Ports, Port{Number: r.First + uint16(x)})
			case !a.none && x <= a.last:
				g.Addrs = append(g.Addrs, a.addr(x))
			default:
				return Grant{}, &ipalloc.Error{Package: "servicealloc", Op: "import", Text: spec, Reason: "a bit beyond the range", Err: ipalloc.ErrCorrupt}
			}
		}
	}
	return g, nil
}
