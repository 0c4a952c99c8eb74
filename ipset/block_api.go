package ipset

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
)

// Claim describes the holder of an address.
type Claim struct {
	// Handle is the caller's key; addresses without one can only be released by address.
	Handle     string
	Attributes Attributes
	// TTL is the time the address is held for; 0 is until it is released.
	TTL time.Duration
}

// identity returns whose an address is that is held for a host by this claim.
func (c Claim) identity(host Owner) identity {
	return identity{handle: c.Handle, active: c.Attributes.code, host: host}
}

// until returns the end of a lease begun now, 0 without a TTL.
func (c Claim) until(now int64) int64 {
	if c.TTL <= 0 {
		return 0
	}
	return later(now, int64(c.TTL))
}

// later returns the time d after at, or the latest time there is: the largest duration means without end.
func later(at, d int64) int64 {
	if sum := at + d; sum >= at || d < 0 {
		return sum
	}
	return math.MaxInt64
}

// Guard is the condition on which an address is released. Zero fields are no condition.
type Guard struct {
	// Handle, if not empty, must be the one that has the address.
	Handle string
	// Seq, if not 0, must be the sequence number of the allocation.
	Seq uint64
}

// Outcome says what a release did with one address.
type Outcome uint8

const (
	// Released means that the address was held and is free now, or cooling.
	Released Outcome = iota
	// WasFree means that the address was not held.
	WasFree
	// OwnerChanged means that the address is held, but not by the handle or allocation that the guard names. It stays held.
	OwnerChanged
)

// String returns "released", "was free" or "owner changed".
func (o Outcome) String() string {
	return [...]string{"released", "was free", "owner changed"}[min(o, OwnerChanged)]
}

// Prefix returns the prefix of the block.
func (b *Block) Prefix() netip.Prefix { return b.prefix }

// Owner returns the owner of the block, the zero Owner if it has none.
func (b *Block) Owner() Owner { return b.owner }

// Claimed returns when the present owner got the block.
func (b *Block) Claimed() time.Time { return unstamp(b.claimed) }

// Seq returns the sequence number of the block's last assignment.
func (b *Block) Seq() uint64 { return b.seq }

// Reserved returns how many ordinals at both ends are kept from assignment.
func (b *Block) Reserved() (head, tail uint64) { return b.head, b.tail }

// Used returns the number of addresses held; O(1).
func (b *Block) Used() uint64 { return b.used }

// Cooling returns the number of addresses cooling; O(1).
func (b *Block) Cooling() uint64 { return uint64(len(b.cool)) }

// Empty reports whether no address is held or cooling, and since when.
func (b *Block) Empty() (since time.Time, ok bool) {
	if !b.isEmpty() {
		return time.Time{}, false
	}
	return unstamp(b.since), true
}

func (b *Block) isEmpty() bool { return b.used == 0 && len(b.cool) == 0 }

// Free returns the number of addresses that can be assigned, and false if it is 2^64, which fits no uint64. O(1).
func (b *Block) Free() (uint64, bool) {
	rest := b.last - b.head - b.tail - b.used - uint64(len(b.cool))
	return rest + 1, rest+1 != 0 || b.free.empty()
}

// AutoAssign takes the next n free addresses, fewer if there are not so many, and appends them to dst. Addresses
// in avoid are passed over and keep their place in the queue.
func (b *Block) AutoAssign(dst []Allocation, n int, c Claim, now time.Time, avoid *netipx.IPSet) []Allocation {
	var buf [64]uint64
	var spans []span
	if avoid != nil {
		spans = b.spansOf(avoid.Ranges())
	}
	id, at := c.identity(b.owner), stamp(now)
	for _, x := range b.free.peek(buf[:0], b.most(n), spans) {
		seq := b.hold(x, id, c.until(at))
		dst = append(dst, Allocation{Address: b.addr(x), Block: b.prefix, Host: b.owner, Handle: c.Handle, Attributes: c.Attributes, Seq: seq, Until: unstamp(c.until(at))})
	}
	return dst
}

// most returns n, or how many more addresses can be held if that is less.
func (b *Block) most(n int) int { return int(min(uint64(n), maxHeld-b.used)) }

