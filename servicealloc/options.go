package servicealloc

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/servicealloc/internal/bands"
)

// An Option configures an allocator in its constructor. Its doc comment lists the
// constructors that take it; the others fail with [ipalloc.ErrInvalid].
type Option interface{ apply(*config) string }

// option returns the reason to refuse it, "" if none. name is the Field of the error.
type option struct {
	name string
	f    func(*config) string
}

func (o option) apply(c *config) string {
	why := o.f(c)
	if why != "" {
		c.field = o.name
	}
	return why
}

// config is the combined options of one call. The settings are part of a snapshot; the
// other fields are not.
type config struct {
	settings
	field    string // of the option that is wrong
	seeded   bool
	seed     [2]uint64
	onChange func(Change)
	clock    func() time.Time
	snapshot []byte
	restore  bool
}

type settings struct {
	lowest       bool
	neverSpill   bool
	pointToPoint bool
	first, last  bool          // usable in every prefix
	between      [2]netip.Addr // valid in a Range of a part of its prefix
	size         int           // of the static band; negative: the share that Kubernetes computes
	static       []netip.Prefix
}

// maxPrefixes bounds the number of prefixes in all ranges, and of prefixes in
// [StaticBand]. A snapshot with more is refused, which bounds the work it can cause.
const maxPrefixes = 1 << 12

// LowestFirst makes the engine pick the lowest free member of a band instead of the
// next one from a random start. Every constructor takes it.
func LowestFirst() Option {
	return option{"LowestFirst", func(c *config) string { c.lowest = true; return "" }}
}

// Random seeds the random starts with two values of src. The allocator does not use src
// after the constructor returns. Without it the seed is derived from the range, so the
// same calls give the same answers. If runs should differ, pass
// rand.NewPCG(rand.Uint64(), rand.Uint64()). Every constructor takes it.
func Random(src rand.Source) Option {
	return option{"Random", func(c *config) string {
		if src == nil {
			return "no source"
		}
		c.seeded, c.seed = true, [2]uint64{src.Uint64(), src.Uint64()}
		return ""
	}}
}

// NeverSpill keeps the engine out of the static band: when the dynamic band has no free
// member, an allocation fails with [ipalloc.ErrFull]. Every constructor takes it.
func NeverSpill() Option {
	return option{"NeverSpill", func(c *config) string { c.neverSpill = true; return "" }}
}

// StaticBand makes the lowest size usable members static, and also the usable addresses
// in ps, anywhere in the range. A negative size selects the share that Kubernetes
// computes; 0 selects no static band. [NewRange] and [NewPorts] refuse a size above the
// number of usable members; NewPorts also refuses ps. For a [Registry], the size holds
// for each range of addresses and for its ports, or with PerProtocol for the ports of
// each protocol. A smaller range is static as a whole.
//
// Without StaticBand, a range has the static band of Kubernetes, because an address that a
// manifest names must be free when it is created. A range without callers that name
// addresses needs no static band.
func StaticBand(size int, ps ...netip.Prefix) Option {
	ps = slices.Clone(ps)
	return option{"StaticBand", func(c *config) string {
		if len(ps) > maxPrefixes {
			return "more than 4096 prefixes"
		}
		for _, p := range ps {
			if err := addr.Check(p); err != nil {
				return p.String() + ": " + err.Error()
			}
		}
		c.size, c.static = size, ps
		return ""
	}}
}

// PointToPoint makes every address of a /31 or /32 (RFC 3021) and of a /127 or /128 (RFC
// 6164) usable. These are 2, 1, 2 and 1 addresses; without the option, 0, 0, 1 and 0.
// 0.0.0.0 and :: stay unusable, because no request can name them. [NewRange] and
// [NewRegistry] take it.
func PointToPoint() Option {
	return option{"PointToPoint", func(c *config) string { c.pointToPoint = true; return "" }}
}

// FirstAddress makes the first address of every prefix usable. 0.0.0.0 and :: stay
// unusable, because no request can name them. Use it with [LastAddress] for a prefix that
// is not a network, such as one delegated by a cloud. [NewRange] and [NewRegistry] take
// it.
func FirstAddress() Option {
	return option{"FirstAddress", func(c *config) string { c.first = true; return "" }}
}

// LastAddress makes the last address of every IPv4 prefix usable. The last address of an
// IPv6 prefix always is. [NewRange] and [NewRegistry] take it.
func LastAddress() Option {
	return option{"LastAddress", func(c *config) string { c.last = true; return "" }}
}

// Between makes exactly the addresses from first to last usable, both included, as in the
// configuration of DHCP servers. Both must be in the prefix, and the run must be outside
// ::ffff:0:0/96. The static band is a share of the run. Only [NewRange] takes it; for a
// [Registry], set the prefixes that make up the run, with [FirstAddress] and
// [LastAddress].
func Between(first, last netip.Addr) Option {
	return option{"Between", func(c *config) string {
		if !first.IsValid() || !last.IsValid() || last.Less(first) || first.IsUnspecified() {
			return fmt.Sprintf("no addresses from %v to %v", first, last)
		}
		if _, end := ends(mapped); first.Is6() && first.Compare(end.Addr6()) <= 0 && last.Compare(mapped.Addr()) >= 0 {
			return fmt.Sprintf("%v to %v reaches into %v", first, last, mapped)
		}
		c.between = [2]netip.Addr{first, last}
		return ""
	}}
}

