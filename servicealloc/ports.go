package servicealloc

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/snap"
)

// Protocol is a transport protocol, written as Kubernetes writes it. The zero value
// stands for all protocols.
type Protocol string

// The protocols that a service may use.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// protocols are those that have ports, in the order of their spaces.
var protocols = [...]Protocol{TCP, UDP, SCTP}

// Port is a port number of a protocol, or of all of them.
type Port struct {
	Protocol Protocol
	Number   uint16
}

// PortRange is a closed range of port numbers.
type PortRange struct {
	First, Last uint16
	// PerProtocol numbers the ports of each protocol by itself. Without it a number is
	// taken for all protocols, whichever is asked for, as Kubernetes does.
	PerProtocol bool
}

// String returns the form that Kubernetes writes: "30000-32767".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// parsePortRange reads what String writes.
func parsePortRange(s string) (PortRange, bool) {
	lo, hi, _ := strings.Cut(s, "-")
	first, err1 := strconv.ParseUint(lo, 10, 16)
	last, err2 := strconv.ParseUint(hi, 10, 16)
	r := PortRange{First: uint16(first), Last: uint16(last)}
	return r, err1 == nil && err2 == nil && r.check() == ""
}

func (r PortRange) size() uint64 { return uint64(r.Last-r.First) + 1 }

// check returns why r is no range, "" if it is one.
func (r PortRange) check() string {
	switch {
	case r.First == 0:
		return "begins at port 0"
	case r.Last < r.First:
		return "is empty"
	}
	return ""
}

// A portSet is the ports of one range, without a lock: one space, or one for each
// protocol.
type portSet struct {
	PortRange
	set    *settings
	spaces []*space
}

func newPortSet(r PortRange, set *settings) *portSet {
	p := &portSet{PortRange: r, set: set, spaces: make([]*space, 1, len(protocols))}
	if r.PerProtocol {
		p.spaces = p.spaces[:len(protocols)]
	}
	for i := range p.spaces {
		p.spaces[i] = &space{bits: newBits(r.size() - 1)}
	}
	p.cut(nil)
	return p
}

// cut makes the bands anew with the reserved ranges closed.
func (p *portSet) cut(reserved []PortRange) {
	for _, s := range p.spaces {
		s.cut(p.zones(reserved))
	}
}

// zones returns the bands with the reserved ranges closed.
func (p *portSet) zones(reserved []PortRange) []zone {
	zones := p.set.part(nil, span{0, p.size() - 1}, p.size(), portsPerStatic, maxStaticPorts)
	for _, q := range reserved {
		if q.Last >= p.First && q.First <= p.Last {
			zones = append(zones, zone{span{uint64(max(q.First, p.First) - p.First), uint64(min(q.Last, p.Last) - p.First)}, closed})
		}
	}
	return merge(zones)
}

// of returns the spaces of a protocol, nil if there is no such protocol.
func (p *portSet) of(proto Protocol) []*space {
	if proto == "" {
		return p.spaces
	}
	for i, q := range protocols {
		if q == proto && len(p.spaces) > 0 {
			i %= len(p.spaces)
			return p.spaces[i : i+1]
		}
	}
	return nil
}

// locate returns the position and the spaces of port, none if there is an error.
func (p *portSet) locate(port Port) (x uint64, in []*space, err error) {
	if in = p.of(port.Protocol); in == nil && len(p.spaces) > 0 {
		return 0, nil, ipalloc.ErrInvalid
	}
	if port.Number < p.First || port.Number > p.Last || in == nil {
		return 0, nil, ipalloc.ErrOutOfRange
	}
	return uint64(port.Number - p.First), in, nil
}

// takeable returns the position and the spaces of port if it can be taken now.
func (p *portSet) takeable(port Port) (x uint64, in []*space, err error) {
	if x, in, err = p.locate(port); err == nil {
		err = takeable(in, x, ipalloc.ErrReserved)
	}
	return x, in, err
}

// takeable returns nil if x can be taken in all the spaces, outside if it is in no band.
func takeable(in []*space, x uint64, outside error) error {
	for _, s := range in {
		switch {
		case s.bandOf(x) == closed:
			return outside
		case s.bits.Test(x):
			return ipalloc.ErrOccupied
		}
	}
	return nil
}

