package block

import (
	"fmt"
	"iter"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/holder"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
)

// Share returns the share that the first holder allows, the zero Share if it allows no others.
func (a *Address) Share() alloc.Share {
	s, _ := readShare(a.shared)
	return s
}

// further returns the coded holders after the first.
func (a *Address) further() string {
	_, rest := readShare(a.shared)
	return rest
}

// readShare reads a coded share and returns what follows it.
func readShare(code string) (s alloc.Share, rest string) {
	s.Max, s.Key, rest = holder.Share(code)
	return s, rest
}

// IsShared reports whether the address may have other holders than the first.
func (a *Address) IsShared() bool { return a.shared != "" }

// Holders yields all holders of the address, the earliest first.
func (a *Address) Holders() iter.Seq[Holder] {
	return func(yield func(Holder) bool) {
		if !yield(a.Holder) || a.shared == "" {
			return
		}
		for h := range holdersIn(a.further()) {
			if !yield(h) {
				return
			}
		}
	}
}

// Count returns the number of holders.
func (a *Address) Count() (n int) {
	for range a.Holders() {
		n++
	}
	return n
}

// HasHolder reports whether a handle holds an ordinal.
func (b *Block) HasHolder(x uint64, handle string) bool {
	st, a := b.Look(x)
	if st != Held {
		return false
	}
	_, ok := a.Find(alloc.Guard{Handle: handle})
	return ok
}

// AllocationOf describes a held ordinal as the holder of a handle has it; "" is the first holder.
func (b *Block) AllocationOf(x uint64, handle string) alloc.Allocation {
	_, a := b.Look(x)
	h, _ := a.Find(alloc.Guard{Handle: handle})
	return a.AllocationOf(b.Addr(x), b.prefix.Bits(), h)
}

// IsKept reports whether a holder is a keeper. One always shares the address.
func (a *Address) IsKept() bool {
	if a.IsShared() {
		for h := range a.Holders() {
			if keep.Is(h.Handle) {
				return true
			}
		}
	}
	return false
}

// Find returns the holder that a guard names, the first one for a guard without conditions.
func (a *Address) Find(g alloc.Guard) (Holder, bool) {
	for h := range a.Holders() {
		if (g.Seq == 0 || g.Seq == h.Seq) && (g.Handle == "" || g.Handle == h.Handle) {
			return h, true
		}
	}
	return Holder{}, false
}

// IsHeldFor reports whether any of the holders has the address for a host.
func (a *Address) IsHeldFor(host alloc.Owner) bool {
	for h := range a.Holders() {
		if h.Host == host {
			return true
		}
	}
	return false
}

// firstEnd returns the holder whose lease ends first, among equal ends the earliest holder.
func (a *Address) firstEnd() (first Holder, ok bool) {
	for h := range a.Holders() {
		if h.Until != 0 && (!ok || h.Until < first.Until) {
			first, ok = h, true
		}
	}
	return first, ok
}

// allow lets others join the address.
func (a *Address) allow(s alloc.Share) {
	if s != (alloc.Share{}) {
		c := wire.Write(nil)
		holder.CodeShare(c, &s.Max, &s.Key)
		a.shared = string(c.B)
	}
}

// add adds a holder to an address that is shared.
func (a *Address) add(h Holder) { a.shared += string(appendHolder(nil, h)) }

// replace changes the holder with the sequence number of h.
func (a *Address) replace(h Holder) {
	if a.Seq == h.Seq {
		a.Holder = h
		return
	}
	a.rewrite(func(o Holder) (Holder, bool) {
		if o.Seq == h.Seq {
			o = h
		}
		return o, true
	})
}

// remove takes a holder away, and reports whether any is left; if not the address is as it was.
func (a *Address) remove(seq uint64) bool {
	if a.Seq == seq {
		rest := a.further()
		if rest == "" {
			return false
		}
		for h := range holdersIn(rest) {
			a.Holder, seq = h, h.Seq
			break
		}
	}
	a.rewrite(func(o Holder) (Holder, bool) { return o, o.Seq != seq })
	return true
}

// rewrite codes the holders after the first again.
func (a *Address) rewrite(to func(Holder) (Holder, bool)) {
	rest := a.further()
	dst := []byte(a.shared[:len(a.shared)-len(rest)])
	for h := range holdersIn(rest) {
		if h, ok := to(h); ok {
			dst = appendHolder(dst, h)
		}
	}
	a.shared = string(dst)
}

// codeFurther codes a holder after the first.
func (h *Holder) codeFurther(c *wire.Coder) {
	parts := h.parts()
	parts.CodeFurther(c)
	h.valid(c)
}

func appendHolder(dst []byte, h Holder) []byte {
	c := wire.Write(dst)
	h.codeFurther(c)
	return c.B
}

// holdersIn yields coded holders.
func holdersIn(s string) iter.Seq[Holder] {
	return func(yield func(Holder) bool) {
		for c := wire.Read(s); c.S != ""; {
			var h Holder
			if h.codeFurther(c); c.Err != nil || !yield(h) {
				return
			}
		}
	}
}

// lastSeq returns the sequence number of the holder that came last, the largest one.
func (a *Address) lastSeq() uint64 {
	last := a.Seq
	if a.shared != "" {
		for h := range holdersIn(a.further()) {
			last = h.Seq
		}
	}
	return last
}