// onlyPrefixes returns the name of an option that applies only to prefixes, "" if none is
// set.
func (s *settings) onlyPrefixes() string {
	switch {
	case s.pointToPoint:
		return "PointToPoint"
	case s.first:
		return "FirstAddress"
	case s.last:
		return "LastAddress"
	case s.between[0].IsValid():
		return "Between"
	case len(s.static) > 0:
		return "StaticBand"
	}
	return ""
}

// OnChange passes every change to f, in order. A batch is one call. The receiver runs
// without a lock held, before the method that made the change returns. It may read the
// allocator but must not modify it: a modifying call deadlocks. If f panics, that change
// is not delivered again; later changes are still delivered. Every constructor takes it.
func OnChange(f func(Change)) Option {
	return option{"OnChange", func(c *config) string {
		if f == nil {
			return "no function"
		}
		c.onChange = f
		return ""
	}}
}

// Clock replaces [time.Now] as the time source of deadlines. It is called without a lock
// held. Only [NewRegistry] takes it.
func Clock(now func() time.Time) Option {
	return option{"Clock", func(c *config) string {
		if now == nil {
			return "no function"
		}
		c.clock = now
		return ""
	}}
}

// Restore makes the constructor return the allocator whose snapshot is data. The other
// arguments must be the same as the first time; [Random] is ignored, because the snapshot
// has the state of the generator. Every constructor takes it. The constructor then fails
// with [ipalloc.ErrCorrupt] for damaged data, and with [ipalloc.ErrVersion] for a
// snapshot of a newer version. It fails with [ipalloc.ErrMismatch] for a snapshot of
// another allocator or with other options.
func Restore(data []byte) Option {
	return option{"Restore", func(c *config) string { c.restore, c.snapshot = true, data; return "" }}
}

// defaults are the settings without options.
var defaults = settings{size: -1}

// shared returns the settings, which are never modified. Most ranges share one copy,
// which keeps a range small.
func (c *config) shared() *settings {
	if s := c.settings; s.lowest || s.neverSpill || s.size >= 0 || s.onlyPrefixes() != "" {
		return &s
	}
	return &defaults
}

// collect combines opts and refuses options that contradict each other.
func collect(opts []Option) (config, error) {
	c := config{settings: settings{size: -1}}
	for _, o := range opts {
		if o == nil {
			return c, invalid("new", "Option", "nil")
		}
		if why := o.apply(&c); why != "" {
			return c, invalid("new", c.field, why)
		}
	}
	if c.seeded && c.lowest {
		return c, invalid("new", "Random", "contradicts LowestFirst")
	}
	return c, nil
}

// invalid returns an error for the argument or option of that name.
func invalid(op, field, why string) error {
	return &ipalloc.Error{Package: "servicealloc", Op: op, Field: field, Reason: why, Err: ipalloc.ErrInvalid}
}

// String returns the settings as they are in snapshots.
func (s *settings) String() string {
	text := fmt.Sprint(s.lowest, s.neverSpill, s.pointToPoint, max(s.size, -1), s.static)
	if s.first || s.last {
		text += fmt.Sprint(" ", s.first, s.last)
	}
	if s.between[0].IsValid() {
		text += fmt.Sprint(" ", s.between)
	}
	return text
}

// A picker holds the random value that the next allocation uses. It is drawn ahead, so a
// dry run can return the answer of the real call. An allocation that succeeds replaces
// it; a failed one keeps it. Lowest first is the same walk from the value 0, which is
// never replaced.
type picker struct {
	next   uint64
	lowest bool
	pcg    rand.PCG
}

func newPicker(c *config, seed1, seed2 uint64) picker {
	if c.seeded {
		seed1, seed2 = c.seed[0], c.seed[1]
	}
	p := picker{lowest: c.lowest, pcg: *rand.NewPCG(seed1, seed2)}
	p.draw()
	return p
}

func (p *picker) draw() {
	if !p.lowest {
		p.next = p.pcg.Uint64()
	}
}

// at returns the i-th of the independent values that a request uses. It is SplitMix64 of
// the drawn value.
func (p *picker) at(i uint64) uint64 {
	if p.lowest {
		return 0
	}
	x := p.next + (i+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (p *picker) code(c *wire.Coder) {
	wire.Uint(c, &p.next)
	if c.Value(&p.pcg); p.lowest && p.next != 0 {
		c.Fail("a random value where the lowest is picked")
	}
}

// scaleWide is bands.Scale for any n: u*n / 2^64.
func scaleWide(u uint64, n addr.U128) addr.U128 {
	hi, lo := bits.Mul64(u, n.Hi)
	sum, carry := bits.Add64(lo, bands.Scale(u, n.Lo), 0)
	return addr.U128{Hi: hi + carry, Lo: sum}
}
