package block

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Block is one block of addresses: the holder of each, and the queue of the free ones.
//
// Every ordinal is in exactly one state: free, held, cooling or reserved. A free ordinal is in the queue. A cooling
// ordinal was released and is in the cooling queue until its time. Reserved ordinals are the first and the last ones,
// kept from assignment. Ordinals count from 0 at the base address. The caller passes the time; [Block.Advance] applies
// the changes that time alone makes.
//
// Assigning and releasing cost O(1) amortised. Not safe for concurrent use. Use [New] or [Restore] to
// make one; the zero value is unusable.
type Block struct {
	prefix     netip.Prefix
	codec      addr.Codec // ordinal <-> address
	last       uint64     // the highest ordinal
	head, tail uint64     // reserved ordinals at both ends
	owner      alloc.Owner
	former     string // codes of the owners before, each ended by NUL, for whom addresses may still be held
	claimed    int64  // when the present owner got the block
	since      int64  // when it last became empty; of use only while it is
	seq        uint64 // the last sequence number given
	lease      int64  // no lease ends before; 0: there is none
	leases     uint64 // holders of addresses that have a lease
	ended      bool   // the lease that ends first may have been given back; tidy finds the next

	free   queue
	cool   []cooling // in the order in which they are free again
	used   uint64    // held ordinals
	dir    []*slots  // by ordinal / 64, for blocks of up to dirMax addresses
	sparse map[uint64]*slots
	absent uint64 // held and cooling ordinals whose address is not loaded; 0 outside an engine

	spare   *Address // for the next one; used outside an engine
	changes *Changes // where to note what address records were; nil outside an engine
}

// cooling is one cooling ordinal. until is the moment it is free; 0 if only its address record knows. The moments of
// the first and the last are always known.
type cooling struct {
	x     uint64
	until int64
}

// slots are 64 ordinals in a row. at has the addresses that are loaded; it is nil until there is one.
type slots struct {
	held, cooling uint64
	at            []*Address
}

const (
	// dirMax is the largest block whose slots are found by index: 1,024 pointers. Beyond, a map costs less.
	dirMax = 1 << 16
	// maxHeld bounds the addresses held in one block, because a block's record lists the other addresses. It bounds
	// the cost of a damaged record.
	maxHeld = 1 << 24
)

// Options configures a new block. The zero value is a block without owner or reserved ordinals.
type Options struct {
	Owner alloc.Owner
	// Head and Tail are how many ordinals at the two ends are reserved for the host.
	Head, Tail uint64
	// Claimed is when the owner gets the block.
	Claimed time.Time
	// Seq is the last sequence number in use; the block's first assignment gets the next one.
	Seq uint64
}

// New returns an empty block.
//
// It returns [ipalloc.ErrInvalid] for a prefix that is not masked, and if the block has more than 2^64
// addresses or Head and Tail leave none to assign.
func New(p netip.Prefix, o Options) (*Block, error) {
	b := new(Block)
	if err := b.reset(p, o.Head, o.Tail); err != nil {
		return nil, err
	}
	b.owner, b.claimed, b.since, b.seq = o.Owner, wire.Stamp(o.Claimed), wire.Stamp(o.Claimed), o.Seq
	b.free.spans = []Span{{b.head, b.last - b.tail}}
	return b, nil
}

// reset makes b an empty block with nothing in its queue, in the same memory.
func (b *Block) reset(p netip.Prefix, head, tail uint64) error {
	if err := CheckPrefix(p); err != nil {
		return err
	}
	codec, err := addr.NewCodec(p, p.Addr().BitLen())
	if err != nil {
		return cause.Wrap(ipalloc.Error{Op: "new", Prefix: p, Err: cause.Invalid("Prefix", "a block of more than 2^64 addresses")})
	}
	spans, cool, dir := b.free.spans[:0], b.cool[:0], b.dir
	*b = Block{prefix: p, codec: codec, last: codec.Last(), head: head, tail: tail, free: queue{spans: spans}, cool: cool}
	if head > b.last || tail > b.last-head {
		return cause.Wrap(ipalloc.Error{Op: "new", Prefix: p, Err: cause.Invalid("Head", "%d and %d addresses to reserve leave none of the block", head, tail)})
	}
	if len(dir) > 0 && dir[0] != nil && b.last < 64 {
		*dir[0] = slots{}
		b.dir = dir[:1]
	}
	return nil
}

