// Package rangealloc reads and writes the RangeAllocation object (core/v1). Kubernetes
// keeps a range of service addresses or of node ports in it.
//
// Its data is a big-endian number without leading zero bytes; bit i is set if the i-th
// usable address or port of the range is taken. It does not record owners. [Decode]
// returns a grant for [servicealloc.Registry.Load], and [Encode] takes the grants of
// [servicealloc.Registry.All]. Both are pure and linear in the data. [Lists] reads the
// ServiceCIDRs and IPAddresses that newer clusters have in its place.
package rangealloc

import (
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// maxData limits the bytes of an encoded number. Kubernetes itself stops at 2^20
// addresses for IPv4 and 2^16 for IPv6; this is an IPv4 /4.
const maxData = 1 << 25

// A form is a parsed range: the ports from first to last, or the addresses of pool if
// pool is not nil.
type form struct {
	first, last uint16
	pool        *servicealloc.Range
	v4          bool
	base        addr.U128 // the address before that of bit 0
}

// parse parses a range, which people may have written: it masks host bits off.
func parse(op, spec string) (f form, err error) {
	lo, hi, _ := strings.Cut(spec, "-")
	first, err1 := strconv.ParseUint(lo, 10, 16)
	last, err2 := strconv.ParseUint(hi, 10, 16)
	if err1 == nil && err2 == nil && 0 < first && first <= last {
		return form{first: uint16(first), last: uint16(last)}, nil
	}
	p, err := netip.ParsePrefix(spec)
	if err == nil {
		f.v4, f.base = p.Addr().Is4(), addr.FromAddr(p.Masked().Addr())
		f.pool, err = servicealloc.NewRange(p.Masked())
	}
	if err != nil {
		return f, &ipalloc.Error{Package: "rangealloc", Op: op, Field: "spec", Text: spec, Reason: "neither a service range nor a range of ports", Err: ipalloc.ErrInvalid}
	}
	return f, nil
}

// has reports whether ip is an address of the range.
func (f *form) has(ip netip.Addr) bool {
	if f.pool == nil {
		return false
	}
	band, _ := f.pool.Lookup(ip)
	return band != servicealloc.Closed
}

// add adds the address or port of bit x to g, and reports whether there is one.
func (f *form) add(g *servicealloc.Grant, x uint64) bool {
	if f.pool == nil {
		g.Ports = append(g.Ports, servicealloc.Port{Number: f.first + uint16(x)})
		return x <= uint64(f.last-f.first)
	}
	u := f.base.Add(addr.U128{Lo: x + 1})
	ip := u.Addr6()
	if f.v4 {
		ip = u.Addr4()
	}
	g.Addrs = append(g.Addrs, ip)
	return f.has(ip) && addr.FromAddr(ip) == u
}

// Encode returns the data of the object of a range, such as "10.96.0.0/16" or
// "30000-32767". Grants outside the range are left out. To encode all that a registry
// holds:
//
//	Encode("10.96.0.0/16", slices.Collect(reg.All())...)
//
// It fails with [ipalloc.ErrInvalid] if spec is not a range, and with [ipalloc.ErrLimit]
// if an address is 2^28 or more above the first one.
func Encode(spec string, grants ...servicealloc.Grant) (data []byte, err error) {
	f, err := parse("encode", spec)
	if err != nil {
		return nil, err
	}
	var set []uint64
	for i := range grants {
		for _, ip := range grants[i].Addrs {
			if f.has(ip) {
				set = append(set, addr.FromAddr(ip).Sub(f.base).Lo-1)
			}
		}
		for _, p := range grants[i].Ports {
			if f.pool == nil && p.Number >= f.first && p.Number <= f.last {
				set = append(set, uint64(p.Number-f.first))
			}
		}
	}
	if len(set) == 0 {
		return nil, nil
	}
	if most := slices.Max(set); most/8 < maxData {
		data = make([]byte, most/8+1)
	} else {
		return nil, &ipalloc.Error{Package: "rangealloc", Op: "encode", Text: spec, Reason: "an address too far up", Err: ipalloc.ErrLimit}
	}
	for _, x := range set {
		data[uint64(len(data)-1)-x/8] |= 1 << (x % 8)
	}
	return data, nil
}

// Decode returns the taken addresses or ports of a range, as a grant of an unknown owner.
// Ports are of all protocols. Leading zero bytes are accepted.
//
// It fails with [ipalloc.ErrInvalid] if spec is not a range, and with
// [ipalloc.ErrCorrupt] if data has bits beyond it.
func Decode(spec string, data []byte) (g servicealloc.Grant, err error) {
	f, err := parse("decode", spec)
	if err != nil {
		return g, err
	}
	for i, b := range slices.Backward(data) {
		for ; b != 0; b &= b - 1 {
			if !f.add(&g, uint64(len(data)-1-i)*8+uint64(bits.TrailingZeros8(b))) {
				return servicealloc.Grant{}, &ipalloc.Error{Package: "rangealloc", Op: "decode", Text: spec, Reason: "a bit beyond the range", Err: ipalloc.ErrCorrupt}
			}
		}
	}
	return g, nil
}
