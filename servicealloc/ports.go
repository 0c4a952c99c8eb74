package servicealloc

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Protocol is a transport protocol that has ports. The zero value is none.
type Protocol uint8

// The protocols that a service may use.
const (
	TCP Protocol = iota + 1
	UDP
	SCTP
)

const protocols = int(SCTP)

// String returns "TCP", "UDP" or "SCTP".
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return "protocol " + strconv.Itoa(int(p))
}

func (p Protocol) valid() bool { return p >= TCP && p <= SCTP }

// Port is a port number of a protocol.
type Port struct {
	Protocol Protocol
	Number   uint16
}

// String returns "30053/UDP".
func (p Port) String() string { return strconv.Itoa(int(p.Number)) + "/" + p.Protocol.String() }

// PortRange is a closed range of port numbers.
type PortRange struct{ First, Last uint16 }

// ParsePortRange parses "30000-32767". [ErrBadPort]: it is not two decimal numbers of
// 1 to 65535 in ascending order.
func ParsePortRange(s string) (PortRange, error) {
	lo, hi, _ := strings.Cut(s, "-")
	first, err1 := strconv.ParseUint(lo, 10, 16)
	last, err2 := strconv.ParseUint(hi, 10, 16)
	r := PortRange{uint16(first), uint16(last)}
	if err1 != nil || err2 != nil {
		return PortRange{}, &Error{Op: "parse", Name: strconv.Quote(s), Err: ErrBadPort, Detail: "want two ports as in 30000-32767"}
	}
	if err := r.check(); err != nil {
		return PortRange{}, &Error{Op: "parse", Name: strconv.Quote(s), Err: ErrBadPort, Detail: err.Error()}
	}
	return r, nil
}

// String returns the form that [ParsePortRange] reads.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Contains reports whether n is in the range.
func (r PortRange) Contains(n uint16) bool { return r.First <= n && n <= r.Last }

func (r PortRange) size() uint64 { return uint64(r.Last-r.First) + 1 }

func (r PortRange) check() error {
	switch {
	case r.First == 0:
		return fmt.Errorf("%v begins at port 0", r)
	case r.Last < r.First:
		return fmt.Errorf("%v is empty", r)
	}
	return nil
}

// Ports hands out the ports of one range, of each protocol for itself. Make one with
// [NewPorts] or [RestorePorts]; the zero value is not usable. All methods are safe for
// concurrent use.
type Ports struct {
	mu   sync.Mutex
	core *portCore
	hook *hook
}

// portCore is Ports without the lock.
type portCore struct {
	r     PortRange
	set   settings
	space [protocols]space
	pick  [protocols]picker
	own   [protocols]*rand.PCG // the sources, if the engine made them
}

// NewPorts returns the ports of r, all free.
//
// [ErrBadPort]: r begins at port 0 or is empty. [ErrBadOption]: an option contradicts r
// or another one.
func NewPorts(r PortRange, opts ...Option) (*Ports, error) {
	c, err := collect("new", opts)
	if err != nil {
		return nil, err
	}
	if err := c.noAddrs("new"); err != nil {
		return nil, err
	}
	core, err := newPortCore(r, c)
	if err != nil {
		return nil, err
	}
	return &Ports{core: core, hook: newHook(c.onChange)}, nil
}

func newPortCore(r PortRange, c config) (*portCore, error) {
	if err := r.check(); err != nil {
		return nil, &Error{Op: "new", Err: ErrBadPort, Detail: err.Error()}
	}
	bad := func(detail string) error {
		return &Error{Op: "new", Name: r.String(), Err: ErrBadOption, Detail: detail}
	}
	n := staticPorts(r.size())
	if c.sized {
		if n = c.staticSize; n > r.size() {
			return nil, bad("static band larger than the range")
		}
	}
	zones := []zone{{addr.U128{}, addr.U128{Lo: r.size() - 1}, Dynamic}}
	if n > 0 {
		zones = append(zones, zone{addr.U128{}, addr.U128{Lo: n - 1}, Static})
	}
	for i, q := range append(append([]PortRange(nil), c.staticPorts...), c.closedPorts...) {
		if q.First < r.First || q.Last > r.Last {
			return nil, bad(q.String() + " lies outside")
		}
		z := zone{addr.U128{Lo: uint64(q.First - r.First)}, addr.U128{Lo: uint64(q.Last - r.First)}, Static}
		if i >= len(c.staticPorts) {
			z.band = Closed
		}
		zones = append(zones, z)
	}
	zones = merge(zones)
	p := &portCore{r: r, set: c.settings}
	for i := range p.space {
		p.space[i].init(r.size()-1, zones, addr.U128{})
		src, own := c.source(uint64(r.First)<<16|uint64(r.Last), uint64(i))
		p.own[i], p.pick[i] = own, newPicker(src)
	}
	return p, nil
}

