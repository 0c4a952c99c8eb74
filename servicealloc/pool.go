package servicealloc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/servicealloc/internal/bands"
)

// Range allocates the addresses of one prefix. Make a Range with [NewRange].
type Range = Pool[netip.Addr]

// Ports allocates the numbers of one range of ports. Make a Ports with [NewPorts].
type Ports = Pool[uint16]

// Pool allocates the members of one range: addresses if it was made by [NewRange], port
// numbers if it was made by [NewPorts]. The zero value is not usable. All methods are
// safe for concurrent use.
type Pool[T netip.Addr | uint16] struct {
	base
	space bands.Space
	codec codec[T]
	full  *ipalloc.Error // nil until it is needed
}

// A codec converts between the members of a pool and their positions in its space.
type codec[T any] interface {
	locate(member T) (x uint64, ok bool)
	at(x uint64) T
	grant(members ...T) Grant
	problem(member T, err error) *ipalloc.Error
	whole() (first, last subject, entry RangeInfo) // between which the positions lie
	String() string                                // of the range
}

// NewRange returns a range of the prefix p with nothing taken.
//
// In an IPv4 prefix all addresses are usable except network and broadcast, in an IPv6
// prefix all except the base address; [FirstAddress], [LastAddress] and [Between] change
// that. A prefix without a usable address (/31 and /32, /128) is a range that is always
// full; see [PointToPoint].
//
// It fails with [ipalloc.ErrInvalid] if p is invalid, zoned, 4-in-6, has host bits set or
// is an IPv6 prefix wider than /64. It also fails with ErrInvalid if an option
// contradicts p or another option, and with the errors of [Restore].
func NewRange(p netip.Prefix, opts ...Option) (*Range, error) {
	c, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if why := checkPrefix(p); why != "" {
		return nil, &ipalloc.Error{Package: "servicealloc", Op: "new", Field: "prefix", Prefix: p, Reason: why, Err: ipalloc.ErrInvalid}
	}
	for _, q := range c.static {
		if !q.Overlaps(p) {
			return nil, invalid("new", "StaticBand", q.String()+" lies outside "+p.String())
		}
	}
	if b := c.between; b[0].IsValid() && !(p.Contains(b[0]) && p.Contains(b[1])) {
		return nil, invalid("new", "Between", fmt.Sprintf("%v to %v lies outside %v", b[0], b[1], p))
	}
	sp, ok := c.usable(p)
	if !ok {
		sp.Hi = sp.Lo
	}
	a := &addrs{p: p, v4: p.Addr().Is4(), hi: addr.FromAddr(p.Addr()).Hi, first: sp.Lo, last: sp.Hi - sp.Lo, none: !ok}
	return newPool[netip.Addr](a, &c, rangeMagic, a.hi^uint64(p.Bits()), addr.FromAddr(p.Addr()).Lo)
}

// NewPorts returns the ports of r, all free. A [Pool] does not distinguish protocols: a
// number is taken for all of them, as in Kubernetes.
//
// It fails with [ipalloc.ErrInvalid] if r begins at port 0, is empty, or has PerProtocol
// set, and if an option contradicts r or another option. It also fails with the errors of
// [Restore].
func NewPorts(r PortRange, opts ...Option) (*Ports, error) {
	c, err := collect(opts)
	if err != nil {
		return nil, err
	}
	why := r.check()
	switch {
	case why != "":
		return nil, invalid("new", "PortRange", r.String()+" "+why)
	case r.PerProtocol:
		return nil, invalid("new", "PortRange", "numbers the protocols apart; make one for each")
	case c.onlyPrefixes() != "":
		return nil, invalid("new", c.onlyPrefixes(), "ports have no prefix")
	}
	return newPool[uint16](numbers{r}, &c, portsMagic, uint64(r.First)<<16|uint64(r.Last), 0)
}

const (
	rangeMagic = "svcaddr"
	portsMagic = "svcport"
)

