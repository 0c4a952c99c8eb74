package servicealloc

import (
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// RangeAllocation is what Kubernetes stores in etcd for a range of service addresses or
// node ports (core/v1 RangeAllocation): the range, and a big-endian number without
// leading zero bytes in which bit i says that the i-th usable member is taken.
type RangeAllocation struct {
	Range string // "10.96.0.0/16" or "30000-32767"
	Data  []byte
}

// maxExport limits the bytes of an exported number. Kubernetes itself stops at 2^20
// addresses for IPv4 and 2^16 for IPv6; this is an IPv4 /4.
const maxExport = 1 << 25

// Export returns what is taken in the form of Kubernetes.
//
// [ErrOutOfRange]: an address is taken that the number can't sensibly reach, 2^28 or
// more behind the first one. Cost: O(1) for each 64 addresses up to the highest taken.
func (r *Range) Export() (RangeAllocation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := RangeAllocation{Range: r.p.String()}
	if r.area.none {
		return out, nil
	}
	s := r.area.at(0)
	if s == nil {
		s = r.area.fresh(0)
	}
	data, ok := bigEndian(s.bits)
	if !ok || r.area.beyondFirst() {
		return RangeAllocation{}, &Error{Op: "export", Range: r.p, Err: ErrOutOfRange, Detail: "taken too far up"}
	}
	out.Data = data
	return out, nil
}

// beyondFirst reports whether anything is taken outside the first window.
func (a *area) beyondFirst() bool {
	if a.wide == nil || len(a.rows) == 0 {
		return false
	}
	top := a.rows[len(a.rows)-1]
	return top.idx > 0 && !top.bits.Empty()
}

// bigEndian returns the set ordinals as bits of a trimmed big-endian number.
func bigEndian(b *bitmap.Bitmap) ([]byte, bool) {
	n := b.Count()
	if n == 0 {
		return nil, true
	}
	top, _ := b.Select(n - 1)
	if top/8 >= maxExport {
		return nil, false
	}
	data := make([]byte, top/8+1)
	for at := uint64(0); at <= top; {
		x, _ := b.NextSet(at)
		w := wordFrom(b, x, true)
		for i := x &^ 63; w != 0; i, w = i+8, w>>8 {
			if byte(w) != 0 {
				data[len(data)-1-int(i/8)] = byte(w)
			}
		}
		at = x&^63 + 64
	}
	return data, true
}

// fromBigEndian returns a bitmap over [0, last] from a big-endian number. Leading zero
// bytes are let pass.
func fromBigEndian(data []byte, last uint64) (*bitmap.Bitmap, error) {
	b := bitmap.NewPow2(64)
	if last != ^uint64(0) {
		b = bitmap.New(last + 1)
	}
	for i, by := range data {
		low := uint64(len(data)-1-i) * 8
		for ; by != 0; by &= by - 1 {
			x := low + uint64(bits.TrailingZeros8(by))
			if x > last {
				return nil, &Error{Op: "import", Err: ErrSnapshot, Detail: "bit " + strconv.FormatUint(x, 10) + " is beyond the range"}
			}
			b.Set(x)
		}
	}
	return b, nil
}

// Import makes what a says the content of the range, in place of what is taken.
//
// [ErrSnapshot]: a is for another range, or its number has bits beyond this one; the
// range is unchanged then.
func (r *Range) Import(a RangeAllocation) error {
	p, err := parseRange(a.Range)
	if err != nil {
		return err
	}
	if p != r.p {
		return &Error{Op: "import", Range: r.p, Err: ErrSnapshot, Detail: "it is for " + p.String()}
	}
	r.mu.Lock()
	if err := r.area.load(a.Data); err != nil {
		r.mu.Unlock()
		return err
	}
	ticket := r.hook.ticket()
	var held []netip.Addr
	if ticket != 0 {
		held = r.area.list()
	}
	r.mu.Unlock()
	if ticket != 0 {
		r.hook.deliver(ticket, Change{Op: OpReplace, Addrs: held})
	}
	return nil
}

// parseRange reads the range string of a, which people may have written: host bits are
// masked off.
func parseRange(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err == nil {
		p = p.Masked()
		err = addr.Check(p)
	}
	if err != nil {
		return p, &Error{Op: "import", Name: strconv.Quote(s), Err: ErrSnapshot, Detail: "not a prefix"}
	}
	return p, nil
}

// load makes data the content of a.
func (a *area) load(data []byte) error {
	if a.none {
		_, err := fromBigEndian(data, 0)
		if err == nil && len(data) > 0 && data[len(data)-1] != 0 {
			err = &Error{Op: "import", Err: ErrSnapshot, Detail: "bit 0 is beyond the range"}
		}
		return err
	}
	s := &a.one
	if a.wide != nil {
		s = a.fresh(0)
	}
	last, _ := s.bits.Last()
	b, err := fromBigEndian(data, last)
	if err != nil {
		return err
	}
	s.bits = b
	s.recount()
	if a.wide != nil {
		a.cur, a.rows = 0, []window{{0, s}}
		for b := range a.used {
			a.used[b] = *s.used(Band(b))
		}
	}
	return nil
}

// list returns what is held, ascending.
func (a *area) list() (held []netip.Addr) {
	var ord addr.U128
	for more := true; more; {
		from, word, ok := a.held(ord)
		if !ok {
			return held
		}
		a.each(from, word, func(ip netip.Addr) bool {
			held = append(held, ip)
			return true
		})
		ord, more = a.past(from)
	}
	return held
}

// FromRangeAllocation returns a range with the content that Kubernetes stored. Host
// bits in the range string are masked off.
//
// [ErrSnapshot]: the range string is no prefix, or the number has bits beyond it. Else
// the errors of [New].
func FromRangeAllocation(a RangeAllocation, opts ...Option) (*Range, error) {
	p, err := parseRange(a.Range)
	if err != nil {
		return nil, err
	}
	r, err := New(p, opts...)
	if err != nil {
		return nil, err
	}
	if err := r.area.load(a.Data); err != nil {
		return nil, err
	}
	return r, nil
}

// Export returns the taken ports of proto in the form of Kubernetes, which keeps one
// number for all protocols. [ErrBadPort]: proto is none.
func (p *Ports) Export(proto Protocol) (RangeAllocation, error) {
	if !proto.valid() {
		return RangeAllocation{}, badProtocol("export", proto)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	data, _ := bigEndian(p.core.space[proto-1].bits)
	return RangeAllocation{Range: p.core.r.String(), Data: data}, nil
}

// Import makes what a says the content of proto, in place of what is taken. To import
// the number that Kubernetes keeps for all protocols, import it for each.
//
// [ErrSnapshot]: a is for another range, or its number has bits beyond this one.
// [ErrBadPort]: proto is none. The ports are unchanged then.
func (p *Ports) Import(proto Protocol, a RangeAllocation) error {
	if !proto.valid() {
		return badProtocol("import", proto)
	}
	if r, err := ParsePortRange(a.Range); err != nil || r != p.core.r {
		return &Error{Op: "import", Name: p.core.r.String(), Err: ErrSnapshot, Detail: "it is for " + strconv.Quote(a.Range)}
	}
	b, err := fromBigEndian(a.Data, p.core.r.size()-1)
	if err != nil {
		return err
	}
	p.mu.Lock()
	s := &p.core.space[proto-1]
	s.bits = b
	s.recount()
	ticket := p.hook.ticket()
	c := Change{Op: OpReplace}
	if ticket != 0 {
		for x := range b.All() {
			c.Ports = append(c.Ports, Port{proto, p.core.r.First + uint16(x)})
		}
	}
	p.mu.Unlock()
	if ticket != 0 {
		p.hook.deliver(ticket, c)
	}
	return nil
}

// FromPortAllocation returns ports with the content that Kubernetes stored, the same
// for each protocol. The errors are those of [NewPorts] and [Ports.Import].
func FromPortAllocation(a RangeAllocation, opts ...Option) (*Ports, error) {
	r, err := ParsePortRange(a.Range)
	if err != nil {
		return nil, err
	}
	p, err := NewPorts(r, opts...)
	if err != nil {
		return nil, err
	}
	b, err := fromBigEndian(a.Data, r.size()-1)
	if err != nil {
		return nil, err
	}
	for i := range p.core.space {
		s := &p.core.space[i]
		s.bits = b.Clone()
		s.recount()
	}
	return p, nil
}
