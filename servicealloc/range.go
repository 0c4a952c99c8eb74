package servicealloc

import (
	"iter"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Range hands out the addresses of one prefix. Make one with [New] or [Restore]; the
// zero value is not usable. All methods are safe for concurrent use.
type Range struct {
	mu   sync.Mutex
	pick picker
	area area
	hook *hook
	own  *rand.PCG // the source, if the engine made it
	set  *settings
	p    netip.Prefix
}

// Stats says how much of a range is taken. Numbers saturate at 2^64-1.
type Stats struct {
	Static, Dynamic BandStats
	// Closed counts what is held outside both bands: addresses reserved after they
	// were taken, or in ranges that drain.
	Closed uint64
}

// BandStats is the part of [Stats] for one band.
type BandStats struct {
	Capacity, Used, Free uint64
}

// New returns a range of the prefix p with nothing taken.
//
// Usable are all addresses but network and broadcast for IPv4, all but the base
// address for IPv6, of any length up to /0. A prefix without a usable address (/31 and
// /32, /128) is a range that is always full; see [PointToPoint].
//
// [ErrBadPrefix]: p is invalid, zoned or 4-in-6, or has host bits set. [ErrBadOption]:
// an option contradicts p or another one.
func New(p netip.Prefix, opts ...Option) (*Range, error) {
	c, err := collect("new", opts)
	if err != nil {
		return nil, err
	}
	return newRange(p, windowBits, c)
}

func newRange(p netip.Prefix, order uint8, c config) (*Range, error) {
	if err := addr.Check(p); err != nil {
		return nil, &Error{Op: "new", Range: p, Err: ErrBadPrefix, Detail: err.Error()}
	}
	if err := c.noPorts("new"); err != nil {
		return nil, err
	}
	first, last, ok := c.usable(p)
	if n := last.Sub(first); c.sized && c.staticSize > 0 && (!ok || n.Hi == 0 && c.staticSize-1 > n.Lo) {
		return nil, &Error{Op: "new", Range: p, Err: ErrBadOption, Detail: "static band larger than the range"}
	}
	for _, q := range append(append([]netip.Prefix(nil), c.static...), c.reserved...) {
		if !q.Overlaps(p) {
			return nil, &Error{Op: "new", Range: p, Err: ErrBadOption, Detail: q.String() + " lies outside"}
		}
	}
	v4 := p.Addr().Is4()
	zones := merge(c.within(v4, c.zonesOf(p)))
	r := &Range{set: c.shared(), p: p, hook: newHook(c.onChange)}
	r.area = *newArea(v4, order, first, last, !ok, zones)
	base := addr.FromAddr(p.Addr())
	src, own := c.source(base.Hi^uint64(p.Bits()), base.Lo)
	r.own, r.pick = own, newPicker(src)
	return r, nil
}

// Prefix returns the prefix that the range was made with.
func (r *Range) Prefix() netip.Prefix { return r.p }

// AllocateNext takes an address: from the dynamic band the next free one, coming round
// at the end of the band, from a start that is uniform over the band; the lowest free
// one with [LowestFirst]. When the dynamic band has none, it goes on in the static band
// the same way and reports spilled.
//
// [ErrFull], bare: neither band has a free address, or the dynamic one has none and
// [NeverSpill] is on. Cost: O(log n) however full the range is; no allocation.
func (r *Range) AllocateNext() (ip netip.Addr, spilled bool, err error) {
	r.mu.Lock()
	if s := &r.area.one; s.simple && !s.dynamic().full() && r.hook == nil {
		x := s.takeSimple(r.pick.next) // what pick would do
		r.pick.draw()
		r.mu.Unlock()
		return r.area.addrOne(x), false, nil
	}
	b := r.area.choose(!r.set.neverSpill)
	if b == Closed {
		r.mu.Unlock()
		return netip.Addr{}, false, ErrFull
	}
	at := r.area.pick(b, &r.pick)
	r.pick.draw()
	ticket := r.hook.ticket()
	r.mu.Unlock()
	ip = r.area.addr(at.idx, at.x)
	if ticket != 0 {
		r.hook.deliver(ticket, Change{Op: OpAllocate, Addrs: []netip.Addr{ip}})
	}
	return ip, b == Static, nil
}

// AllocateN fills dst with addresses, all or none, under one lock and as one change:
// what [Range.AllocateNext] would give if each call began where the last one ended.
// spilled says how many, at the end of dst, are from the static band.
//
// [ErrFull], bare: there are not that many free; nothing is taken and dst keeps its
// content. Cost: O(log n) for each run of free addresses; no allocation.
func (r *Range) AllocateN(dst []netip.Addr) (spilled int, err error) {
	if len(dst) == 0 {
		return 0, nil
	}
	r.mu.Lock()
	dynamic, ok := share(r.area.free(Dynamic), r.area.free(Static), len(dst), !r.set.neverSpill)
	if !ok {
		r.mu.Unlock()
		return 0, ErrFull
	}
	r.area.pickRun(Dynamic, dst[:dynamic], &r.pick)
	r.area.pickRun(Static, dst[dynamic:], &r.pick)
	r.pick.draw()
	ticket := r.hook.ticket()
	r.mu.Unlock()
	if ticket != 0 {
		r.hook.deliver(ticket, Change{Op: OpAllocate, Addrs: append([]netip.Addr(nil), dst...)})
	}
	return len(dst) - dynamic, nil
}

// share says how many of n picks come from the dynamic band, the rest being for the
// static one, and whether there is room for all.
func share(dynamic, static addr.U128, n int, spill bool) (int, bool) {
	if dynamic.Hi != 0 || dynamic.Lo >= uint64(n) {
		return n, true
	}
	k := int(dynamic.Lo)
	return k, spill && (static.Hi != 0 || static.Lo >= uint64(n-k))
}

// Allocate takes ip, of either band.
//
// [ErrOccupied]: it is taken. [ErrReserved]: it is out of circulation. [ErrOutOfRange]:
// it is not a usable address of the range. Cost: O(log n); an error allocates.
func (r *Range) Allocate(ip netip.Addr) error {
	ord, ok := r.area.locate(ip)
	switch {
	case !ok:
		return r.fail("allocate", ip, ErrOutOfRange)
	case len(r.set.reserved) > 0 && r.set.isReserved(ip):
		return r.fail("allocate", ip, ErrReserved)
	}
	r.mu.Lock()
	if s := &r.area.one; s.simple && r.hook == nil {
		ok = s.take(ord.Lo) // what the area's take would do
		r.mu.Unlock()
		if !ok {
			return r.fail("allocate", ip, ErrOccupied)
		}
		return nil
	}
	if !r.area.take(ord) {
		r.mu.Unlock()
		return r.fail("allocate", ip, ErrOccupied)
	}
	ticket := r.hook.ticket()
	r.mu.Unlock()
	if ticket != 0 {
		r.hook.deliver(ticket, Change{Op: OpAllocate, Addrs: []netip.Addr{ip}})
	}
	return nil
}

func (r *Range) fail(op string, ip netip.Addr, err error) error {
	return &Error{Op: op, Range: r.p, Addr: ip, Err: err}
}

// Release gives ip back and reports whether it was taken. A free address, or one that
// the range does not hand out, is left as it is. Cost: O(log n); no allocation.
func (r *Range) Release(ip netip.Addr) bool {
	ord, ok := r.area.locate(ip)
	if !ok {
		return false
	}
	r.mu.Lock()
	if s := &r.area.one; s.simple && r.hook == nil {
		ok = s.dropSimple(ord.Lo) // what drop would do
		r.mu.Unlock()
		return ok
	}
	if !r.area.drop(ord) {
		r.mu.Unlock()
		return false
	}
	ticket := r.hook.ticket()
	r.mu.Unlock()
	if ticket != 0 {
		r.hook.deliver(ticket, Change{Op: OpRelease, Addrs: []netip.Addr{ip}})
	}
	return true
}

// Has reports whether ip is taken. Cost: O(log n); no allocation.
func (r *Range) Has(ip netip.Addr) bool {
	ord, ok := r.area.locate(ip)
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.area.has(ord)
}

// Band returns the band of ip, [Closed] if the range does not hand it out.
func (r *Range) Band(ip netip.Addr) Band {
	ord, ok := r.area.locate(ip)
	if !ok {
		return Closed
	}
	return r.area.bandOf(ord)
}

// DryRunNext returns exactly what [Range.AllocateNext] is going to answer if nothing
// changes in between, and changes nothing.
func (r *Range) DryRunNext() (ip netip.Addr, spilled bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.area.choose(!r.set.neverSpill)
	if b == Closed {
		return netip.Addr{}, false, ErrFull
	}
	at := r.area.plan(b, &r.pick)
	return r.area.addr(at.idx, at.x), b == Static, nil
}

// DryRun returns exactly what [Range.Allocate] of ip is going to answer if nothing
// changes in between, and changes nothing.
func (r *Range) DryRun(ip netip.Addr) error {
	ord, ok := r.area.locate(ip)
	switch {
	case !ok:
		return r.fail("allocate", ip, ErrOutOfRange)
	case r.set.isReserved(ip):
		return r.fail("allocate", ip, ErrReserved)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.area.has(ord) {
		return r.fail("allocate", ip, ErrOccupied)
	}
	return nil
}

// All yields the taken addresses, ascending. No lock is held while the loop's body
// runs; what changes meanwhile ahead of the loop may or may not be seen. Cost: a lock
// and O(log n) for each 64 addresses of the prefix that have a taken one.
func (r *Range) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		var ord addr.U128
		for more := true; more; {
			r.mu.Lock()
			from, word, ok := r.area.held(ord)
			r.mu.Unlock()
			if !ok || !r.area.each(from, word, yield) {
				return
			}
			ord, more = r.area.past(from)
		}
	}
}

// each yields the addresses that word says are taken from ordinal from on.
func (a *area) each(from addr.U128, word uint64, yield func(netip.Addr) bool) bool {
	idx, x := a.index(from), a.offset(from)
	for ; word != 0; word &= word - 1 {
		if !yield(a.addr(idx, x+uint64(bits.TrailingZeros64(word)))) {
			return false
		}
	}
	return true
}

// past returns the ordinal after the word that begins at from, if there is one.
func (a *area) past(from addr.U128) (addr.U128, bool) {
	next := from.Add(addr.U128{Lo: 64})
	return next, next.Cmp(from) > 0 && next.Cmp(a.last) <= 0
}

// Stats returns the counts. Cost: O(1).
func (r *Range) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.area.stats()
}

func (a *area) stats() Stats {
	_, closed := a.count(Closed)
	return Stats{Static: a.bandStats(Static), Dynamic: a.bandStats(Dynamic), Closed: saturate(closed)}
}

func (a *area) bandStats(b Band) BandStats {
	size, used := a.count(b)
	return BandStats{saturate(size), saturate(used), saturate(size.Sub(used))}
}

func saturate(n addr.U128) uint64 {
	if n.Hi != 0 {
		return ^uint64(0)
	}
	return n.Lo
}
