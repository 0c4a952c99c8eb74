package servicealloc

import (
	"cmp"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/servicealloc/internal/bands"
)

// A lineKey identifies a line: a row of up to 2^64 numbers. Each number is an address or
// a port. All IPv4 addresses are one line, the IPv6 addresses of one /64 are one, and the
// port numbers of each protocol are one.
type lineKey struct {
	kind lineKind
	hi   uint64 // of IPv6: the upper half of the addresses
}

type lineKind uint8

const (
	ipv4 lineKind = iota
	ipv6
	anyPort // the numbers that are taken for any protocol
	onePort // and the kinds behind it: those of one protocol, in the order of protocols
)

func (k lineKey) compare(o lineKey) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.hi, o.hi))
}

// last returns the highest number of the line.
func (k lineKey) last() uint64 {
	switch k.kind {
	case ipv4:
		return 1<<32 - 1
	case ipv6:
		return 1<<64 - 1
	}
	return 1<<16 - 1
}

// span returns the numbers of the line that are in p, and whether there are any.
func (k lineKey) span(p netip.Prefix) (span, bool) {
	lo, hi := ends(p)
	return span{Lo: lo.Lo, Hi: hi.Lo}, k.kind == kindOf(p.Addr()) && k.hi >= lo.Hi && k.hi <= hi.Hi
}

// kindOf returns the kind of the line of ip.
func kindOf(ip netip.Addr) lineKind {
	if ip.Is4() {
		return ipv4
	}
	return ipv6
}

// ends returns the first and the last address of p.
func ends(p netip.Prefix) (lo, hi addr.U128) {
	lo = addr.FromAddr(p.Addr())
	return lo, lo.Add(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
}

// A subject is an address or a port that can be held once: a number of a line.
type subject struct {
	lineKey
	x uint64
}

// subjectOf returns the subject of ip, which must have no zone.
func subjectOf(ip netip.Addr) subject {
	u := addr.FromAddr(ip)
	return subject{lineKey{kindOf(ip), u.Hi}, u.Lo}
}

// addr returns the address of s, the zero Addr for a port.
func (s subject) addr() netip.Addr {
	switch s.kind {
	case ipv4:
		return addr.U128{Lo: s.x}.Addr4()
	case ipv6:
		return addr.U128{Hi: s.hi, Lo: s.x}.Addr6()
	}
	return netip.Addr{}
}

// port returns the port of s, the zero Port for an address.
func (s subject) port() Port {
	switch {
	case s.kind >= onePort:
		return Port{protocols[s.kind-onePort], uint16(s.x)}
	case s.kind == anyPort:
		return Port{Number: uint16(s.x)}
	}
	return Port{}
}

// usable returns the addresses of p that may be allocated, and whether there are any.
func (s *settings) usable(p netip.Prefix) (span, bool) {
	lo, hi := ends(p)
	sp := span{Lo: lo.Lo, Hi: hi.Lo}
	if s.between[0].IsValid() {
		return span{Lo: addr.FromAddr(s.between[0]).Lo, Hi: addr.FromAddr(s.between[1]).Lo}, true
	}
	host := p.Addr().BitLen() - p.Bits()
	all := s.pointToPoint && host <= 1
	first, last := s.first || all, s.last || all || p.Addr().Is6()
	if host == 0 && !(first && last) {
		return sp, false
	}
	some := sp
	if !first || p.Addr().IsUnspecified() { // by which a request leaves the choice open
		some.Lo++
	}
	if !last {
		some.Hi--
	}
	if some.Lo > some.Hi {
		return sp, false
	}
	return some, true
}

// mapped is the prefix of IPv4-mapped IPv6 addresses (RFC 4291, 2.5.5.2). The engine
// refuses such an address from a caller, so it does not allocate one either.
var mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

// zones returns, merged, the zones that ranges and reservations make on a line.
func (s *settings) zones(k lineKey, entries ...*RangeInfo) []zone {
	var zones, reserved []zone
	for _, e := range entries {
		if e.Draining {
			continue
		}
		for _, p := range e.Prefixes {
			if sp, ok := k.span(p); ok && e.Reserved {
				reserved = append(reserved, zone{Span: sp, Band: closed})
			} else if sp, some := s.usable(p); ok && some {
				n := uint64(1) << min(p.Addr().BitLen()-p.Bits(), 32)
				if s.between[0].IsValid() {
					n = min(n-1, sp.Hi-sp.Lo) + 1
				}
				zones = s.part(zones, sp, n, addrsPerStatic, maxStaticAddrs)
			}
		}
		for _, r := range e.Ports {
			if sp := (span{Lo: uint64(r.First), Hi: uint64(r.Last)}); k.kind >= anyPort && e.Reserved {
				reserved = append(reserved, zone{Span: sp, Band: closed})
			} else if k.kind >= anyPort {
				zones = s.part(zones, sp, sp.Hi-sp.Lo+1, portsPerStatic, maxStaticPorts)
			}
		}
	}
	usable := bands.Merge(zones)
	for _, p := range s.static { // which makes nothing usable
		if sp, ok := k.span(p); ok {
			for _, z := range usable {
				if lo, hi := max(sp.Lo, z.Lo), min(sp.Hi, z.Hi); lo <= hi {
					zones = append(zones, zone{Span: span{Lo: lo, Hi: hi}, Band: static})
				}
			}
		}
	}
	if sp, ok := k.span(mapped); ok {
		reserved = append(reserved, zone{Span: sp, Band: closed})
	}
	return bands.Merge(append(zones, reserved...))
}

// checkPrefix returns why p cannot be a range, "" if it can.
func checkPrefix(p netip.Prefix) string {
	if err := addr.Check(p); err != nil {
		return err.Error()
	}
	if p.Addr().Is6() && p.Bits() < 64 {
		return "wider than /64, the widest IPv6 range"
	}
	return ""
}
