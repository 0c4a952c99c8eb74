package servicealloc

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// An area is a stretch of up to 2^64 addresses: a space with a codec. Like a space it
// has no lock.
type area struct {
	v4    bool
	none  bool      // there is no address at all
	first addr.U128 // the address of position 0
	last  uint64    // the highest position
	space
}

// areaOf returns the area of the addresses of p from first to last, if there are any.
func areaOf(p netip.Prefix, first, last addr.U128, some bool) area {
	if !some {
		last = first
	}
	return area{v4: p.Addr().Is4(), none: !some, first: first, last: last.Sub(first).Lo}
}

// locate returns the position of ip, and whether it has one.
func (a *area) locate(ip netip.Addr) (uint64, bool) {
	if a.v4 {
		if !ip.Is4() {
			return 0, false
		}
		b := ip.As4()
		x := uint64(binary.BigEndian.Uint32(b[:])) - a.first.Lo // an address below first wraps to a huge position
		return x, x <= a.last && !a.none
	}
	// AppendBinary instead of As16, whose array is written in halves and copied whole,
	// which a processor cannot forward from its store buffer. It gives 4 bytes for
	// IPv4, 0 for no address, and more than 16 for a zone.
	var buf [32]byte
	b, _ := ip.AppendBinary(buf[:0])
	if len(b) != 16 || ip.Is4In6() {
		return 0, false
	}
	lo, borrow := bits.Sub64(binary.BigEndian.Uint64(b[8:]), a.first.Lo, 0)
	hi, _ := bits.Sub64(binary.BigEndian.Uint64(b), a.first.Hi, borrow)
	return lo, hi == 0 && lo <= a.last && !a.none
}

// addr returns the address of position x.
func (a *area) addr(x uint64) netip.Addr {
	if a.v4 {
		return addr.U128{Lo: a.first.Lo + x}.Addr4()
	}
	return a.first.Add(addr.U128{Lo: x}).Addr6()
}

// spanOf returns the positions of the addresses from lo to hi that lie in the area.
func (a *area) spanOf(lo, hi addr.U128) (span, bool) {
	end := a.first.Add(addr.U128{Lo: a.last})
	if a.none || hi.Cmp(a.first) < 0 || lo.Cmp(end) > 0 {
		return span{}, false
	}
	sp := span{0, a.last}
	if lo.Cmp(a.first) > 0 {
		sp.lo = lo.Sub(a.first).Lo
	}
	if hi.Cmp(end) < 0 {
		sp.hi = hi.Sub(a.first).Lo
	}
	return sp, true
}

// ends returns the first and the last address of p.
func ends(p netip.Prefix) (lo, hi addr.U128) {
	lo = addr.FromAddr(p.Addr())
	return lo, lo.Add(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
}

// usable returns the first and the last address of p that may be handed out, and
// whether there is one.
func (s *settings) usable(p netip.Prefix) (first, last addr.U128, ok bool) {
	first, last = ends(p)
	host := p.Addr().BitLen() - p.Bits()
	switch {
	case s.pointToPoint && host <= 1:
		return first, last, true
	case p.Addr().Is4() && host <= 1, host == 0:
		return first, last, false
	case p.Addr().Is4():
		last = last.Sub(addr.U128{Lo: 1})
	}
	return first.Add(addr.U128{Lo: 1}), last, true
}

// zonesOf appends what the prefix p by itself makes of the addresses of a.
func (s *settings) zonesOf(a *area, p netip.Prefix, zones []zone) []zone {
	first, last, ok := s.usable(p)
	sp, in := a.spanOf(first, last)
	if !ok || !in {
		return zones
	}
	return s.part(zones, sp, 1<<min(p.Addr().BitLen()-p.Bits(), 32), addrsPerStatic, maxStaticAddrs)
}

// mapped is where IPv4 addresses stand in IPv6 (RFC 4291, 2.5.5.2). The engine refuses
// that form from a caller, so it does not hand it out either.
var mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

// finish lays the static prefixes of the options and the reserved ones over the zones
// of a, and merges them. A static prefix makes nothing usable.
func (s *settings) finish(a *area, zones []zone, reserved []netip.Prefix) []zone {
	usable := merge(zones)
	for _, p := range s.static {
		if sp, ok := a.spanOf(ends(p)); ok && p.Addr().Is4() == a.v4 {
			for _, z := range usable {
				if lo, hi := max(sp.lo, z.lo), min(sp.hi, z.hi); lo <= hi {
					zones = append(zones, zone{span{lo, hi}, static})
				}
			}
		}
	}
	closing := func(p netip.Prefix) {
		if sp, ok := a.spanOf(ends(p)); ok && p.Addr().Is4() == a.v4 {
			zones = append(zones, zone{sp, closed})
		}
	}
	for _, p := range reserved {
		closing(p)
	}
	closing(mapped)
	return merge(zones)
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
