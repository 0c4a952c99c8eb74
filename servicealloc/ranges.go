package servicealloc

import (
	"iter"
	"net/netip"
	"sync"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Family is an address family. The zero value is none.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "no family"
}

func familyOf(ip netip.Addr) Family {
	if ip.Is4() {
		return IPv4
	}
	return IPv6
}

// RangeInfo describes one of several ranges.
type RangeInfo struct {
	Name     string
	Prefixes []netip.Prefix
	Draining bool
}

// Ranges hands out the addresses of several ranges at once, of both families; they may
// overlap, nest and repeat each other. Make one with [NewRanges] or [RestoreRanges]; the
// zero value is not usable. All methods are safe for concurrent use.
//
// An address is usable if any range that is not draining has it usable, so that
// 10.0.0.255 may be asked for while 10.0.0.0/23 is there beside 10.0.0.0/24. It is
// static if it is static in any of them. It is held once, whatever the ranges are.
type Ranges struct {
	mu   sync.Mutex
	core *rangeCore
	hook *hook
}

// NewRanges returns an allocator without ranges; [Ranges.Add] adds them.
//
// [ErrBadOption], [ErrBadPrefix]: an option is impossible.
func NewRanges(opts ...Option) (*Ranges, error) {
	c, err := collect("new", opts)
	if err != nil {
		return nil, err
	}
	if err := c.noPorts("new"); err != nil {
		return nil, err
	}
	return &Ranges{core: newRangeCore(c), hook: newHook(c.onChange)}, nil
}

// Add adds a range of one or more prefixes, usually one of each family. Addresses that
// are held in it already, because another range has them, stay held.
//
// [ErrExists]: the name is in use. [ErrBadPrefix]: a prefix is invalid, zoned, 4-in-6
// or unmasked, or there is none. [ErrLimit]: there would be more than 4,096 prefixes. Cost: linear in the ranges, and in what is held below
// a prefix that now lies inside a larger one.
func (r *Ranges) Add(name string, ps ...netip.Prefix) error {
	r.mu.Lock()
	if err := r.core.add(name, ps); err != nil {
		r.mu.Unlock()
		return err
	}
	r.unlock(Change{Op: OpAddRange, Name: name, Prefixes: append([]netip.Prefix(nil), ps...)})
	return nil
}

// Drain ends allocation from a range; what is held in it stays held, and an address
// that another range has usable stays usable, as all do while another range has the
// same prefix. Drain of a range that drains changes nothing.
//
// [ErrNoRange]: there is none of that name.
func (r *Ranges) Drain(name string) error {
	r.mu.Lock()
	changed, err := r.core.drain(name)
	if err != nil || !changed {
		r.mu.Unlock()
		return err
	}
	r.unlock(Change{Op: OpDrainRange, Name: name})
	return nil
}

// Remove removes a range, draining or not.
//
// [ErrNoRange]: there is none of that name. [ErrInUse]: addresses are held that no other
// range has usable; [Ranges.Remaining] lists them, and the error names the first.
func (r *Ranges) Remove(name string) error {
	r.mu.Lock()
	if err := r.core.remove(name); err != nil {
		r.mu.Unlock()
		return err
	}
	r.unlock(Change{Op: OpRemoveRange, Name: name})
	return nil
}

// unlock ends a change.
func (r *Ranges) unlock(c Change) {
	ticket := r.hook.ticket()
	r.mu.Unlock()
	if ticket != 0 {
		r.hook.deliver(ticket, c)
	}
}

// Remaining returns the addresses that stand in the way of removing the range,
// ascending: those held that no other range has usable.
func (r *Ranges) Remaining(name string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.core.entry(name)
	if e == nil {
		return nil, &Error{Op: "list remaining of", Name: name, Err: ErrNoRange}
	}
	var out []netip.Addr
	for ip := range r.core.dependents(e) {
		out = append(out, ip)
	}
	return out, nil
}

// List returns the ranges in the order of their names.
func (r *Ranges) List() []RangeInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.list(func(RangeInfo) bool { return true })
}

// Overlapping returns the ranges that share an address with p, by name.
func (r *Ranges) Overlapping(p netip.Prefix) []RangeInfo {
	return r.where(func(q netip.Prefix) bool { return q.Overlaps(p) })
}

// Covering returns the ranges that have all of p in one of their prefixes, by name.
func (r *Ranges) Covering(p netip.Prefix) []RangeInfo {
	return r.where(func(q netip.Prefix) bool { return q.Overlaps(p) && q.Bits() <= p.Bits() })
}

// Serving returns the ranges that have ip usable, draining ones included, by name.
func (r *Ranges) Serving(ip netip.Addr) []RangeInfo {
	return r.where(func(q netip.Prefix) bool { return r.core.set.has(q, ip) })
}

func (r *Ranges) where(match func(netip.Prefix) bool) []RangeInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.list(func(e RangeInfo) bool {
		for _, q := range e.Prefixes {
			if match(q) {
				return true
			}
		}
		return false
	})
}

