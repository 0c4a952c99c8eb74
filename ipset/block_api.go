package ipset

import (
	"iter"
	"math"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
)

// Claim is who an address is for.
type Claim struct {
	// Handle is the caller's key; addresses without one can only be released by address.
	Handle     string
	Attributes Attributes
	// TTL is the time the address is held for; 0 is until it is released.
	TTL time.Duration
}

// identity returns what an address of a block that is held for a host by this claim has in common with others.
func (c Claim) identity(b *Block, host Owner) identity {
	return identity{handle: c.Handle, active: c.Attributes.code, host: b.noteOf(host)}
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

// Guard says on which condition an address is released.
type Guard struct {
	// Handle, if not empty, must be the one that has the address.
	Handle string
	// Seq, if not 0, must be the sequence number of the allocation.
	Seq uint64
}

// Outcome is what a release did with one address.
type Outcome uint8

const (
	// Released: the address was held and is not any more.
	Released Outcome = iota
	// WasFree: nobody had it, whether or not it was held before.
	WasFree
	// OwnerChanged: it is held, but not by the handle or the allocation named in the guard. It stays held.
	OwnerChanged
)

// String returns "released", "was free" or "owner changed".
func (o Outcome) String() string {
	return [...]string{"released", "was free", "owner changed"}[min(o, OwnerChanged)]
}

// Prefix returns the prefix of the block.
func (b *Block) Prefix() netip.Prefix { return b.prefix }

// Owner returns whose the block is.
func (b *Block) Owner() Owner { return b.owner }

// Claimed returns when the present owner got the block.
func (b *Block) Claimed() time.Time { return unstamp(b.claimed) }

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
	id, at := c.identity(b, b.owner), stamp(now)
	for _, x := range b.free.peek(buf[:0], n, spans) {
		seq := b.hold(x, id, c.until(at))
		dst = append(dst, Allocation{Address: b.addr(x), Block: b.prefix, Host: b.owner, Handle: c.Handle, Attributes: c.Attributes, Seq: seq, Until: unstamp(c.until(at))})
	}
	return dst
}

// Assign takes one address.
//
// It returns [ipalloc.ErrOutOfRange] if the block does not have it, [ipalloc.ErrReserved] for one at its ends, [ipalloc.ErrOccupied], or
// [ipalloc.ErrCooling] unless the handle is the one that released it; then nothing changes.
func (b *Block) Assign(a netip.Addr, c Claim, now time.Time) (Allocation, error) {
	x, err := b.locate(a)
	if err != nil {
		return Allocation{}, err
	}
	if err := b.canAssign(x, c.Handle); err != nil {
		return Allocation{}, err
	}
	b.hold(x, c.identity(b, b.owner), c.until(stamp(now)))
	al, _ := b.Lookup(a)
	return al, nil
}

// canAssign says what stands in the way of giving an ordinal to a handle.
func (b *Block) canAssign(x uint64, handle string) error {
	switch st, s := b.look(x); {
	case st == stateReserved:
		return ipalloc.ErrReserved
	case st == stateHeld:
		return ipalloc.ErrOccupied
	case st == stateCooling && (handle == "" || b.holders.list[s.holder].handle != handle):
		return ipalloc.ErrCooling
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
	st, s := b.look(x)
	switch {
	case st != stateHeld:
		return WasFree
	case g.Seq != 0 && s.seq != g.Seq, g.Handle != "" && b.holders.list[s.holder].handle != g.Handle:
		return OwnerChanged
	}
	return Released
}

// ordinalsOf appends the ordinals that a handle holds, ascending.
func (b *Block) ordinalsOf(dst []uint64, handle string) []uint64 {
	if b.holders.heldBy(handle) == 0 {
		return dst
	}
	for x, s := range b.each() {
		if b.holders.list[s.holder].handle == handle && !b.isCooling(x) {
			dst = append(dst, x)
		}
	}
	return dst
}

// Lookup returns the allocation of an address, and false if it is neither held nor cooling, or not of this block.
func (b *Block) Lookup(a netip.Addr) (Allocation, bool) {
	x, err := b.locate(a)
	if err != nil {
		return Allocation{}, false
	}
	st, s := b.look(x)
	if st != stateHeld && st != stateCooling {
		return Allocation{}, false
	}
	return b.allocation(x, s), true
}

// allocation describes a held or cooling ordinal.
func (b *Block) allocation(x uint64, s *slot) Allocation {
	h := &b.holders.list[s.holder]
	return Allocation{
		Address: b.addr(x), Block: b.prefix, Host: b.hostOf(&h.identity), Handle: h.handle, Attributes: Attributes{h.active},
		Alternate: Attributes{h.alternate}, Seq: s.seq, Until: unstamp(s.until), Cooling: b.isCooling(x),
	}
}

// All yields the addresses that are held or cooling, ascending. Changing the block ends the iteration's meaning.
func (b *Block) All() iter.Seq[Allocation] {
	return func(yield func(Allocation) bool) {
		for x, s := range b.each() {
			if !yield(b.allocation(x, s)) {
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
	n, until := 0, later(stamp(now), int64(ttl))
	for _, x := range b.ordinalsOf(nil, handle) {
		if _, s := b.look(x); s.until != 0 {
			s.until = until
			n++
		}
	}
	if n > 0 && (b.lease == 0 || until < b.lease) {
		b.lease = until
	}
	b.ended = b.ended || n > 0
	return n
}

// SetAttributes replaces the attributes of one address; addresses that shared the old ones keep them. It returns
// [ipalloc.ErrNotHeld] if the address is not held and [ipalloc.ErrMismatch] if the guard names another holder; then nothing changes.
func (b *Block) SetAttributes(a netip.Addr, g Guard, active, alternate Attributes) error {
	x, err := b.locate(a)
	if err != nil {
		return err
	}
	switch b.canRelease(x, g) {
	case WasFree:
		return ipalloc.ErrNotHeld
	case OwnerChanged:
		return errOwner
	}
	_, s := b.look(x)
	id := b.holders.list[s.holder].identity
	id.active, id.alternate = active.code, alternate.code
	b.rehold(s, id)
	return nil
}

// rehold has a held address held by another identity of the same handle.
func (b *Block) rehold(s *slot, id identity) {
	old := s.holder
	h := b.holders.intern(id)
	if h == old {
		return
	}
	b.holders.list[h].refs++
	b.holders.list[h].held++
	b.countHost(id.host, 1)
	b.countHost(b.holders.list[old].host, -1)
	b.holders.list[old].held--
	b.holders.drop(old)
	s.holder = h
}
