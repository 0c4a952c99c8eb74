package servicealloc

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
)

// The worked numbers of the bands, and those that Kubernetes tests.
func TestBandsOfPrefixes(t *testing.T) {
	for _, tt := range []struct {
		prefix          string
		static, dynamic uint64
		lo, hi          string // of the static band
		first, last     string // of the dynamic band
	}{
		{"10.96.0.0/24", 16, 238, "10.96.0.1", "10.96.0.16", "10.96.0.17", "10.96.0.254"},
		{"10.96.0.0/20", 256, 3838, "10.96.0.1", "10.96.1.0", "10.96.1.1", "10.96.15.254"},
		{"10.96.0.0/16", 256, 65278, "10.96.0.1", "10.96.1.0", "10.96.1.1", "10.96.255.254"},
		{"10.96.0.0/28", 0, 14, "", "", "10.96.0.1", "10.96.0.14"},
		{"10.96.0.0/27", 16, 14, "10.96.0.1", "10.96.0.16", "10.96.0.17", "10.96.0.30"},
		{"10.96.0.0/22", 64, 958, "10.96.0.1", "10.96.0.64", "10.96.0.65", "10.96.3.254"},
		{"192.168.1.0/25", 16, 110, "192.168.1.1", "192.168.1.16", "192.168.1.17", "192.168.1.126"},
		{"192.168.1.240/30", 0, 2, "", "", "192.168.1.241", "192.168.1.242"},
		{"192.0.0.0/8", 256, 1<<24 - 2 - 256, "192.0.0.1", "192.0.1.0", "192.0.1.1", "192.255.255.254"},
		{"0.0.0.0/1", 256, 1<<31 - 2 - 256, "0.0.0.1", "0.0.1.0", "0.0.1.1", "127.255.255.254"},
		{"0.0.0.0/0", 256, 1<<32 - 2 - 256, "0.0.0.1", "0.0.1.0", "0.0.1.1", "255.255.255.254"},
		{"192.168.1.0/32", 0, 0, "", "", "", ""},
		{"192.168.1.0/31", 0, 0, "", "", "", ""},
		{"fd00::1/128", 0, 0, "", "", "", ""},
		{"fd00::/127", 0, 1, "", "", "fd00::1", "fd00::1"},
		{"fd00::/126", 0, 3, "", "", "fd00::1", "fd00::3"},
		{"fd00::/124", 0, 15, "", "", "fd00::1", "fd00::f"},
		{"fd00::/123", 16, 15, "fd00::1", "fd00::10", "fd00::11", "fd00::1f"},
		{"fd00::/122", 16, 47, "fd00::1", "fd00::10", "fd00::11", "fd00::3f"},
		{"fd00::/118", 64, 959, "fd00::1", "fd00::40", "fd00::41", "fd00::3ff"},
		{"fd00::/112", 256, 65535 - 256, "fd00::1", "fd00::100", "fd00::101", "fd00::ffff"},
		{"fd00::/108", 256, 1<<20 - 1 - 256, "fd00::1", "fd00::100", "fd00::101", "fd00::f:ffff"},
		{"fd00::/64", 256, 1<<64 - 1 - 256, "fd00::1", "fd00::100", "fd00::101", "fd00::ffff:ffff:ffff:ffff"},
	} {
		r := newRangeT(t, tt.prefix)
		check(t, r)
		s := r.Stats()
		if s.Static != (BandStats{tt.static, 0, tt.static}) || s.Dynamic != (BandStats{tt.dynamic, 0, tt.dynamic}) {
			t.Errorf("%s: %+v", tt.prefix, s)
		}
		for _, e := range []struct {
			addr    string
			band    Band
			outside func(netip.Addr) netip.Addr // the neighbour that is not in the band
		}{{tt.lo, Static, netip.Addr.Prev}, {tt.hi, Static, netip.Addr.Next}, {tt.first, Dynamic, netip.Addr.Prev}, {tt.last, Dynamic, netip.Addr.Next}} {
			if e.addr == "" {
				continue
			}
			if got := bandOf(r, ip(e.addr)); got != e.band {
				t.Errorf("%s: %s is %v, want %v", tt.prefix, e.addr, got, e.band)
			}
			if got := bandOf(r, e.outside(ip(e.addr))); got == e.band {
				t.Errorf("%s: the neighbour of %s is %v too", tt.prefix, e.addr, got)
			}
			if err := r.Allocate(ip(e.addr)); err != nil && e.addr != tt.lo && e.addr != tt.first {
				t.Errorf("%s: %v", tt.prefix, err)
			}
		}
		check(t, r)
	}
}