// peek returns the position that u leads to, free in all the spaces, which have the same
// bands; b is closed if there is none.
func (s *settings) peek(in []*space, u uint64) (x uint64, b bandID) {
	for b := dynamic; b > closed && (b == dynamic || !s.neverSpill); b-- {
		bd := in[0].band(b)
		if bd.free() == 0 {
			continue
		}
		from := scale(u, bd.size)
		if len(in) == 1 {
			return in[0].nextFree(bd, bd.at(from)), b
		}
		for k := range bd.size { // one that is free in all of them: at most 65,535
			if x := bd.at((from + k) % bd.size); !anyHas(in, x) {
				return x, b
			}
		}
	}
	return 0, closed
}

func anyHas(in []*space, x uint64) bool {
	return slices.ContainsFunc(in, func(s *space) bool { return s.bits.Test(x) })
}

// take and drop report whether anything changed.
func take(in []*space, x uint64) (fresh bool) {
	for i := range in {
		fresh = in[i].take(x) || fresh
	}
	return fresh
}

func drop(in []*space, x uint64) (taken bool) {
	for i := range in {
		taken = in[i].drop(x) || taken
	}
	return taken
}

func (p *portSet) stats() (sum Stats) {
	for i := range p.spaces {
		sum = sum.add(p.spaces[i].stats())
	}
	return sum
}

func (s Stats) add(o Stats) Stats {
	band := func(x, y BandStats) BandStats {
		return BandStats{addSat(x.Capacity, y.Capacity), addSat(x.Used, y.Used), addSat(x.Free, y.Free)}
	}
	return Stats{band(s.Static, o.Static), band(s.Dynamic, o.Dynamic), addSat(s.Closed, o.Closed)}
}

// addSat adds up to 2^64-1.
func addSat(x, y uint64) uint64 {
	if sum, carry := bits.Add64(x, y, 0); carry == 0 {
		return sum
	}
	return ^uint64(0)
}

// Ports hands out the ports of one range. Make one with [NewPorts]; the zero value is
// not usable. All methods are safe for concurrent use.
type Ports struct {
	base
	ports *portSet
	full  *ipalloc.Error
}

// NewPorts returns the ports of r, all free.
//
// It fails with [ipalloc.ErrInvalid] if r begins at port 0 or is empty, or if an option
// contradicts r or another one; and with the errors of [Restore].
func NewPorts(r PortRange, opts ...Option) (*Ports, error) {
	c, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if err := c.noRegistry(true); err != nil {
		return nil, err
	}
	if err := r.refuse(&c); err != nil {
		return nil, err
	}
	p := &Ports{full: &ipalloc.Error{Package: "servicealloc", Op: "allocate", Name: r.String(), Err: ipalloc.ErrFull}}
	p.start(&c, uint64(r.First)<<16|uint64(r.Last), 0)
	p.ports = newPortSet(r, p.set)
	if err := p.restore(&c, portsMagic, r.isSame, p.ports.read); err != nil {
		return nil, err
	}
	return p, nil
}

// refuse returns why ports cannot be made of r.
func (r PortRange) refuse(c *config) error {
	if why := r.check(); why != "" {
		return invalid("new", "PortRange", r.String()+" "+why)
	}
	if c.size > 0 && uint64(c.size) > r.size() {
		return invalid("new", "StaticBand", "larger than the range")
	}
	return nil
}

// AllocateNext takes a port of proto, in the way of [Range.AllocateNext]. A port of all
// protocols is one that is free in each.
//
// It fails with [ipalloc.ErrFull] if no band that the engine may use has a free one, and
// with [ipalloc.ErrInvalid] if there is no such protocol. It takes O(log n), O(n) for all
// protocols of a range that numbers them apart, and does not allocate.
func (p *Ports) AllocateNext(proto Protocol) (number uint16, spilled bool, err error) {
	in := p.ports.of(proto)
	if in == nil {
		return 0, false, p.fail(Port{Protocol: proto}, ipalloc.ErrInvalid)
	}
	p.mu.Lock()
	x, b := p.set.peek(in, p.pick.next)
	if b == closed {
		p.mu.Unlock()
		return 0, false, p.full
	}
	take(in, x)
	p.pick.draw()
	number = p.ports.First + uint16(x)
	p.done(Allocated, netip.Addr{}, Port{proto, number})
	return number, b == static, nil
}

// Allocate takes the port of that number, of either band.
//
// It fails with [ipalloc.ErrOccupied] if it is taken, with [ipalloc.ErrOutOfRange] if it
// lies outside the range, and with [ipalloc.ErrInvalid] if there is no such protocol. It
// takes O(log n); only an error allocates.
func (p *Ports) Allocate(port Port) error {
	p.mu.Lock()
	x, in, err := p.ports.takeable(port)
	if err != nil {
		p.mu.Unlock()
		return p.fail(port, err)
	}
	take(in, x)
	p.done(Allocated, netip.Addr{}, port)
	return nil
}