// checkShared verifies the share and the holders in the record of a shared address.
func (a *Address) checkShared() error {
	c, s := wire.Read(a.shared), alloc.Share{}
	if holder.CodeShare(c, &s.Max, &s.Key); c.Err == nil && (s.Max == 0 || s.Check() != nil || a.Handle == "") {
		c.Fail("share")
	}
	handles := map[string]bool{a.Handle: true}
	for last, n := a.Seq, 1; c.S != ""; n++ {
		var h Holder
		if h.codeFurther(c); c.Err == nil && (h.Handle == "" || handles[h.Handle] || h.Seq <= last || n == s.Max) {
			c.Fail("holder")
		}
		handles[h.Handle], last = true, h.Seq
	}
	return c.Err
}

// AllowSharing lets others join the first holder of an ordinal that [Block.Hold] has just assigned, and returns its allocation.
// The zero Share changes nothing.
func (b *Block) AllowSharing(x uint64, s alloc.Share) alloc.Allocation {
	_, a := b.Look(x)
	if s != (alloc.Share{}) {
		a.allow(s)
	}
	return b.Allocation(x, a)
}

// CanJoin returns the obstacle to one more holder of a held ordinal, nil for none. It is [ipalloc.ErrOccupied] if the
// first holder allows no others, [ipalloc.ErrMismatch] for another key, and [ipalloc.ErrLimit] if the ordinal has its
// most holders.
func (b *Block) CanJoin(x uint64, key string) error {
	st, a := b.Look(x)
	if st != Held || !a.IsShared() {
		return b.CanHold(x, "")
	}
	switch s := a.Share(); {
	case s.Key != key:
		return fmt.Errorf("%w: the address is shared under the key %q", ipalloc.ErrMismatch, s.Key)
	case a.Count() >= s.Max:
		return fmt.Errorf("%w: the address has %d holders", ipalloc.ErrLimit, s.Max)
	}
	return nil
}

// maxShared bounds the record of an address with several holders, in bytes, because a change of any of them writes all.
const maxShared = 1 << 18

// CanGrow returns [ipalloc.ErrLimit] if the record of a held ordinal would be too large with h. Holder h is one more, or replaces
// the holder with its sequence number. The limit is 256 KiB, or most bytes if that is less and above 0.
func (b *Block) CanGrow(x uint64, h Holder, most int) error {
	_, a := b.Look(x)
	size := len(a.Append(nil, b.prefix.Bits())) + len(appendHolder(nil, h))
	if old, ok := a.Find(alloc.Guard{Seq: h.Seq}); ok {
		size -= len(appendHolder(nil, old))
	}
	if most <= 0 || most > maxShared {
		most = maxShared
	}
	if size > most {
		return fmt.Errorf("%w: the holders of the address with their attributes take %d bytes, at most %d", ipalloc.ErrLimit, size, most)
	}
	return nil
}

// Join adds a holder to a held ordinal, from since on, and returns its sequence number. until is the end of its lease or 0. [Block.CanJoin]
// must allow it, and none of the holders may have the handle.
func (b *Block) Join(x uint64, id Identity, since, until int64) uint64 {
	b.seq++
	b.Change(x).add(Holder{Identity: id, Seq: b.seq, Since: wire.Seconds(since), Until: until, Borrowed: b.borrows(id)})
	b.begin(until)
	return b.seq
}

// Replace replaces the holder of a held ordinal that has the sequence number of h. Its lease must stay.
func (b *Block) Replace(x uint64, h Holder) { b.Change(x).replace(h) }

// Move replaces the holder of a held ordinal that has the sequence number of h by h, which has another host or handle. It returns h with a
// new sequence number, as the last of the holders. The lease must stay.
func (b *Block) Move(x uint64, h Holder) Holder {
	b.seq++
	a, was := b.Change(x), h.Seq
	h.Seq, h.Borrowed = b.seq, b.borrows(h.Identity)
	if a.further() == "" {
		a.Holder = h
		return h
	}
	a.remove(was)
	a.add(h)
	return h
}

// Leave takes a holder away by its sequence number at the moment now; 0 is all of them. With the last one the ordinal is
// dropped, as by [Block.Drop].
func (b *Block) Leave(x, seq uint64, now, until int64) {
	st, a := b.Look(x)
	if st != Held || seq == 0 || a.further() == "" {
		b.Drop(x, now, until)
		return
	}
	if h, ok := a.Find(alloc.Guard{Seq: seq}); ok {
		b.end(h.Until)
		b.Change(x).remove(seq)
	}
}

// IsMarked reports whether the indexed attributes of every holder are the result of [Marks].
func (a *Address) IsMarked(index []string) bool {
	for h := range a.Holders() {
		if h.Indexed != Marks(h.Active, index) {
			return false
		}
	}
	return true
}

// Mark sets the indexed attributes of every holder to the result of [Marks].
func (a *Address) Mark(index []string) {
	for h := range a.Holders() {
		if h.Indexed != Marks(h.Active, index) {
			h.Indexed = Marks(h.Active, index)
			a.replace(h)
		}
	}
}

// NotFirst makes no holder the first holding of its handle.
func (a *Address) NotFirst() {
	for h := range a.Holders() {
		if h.First {
			h.First = false
			a.replace(h)
		}
	}
}

// MakeFirst makes a holder of a held ordinal, by its sequence number, the first holding of its handle.
func (b *Block) MakeFirst(x, seq uint64) {
	_, a := b.Look(x)
	if !b.changes.has(x) {
		a = b.Change(x)
	}
	h, _ := a.Find(alloc.Guard{Seq: seq})
	h.First = true
	a.replace(h)
}