// Assign takes one address.
//
// It returns [ipalloc.ErrOutOfRange] if the block does not have it, [ipalloc.ErrReserved] for one at its ends,
// [ipalloc.ErrOccupied], or
// [ipalloc.ErrCooling] unless the handle is the one that released it; then nothing changes.
func (b *Block) Assign(a netip.Addr, c Claim, now time.Time) (Allocation, error) {
	x, err := b.locate(a)
	if err != nil {
		return Allocation{}, err
	}
	if err := b.canAssign(x, c.Handle); err != nil {
		return Allocation{}, err
	}
	b.hold(x, c.identity(b.owner), c.until(stamp(now)))
	al, _ := b.Lookup(a)
	return al, nil
}

// canAssign says what stands in the way of giving an ordinal to a handle.
func (b *Block) canAssign(x uint64, handle string) error {
	switch st, a := b.look(x); {
	case st == stateReserved:
		return ipalloc.ErrReserved
	case st == stateHeld:
		return ipalloc.ErrOccupied
	case st == stateCooling && (handle == "" || a.handle != handle):
		return ipalloc.ErrCooling
	case b.used == maxHeld:
		return fmt.Errorf("%w: %d addresses of one block are held", ipalloc.ErrLimit, b.used)
	}
	return nil
}

// Release gives an address back, to cool for cooldown. See [Outcome]. It returns [ipalloc.ErrOutOfRange] if the block does not
// have the address. Releasing again is never an error.
func (b *Block) Release(a netip.Addr, g Guard, now time.Time, cooldown time.Duration) (Outcome, error) {
	x, err := b.locate(a)
	if err != nil {
		return WasFree, err
	}
	o := b.canRelease(x, g)
	if o == Released {
		b.drop(x, stamp(now), later(stamp(now), int64(cooldown)))
	}
	return o, nil
}

// canRelease says what releasing an ordinal would do.
func (b *Block) canRelease(x uint64, g Guard) Outcome {
	st, a := b.look(x)
	switch {
	case st != stateHeld:
		return WasFree
	case g.Seq != 0 && a.seq != g.Seq, g.Handle != "" && a.handle != g.Handle:
		return OwnerChanged
	}
	return Released
}

// Lookup returns the allocation of an address, and false if it is neither held nor cooling, or not of this block.
func (b *Block) Lookup(at netip.Addr) (Allocation, bool) {
	x, err := b.locate(at)
	if err != nil {
		return Allocation{}, false
	}
	if _, a := b.look(x); a != nil {
		return b.allocation(x, a), true
	}
	return Allocation{}, false
}

// allocation describes a held or cooling ordinal.
func (b *Block) allocation(x uint64, a *address) Allocation {
	return a.allocation(b.addr(x), b.prefix.Bits())
}

// All yields the addresses that are held or cooling, ascending. Results are unspecified if the block changes during iteration.
func (b *Block) All() iter.Seq[Allocation] {
	return func(yield func(Allocation) bool) {
		for x, a := range b.each() {
			if !yield(b.allocation(x, a)) {
				return
			}
		}
	}
}

// FreeAddresses yields the free addresses in the order in which they will be handed out.
func (b *Block) FreeAddresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, s := range b.free.spans[b.free.head:] {
			for x := s.lo; ; x++ {
				if !yield(b.addr(x)) {
					return
				}
				if x == s.hi {
					break
				}
			}
		}
	}
}

// Renew moves the end of the leases that a handle has in the block to ttl after now and returns how many it has.
func (b *Block) Renew(handle string, ttl time.Duration, now time.Time) int {
	n := 0
	for x, a := range b.each() {
		if a.handle == handle && b.renew(x, later(stamp(now), int64(ttl))) {
			n++
		}
	}
	return n
}

// renew moves the end of the lease of an ordinal and reports whether it is held under one.
func (b *Block) renew(x uint64, until int64) bool {
	if st, a := b.look(x); st != stateHeld || a.until == 0 {
		return false
	}
	b.change(x).until = until
	if until < b.lease {
		b.lease = until
	}
	b.ended = true
	return true
}

// SetAttributes replaces the attributes of one address; addresses that shared the old ones keep them. It returns
// [ipalloc.ErrNotHeld] if the address is not held and [ipalloc.ErrMismatch] if the guard names another holder; then nothing
// changes.
func (b *Block) SetAttributes(at netip.Addr, g Guard, active, alternate Attributes) error {
	x, err := b.locate(at)
	if err != nil {
		return err
	}
	switch b.canRelease(x, g) {
	case WasFree:
		return ipalloc.ErrNotHeld
	case OwnerChanged:
		return errOwner
	}
	a := b.change(x)
	a.active, a.alternate = active.code, alternate.code
	return nil
}