// Range returns the range that the ports were made with.
func (p *Ports) Range() PortRange { return p.core.r }

// AllocateNext takes a port of proto, in the way of [Range.AllocateNext].
//
// [ErrFull], bare: no band that the engine may use has a free one. [ErrBadPort]: proto
// is none. Cost: O(log n); no allocation.
func (p *Ports) AllocateNext(proto Protocol) (number uint16, spilled bool, err error) {
	if !proto.valid() {
		return 0, false, badProtocol("allocate", proto)
	}
	p.mu.Lock()
	number, spilled, ok := p.core.next(proto)
	if !ok {
		p.mu.Unlock()
		return 0, false, ErrFull
	}
	p.unlock(OpAllocate, Port{proto, number})
	return number, spilled, nil
}

// unlock ends a change of one port.
func (p *Ports) unlock(op Op, port Port) {
	ticket := p.hook.ticket()
	p.mu.Unlock()
	if ticket != 0 {
		p.hook.deliver(ticket, Change{Op: op, Ports: []Port{port}})
	}
}

// next takes a port and draws for the one after it.
func (p *portCore) next(proto Protocol) (number uint16, spilled, ok bool) {
	s, pick := &p.space[proto-1], &p.pick[proto-1]
	b := s.choose(!p.set.neverSpill)
	if b == Closed {
		return 0, false, false
	}
	x := s.takeNext(b, pick.next)
	pick.draw()
	return p.r.First + uint16(x), b == Static, true
}

// choose returns the band that the next pick comes from, Closed if there is none.
func (s *space) choose(spill bool) Band {
	switch {
	case !s.band(Dynamic).full():
		return Dynamic
	case spill && !s.band(Static).full():
		return Static
	}
	return Closed
}

// AllocateN fills dst with ports of proto, all or none, in the way of
// [Range.AllocateN].
func (p *Ports) AllocateN(proto Protocol, dst []uint16) (spilled int, err error) {
	if !proto.valid() {
		return 0, badProtocol("allocate", proto)
	}
	if len(dst) == 0 {
		return 0, nil
	}
	p.mu.Lock()
	spilled, ok := p.core.fill(proto, dst)
	if !ok {
		p.mu.Unlock()
		return 0, ErrFull
	}
	p.core.pick[proto-1].draw()
	ticket := p.hook.ticket()
	p.mu.Unlock()
	if ticket != 0 {
		c := Change{Op: OpAllocate}
		for _, n := range dst {
			c.Ports = append(c.Ports, Port{proto, n})
		}
		p.hook.deliver(ticket, c)
	}
	return spilled, nil
}

// fill takes len(dst) ports; the random value it uses is for the caller to replace.
func (p *portCore) fill(proto Protocol, dst []uint16) (spilled int, ok bool) {
	s, pick := &p.space[proto-1], &p.pick[proto-1]
	dynamic, ok := share(s.band(Dynamic).free(), s.band(Static).free(), len(dst), !p.set.neverSpill)
	if !ok {
		return 0, false
	}
	var buf [64]uint64
	for _, part := range []struct {
		b   Band
		dst []uint16
	}{{Dynamic, dst[:dynamic]}, {Static, dst[dynamic:]}} {
		if len(part.dst) == 0 {
			continue
		}
		from := s.band(part.b).at(scale(pick.next, s.band(part.b).size))
		for done := 0; done < len(part.dst); {
			run := buf[:min(len(buf), len(part.dst)-done)]
			s.takeRun(part.b, from, run)
			for i, x := range run {
				part.dst[done+i] = p.r.First + uint16(x)
			}
			done += len(run)
			from = run[len(run)-1] + 1
		}
	}
	return len(dst) - dynamic, true
}

// Allocate takes the port of that number, of either band.
//
// [ErrOccupied]: it is taken. [ErrReserved]: it is out of circulation. [ErrOutOfRange]:
// it lies outside the range. [ErrBadPort]: its protocol is none. Cost: O(log n); an
// error allocates.
func (p *Ports) Allocate(port Port) error {
	p.mu.Lock()
	x, err := p.core.takeable(port)
	if err != nil {
		p.mu.Unlock()
		return p.core.fail("allocate", port, err)
	}
	p.core.space[port.Protocol-1].take(x)
	p.unlock(OpAllocate, port)
	return nil
}

