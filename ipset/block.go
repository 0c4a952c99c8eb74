package ipset

import (
	"fmt"
	"iter"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Block is one block of addresses: who has which, and in which order the free ones will be handed out.
//
// Every ordinal is in exactly one state: free (in the queue), held, cooling (released, in the cooling queue until its
// time), or reserved (one of the first or last ones, kept from assignment for good). Ordinals of the base address
// count from 0. Times come from the caller; [Block.Advance] applies what time alone changes.
//
// Assigning and releasing cost O(1) amortised and allocate nothing in steady state. Not safe for concurrent use. Use
// [NewBlock], [DecodeBlock] or [ImportCalicoBlock] to make one; the zero value is unusable.
type Block struct {
	prefix     netip.Prefix
	codec      addr.Codec // ordinal <-> address
	last       uint64     // the highest ordinal
	head, tail uint64     // reserved ordinals at both ends
	owner      Owner
	claimed    int64  // when the present owner got the block
	since      int64  // when it last became empty; of use only while it is
	seq        uint64 // the last sequence number given
	lease      int64  // no lease ends before; 0: there is none
	ended      bool   // the lease that ends first may have been given back; tidy finds the next

	free    queue
	cool    []uint64 // cooling ordinals in the order of their release
	used    uint64   // held ordinals
	holders holders
	hosts   map[string]uint64 // addresses held for others than the owner, by the host's code
	dir     []*slots          // by ordinal / 64, for blocks of up to dirMax addresses
	sparse  map[uint64]*slots // the same for larger ones
	touched *[]touch          // where to note handles that come or leave; nil outside an engine
}

// slots are 64 ordinals in a row.
type slots struct {
	held, cooling uint64
	slot          []slot
}

// slot is one held or cooling address; entries of free ordinals are zero.
type slot struct {
	seq    uint64
	until  int64 // end of the lease, or of the cooldown; 0 for none
	holder int32
}

// touch notes that a handle, or a host that is not the owner, has got its first address in the block or has lost its last.
type touch struct {
	kind, name string
	came       bool
}

// dirMax is the largest block whose slots are found by index: 1,024 pointers. Beyond, a map costs less.
const dirMax = 1 << 16

// BlockOptions are what a block is made with; the zero value is a block without owner or reserved ordinals.
type BlockOptions struct {
	Owner Owner
	// Head and Tail ordinals at the ends are reserved for the host.
	Head, Tail uint64
	// Claimed is the moment at which the owner gets the block.
	Claimed time.Time
	// Seq is the sequence number before the first that the block gives.
	Seq uint64
}

// NewBlock returns an empty block.
//
// It returns [ipalloc.ErrInvalid] for a prefix that is not masked, and if the block has more than 2^64
// addresses or Head and Tail leave none to assign.
func NewBlock(p netip.Prefix, o BlockOptions) (*Block, error) {
	if err := checkPrefix(p); err != nil {
		return nil, err
	}
	codec, err := addr.NewCodec(p, p.Addr().BitLen())
	if err != nil {
		return nil, fmt.Errorf("%w: block %s has more than 2^64 addresses", errBadBlockSize, p)
	}
	b := &Block{
		prefix: p, codec: codec, last: codec.Last(), head: o.Head, tail: o.Tail, owner: o.Owner,
		claimed: stamp(o.Claimed), since: stamp(o.Claimed), seq: o.Seq,
	}
	if o.Head > b.last || o.Tail > b.last-o.Head {
		return nil, fmt.Errorf("%w: %s with %d + %d reserved addresses", errBadBlockSize, p, o.Head, o.Tail)
	}
	b.free.spans = []span{{b.head, b.last - b.tail}}
	return b, nil
}

// checkPrefix refuses prefixes that are invalid, not masked, or 4-in-6.
func checkPrefix(p netip.Prefix) error {
	if err := addr.Check(p); err != nil {
		return fmt.Errorf("%w: %s: %w", errBadPrefix, p, err)
	}
	return nil
}

// addr returns the address of an ordinal.
func (b *Block) addr(x uint64) netip.Addr { return b.codec.Addr(x) }

// locate returns the ordinal of an address.
func (b *Block) locate(a netip.Addr) (uint64, error) {
	x, ok := b.codec.Ordinal(a)
	if !ok {
		return 0, wrap(ipalloc.Error{Op: "look up", Addr: a, Pool: b.prefix, Err: ipalloc.ErrOutOfRange})
	}
	return x, nil
}

// page returns the slots of the ordinals around x, nil if none was ever used; with make they are made.
func (b *Block) page(x uint64, create bool) *slots {
	no := x / 64
	if b.last < dirMax {
		if no < uint64(len(b.dir)) && b.dir[no] != nil {
			return b.dir[no]
		}
	} else if p := b.sparse[no]; p != nil {
		return p
	}
	if !create {
		return nil
	}
	p := &slots{slot: make([]slot, min(b.last, 63)+1)}
	if b.last >= dirMax {
		if b.sparse == nil {
			b.sparse = make(map[uint64]*slots)
		}
		b.sparse[no] = p
		return p
	}
	for uint64(len(b.dir)) <= no {
		b.dir = append(b.dir, nil)
	}
	b.dir[no] = p
	return p
}

// state of an ordinal.
type state uint8

const (
	stateFree state = iota
	stateHeld
	stateCooling
	stateReserved
)

// look returns the state of an ordinal and, if it is held or cooling, its slot.
func (b *Block) look(x uint64) (state, *slot) {
	if x < b.head || x > b.last-b.tail {
		return stateReserved, nil
	}
	if p := b.page(x, false); p != nil {
		switch bit := uint64(1) << (x & 63); {
		case p.held&bit != 0:
			return stateHeld, &p.slot[x&63]
		case p.cooling&bit != 0:
			return stateCooling, &p.slot[x&63]
		}
	}
	return stateFree, nil
}

// hold gives a free or cooling ordinal to a holder and returns the sequence number. until is the end of the lease or 0. The
// identity's host is as noteOf has it.
func (b *Block) hold(x uint64, id identity, until int64) uint64 {
	h := b.holders.intern(id)
	b.holders.list[h].refs++
	if st, s := b.look(x); st == stateCooling {
		b.cool = slices.Delete(b.cool, slices.Index(b.cool, x), slices.Index(b.cool, x)+1)
		b.holders.drop(s.holder)
	} else {
		b.free.remove(x)
	}
	b.seq++
	p := b.page(x, true)
	p.held |= 1 << (x & 63)
	p.cooling &^= 1 << (x & 63)
	p.slot[x&63] = slot{seq: b.seq, until: until, holder: h}
	b.used++
	if until != 0 && (b.lease == 0 || until < b.lease) {
		b.lease = until
	}
	b.count(h, 1)
	return b.seq
}

// count changes the number of held addresses of a holder and notes a handle that came or left.
func (b *Block) count(h int32, by int) {
	e := &b.holders.list[h]
	b.countHost(e.host, by)
	if by > 0 {
		e.held++
		if b.touched != nil && e.handle != "" && e.held == 1 && b.holders.heldBy(e.handle) == 1 {
			*b.touched = append(*b.touched, touch{kindHandle, e.handle, true})
		}
		return
	}
	e.held--
	if b.touched != nil && e.handle != "" && e.held == 0 && b.holders.heldBy(e.handle) == 0 {
		*b.touched = append(*b.touched, touch{kindHandle, e.handle, false})
	}
}

// drop releases a held ordinal at the moment now; it is free again after until, which is now if there is no cooldown.
func (b *Block) drop(x uint64, now, until int64) {
	p := b.page(x, false)
	bit, s := uint64(1)<<(x&63), &p.slot[x&63]
	b.count(s.holder, -1)
	b.used--
	b.ended = b.ended || s.until != 0 && s.until == b.lease
	p.held &^= bit
	if until > now {
		p.cooling |= bit
		b.cool = append(b.cool, x)
		s.until = until
	} else {
		b.holders.drop(s.holder)
		*s = slot{}
		b.free.push(x)
	}
	if b.used == 0 && len(b.cool) == 0 {
		b.since = now
	}
}

// Advance applies what the time now changes: leases that have ended are released, to cool for cooldown from their end,
// and addresses that have cooled are queued. It reports whether anything changed. Safe to repeat. O(1) while
// nothing is due.
func (b *Block) Advance(now time.Time, cooldown time.Duration) bool {
	return b.advance(stamp(now), int64(cooldown), math.MaxInt)
}

// advance ends at most so many leases; the next call goes on.
func (b *Block) advance(now, cooldown int64, most int) bool {
	changed := false
	if b.lease != 0 && b.lease <= now {
		b.expire(now, cooldown, most)
		changed = true
	}
	n := 0
	for _, x := range b.cool {
		p := b.page(x, false)
		s := &p.slot[x&63]
		if s.until > now {
			break
		}
		if n++; b.used == 0 && n == len(b.cool) {
			b.since = s.until
		}
		p.cooling &^= 1 << (x & 63)
		b.holders.drop(s.holder)
		*s = slot{}
		b.free.push(x)
	}
	if n > 0 {
		b.cool = slices.Delete(b.cool, 0, n)
		changed = true
	}
	return changed
}

// expire releases the addresses whose lease has ended, in the order of their ends and at most so many, and finds the next end.
func (b *Block) expire(now, cooldown int64, most int) {
	type end struct {
		until int64
		x     uint64
	}
	var ends []end
	b.lease = 0
	for x, s := range b.each() {
		switch {
		case s.until == 0 || b.isCooling(x):
		case s.until <= now:
			ends = append(ends, end{s.until, x})
		case b.lease == 0 || s.until < b.lease:
			b.lease = s.until
		}
	}
	slices.SortStableFunc(ends, func(a, c end) int { return int(min(max(a.until-c.until, -1), 1)) })
	if len(ends) > most {
		b.lease, ends = ends[most].until, ends[:most]
	}
	for _, e := range ends {
		b.drop(e.x, e.until, later(e.until, cooldown))
	}
}

// tidy finds the end of the lease that ends first after others were given back before their end. What time does to the block
// does not depend on it, only when it is looked at.
func (b *Block) tidy() {
	if !b.ended {
		return
	}
	b.ended, b.lease = false, 0
	for x, s := range b.each() {
		if s.until != 0 && (b.lease == 0 || s.until < b.lease) && !b.isCooling(x) {
			b.lease = s.until
		}
	}
}

func (b *Block) isCooling(x uint64) bool {
	st, _ := b.look(x)
	return st == stateCooling
}

// each yields the held and cooling ordinals with their slots, ascending.
func (b *Block) each() iter.Seq2[uint64, *slot] {
	return func(yield func(uint64, *slot) bool) {
		for first, p := range b.pages() {
			for w := p.held | p.cooling; w != 0; w &= w - 1 {
				i := uint64(bits.TrailingZeros64(w))
				if !yield(first+i, &p.slot[i]) {
					return
				}
			}
		}
	}
}

// pages yields the slots that were ever used with their first ordinal, ascending.
func (b *Block) pages() iter.Seq2[uint64, *slots] {
	return func(yield func(uint64, *slots) bool) {
		for no, p := range b.dir {
			if p != nil && !yield(uint64(no)*64, p) {
				return
			}
		}
		if len(b.sparse) == 0 {
			return
		}
		nos := make([]uint64, 0, len(b.sparse))
		for no := range b.sparse {
			nos = append(nos, no)
		}
		slices.Sort(nos)
		for _, no := range nos {
			if !yield(no*64, b.sparse[no]) {
				return
			}
		}
	}
}
