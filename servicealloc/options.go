package servicealloc

import (
	"math/rand/v2"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// An Option changes what a constructor builds. The doc comment of each option says
// where it applies; elsewhere the constructor answers [ErrBadOption].
type Option func(*config)

// config is the sum of the options. What of it is part of a snapshot is in settings.
type config struct {
	settings
	random   bool
	src      rand.Source
	onChange func(Change)
}

type settings struct {
	lowest       bool
	neverSpill   bool
	pointToPoint bool
	sized        bool   // staticSize was given
	staticSize   uint64 // the lowest usable ones
	static       []netip.Prefix
	reserved     []netip.Prefix
	staticPorts  []PortRange
	closedPorts  []PortRange
}

// LowestFirst makes the engine pick the lowest free member of the band instead of the
// next one from a random start. Every constructor takes it.
func LowestFirst() Option { return func(c *config) { c.lowest = true } }

// Random makes src the source of the random starts. It is called under the allocator's
// lock, for each value that is drawn ahead when the allocator is made and for each that
// an allocation has used, and must not be used elsewhere at the same time.
//
// Without this option the source is a PCG seeded by the range itself, so that the same
// calls give the same answers; a program that wants them to differ from run to run
// passes rand.NewPCG(rand.Uint64(), rand.Uint64()). Every constructor takes it.
func Random(src rand.Source) Option { return func(c *config) { c.random, c.src = true, src } }

// NeverSpill keeps the engine out of the static band: when the dynamic one has no free
// member, it answers [ErrFull]. Every constructor takes it.
func NeverSpill() Option { return func(c *config) { c.neverSpill = true } }

// StaticSize makes the n lowest usable members the static band, in place of the share
// that Kubernetes computes. For a [Range] or [Ports], n beyond what is usable is an
// [ErrBadOption]; for [Ranges] and a [Registry] it holds for each address range, and
// small ones are static as a whole. 0 means no static band.
func StaticSize(n uint64) Option { return func(c *config) { c.sized, c.staticSize = true, n } }

// StaticPrefixes makes the usable addresses in ps static as well, wherever they lie:
// well-known addresses are often elsewhere than at the bottom. For [Range], [Ranges]
// and [Registry].
func StaticPrefixes(ps ...netip.Prefix) Option {
	return func(c *config) { c.static = append(c.static, ps...) }
}

// Reserve takes the addresses in ps out of circulation: they are in neither band, and
// asking for one is an [ErrReserved]. For [Range], [Ranges] and [Registry].
func Reserve(ps ...netip.Prefix) Option {
	return func(c *config) { c.reserved = append(c.reserved, ps...) }
}

// StaticPorts makes the ports in rs static as well. For [Ports] and [Registry].
func StaticPorts(rs ...PortRange) Option {
	return func(c *config) { c.staticPorts = append(c.staticPorts, rs...) }
}

// ReservePorts takes the ports in rs out of circulation. For [Ports] and [Registry].
func ReservePorts(rs ...PortRange) Option {
	return func(c *config) { c.closedPorts = append(c.closedPorts, rs...) }
}

// PointToPoint makes every address of a /31 or /32 (RFC 3021) and of a /127 or /128
// (RFC 6164) usable: 2, 1, 2 and 1 of them, in place of 0, 0, 1 and 0. For [Range],
// [Ranges] and [Registry].
func PointToPoint() Option { return func(c *config) { c.pointToPoint = true } }

// OnChange makes fn see every change: in the order in which they happen, one call for
// a batch, without a lock held, and before the method that made the change returns.
// fn may read the allocator; if it changes it, it waits for itself. Every constructor
// takes it.
func OnChange(fn func(Change)) Option { return func(c *config) { c.onChange = fn } }

// Limits on what people configure, so that hostile bytes can't make the work on it,
// some of which is quadratic, take minutes.
const (
	maxPrefixes     = 1 << 12 // of all ranges, and of each option
	maxRequestPorts = 1 << 10
)

// collect adds up opts and refuses those that contradict themselves.
func collect(op string, opts []Option) (config, error) {
	var c config
	for _, o := range opts {
		o(&c)
	}
	if c.random && c.src == nil {
		return c, &Error{Op: op, Err: ErrBadOption, Detail: "Random without a source"}
	}
	if c.random && c.lowest {
		return c, &Error{Op: op, Err: ErrBadOption, Detail: "both Random and LowestFirst"}
	}
	if max(len(c.static), len(c.reserved), len(c.staticPorts), len(c.closedPorts)) > maxPrefixes {
		return c, &Error{Op: op, Err: ErrLimit, Detail: "prefixes or port ranges in an option"}
	}
	for _, p := range append(append([]netip.Prefix(nil), c.static...), c.reserved...) {
		if err := addr.Check(p); err != nil {
			return c, &Error{Op: op, Range: p, Err: ErrBadPrefix, Detail: err.Error()}
		}
	}
	for _, r := range append(append([]PortRange(nil), c.staticPorts...), c.closedPorts...) {
		if err := r.check(); err != nil {
			return c, &Error{Op: op, Err: ErrBadPort, Detail: err.Error()}
		}
	}
	return c, nil
}

// noPorts refuses options that mean nothing for addresses alone.
func (c *config) noPorts(op string) error {
	if len(c.staticPorts)+len(c.closedPorts) > 0 {
		return &Error{Op: op, Err: ErrBadOption, Detail: "a port option for addresses"}
	}
	return nil
}

// noAddrs refuses options that mean nothing for ports alone.
func (c *config) noAddrs(op string) error {
	if c.pointToPoint || len(c.static)+len(c.reserved) > 0 {
		return &Error{Op: op, Err: ErrBadOption, Detail: "an address option for ports"}
	}
	return nil
}

// none are the settings of whatever is made without an option.
var none settings

// shared returns the settings, which nothing changes any more, in a place that all have
// who have none: a range is small.
func (c *config) shared() *settings {
	s := &c.settings
	if s.lowest || s.neverSpill || s.pointToPoint || s.sized || len(s.static)+len(s.reserved)+len(s.staticPorts)+len(s.closedPorts) > 0 {
		copied := c.settings
		return &copied
	}
	return &none
}

// source returns the source to pick with, nil for lowest first; own is the same one
// if the engine has made it, so that a snapshot can carry it on.
func (c *config) source(seed1, seed2 uint64) (src rand.Source, own *rand.PCG) {
	switch {
	case c.lowest:
		return nil, nil
	case c.random:
		return c.src, nil
	}
	own = rand.NewPCG(seed1, seed2)
	return own, own
}

// forRestore refuses the options that a snapshot brings along.
func (c *config) forRestore() error {
	if c.shared() != &none {
		return &Error{Op: "restore", Err: ErrBadOption, Detail: "only Random and OnChange; the snapshot says the rest"}
	}
	return nil
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

// zonesOf returns what p makes of its own usable addresses.
func (s *settings) zonesOf(p netip.Prefix) []zone {
	first, last, ok := s.usable(p)
	if !ok {
		return nil
	}
	zones := []zone{{first, last, Dynamic}}
	n := staticAddrs(p.Addr().BitLen() - p.Bits())
	if s.sized {
		n = s.staticSize
	}
	if n > 0 {
		end := first.Add(addr.U128{Lo: n - 1})
		if end.Cmp(first) < 0 || end.Cmp(last) > 0 {
			end = last
		}
		zones = append(zones, zone{first, end, Static})
	}
	return zones
}

// mapped is where IPv4 addresses stand in IPv6 (RFC 4291, 2.5.5.2). The engine refuses
// that form from a caller, so it does not hand it out either.
var mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

// within appends the options' own zones of one family, cut to where there are usable
// addresses by the ones that are there: a static prefix makes nothing usable.
func (s *settings) within(v4 bool, zones []zone) []zone {
	usable := merge(zones)
	for _, p := range s.static {
		if p.Addr().Is4() != v4 {
			continue
		}
		lo, hi := ends(p)
		for _, z := range usable {
			if l, h := maxOf(lo, z.lo), minOf(hi, z.hi); l.Cmp(h) <= 0 {
				zones = append(zones, zone{l, h, Static})
			}
		}
	}
	for _, p := range s.reserved {
		if p.Addr().Is4() == v4 {
			lo, hi := ends(p)
			zones = append(zones, zone{lo, hi, Closed})
		}
	}
	if !v4 {
		lo, hi := ends(mapped)
		zones = append(zones, zone{lo, hi, Closed})
	}
	return zones
}

// isReserved reports whether an option takes ip out of circulation.
func (s *settings) isReserved(ip netip.Addr) bool {
	for _, p := range s.reserved {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// ends returns the first and the last address of p.
func ends(p netip.Prefix) (lo, hi addr.U128) {
	lo = addr.FromAddr(p.Addr())
	return lo, lo.Add(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
}

func maxOf(a, b addr.U128) addr.U128 {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

func minOf(a, b addr.U128) addr.U128 {
	if a.Cmp(b) <= 0 {
		return a
	}
	return b
}