// Every length has a dynamic band unless it has no address.
func TestBandsOfEveryLength(t *testing.T) {
	for _, base := range []string{"0.0.0.0", "::"} {
		a := ip(base)
		for length := 0; length <= a.BitLen(); length++ {
			if a.Is6() && length < 64 {
				_, err := NewRange(netip.PrefixFrom(a, length))
				wantErr(t, err, ipalloc.ErrInvalid)
				continue
			}
			r := newRangeT(t, netip.PrefixFrom(a, length).String())
			s := r.Stats()
			if usable := s.Static.Capacity + s.Dynamic.Capacity; usable > 0 && s.Dynamic.Capacity == 0 {
				t.Errorf("/%d: no dynamic address: %+v", length, s)
			}
			_, _, err := r.AllocateNext()
			if want := a.BitLen()-length == 0 || a.Is4() && a.BitLen()-length == 1; errors.Is(err, ipalloc.ErrFull) != want {
				t.Errorf("%s/%d: %v", base, length, err)
			}
			check(t, r)
		}
	}
}

// With PointToPoint all addresses of the smallest prefixes are usable (RFC 3021, RFC 6164).
func TestPointToPoint(t *testing.T) {
	for p, want := range map[string]int{"192.0.2.0/31": 2, "192.0.2.0/32": 1, "2001:db8::/127": 2, "2001:db8::/128": 1, "192.0.2.0/30": 2, "2001:db8::/126": 3} {
		r := newRangeT(t, p, PointToPoint())
		got := map[netip.Addr]bool{}
		for {
			a, _, err := r.AllocateNext()
			if err != nil {
				break
			}
			got[a] = true
		}
		if len(got) != want {
			t.Errorf("%s: %d addresses, want %d", p, len(got), want)
		}
		if last := bits.OnesCount(uint(want)); want == 2 && p != "192.0.2.0/30" && !got[pfx(p).Addr()] {
			t.Errorf("%s: the first one is missing (%d)", p, last)
		}
	}
}

// FirstAddress, LastAddress and Between say which addresses of a prefix are usable; a snapshot is of these options alone.
func TestEnds(t *testing.T) {
	both := []Option{FirstAddress(), LastAddress()}
	for _, c := range []struct {
		prefix, first, last string
		usable              uint64
		opts                []Option
	}{
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.254", 254, nil},
		{"10.0.0.0/24", "10.0.0.0", "10.0.0.254", 255, both[:1:1]},
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.255", 255, both[1:]},
		{"10.0.0.0/24", "10.0.0.0", "10.0.0.255", 256, both},
		{"10.0.0.6/31", "10.0.0.6", "10.0.0.6", 1, both[:1:1]},
		{"10.0.0.6/31", "10.0.0.6", "10.0.0.7", 2, both},
		{"10.0.0.6/32", "10.0.0.6", "10.0.0.6", 1, both},
		{"10.0.0.6/32", "", "", 0, both[:1:1]},
		{"0.0.0.0/32", "", "", 0, both[:1:1]},
		{"0.0.0.0/30", "0.0.0.1", "0.0.0.3", 3, both},
		{"fd00::/120", "fd00::", "fd00::ff", 256, both[:1:1]},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1, both[:1:1]},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "", "", 0, nil},
		{"10.0.0.0/16", "10.0.1.20", "10.0.2.9", 246, []Option{Between(ip("10.0.1.20"), ip("10.0.2.9"))}},
		{"10.0.0.0/24", "10.0.0.0", "10.0.0.0", 1, []Option{Between(ip("10.0.0.0"), ip("10.0.0.0"))}},
		{"fd00::/64", "fd00::5", "fd00::a", 6, []Option{Between(ip("fd00::5"), ip("fd00::a"))}},
	} {
		r := newRangeT(t, c.prefix, append(c.opts, LowestFirst())...)
		if r.Free() != c.usable {
			t.Errorf("%s: %d usable, want %d", c.prefix, r.Free(), c.usable)
		}
		if c.usable == 0 {
			g := newRegistryT(t, c.prefix, c.opts...)
			wantErr(t, errOf(g.Allocate("o", Request{Addrs: anyBoth[:1]})), ipalloc.ErrFull)
			wantErr(t, errOf(g.Allocate("o", Request{Addrs: anyBoth[1:]})), ipalloc.ErrFull)
			if a := pfx(c.prefix).Addr(); !a.IsUnspecified() {
				wantErr(t, errOf(g.Allocate("o", Request{Addrs: []netip.Addr{a}})), ipalloc.ErrOutOfRange)
			}
			continue
		}
		for _, edge := range []struct {
			at   netip.Addr
			want error
		}{{ip(c.first), nil}, {ip(c.last), nil}, {ip(c.first).Prev(), ipalloc.ErrOutOfRange}, {ip(c.last).Next(), ipalloc.ErrOutOfRange}} {
			if err := r.Allocate(edge.at); edge.at.IsValid() && !errors.Is(err, edge.want) && !errors.Is(err, ipalloc.ErrOccupied) {
				t.Errorf("%s: %v: %v", c.prefix, edge.at, err)
			}
		}
		check(t, r)
		data := must(r.MarshalBinary())
		again := must(NewRange(pfx(c.prefix), append(c.opts, LowestFirst(), Restore(data))...))
		if again.Free() != r.Free() {
			t.Errorf("%s: restored with %d free, want %d", c.prefix, again.Free(), r.Free())
		}
		if _, err := NewRange(pfx(c.prefix), LowestFirst(), Restore(data)); (err == nil) != (c.opts == nil) {
			t.Errorf("%s: restored without its options: %v", c.prefix, err)
		}
	}
	for _, b := range [][2]string{{"10.0.0.9", "10.0.0.3"}, {"10.0.0.9", "10.0.1.0"}, {"9.0.0.1", "10.0.0.3"}, {"fd00::1", "fd00::2"}, {"10.0.0.1", "fd00::2"}, {"0.0.0.0", "10.0.0.2"}} {
		_, err := NewRange(pfx("10.0.0.0/24"), Between(ip(b[0]), ip(b[1])))
		if e := (*ipalloc.Error)(nil); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != "Between" {
			t.Errorf("%v: %v", b, err)
		}
	}
	_, err := NewRegistry(PortRange{}, Between(ip("10.0.0.1"), ip("10.0.0.2")))
	wantErr(t, err, ipalloc.ErrInvalid)
}

