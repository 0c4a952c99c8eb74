package servicealloc

import (
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/snap"
)

// Range hands out the addresses of one prefix. Make one with [NewRange]; the zero value
// is not usable. All methods are safe for concurrent use.
type Range struct {
	base
	area area
	p    netip.Prefix
	full *ipalloc.Error // nil until it is needed
}

// NewRange returns a range of the prefix p with nothing taken.
//
// All addresses are usable but network and broadcast for IPv4, all but the base address
// for IPv6. A prefix without a usable address (/31 and /32, /128) is a range that is
// always full; see [PointToPoint].
//
// It fails with [ipalloc.ErrInvalid] if p is invalid, zoned, 4-in-6, has host bits set
// or is an IPv6 prefix wider than /64, or if an option contradicts p or another one;
// and with the errors of [Restore].
func NewRange(p netip.Prefix, opts ...Option) (*Range, error) {
	c, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if why := checkPrefix(p); why != "" {
		return nil, &ipalloc.Error{Package: "servicealloc", Op: "new", Field: "prefix", Prefix: p, Reason: why, Err: ipalloc.ErrInvalid}
	}
	if err := c.noRegistry(false); err != nil {
		return nil, err
	}
	first, last, ok := c.usable(p)
	if n := last.Sub(first); c.size > 0 && (!ok || n.Hi == 0 && uint64(c.size-1) > n.Lo) {
		return nil, invalid("new", "StaticBand", "larger than the range")
	}
	for _, q := range c.static {
		if !q.Overlaps(p) {
			return nil, invalid("new", "StaticBand", q.String()+" lies outside "+p.String())
		}
	}
	r := &Range{p: p, area: areaOf(p, first, last, ok)}
	seed := addr.FromAddr(p.Addr())
	r.start(&c, seed.Hi^uint64(p.Bits()), seed.Lo)
	r.area.init(r.area.last, r.zones())
	if err := r.restore(&c, rangeMagic, r.isSame, r.read); err != nil {
		return nil, err
	}
	return r, nil
}

// fullError returns the error that reports a full range, made when it is first needed.
func (r *Range) fullError() error {
	if r.full == nil {
		r.full = &ipalloc.Error{Package: "servicealloc", Op: "allocate", Pool: r.p, Err: ipalloc.ErrFull}
	}
	return r.full
}

func (r *Range) zones() []zone {
	return r.set.finish(&r.area, r.set.zonesOf(&r.area, r.p, nil), nil)
}

// AllocateNext takes an address: from the dynamic band the next free one, coming round
// at the end of the band, from a start that is uniform over the band; the lowest free
// one with [LowestFirst]. When the dynamic band has none, it goes on in the static band
// the same way and reports spilled.
//
// It fails with [ipalloc.ErrFull] if neither band has a free address, or the dynamic
// one has none and [NeverSpill] is on. It takes O(log n) however full the range is and
// does not allocate, not even on failure.
func (r *Range) AllocateNext() (ip netip.Addr, spilled bool, err error) {
	r.mu.Lock()
	if s := &r.area.space; s.simple && s.bands[1].used != s.bands[1].size && r.changes == nil {
		x := s.takeSimple(r.pick.next) // the common case of what follows
		r.pick.draw()
		r.mu.Unlock()
		return r.area.addr(x), false, nil
	}
	x, b := r.set.peek([]*space{&r.area.space}, r.pick.next)
	if b == closed {
		err := r.fullError()
		r.mu.Unlock()
		return netip.Addr{}, false, err
	}
	r.area.take(x)
	r.pick.draw()
	ip = r.area.addr(x)
	r.done(Allocated, ip, Port{})
	return ip, b == static, nil
}

// AllocateN fills dst with addresses, all or none, under one lock and as one change:
// what [Range.AllocateNext] would give if each call began where the last one ended.
// spilled is how many, at the end of dst, are from the static band.
//
// It fails with [ipalloc.ErrFull] if fewer are free; nothing is taken and dst keeps its
// content. It takes O(log n) for each run of free addresses and does not allocate.
func (r *Range) AllocateN(dst []netip.Addr) (spilled int, err error) {
	if len(dst) == 0 {
		return 0, nil
	}
	r.mu.Lock()
	k, ok := r.area.share(uint64(len(dst)), !r.set.neverSpill)
	if !ok {
		err := r.fullError()
		r.mu.Unlock()
		return 0, err
	}
	r.area.fill(dynamic, r.pick.next, dst[:k])
	r.area.fill(static, r.pick.next, dst[k:])
	r.pick.draw()
	if r.changes != nil {
		r.changes.Add(Change{Kind: Allocated, Grant: Grant{Addrs: append([]netip.Addr(nil), dst...)}})
	}
	r.unlock()
	return len(dst) - int(k), nil
}

// fill takes an address of band b for each element of dst, in one walk from where u leads.
func (a *area) fill(b bandID, u uint64, dst []netip.Addr) {
	var buf [64]uint64 // on the stack, whatever the caller asks for
	for from := a.start(b, u); len(dst) > 0; {
		run := buf[:min(len(buf), len(dst))]
		from = a.takeRun(b, from, run)
		for i, x := range run {
			dst[i] = a.addr(x)
		}
		dst = dst[len(run):]
	}
}