func newPool[T netip.Addr | uint16](codec codec[T], c *config, magic string, seed1, seed2 uint64) (*Pool[T], error) {
	if c.clock != nil {
		return nil, invalid("new", "Clock", "only a registry has a clock")
	}
	p := &Pool[T]{codec: codec}
	p.start(c, magic, seed1, seed2)
	first, last, _ := codec.whole()
	p.space = bands.New(last.x-first.x, p.zones())
	if c.size > 0 && uint64(c.size) > p.space.Bands[0].Size+p.space.Bands[1].Size {
		return nil, invalid("new", "StaticBand", "larger than the range")
	}
	if err := p.restore(c, codec.String(), p.read); err != nil {
		return nil, err
	}
	return p, nil
}

// zones returns the bands by position.
func (p *Pool[T]) zones() []zone {
	first, _, entry := p.codec.whole()
	zones := p.set.zones(first.lineKey, &entry)
	for i := range zones {
		zones[i].Lo -= first.x
		zones[i].Hi -= first.x
	}
	return zones
}

// addrs is the codec of a prefix.
type addrs struct {
	p        netip.Prefix
	v4, none bool   // none: there is no usable address
	hi       uint64 // the upper half of all addresses
	first    uint64 // the lower half of the first usable one
	last     uint64 // the highest position
}

func (a *addrs) locate(ip netip.Addr) (uint64, bool) {
	if a.v4 {
		if !ip.Is4() {
			return 0, false
		}
		b := ip.As4()
		x := uint64(binary.BigEndian.Uint32(b[:])) - a.first // an address below first wraps to a huge position
		return x, x <= a.last && !a.none
	}
	// AppendBinary is faster than As16, which writes its array in halves and then copies
	// it whole, so the processor cannot forward it from its store buffer. It gives 4
	// bytes for IPv4, 0 for no address, and more than 16 for a zone.
	var buf [32]byte
	b, _ := ip.AppendBinary(buf[:0])
	if len(b) != 16 || ip.Is4In6() || binary.BigEndian.Uint64(b) != a.hi {
		return 0, false
	}
	x := binary.BigEndian.Uint64(b[8:]) - a.first
	return x, x <= a.last && !a.none
}

func (a *addrs) at(x uint64) netip.Addr {
	if a.v4 {
		return addr.U128{Lo: a.first + x}.Addr4()
	}
	return addr.U128{Hi: a.hi, Lo: a.first + x}.Addr6()
}

func (a *addrs) grant(ips ...netip.Addr) Grant { return Grant{Addrs: ips} }

func (a *addrs) problem(ip netip.Addr, err error) *ipalloc.Error {
	return &ipalloc.Error{Package: "servicealloc", Op: "allocate", Pool: a.p, Addr: ip, Err: err}
}

func (a *addrs) whole() (first, last subject, _ RangeInfo) {
	k := subjectOf(a.p.Addr()).lineKey
	return subject{k, a.first}, subject{k, a.first + a.last}, RangeInfo{Prefixes: []netip.Prefix{a.p}}
}

func (a *addrs) String() string { return a.p.String() }

// numbers is the codec of a range of ports.
type numbers struct{ PortRange }

func (r numbers) locate(n uint16) (uint64, bool) {
	return uint64(n) - uint64(r.First), n >= r.First && n <= r.Last
}

func (r numbers) at(x uint64) uint16 { return r.First + uint16(x) }

func (r numbers) grant(numbers ...uint16) (g Grant) {
	for _, n := range numbers {
		g.Ports = append(g.Ports, Port{Number: n})
	}
	return g
}

func (r numbers) problem(n uint16, err error) *ipalloc.Error {
	return &ipalloc.Error{Package: "servicealloc", Op: "allocate", Name: r.String(), Port: n, Err: err}
}

func (r numbers) whole() (first, last subject, _ RangeInfo) {
	k := lineKey{kind: anyPort}
	return subject{k, uint64(r.First)}, subject{k, uint64(r.Last)}, RangeInfo{Ports: []PortRange{r.PortRange}}
}

// fullError returns the error of a full pool; the first call makes it.
func (p *Pool[T]) fullError() error {
	if p.full == nil {
		var none T
		p.full = p.codec.problem(none, ipalloc.ErrFull)
	}
	return p.full
}

// changed ends a call that took or released a member.
func (p *Pool[T]) changed(op Op, member T) {
	if p.changes != nil {
		p.changes.Add(Change{Op: op, Grant: p.codec.grant(member)})
	}
	p.unlock()
}