// A run of addresses is the prefixes that make it up.
func TestRunOfAddresses(t *testing.T) {
	r := must(NewRegistry(PortRange{}, FirstAddress(), LastAddress(), LowestFirst()))
	wantErr(t, r.SetRange(rangeOf("x", "10.0.0.7/32 10.0.0.8/31")), nil)
	for _, want := range []string{"10.0.0.7", "10.0.0.8", "10.0.0.9"} {
		if g := must(r.Allocate(want, Request{Addrs: anyBoth[:1]})); textOf(g) != want {
			t.Errorf("%v, want %s", g, want)
		}
	}
	wantErr(t, errOf(r.Allocate("b", Request{Addrs: anyBoth[:1]})), ipalloc.ErrFull)
	check(t, r)
}

// The sizes of the static band of ports that Kubernetes tests.
func TestBandsOfPorts(t *testing.T) {
	for _, tt := range []struct {
		first, last uint16
		static      uint64
	}{
		{30000, 32767, 86}, {30000, 30009, 0}, {30000, 30015, 0}, {30000, 30016, 16}, {30000, 30127, 16},
		{30000, 30128, 16}, {30000, 32047, 64}, {30000, 34095, 128}, {30000, 38191, 128}, {1, 65535, 128}, {65535, 65535, 0},
	} {
		p := newPortsT(t, tt.first, tt.last)
		n := uint64(tt.last-tt.first) + 1
		if s := p.Stats(); s.Static.Capacity != tt.static || s.Dynamic.Capacity != n-tt.static {
			t.Errorf("%d-%d: %+v, want %d static", tt.first, tt.last, s, tt.static)
		}
		check(t, p)
		each := must(NewRegistry(PortRange{First: tt.first, Last: tt.last, PerProtocol: true}))
		if s := each.Stats().Ports; s.Static.Capacity != 3*tt.static || s.Dynamic.Capacity != 3*(n-tt.static) {
			t.Errorf("%d-%d per protocol: %+v, want %d static of each", tt.first, tt.last, s, tt.static)
		}
	}
}