func (p *Ports) fail(port Port, err error) error { return portError("allocate", p.ports, port, err) }

// portError returns an error about port; the reason names the protocol where it matters.
func portError(op string, set *portSet, port Port, err error) *ipalloc.Error {
	e := &ipalloc.Error{Package: "servicealloc", Op: op, Name: set.String(), Port: port.Number, Err: err}
	if err == ipalloc.ErrInvalid {
		e.Field, e.Text, e.Reason = "Protocol", string(port.Protocol), "no protocol that has ports"
	} else if set.PerProtocol {
		e.Field = string(port.Protocol)
	}
	return e
}

// Release gives port back and reports whether it was taken. A free port, or one that is
// not of the range, is left as it is. It takes O(log n) and does not allocate.
func (p *Ports) Release(port Port) bool {
	p.mu.Lock()
	x, in, err := p.ports.locate(port)
	if err != nil || !drop(in, x) {
		p.mu.Unlock()
		return false
	}
	p.done(Released, netip.Addr{}, port)
	return true
}

// Lookup returns the band of port, [Closed] if the engine does not hand it out, and
// whether it is taken, of all protocols in any.
func (p *Ports) Lookup(port Port) (b Band, taken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, in, err := p.ports.locate(port)
	if err != nil {
		return Closed, false
	}
	return in[0].bandOf(x).name(), anyHas(in, x)
}

// DryRun returns exactly what [Ports.Allocate] of port, or [Ports.AllocateNext] of its
// protocol if the number is 0, returns if nothing changes in between, and changes
// nothing.
func (p *Ports) DryRun(port Port) (number uint16, spilled bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port.Number != 0 {
		if _, _, err := p.ports.takeable(port); err != nil {
			return 0, false, p.fail(port, err)
		}
		return port.Number, false, nil
	}
	in := p.ports.of(port.Protocol)
	if in == nil {
		return 0, false, p.fail(port, ipalloc.ErrInvalid)
	}
	x, b := p.set.peek(in, p.pick.next)
	if b == closed {
		return 0, false, p.full
	}
	return p.ports.First + uint16(x), b == static, nil
}

// All yields the taken ports of proto, ascending, in the way of [Range.All]; of all
// protocols, those that are taken in TCP, then UDP, then SCTP, if they are apart.
func (p *Ports) All(proto Protocol) iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		more := true
		for in := p.ports.of(proto); len(in) > 0 && more; in = in[1:] {
			in[0].each(&p.mu, func(x uint64) bool {
				more = yield(p.ports.First + uint16(x))
				return more
			})
		}
	}
}

// Stats returns the counts in O(1); of protocols that are numbered apart, their sum.
func (p *Ports) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ports.stats()
}

// Check is [Range.Check] for ports.
func (p *Ports) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ports.check(nil)
}

func (p *portSet) check(reserved []PortRange) error {
	for i := range p.spaces {
		if err := p.spaces[i].check(p.zones(reserved)); err != nil {
			return corrupt(ipalloc.Error{Name: p.String()}, err.Error())
		}
	}
	return nil
}

const portsMagic = "svcport"

// MarshalBinary returns a snapshot for [Restore], in the way of [Range.MarshalBinary].
func (p *Ports) MarshalBinary() ([]byte, error) {
	return p.save(portsMagic, p.ports.write, func(w *snap.Writer) {
		for _, s := range p.ports.spaces {
			w.Marshal(s.bits)
		}
	})
}

// write and readPortRange are the form of a range in a snapshot.
func (r PortRange) write(w *snap.Writer) {
	w.Uvarint(uint64(r.First))
	w.Uvarint(uint64(r.Last))
	w.Bool(r.PerProtocol)
}

func readPortRange(d *snap.Reader) PortRange {
	return PortRange{uint16(d.Upto(1<<16 - 1)), uint16(d.Upto(1<<16 - 1)), d.Bool()}
}

// isSame reads the range of a snapshot and compares it.
func (r PortRange) isSame(d *snap.Reader, e *ipalloc.Error) bool {
	is := readPortRange(d)
	e.Name, e.Text = r.String(), is.String()
	return is == r
}

func (p *portSet) read(d *snap.Reader) {
	for _, s := range p.spaces {
		s.readBits(d)
	}
}