// Allocate takes ip, of either band.
//
// It fails with [ipalloc.ErrOccupied] if ip is taken, and with [ipalloc.ErrOutOfRange]
// if it is not a usable address of the range. It takes O(log n); only an error
// allocates.
func (r *Range) Allocate(ip netip.Addr) error {
	x, ok := r.area.locate(ip)
	if !ok {
		return r.fail(ip, ipalloc.ErrOutOfRange)
	}
	r.mu.Lock()
	if s := &r.area.space; s.simple && r.changes == nil {
		ok = s.bits.Set(x) // the common case of what follows
		if ok {
			*s.simpleUsed(x)++
		}
		r.mu.Unlock()
		if !ok {
			return r.fail(ip, ipalloc.ErrOccupied)
		}
		return nil
	}
	if err := takeable([]*space{&r.area.space}, x, ipalloc.ErrOutOfRange); err != nil {
		r.mu.Unlock()
		return r.fail(ip, err)
	}
	r.area.take(x)
	r.done(Allocated, ip, Port{})
	return nil
}

func (r *Range) fail(ip netip.Addr, err error) error {
	return &ipalloc.Error{Package: "servicealloc", Op: "allocate", Pool: r.p, Addr: ip, Err: err}
}

// Release gives ip back and reports whether it was taken. A free address, or one that
// the range does not hand out, is left as it is. It takes O(log n) and does not
// allocate.
func (r *Range) Release(ip netip.Addr) bool {
	x, ok := r.area.locate(ip)
	if !ok {
		return false
	}
	r.mu.Lock()
	if s := &r.area.space; s.simple && r.changes == nil {
		ok = s.bits.Clear(x) // the common case of what follows
		if ok {
			*s.simpleUsed(x)--
		}
		r.mu.Unlock()
		return ok
	}
	if !r.area.drop(x) {
		r.mu.Unlock()
		return false
	}
	r.done(Released, ip, Port{})
	return true
}

// Lookup returns the band of ip, [Closed] if the range does not hand it out, and
// whether it is taken. It takes O(log n) and does not allocate.
func (r *Range) Lookup(ip netip.Addr) (b Band, taken bool) {
	x, ok := r.area.locate(ip)
	if !ok {
		return Closed, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.area.bandOf(x).name(), r.area.bits.Test(x)
}

// DryRun returns exactly what [Range.Allocate] of ip, or [Range.AllocateNext] if ip is
// the zero Addr, returns if nothing changes in between, and changes nothing.
func (r *Range) DryRun(ip netip.Addr) (will netip.Addr, spilled bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ip.IsValid() {
		x, b := r.set.peek([]*space{&r.area.space}, r.pick.next)
		if b == closed {
			return netip.Addr{}, false, r.fullError()
		}
		return r.area.addr(x), b == static, nil
	}
	x, ok := r.area.locate(ip)
	if !ok {
		return netip.Addr{}, false, r.fail(ip, ipalloc.ErrOutOfRange)
	}
	if err := takeable([]*space{&r.area.space}, x, ipalloc.ErrOutOfRange); err != nil {
		return netip.Addr{}, false, r.fail(ip, err)
	}
	return ip, false, nil
}

// All yields the taken addresses, ascending. No lock is held while the loop's body
// runs; a change ahead of the loop may or may not be seen. It takes a lock and O(log n)
// for each 64 addresses of the prefix of which one is taken.
func (r *Range) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		r.area.each(&r.mu, func(x uint64) bool { return yield(r.area.addr(x)) })
	}
}

// Stats returns the counts in O(1).
func (r *Range) Stats() Stats {
	st, dy := &r.area.bands[0], &r.area.bands[1]
	r.mu.Lock()
	a, b, c := st.used, dy.used, r.area.closed // few words under the lock: monitoring reads often
	r.mu.Unlock()
	return Stats{BandStats{st.size, a, st.size - a}, BandStats{dy.size, b, dy.size - b}, c}
}

// Check recomputes everything that the range derives, the bands and the counts, and
// returns what differs. It is for tests and for a program in doubt. It is linear in the
// memory of the range.
func (r *Range) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.area.check(r.zones()); err != nil {
		return corrupt(ipalloc.Error{Pool: r.p}, err.Error())
	}
	if r.area.closed != 0 {
		return corrupt(ipalloc.Error{Pool: r.p}, "an address is held that the range does not have")
	}
	return nil
}

const rangeMagic = "svcaddr"

// MarshalBinary returns a snapshot for [Restore]: what is taken, the options, the state
// of the random generator and the value drawn ahead, so that the restored range answers
// the next call as this one would have. It implements encoding.BinaryMarshaler.
func (r *Range) MarshalBinary() ([]byte, error) {
	return r.save(rangeMagic, func(w *snap.Writer) { w.Prefix(r.p) }, func(w *snap.Writer) { w.Marshal(r.area.bits) })
}

func (r *Range) isSame(d *snap.Reader, e *ipalloc.Error) bool {
	e.Pool, e.Prefix = r.p, d.Prefix()
	return e.Prefix == r.p
}

func (r *Range) read(d *snap.Reader) {
	r.area.readBits(d)
	if r.area.closed != 0 {
		d.Fail("an address is held that the range does not have")
	}
}

// readBits reads what is taken.
func (s *space) readBits(d *snap.Reader) {
	last, _ := s.bits.Last()
	b := new(bitmap.Bitmap)
	d.Unmarshal(b)
	if is, ok := b.Last(); d.Err() == nil && (!ok || is != last) {
		d.Fail("a set of another size")
	}
	if d.Err() == nil {
		s.bits = b
		s.recount()
	}
}