// plain reports whether a call may handle the common case inline.
func (p *Pool[T]) plain() bool { return p.space.Simple && p.changes == nil }

// AllocateNext takes the next free member of the dynamic band at or after a start that is
// uniform over the band, wrapping at its end. With [LowestFirst] it takes the lowest free
// member. If the dynamic band has none, it takes a member of the static band in the same
// way and reports spilled.
//
// It fails with [ipalloc.ErrFull] if neither band has a free member, or if the dynamic
// band has none and [NeverSpill] is on. It takes O(log n) however full the pool is and
// does not allocate, not even on failure.
func (p *Pool[T]) AllocateNext() (member T, spilled bool, err error) {
	p.mu.Lock()
	if b := &p.space.Bands[1]; p.plain() && b.Used != b.Size { // the common case of what follows
		b.Used++
		x, _ := p.space.Bits.SetNextClear(p.space.Split + bands.Scale(p.pick.next, b.Size))
		if x < p.space.Split { // the walk came round and ended in the static band
			x = p.space.ComeRound(x)
		}
		if !p.pick.lowest {
			p.pick.next = p.pick.pcg.Uint64()
		}
		p.mu.Unlock()
		return p.codec.at(x), false, nil
	}
	x, b := p.space.Next(p.pick.next, p.set.neverSpill)
	if b == closed {
		err := p.fullError()
		p.mu.Unlock()
		return member, false, err
	}
	p.space.Take(x)
	p.pick.draw()
	member = p.codec.at(x)
	p.changed(OpAllocate, member)
	return member, b == static, nil
}

// AllocateN fills dst with members, all or none, under one lock and as one change. They
// are the members that [Pool.AllocateNext] would return if each call began at the end of
// the last one. The result spilled is the number of members, at the end of dst, from the
// static band.
//
// It fails with [ipalloc.ErrFull] if fewer are free; nothing is taken and dst keeps its
// content. It takes O(log n) for each run of free members and does not allocate.
func (p *Pool[T]) AllocateN(dst []T) (spilled int, err error) {
	if len(dst) == 0 {
		return 0, nil
	}
	p.mu.Lock()
	k, ok := p.space.Share(uint64(len(dst)), !p.set.neverSpill)
	if !ok {
		err := p.fullError()
		p.mu.Unlock()
		return 0, err
	}
	p.fill(dynamic, dst[:k])
	p.fill(static, dst[k:])
	p.pick.draw()
	if p.changes != nil {
		p.changes.Add(Change{Op: OpAllocate, Grant: p.codec.grant(slices.Clone(dst)...)})
	}
	p.unlock()
	return len(dst) - int(k), nil
}

// fill takes a member of band b for each element of dst, in one walk.
func (p *Pool[T]) fill(b bands.ID, dst []T) {
	if len(dst) == 0 {
		return
	}
	var buf [64]uint64 // on the stack, whatever the caller asks for
	bd := p.space.Band(b)
	for from := bd.At(bands.Scale(p.pick.next, bd.Size)); len(dst) > 0; {
		run := buf[:min(len(buf), len(dst))]
		from = p.space.TakeRun(b, from, run)
		for i, x := range run {
			dst[i] = p.codec.at(x)
		}
		dst = dst[len(run):]
	}
}

// Allocate takes member, of either band.
//
// It fails with [ipalloc.ErrOccupied] if it is taken, and with [ipalloc.ErrOutOfRange]
// if it is not a usable member of the range. It takes O(log n); only an error
// allocates.
func (p *Pool[T]) Allocate(member T) error {
	x, ok := p.codec.locate(member)
	if !ok {
		return p.codec.problem(member, ipalloc.ErrOutOfRange)
	}
	p.mu.Lock()
	if p.plain() {
		ok = p.space.Bits.Set(x) // the common case of what follows
		if ok {
			*p.space.SimpleUsed(x)++
		}
		p.mu.Unlock()
		if !ok {
			return p.codec.problem(member, ipalloc.ErrOccupied)
		}
		return nil
	}
	if err := p.space.Takeable(x, ipalloc.ErrOutOfRange); err != nil {
		p.mu.Unlock()
		return p.codec.problem(member, err)
	}
	p.space.Take(x)
	p.changed(OpAllocate, member)
	return nil
}