// locate returns the position of port.
func (p *portCore) locate(port Port) (*space, uint64, error) {
	switch {
	case !port.Protocol.valid():
		return nil, 0, ErrBadPort
	case !p.r.Contains(port.Number):
		return nil, 0, ErrOutOfRange
	}
	return &p.space[port.Protocol-1], uint64(port.Number - p.r.First), nil
}

// takeable returns the position of port if it may be taken now.
func (p *portCore) takeable(port Port) (uint64, error) {
	s, x, err := p.locate(port)
	switch {
	case err != nil:
		return 0, err
	case s.bandOf(x) == Closed:
		return 0, ErrReserved
	case s.bits.Test(x):
		return 0, ErrOccupied
	}
	return x, nil
}

func (p *portCore) fail(op string, port Port, err error) error {
	return &Error{Op: op, Name: p.r.String(), Port: port, Err: err}
}

func badProtocol(op string, proto Protocol) error {
	return &Error{Op: op, Err: ErrBadPort, Detail: proto.String()}
}

// Release gives port back and reports whether it was taken. A free port, or one that
// is not of the range, is left as it is. Cost: O(log n); no allocation.
func (p *Ports) Release(port Port) bool {
	p.mu.Lock()
	if !p.core.drop(port) {
		p.mu.Unlock()
		return false
	}
	p.unlock(OpRelease, port)
	return true
}

func (p *portCore) drop(port Port) bool {
	s, x, err := p.locate(port)
	return err == nil && s.drop(x)
}

// Has reports whether port is taken. Cost: O(log n); no allocation.
func (p *Ports) Has(port Port) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, x, err := p.core.locate(port)
	return err == nil && s.bits.Test(x)
}

// Band returns the band of port, [Closed] if the engine does not hand it out.
func (p *Ports) Band(port Port) Band {
	s, x, err := p.core.locate(port)
	if err != nil {
		return Closed
	}
	return s.bandOf(x)
}

// DryRunNext returns exactly what [Ports.AllocateNext] is going to answer if nothing
// changes in between, and changes nothing.
func (p *Ports) DryRunNext(proto Protocol) (number uint16, spilled bool, err error) {
	if !proto.valid() {
		return 0, false, badProtocol("allocate", proto)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.core.space[proto-1]
	b := s.choose(!p.core.set.neverSpill)
	if b == Closed {
		return 0, false, ErrFull
	}
	return p.core.r.First + uint16(s.peek(b, p.core.pick[proto-1].next)), b == Static, nil
}

// DryRun returns exactly what [Ports.Allocate] of port is going to answer if nothing
// changes in between, and changes nothing.
func (p *Ports) DryRun(port Port) error {
	p.mu.Lock()
	_, err := p.core.takeable(port)
	p.mu.Unlock()
	if err != nil {
		return p.core.fail("allocate", port, err)
	}
	return nil
}

// All yields the taken ports of proto, ascending, in the way of [Range.All].
func (p *Ports) All(proto Protocol) iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		if !proto.valid() {
			return
		}
		s, first := &p.core.space[proto-1], p.core.r.First
		for x := uint64(0); x < p.core.r.size(); x = x&^63 + 64 {
			p.mu.Lock()
			from, ok := s.bits.NextSet(x)
			word := wordFrom(s.bits, from, ok)
			p.mu.Unlock()
			for x = from; word != 0; word &= word - 1 {
				if !yield(first + uint16(from&^63) + uint16(bits.TrailingZeros64(word))) {
					return
				}
			}
			if !ok {
				return
			}
		}
	}
}

// Stats returns the counts of proto, zero if it is none. Cost: O(1).
func (p *Ports) Stats(proto Protocol) Stats {
	if !proto.valid() {
		return Stats{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.space[proto-1].stats()
}

func (s *space) stats() Stats {
	st, dy := s.band(Static), s.band(Dynamic)
	return Stats{
		Static:  BandStats{saturate(st.size), saturate(st.used), saturate(st.free())},
		Dynamic: BandStats{saturate(dy.size), saturate(dy.used), saturate(dy.free())},
		Closed:  saturate(s.closed),
	}
}
