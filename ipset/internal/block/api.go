package block

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
)

// HeldSince returns the time since which an address is held that a claim takes now.
func HeldSince(c alloc.Claim, now int64) int64 {
	if c.Since.Unix() < 1 || c.Since.After(wire.Unstamp(now)) {
		return now
	}
	return wire.Stamp(c.Since)
}

// IdentityOf returns the identity of an address that a claim holds for a host. index are the keys of attributes that an index
// lists.
func IdentityOf(c alloc.Claim, host alloc.Owner, index ...string) Identity {
	return Identity{Handle: c.Handle, Active: c.Attributes, Host: host, Indexed: Marks(c.Attributes, index)}
}

// LeaseEnd returns the end of a lease begun now, 0 without a time to live.
func LeaseEnd(now int64, ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return Later(now, int64(ttl))
}

// Later returns the time d after at, or the latest time there is: the largest duration means without end.
func Later(at, d int64) int64 {
	if sum := at + d; sum >= at || d < 0 {
		return sum
	}
	return math.MaxInt64
}

// Prefix returns the prefix of the block.
func (b *Block) Prefix() netip.Prefix { return b.prefix }

// Owner returns the owner of the block, the zero Owner if it has none.
func (b *Block) Owner() alloc.Owner { return b.owner }

// Claimed returns when the present owner got the block.
func (b *Block) Claimed() time.Time { return wire.Unstamp(b.claimed) }

// Seq returns the sequence number of the block's last assignment.
func (b *Block) Seq() uint64 { return b.seq }

// Reserved returns how many ordinals at both ends are kept from assignment.
func (b *Block) Reserved() (head, tail uint64) { return b.head, b.tail }

// Used returns the number of addresses held; O(1).
func (b *Block) Used() uint64 { return b.used }

// Cooling returns the number of addresses cooling; O(1).
func (b *Block) Cooling() uint64 { return uint64(len(b.cool)) }

// NextLease returns a moment that is not after the end of any lease, 0 if there is no lease.
func (b *Block) NextLease() int64 { return b.lease }

// Former returns the codes of former owners for whom addresses may still be held, each ended by NUL.
func (b *Block) Former() string { return b.former }

// Absent returns how many held and cooling addresses are not loaded.
func (b *Block) Absent() uint64 { return b.absent }

// Since returns when the block became empty last.
func (b *Block) Since() int64 { return b.since }

// Empty reports whether no address is held or cooling, and since when.
func (b *Block) Empty() (since time.Time, ok bool) {
	if !b.IsEmpty() {
		return time.Time{}, false
	}
	return wire.Unstamp(b.since), true
}

func (b *Block) IsEmpty() bool { return b.used == 0 && len(b.cool) == 0 }

// Free returns the number of addresses that can be assigned, and false if it is 2^64, which fits no uint64. O(1).
func (b *Block) Free() (uint64, bool) {
	rest := b.last - b.head - b.tail - b.used - uint64(len(b.cool))
	return rest + 1, rest+1 != 0 || b.free.empty()
}

// AutoAssign takes the next n free addresses, fewer if there are not so many, and appends them to dst. Addresses
// in avoid are passed over and keep their place in the queue.
func (b *Block) AutoAssign(dst []alloc.Allocation, n int, c alloc.Claim, now time.Time, avoid *netipx.IPSet) []alloc.Allocation {
	var buf [64]uint64
	var spans []Span
	if avoid != nil {
		spans = b.Spans(avoid.Ranges())
	}
	id, at := IdentityOf(c, b.owner), wire.Stamp(now)
	until := LeaseEnd(at, c.TTL)
	for _, x := range b.free.peek(buf[:0], b.most(n), spans) {
		seq := b.Hold(x, id, HeldSince(c, at), until)
		if c.Share != (alloc.Share{}) {
			dst = append(dst, b.AllowSharing(x, c.Share))
			continue
		}
		dst = append(dst, alloc.Allocation{Address: b.Addr(x), Block: b.prefix, Host: b.owner, Handle: c.Handle, Attributes: c.Attributes, Seq: seq, Since: ToSecond(HeldSince(c, at)), Until: wire.Unstamp(until)})
	}
	return dst
}

// most returns n, or how many more addresses can be held if that is less.
func (b *Block) most(n int) int { return int(min(uint64(n), maxHeld-b.used)) }

// Assign takes one address.
//
// It returns [ipalloc.ErrOutOfRange] if the block does not have the address, [ipalloc.ErrReserved] at the ends of the
// block, and [ipalloc.ErrOccupied]. It returns [ipalloc.ErrCooling] unless the same handle released the address.
// After an error nothing has changed.
func (b *Block) Assign(a netip.Addr, c alloc.Claim, now time.Time) (alloc.Allocation, error) {
	x, err := b.Ordinal(a)
	if err != nil {
		return alloc.Allocation{}, err
	}
	if err := b.CanHold(x, c.Handle); err != nil {
		return alloc.Allocation{}, err
	}
	b.Hold(x, IdentityOf(c, b.owner), HeldSince(c, wire.Stamp(now)), LeaseEnd(wire.Stamp(now), c.TTL))
	b.AllowSharing(x, c.Share)
	al, _ := b.Lookup(a)
	return al, nil
}