// Other sizes of the static band, and static addresses elsewhere.
func TestBandOptions(t *testing.T) {
	r := newRangeT(t, "10.0.0.0/24", StaticBand(4, pfx("10.0.0.200/29"), pfx("10.0.0.204/30"), pfx("10.0.0.250/31")))
	check(t, r)
	for a, want := range map[string]Band{"10.0.0.0": Closed, "10.0.0.1": Static, "10.0.0.4": Static, "10.0.0.5": Dynamic,
		"10.0.0.199": Dynamic, "10.0.0.200": Static, "10.0.0.207": Static, "10.0.0.208": Dynamic, "10.0.0.249": Dynamic,
		"10.0.0.250": Static, "10.0.0.252": Dynamic, "10.0.0.254": Dynamic, "10.0.0.255": Closed} {
		if got := bandOf(r, ip(a)); got != want {
			t.Errorf("%s: %v, want %v", a, got, want)
		}
	}
	if s := r.Stats(); s.Static.Capacity != 4+8+2 || s.Dynamic.Capacity != 254-14 {
		t.Errorf("%+v", s)
	}
	for _, size := range []int{0, 1, 253, 254} {
		s := newRangeT(t, "10.0.0.0/24", StaticBand(size)).Stats()
		if s.Static.Capacity != uint64(size) || s.Dynamic.Capacity != 254-uint64(size) {
			t.Errorf("%d: %+v", size, s)
		}
		p := newPortsT(t, 100, 353, StaticBand(size)).Stats()
		if p.Static.Capacity != uint64(size) || p.Dynamic.Capacity != 254-uint64(size) {
			t.Errorf("ports, %d: %+v", size, p)
		}
	}
	if s := newRangeT(t, "10.0.0.0/24", StaticBand(-7)).Stats(); s.Static.Capacity != 16 {
		t.Errorf("%+v", s)
	}
	// IPv4-mapped addresses are never handed out.
	if s := newRangeT(t, "::/80").Stats(); s.Dynamic.Capacity != 1<<48-1-256-1<<32 {
		t.Errorf("%+v", s)
	}
}

// What constructors refuse, and the name of what is wrong.
func TestConstructorsRefuse(t *testing.T) {
	zoned := netip.PrefixFrom(ip("fe80::1%eth0"), 64)
	src := rand.NewPCG(1, 2)
	now := func() time.Time { return time.Time{} }
	for name, tt := range map[string]struct {
		prefix netip.Prefix
		opts   []Option
		field  string
	}{
		"zero prefix":       {netip.Prefix{}, nil, "prefix"},
		"host bits":         {pfx("10.0.0.1/24"), nil, "prefix"},
		"host bits v6":      {pfx("fd00::1/64"), nil, "prefix"},
		"4-in-6":            {pfx("::ffff:10.0.0.0/120"), nil, "prefix"},
		"zoned":             {zoned, nil, "prefix"},
		"too long":          {netip.PrefixFrom(ip("10.0.0.0"), 33), nil, "prefix"},
		"wider than /64":    {pfx("fd00::/63"), nil, "prefix"},
		"all of IPv6":       {pfx("::/0"), nil, "prefix"},
		"static too large":  {pfx("10.0.0.0/24"), []Option{StaticBand(255)}, "StaticBand"},
		"static of nothing": {pfx("10.0.0.0/32"), []Option{StaticBand(1)}, "StaticBand"},
		"static elsewhere":  {pfx("10.0.0.0/24"), []Option{StaticBand(0, pfx("10.0.1.0/24"))}, "StaticBand"},
		"static unmasked":   {pfx("10.0.0.0/24"), []Option{StaticBand(0, pfx("10.0.0.1/25"))}, "StaticBand"},
		"too many":          {pfx("10.0.0.0/8"), []Option{StaticBand(0, slices.Repeat([]netip.Prefix{pfx("10.1.0.0/24")}, 4097)...)}, "StaticBand"},
		"no source":         {pfx("10.0.0.0/24"), []Option{Random(nil)}, "Random"},
		"two policies":      {pfx("10.0.0.0/24"), []Option{LowestFirst(), Random(src)}, "Random"},
		"no option":         {pfx("10.0.0.0/24"), []Option{nil}, "Option"},
		"no receiver":       {pfx("10.0.0.0/24"), []Option{OnChange(nil)}, "OnChange"},
		"no clock":          {pfx("10.0.0.0/24"), []Option{Clock(nil)}, "Clock"},
		"a clock":           {pfx("10.0.0.0/24"), []Option{Clock(now)}, "Clock"},
	} {
		r, err := NewRange(tt.prefix, tt.opts...)
		if e := (*ipalloc.Error)(nil); r != nil || !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != tt.field {
			t.Errorf("%s: %v, %v; want %s", name, r, err, tt.field)
		}
	}
	for name, tt := range map[string]struct {
		r     PortRange
		opts  []Option
		field string
	}{
		"port 0":           {PortRange{First: 0, Last: 10}, nil, "PortRange"},
		"empty":            {PortRange{First: 10, Last: 9}, nil, "PortRange"},
		"zero":             {PortRange{}, nil, "PortRange"},
		"static too large": {PortRange{First: 1, Last: 10}, []Option{StaticBand(11)}, "StaticBand"},
		"protocols apart":  {PortRange{First: 1, Last: 10, PerProtocol: true}, nil, "PortRange"},
		"prefixes":         {PortRange{First: 1, Last: 10}, []Option{StaticBand(0, pfx("10.0.0.0/24"))}, "StaticBand"},
		"point to point":   {PortRange{First: 1, Last: 10}, []Option{PointToPoint()}, "PointToPoint"},
		"first address":    {PortRange{First: 1, Last: 10}, []Option{FirstAddress()}, "FirstAddress"},
		"last address":     {PortRange{First: 1, Last: 10}, []Option{LastAddress()}, "LastAddress"},
		"between":          {PortRange{First: 1, Last: 10}, []Option{Between(ip("10.0.0.1"), ip("10.0.0.2"))}, "Between"},
		"a clock":          {PortRange{First: 1, Last: 10}, []Option{Clock(now)}, "Clock"},
		"no option":        {PortRange{First: 1, Last: 10}, []Option{nil}, "Option"},
	} {
		p, err := NewPorts(tt.r, tt.opts...)
		if e := (*ipalloc.Error)(nil); p != nil || !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != tt.field {
			t.Errorf("ports, %s: %v, %v; want %s", name, p, err, tt.field)
		}
	}
	for name, tt := range map[string]struct {
		r    PortRange
		opts []Option
	}{
		"ports upside down": {PortRange{First: 5, Last: 4}, nil},
		"no option":         {PortRange{}, []Option{nil}},
		"no clock":          {PortRange{}, []Option{Clock(nil)}},
		"static unmasked":   {PortRange{}, []Option{StaticBand(0, pfx("10.0.0.1/25"))}},
	} {
		if r, err := NewRegistry(tt.r, tt.opts...); r != nil || !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("registry, %s: %v, %v", name, r, err)
		}
	}
}

