package servicealloc

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// maxExport limits the bytes of an exported number. Kubernetes itself stops at 2^20
// addresses for IPv4 and 2^16 for IPv6; this is an IPv4 /4.
const maxExport = 1 << 25

// usableOf parses the range string of a RangeAllocation, which people may have written:
// host bits are masked off. last is the highest bit, none if there is no bit at all.
func usableOf(s string) (first addr.U128, last uint64, p netip.Prefix, r PortRange, none bool, err error) {
	if r, ok := parsePortRange(s); ok {
		return addr.U128{}, r.size() - 1, p, r, false, nil
	}
	fail := func(why string) (addr.U128, uint64, netip.Prefix, PortRange, bool, error) {
		return first, 0, p, r, false, &ipalloc.Error{Package: "servicealloc", Op: "read range", Text: s, Reason: why, Err: ipalloc.ErrInvalid}
	}
	if p, err = netip.ParsePrefix(s); err != nil {
		return fail("neither a prefix nor a range of ports")
	}
	if p = p.Masked(); checkPrefix(p) != "" {
		return fail(checkPrefix(p))
	}
	first, end, ok := new(settings).usable(p)
	return first, end.Sub(first).Lo, p, r, !ok, nil
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
	first, last, p, r, none, err := usableOf(spec)
	if err != nil || none {
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
			if x := addr.FromAddr(ip).Sub(first); p.IsValid() && p.Contains(ip) && x.Hi == 0 && x.Lo <= last {
				add(x.Lo)
			}
		}
		for _, q := range grants[i].Ports {
			if !p.IsValid() && q.Number >= r.First && q.Number <= r.Last {
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
	first, last, p, r, none, err := usableOf(spec)
	if err != nil {
		return Grant{}, err
	}
	a := area{v4: p.IsValid() && p.Addr().Is4(), first: first}
	var g Grant
	for i, b := range slices.Backward(data) {
		low := uint64(len(data)-1-i) * 8
		for ; b != 0; b &= b - 1 {
			x := low + uint64(bits.TrailingZeros8(b))
			switch {
			case none || x > last:
				return Grant{}, &ipalloc.Error{Package: "servicealloc", Op: "import", Text: spec, Reason: "a bit beyond the range", Err: ipalloc.ErrCorrupt}
			case p.IsValid():
				g.Addrs = append(g.Addrs, a.addr(x))
			default:
				g.Ports = append(g.Ports, Port{Number: r.First + uint16(x)})
			}
		}
	}
	return g, nil
}