// CheckPrefix refuses prefixes that are invalid, not masked, or 4-in-6.
func CheckPrefix(p netip.Prefix) error {
	if err := addr.Check(p); err != nil {
		return failed(ipalloc.Error{Op: "check", Field: "Prefix", Prefix: p, Reason: err.Error(), Err: ipalloc.ErrInvalid})
	}
	return nil
}

// Addr returns the address of an ordinal.
func (b *Block) Addr(x uint64) netip.Addr { return b.codec.Addr(x) }

// Ordinal returns the ordinal of an address.
func (b *Block) Ordinal(a netip.Addr) (uint64, error) {
	x, ok := b.codec.Ordinal(a)
	if !ok {
		return 0, failed(ipalloc.Error{Op: "look up", Addr: a, Pool: b.prefix, Err: ipalloc.ErrOutOfRange})
	}
	return x, nil
}

// page returns the slots of the ordinals around x, nil if none was ever used; with create they are made.
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
	p := &slots{}
	if b.last >= dirMax {
		if b.sparse == nil {
			b.sparse = make(map[uint64]*slots)
		}
		b.sparse[no] = p
		return p
	}
	if b.dir == nil && no == 0 {
		b.dir = make([]*slots, 0, 1)
	}
	for uint64(len(b.dir)) <= no {
		b.dir = append(b.dir, nil)
	}
	b.dir[no] = p
	return p
}

// State is the state of an ordinal.
type State uint8

const (
	// Free ordinals are in the queue.
	Free State = iota
	// Held ordinals are assigned.
	Held
	// Cooling ordinals have been released and are not free yet.
	Cooling
	// Reserved ordinals are at the ends of the block and are never assigned.
	Reserved
)

// Look returns the state of an ordinal and, if it is held or cooling and loaded, its address.
func (b *Block) Look(x uint64) (State, *Address) {
	if x < b.head || x > b.last-b.tail {
		return Reserved, nil
	}
	if p := b.page(x, false); p != nil {
		switch bit := uint64(1) << (x & 63); {
		case p.held&bit != 0:
			return Held, p.get(x)
		case p.cooling&bit != 0:
			return Cooling, p.get(x)
		}
	}
	return Free, nil
}

// IsAbsent reports whether an ordinal is held or cooling and its address is not loaded.
func (b *Block) IsAbsent(x uint64) bool {
	st, a := b.Look(x)
	return a == nil && (st == Held || st == Cooling)
}

func (p *slots) get(x uint64) *Address {
	if p.at == nil {
		return nil
	}
	return p.at[x&63]
}

// set sets the address of an ordinal.
func (b *Block) set(p *slots, x uint64, a *Address) {
	if p.at == nil {
		if a == nil {
			return
		}
		p.at = make([]*Address, min(b.last, 63)+1)
	}
	p.at[x&63] = a
}

// Load sets the address of a held or cooling ordinal from its record.
func (b *Block) Load(x uint64, a *Address) {
	p := b.page(x, true)
	if p.get(x) == nil {
		b.absent--
	}
	b.set(p, x, a)
	if !a.Cooling {
		return
	}
	if i := b.coolAt(x); i >= 0 {
		b.cool[i].until = a.Until
	}
}

// coolAt returns the place of an ordinal in the cooling queue, -1 for none.
func (b *Block) coolAt(x uint64) int {
	return slices.IndexFunc(b.cool, func(c cooling) bool { return c.x == x })
}

// CoolsUntil returns when a cooling ordinal is free, or when the last one is if only its address record knows.
func (b *Block) CoolsUntil(x uint64) int64 {
	if until := b.cool[b.coolAt(x)].until; until != 0 {
		return until
	}
	return b.cool[len(b.cool)-1].until
}

// KnowsCooling reports whether it is known when each cooling address is free.
func (b *Block) KnowsCooling() bool {
	return b.absent == 0 || !slices.ContainsFunc(b.cool, func(c cooling) bool { return c.until == 0 })
}

// Hold gives a free or cooling ordinal to an identity, from since on, and returns the sequence number. until is the end of the lease or
// 0. If the ordinal cools, KnowsCooling must hold.
func (b *Block) Hold(x uint64, id Identity, since, until int64) uint64 {
	p := b.page(x, true)
	bit := uint64(1) << (x & 63)
	if p.cooling&bit != 0 {
		i := b.coolAt(x)
		b.cool = slices.Delete(b.cool, i, i+1)
		if p.get(x) == nil {
			b.absent--
		}
		b.changes.note(x, p.get(x), true)
	} else {
		b.free.remove(x)
		b.changes.note(x, nil, false)
	}
	b.seq++
	p.held |= bit
	p.cooling &^= bit
	a := b.fresh()
	*a = Address{Holder: Holder{Identity: id, Seq: b.seq, Since: wire.Seconds(since), Until: until, Borrowed: b.borrows(id)}}
	b.set(p, x, a)
	b.used++
	b.begin(until)
	return b.seq
}