// CanHold returns the obstacle to giving an ordinal to a handle, nil for none.
func (b *Block) CanHold(x uint64, handle string) error {
	switch st, a := b.Look(x); {
	case st == Reserved:
		return ipalloc.ErrReserved
	case st == Held:
		return ipalloc.ErrOccupied
	case st == Cooling && (handle == "" || a.Handle != handle):
		return ipalloc.ErrCooling
	case b.used == maxHeld:
		return fmt.Errorf("%w: %d addresses of one block are held", ipalloc.ErrLimit, b.used)
	}
	return nil
}

// Release gives an address back, to cool for cooldown. See [alloc.Outcome]. It returns [ipalloc.ErrOutOfRange] if the block does not
// have the address. Releasing again is never an error.
func (b *Block) Release(a netip.Addr, g alloc.Guard, now time.Time, cooldown time.Duration) (alloc.Outcome, error) {
	x, err := b.Ordinal(a)
	if err != nil {
		return alloc.WasFree, err
	}
	o := b.CanDrop(x, g)
	if o == alloc.Released {
		b.Leave(x, b.Leaving(x, g), wire.Stamp(now), Later(wire.Stamp(now), int64(cooldown)))
	}
	return o, nil
}

// CanDrop returns the outcome of a release of an ordinal. A keeper leaves only by its handle, so a guard without that does not hold
// for it.
func (b *Block) CanDrop(x uint64, g alloc.Guard) alloc.Outcome {
	st, a := b.Look(x)
	switch {
	case st != Held:
		return alloc.WasFree
	case g == alloc.Guard{}:
		if a.IsKept() {
			return alloc.OwnerChanged
		}
		return alloc.Released
	}
	if h, ok := a.Find(g); !ok || g.Handle == "" && keep.Is(h.Handle) {
		return alloc.OwnerChanged
	}
	return alloc.Released
}

// Leaving returns the sequence number of the holder of a held ordinal that a guard names, 0 for a guard without conditions:
// all of them.
func (b *Block) Leaving(x uint64, g alloc.Guard) uint64 {
	if g == (alloc.Guard{}) {
		return 0
	}
	_, a := b.Look(x)
	h, _ := a.Find(g)
	return h.Seq
}

// Lookup returns the allocation of an address, and false if it is neither held nor cooling, or not of this block.
func (b *Block) Lookup(at netip.Addr) (alloc.Allocation, bool) {
	x, err := b.Ordinal(at)
	if err != nil {
		return alloc.Allocation{}, false
	}
	if _, a := b.Look(x); a != nil {
		return b.Allocation(x, a), true
	}
	return alloc.Allocation{}, false
}

// Allocation describes a held or cooling ordinal.
func (b *Block) Allocation(x uint64, a *Address) alloc.Allocation {
	return a.Allocation(b.Addr(x), b.prefix.Bits())
}

// All yields the addresses that are held or cooling, ascending. Results are unspecified if the block changes during iteration.
func (b *Block) All() iter.Seq[alloc.Allocation] {
	return func(yield func(alloc.Allocation) bool) {
		for x, a := range b.Each() {
			if !yield(b.Allocation(x, a)) {
				return
			}
		}
	}
}

// FreeAddresses yields the free addresses in the order of the queue.
func (b *Block) FreeAddresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, s := range b.free.spans[b.free.head:] {
			for x := s.Lo; ; x++ {
				if !yield(b.Addr(x)) {
					return
				}
				if x == s.Hi {
					break
				}
			}
		}
	}
}

// Renew moves the end of the handle's leases in the block to ttl after now and returns their number.
func (b *Block) Renew(handle string, ttl time.Duration, now time.Time) int {
	n := 0
	for x, a := range b.Each() {
		if h, ok := a.Find(alloc.Guard{Handle: handle}); ok && b.Extend(x, h.Seq, Later(wire.Stamp(now), int64(ttl))) {
			n++
		}
	}
	return n
}

// Extend moves the end of the lease that a holder of an ordinal has, and reports whether there is one. An end of 0 takes the lease away:
// the ordinal stays held.
func (b *Block) Extend(x, seq uint64, until int64) bool {
	st, a := b.Look(x)
	if st != Held {
		return false
	}
	h, ok := a.Find(alloc.Guard{Seq: seq})
	if !ok || h.Until == 0 {
		return false
	}
	b.end(h.Until)
	b.begin(until)
	h.Until = until
	b.Change(x).replace(h)
	b.ended = true
	return true
}

// SetAttributes replaces the attributes of one address; addresses that shared the old ones keep them. It returns
// [ipalloc.ErrNotHeld] if the address is not held and [ipalloc.ErrMismatch] if the guard names another holder. After an
// error nothing has changed. index are the keys of attributes that an index lists.
func (b *Block) SetAttributes(at netip.Addr, g alloc.Guard, active, alternate alloc.Attributes, index ...string) error {
	x, err := b.Ordinal(at)
	if err != nil {
		return err
	}
	switch b.CanDrop(x, g) {
	case alloc.WasFree:
		return ipalloc.ErrNotHeld
	case alloc.OwnerChanged:
		return errOwner
	}
	a := b.Change(x)
	h, _ := a.Find(g)
	h.Active, h.Alternate, h.Indexed = active, alternate, Marks(active, index)
	a.replace(h)
	return nil
}