// Release releases member and reports whether it was taken. It ignores a member that is
// free or not in the pool. It takes O(log n) and does not allocate.
func (p *Pool[T]) Release(member T) bool {
	x, ok := p.codec.locate(member)
	if !ok {
		return false
	}
	p.mu.Lock()
	if p.plain() {
		ok = p.space.Bits.Clear(x) // the common case of what follows
		if ok {
			*p.space.SimpleUsed(x)--
		}
		p.mu.Unlock()
		return ok
	}
	if !p.space.Drop(x) {
		p.mu.Unlock()
		return false
	}
	p.changed(OpRelease, member)
	return true
}

// Lookup returns the band of member, [Closed] if the pool does not allocate it, and
// whether it is taken. It takes O(log n) and does not allocate.
func (p *Pool[T]) Lookup(member T) (b Band, taken bool) {
	x, ok := p.codec.locate(member)
	if !ok {
		return Closed, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return Band(p.space.BandOf(x).String()), p.space.Bits.Test(x)
}

// DryRun returns exactly what [Pool.Allocate] of member would return now, or
// [Pool.AllocateNext] if member is the zero value. It changes nothing.
func (p *Pool[T]) DryRun(member T) (will T, spilled bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if member == will {
		x, b := p.space.Next(p.pick.next, p.set.neverSpill)
		if b == closed {
			return will, false, p.fullError()
		}
		return p.codec.at(x), b == static, nil
	}
	x, ok := p.codec.locate(member)
	err = ipalloc.ErrOutOfRange
	if ok {
		err = p.space.Takeable(x, err)
	}
	if err != nil {
		return will, false, p.codec.problem(member, err)
	}
	return member, false, nil
}

// All yields the taken members, ascending. It does not hold the lock while the body of
// the loop runs; a change ahead of the loop may or may not be seen. For each group of 64
// members that has a taken one, it takes the lock once and O(log n).
func (p *Pool[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		p.space.Each(&p.mu, func(x uint64) bool { return yield(p.codec.at(x)) })
	}
}

// Free returns how many members of both bands are free, in O(1).
func (p *Pool[T]) Free() uint64 {
	p.mu.Lock()
	n := p.space.Bands[0].Free() + p.space.Bands[1].Free()
	p.mu.Unlock()
	return n
}

// Stats returns the counts in O(1).
func (p *Pool[T]) Stats() Stats {
	st, dy := &p.space.Bands[0], &p.space.Bands[1]
	p.mu.Lock()
	a, b, c := st.Used, dy.Used, p.space.Closed // few words under the lock: monitoring reads often
	p.mu.Unlock()
	return Stats{BandStats{st.Size, a, st.Size - a}, BandStats{dy.Size, b, dy.Size - b}, c}
}

// String returns the range and its counts: "10.96.0.0/24: 2 static and 7 dynamic used, 245
// free".
func (p *Pool[T]) String() string {
	st := p.Stats()
	return fmt.Sprintf("%s: %d static and %d dynamic used, %d free", p.codec.String(), st.Static.Used, st.Dynamic.Used, st.Static.Free+st.Dynamic.Free)
}

// Check recomputes everything that the pool derives, the bands and the counts, and
// returns the differences. It is for tests and diagnosis. It is linear in the memory of
// the pool.
func (p *Pool[T]) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.space.Check(p.zones())
	if err == nil && p.space.Closed != 0 {
		err = errOutside
	}
	if err != nil {
		var none T
		e := p.codec.problem(none, ipalloc.ErrCorrupt)
		e.Op, e.Reason = "check", err.Error()
		return e
	}
	return nil
}

var errOutside = errors.New("a member is held that the range does not have")

// MarshalBinary returns a snapshot for [Restore]: the taken members, the options, the
// state of the random generator and the value drawn ahead. The restored pool therefore
// answers the next call as this one would have. It implements encoding.BinaryMarshaler.
func (p *Pool[T]) MarshalBinary() ([]byte, error) {
	return p.save(p.codec.String(), func(w *wire.Coder) { w.Value(p.space.Bits) })
}

func (p *Pool[T]) read(d *wire.Coder) {
	p.space.Read(d)
	if p.space.Closed != 0 {
		d.Fail("%v", errOutside)
	}
}