// borrows reports whether an address of the block is borrowed by a holder who gets it now.
func (b *Block) borrows(id Identity) bool { return id.Host != b.owner && id.Host.Kind != alloc.Nobody }

// begin and end count the leases; 0 is none.
func (b *Block) begin(until int64) {
	if until == 0 {
		return
	}
	b.leases++
	if b.lease == 0 || until < b.lease {
		b.lease = until
	}
}

func (b *Block) end(until int64) {
	if until != 0 {
		b.leases -= min(b.leases, 1) // a damaged record may have it otherwise
		b.ended = true
	}
}

// fresh returns an address to be filled in.
func (b *Block) fresh() *Address {
	if b.changes != nil {
		return b.changes.make()
	}
	if a := b.spare; a != nil {
		b.spare = nil
		return a
	}
	return new(Address)
}

// Put gives a free ordinal the address that another store says it has; see [Restore].
func (b *Block) Put(x uint64, a Address) error {
	if st, _ := b.Look(x); x > b.last || st != Free || !b.free.remove(x) {
		return fmt.Errorf("%w: %s is not free", ipalloc.ErrOccupied, b.Addr(min(x, b.last)))
	}
	b.changes.note(x, nil, false)
	p, bit := b.page(x, true), uint64(1)<<(x&63)
	to := b.fresh()
	*to = a
	b.set(p, x, to)
	if a.Cooling {
		p.cooling |= bit
		b.cools(x, a.Until)
		return nil
	}
	p.held |= bit
	b.used++
	for h := range a.Holders() {
		b.begin(h.Until)
	}
	return nil
}

// Change returns the address of a held ordinal to be changed.
func (b *Block) Change(x uint64) *Address {
	p := b.page(x, false)
	old := p.get(x)
	if b.changes == nil {
		return old
	}
	b.changes.note(x, old, true)
	a := b.changes.make()
	*a = *old
	b.set(p, x, a)
	return a
}

// cools puts an ordinal into the cooling queue behind the ordinals that are free no later.
func (b *Block) cools(x uint64, until int64) {
	i := len(b.cool)
	for i > 0 && b.cool[i-1].until > until {
		i--
	}
	b.cool = slices.Insert(b.cool, i, cooling{x, until})
}

// Drop releases a held ordinal at the moment now; it is free again after until, which is now if there is no cooldown. If the last
// cooling ordinal is free later than until, KnowsCooling must hold.
func (b *Block) Drop(x uint64, now, until int64) {
	p := b.page(x, false)
	bit := uint64(1) << (x & 63)
	old := p.get(x)
	for h := range old.Holders() {
		b.end(h.Until)
	}
	b.used--
	p.held &^= bit
	if until > now {
		a := b.Change(x)
		a.Cooling, a.First, a.Since, a.Until, a.shared = true, false, wire.Seconds(now), until, ""
		p.cooling |= bit
		b.cools(x, until)
	} else {
		b.changes.note(x, old, true)
		b.set(p, x, nil)
		b.free.push(x)
		if b.changes == nil {
			b.spare = old
		}
	}
	if b.used == 0 {
		b.former = ""
		if len(b.cool) == 0 {
			b.since = now
		}
	}
}

func (b *Block) IsCooling(x uint64) bool {
	st, _ := b.Look(x)
	return st == Cooling
}

// Each yields the held and cooling ordinals whose addresses are loaded, ascending.
func (b *Block) Each() iter.Seq2[uint64, *Address] {
	return func(yield func(uint64, *Address) bool) {
		for first, p := range b.pages() {
			for w := p.held | p.cooling; w != 0; w &= w - 1 {
				x := first + uint64(bits.TrailingZeros64(w))
				if a := p.get(x); a != nil && !yield(x, a) {
					return
				}
			}
		}
	}
}

// AppendAbsent appends the ordinals whose addresses are not loaded, ascending.
func (b *Block) AppendAbsent(dst []uint64) []uint64 {
	if b.absent == 0 {
		return dst
	}
	for first, p := range b.pages() {
		for w := p.held | p.cooling; w != 0; w &= w - 1 {
			if x := first + uint64(bits.TrailingZeros64(w)); p.get(x) == nil {
				dst = append(dst, x)
			}
		}
	}
	return dst
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