// Equal and nested ranges at one base are as simple as one of them.
func TestEqualRangesAreSimple(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24 10.0.0.0/24")
	wantErr(t, r.SetRange(rangeOf("inside", "10.0.0.0/26")), nil)
	if one := newRangeT(t, "10.0.0.0/24"); !one.space.Simple || r.ranges.lines[0].Bands[1].Parts() != 1 {
		t.Error("bands in pieces")
	}
}

// The static band of a run is a share of the run, not of the prefix around it. A run that reaches into the IPv4-mapped block is refused.
func TestBetweenAndTheStaticBand(t *testing.T) {
	for _, tt := range []struct {
		prefix, first, last string
		static              uint64
	}{
		{"10.0.0.0/16", "10.0.1.1", "10.0.1.200", 16},
		{"10.0.0.0/16", "10.0.1.1", "10.0.1.16", 0},
		{"10.0.0.0/16", "10.0.0.0", "10.0.255.255", 256},
		{"fd00::/64", "fd00::", "fd00::ffff:ffff:ffff:ffff", 256},
	} {
		r := must(NewRange(pfx(tt.prefix), Between(ip(tt.first), ip(tt.last))))
		if got := r.Stats().Static.Capacity; got != tt.static {
			t.Errorf("%s to %s of %s: %d static addresses, want %d", tt.first, tt.last, tt.prefix, got, tt.static)
		}
	}
	for _, b := range [][2]string{{"::1", "::ffff:a00:9"}, {"::ffff:0:1", "::1:0:0:1"}, {"::1", "::1:0:0:0"}} {
		first := netip.AddrFrom16(ip(b[0]).As16())
		_, err := NewRange(pfx("::/64"), Between(first, netip.AddrFrom16(ip(b[1]).As16())))
		wantErr(t, err, ipalloc.ErrInvalid)
	}
	if _, err := NewRange(pfx("::/64"), Between(ip("::1"), ip("::fffe:ffff:ffff"))); err != nil {
		t.Error(err)
	}
}

// The size of a static band holds for the ports of a registry too.
func TestStaticBandOfARegistrysPorts(t *testing.T) {
	for size, want := range map[int]uint64{5000: 1000, 40: 40, 0: 0, -1: 31} {
		r := must(NewRegistry(PortRange{First: 30000, Last: 30999}, StaticBand(size)))
		if ports := r.Stats().Ports; ports.Static.Capacity != want {
			t.Errorf("%d: %d static ports, want %d", size, ports.Static.Capacity, want)
		}
	}
}