// AllocateNext takes an address of the family: in the way of [Range.AllocateNext] from
// one of the largest disjoint prefixes, chosen with a probability in proportion to the
// free dynamic addresses in it, each counted once however many ranges have it. With
// [LowestFirst] it is the lowest one that has a free dynamic address.
//
// [ErrFull], bare: none has one, nor may a static one be taken. [ErrBadRequest]: f is
// no family. Cost: linear in the disjoint prefixes, O(log n) in their size; no
// allocation.
func (r *Ranges) AllocateNext(f Family) (ip netip.Addr, spilled bool, err error) {
	if !f.valid() {
		return netip.Addr{}, false, badFamily(f)
	}
	r.mu.Lock()
	a, b := r.core.choose(f)
	if a == nil {
		r.mu.Unlock()
		return netip.Addr{}, false, ErrFull
	}
	at := a.pick(b, &r.core.pick[f.slot()].start)
	ip = a.addr(at.idx, at.x)
	r.core.pick[f.slot()].draw()
	if r.hook == nil {
		r.mu.Unlock()
	} else {
		r.unlock(Change{Op: OpAllocate, Addrs: []netip.Addr{ip}})
	}
	return ip, b == Static, nil
}

func badFamily(f Family) error {
	return &Error{Op: "allocate", Err: ErrBadRequest, Detail: f.String()}
}

// AllocateN fills dst with addresses of the family, all or none, in the way of
// [Range.AllocateN]: from the prefix that [Ranges.AllocateNext] would choose, then from
// the ones after it, coming round. spilled says how many, at the end of dst, are static.
func (r *Ranges) AllocateN(f Family, dst []netip.Addr) (spilled int, err error) {
	if !f.valid() {
		return 0, badFamily(f)
	}
	if len(dst) == 0 {
		return 0, nil
	}
	r.mu.Lock()
	dynamic, ok := share(r.core.free(f, Dynamic), r.core.free(f, Static), len(dst), !r.core.set.neverSpill)
	if !ok {
		r.mu.Unlock()
		return 0, ErrFull
	}
	r.core.fill(f, Dynamic, dst[:dynamic])
	r.core.fill(f, Static, dst[dynamic:])
	r.core.pick[f.slot()].draw()
	if r.hook == nil {
		r.mu.Unlock()
	} else {
		r.unlock(Change{Op: OpAllocate, Addrs: append([]netip.Addr(nil), dst...)})
	}
	return len(dst) - dynamic, nil
}

// Allocate takes ip, of either band.
//
// [ErrOccupied]: it is taken. [ErrReserved]: it is out of circulation. [ErrDraining]: it
// is usable only in ranges that drain. [ErrOutOfRange]: no range has it usable. Cost:
// O(log n); an error allocates.
func (r *Ranges) Allocate(ip netip.Addr) error {
	r.mu.Lock()
	a, ord, err := r.core.takeable(ip)
	if err != nil {
		r.mu.Unlock()
		return &Error{Op: "allocate", Addr: ip, Err: err}
	}
	a.take(ord)
	if r.hook == nil {
		r.mu.Unlock()
	} else {
		r.unlock(Change{Op: OpAllocate, Addrs: []netip.Addr{ip}})
	}
	return nil
}

// Release gives ip back, from a draining range too, and reports whether it was taken.
// Cost: O(log n); no allocation.
func (r *Ranges) Release(ip netip.Addr) bool {
	r.mu.Lock()
	if !r.core.drop(ip) {
		r.mu.Unlock()
		return false
	}
	if r.hook == nil {
		r.mu.Unlock()
	} else {
		r.unlock(Change{Op: OpRelease, Addrs: []netip.Addr{ip}})
	}
	return true
}

// Has reports whether ip is taken. Cost: O(log n); no allocation.
func (r *Ranges) Has(ip netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ord, ok := r.core.locate(ip)
	return ok && a.has(ord)
}

// Band returns the band of ip as the ranges are now.
func (r *Ranges) Band(ip netip.Addr) Band {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ord, ok := r.core.locate(ip)
	if !ok {
		return Closed
	}
	return a.bandOf(ord)
}

// DryRunNext returns exactly what [Ranges.AllocateNext] is going to answer if nothing
// changes in between, and changes nothing.
func (r *Ranges) DryRunNext(f Family) (ip netip.Addr, spilled bool, err error) {
	if !f.valid() {
		return netip.Addr{}, false, badFamily(f)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a, b := r.core.choose(f)
	if a == nil {
		return netip.Addr{}, false, ErrFull
	}
	at := a.plan(b, &r.core.pick[f.slot()].start)
	return a.addr(at.idx, at.x), b == Static, nil
}

// DryRun returns exactly what [Ranges.Allocate] of ip is going to answer if nothing
// changes in between, and changes nothing.
func (r *Ranges) DryRun(ip netip.Addr) error {
	r.mu.Lock()
	_, _, err := r.core.takeable(ip)
	r.mu.Unlock()
	if err != nil {
		return &Error{Op: "allocate", Addr: ip, Err: err}
	}
	return nil
}

// All yields the taken addresses, IPv4 first, ascending, in the way of [Range.All].
// Ranges may be added and removed meanwhile.
func (r *Ranges) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, f := range []Family{IPv4, IPv6} {
			var next addr.U128
			for more := true; more; {
				r.mu.Lock()
				a, from, word := r.core.held(f, next)
				r.mu.Unlock()
				if a == nil {
					break
				}
				if !a.each(from, word, yield) {
					return
				}
				next, more = a.beyond(from)
			}
		}
	}
}

// Stats returns the counts of one family, each address counted once; zero if f is no
// family. Cost: linear in the disjoint prefixes.
func (r *Ranges) Stats(f Family) Stats {
	if !f.valid() {
		return Stats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.stats(f)
}
