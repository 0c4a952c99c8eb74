package nodeipam

import (
	"net/netip"
)

// Allocate gives the owner one child for each slot, from the first pool of the
// slot that has a free one and does not drain, and returns them in the order of
// the slots: all of them or none. Within a pool it takes the first free child at
// or after the pool's cursor, wrapping, and moves the cursor just behind it. An
// owner that holds prefixes already gets those, however many and wherever from.
//
// It fails with an [*Error] that names the slot and matches [ErrFull] if a slot
// has no free child, and [ErrBadOwner] for an empty name; nothing has changed
// then, cursors included. O(log n); the result is the only thing allocated in
// steady state. Safe for concurrent use.
func (a *Allocator) Allocate(name string) ([]netip.Prefix, error) {
	return a.AppendAllocate(nil, name)
}

// AppendAllocate does what [Allocator.Allocate] does and appends the prefixes to
// dst. It does not allocate in steady state if dst has room. On an error it
// returns dst as it was.
func (a *Allocator) AppendAllocate(dst []netip.Prefix, name string) ([]netip.Prefix, error) {
	if name == "" {
		return dst, &Error{Op: "allocate", Slot: -1, Err: ErrBadOwner}
	}
	a.mu.Lock()
	if o := a.owner(name); o != nil {
		dst = append(dst, o.prefixes...)
		a.mu.Unlock()
		return dst, nil
	}
	for i, s := range a.slots {
		if s.room() == nil {
			a.mu.Unlock()
			return dst, &Error{Op: "allocate", Owner: name, Slot: i, Err: ErrFull}
		}
	}
	// From here nothing can fail: no slot takes from another's pools.
	o, number := a.newOwner(name)
	for _, s := range a.slots {
		pl := s.room()
		i, _ := pl.taken.SetNextClear(pl.cursor)
		pl.cursor = (i + 1) & pl.codec.Last()
		p := pl.codec.Prefix(i)
		o.prefixes = append(o.prefixes, p)
		a.claims.put(p, number) // free children are nobody's
	}
	start := len(dst)
	dst = append(dst, o.prefixes...)
	if a.events == nil {
		a.mu.Unlock()
		return dst, nil
	}
	a.events.add(Change{Op: OpAllocate, Nodes: []Node{{Name: name, Prefixes: clone(dst[start:])}}})
	a.mu.Unlock()
	a.deliver()
	return dst, nil
}

// room returns the first pool with a free child that does not drain, nil if there
// is none.
func (s *slot) room() *pool {
	for _, pl := range s.pools {
		if !pl.draining && !pl.taken.Full() {
			return pl
		}
	}
	return nil
}

// Release gives back what the owner holds and reports whether it held anything.
// Only what nobody else holds or has reserved, whole or in part, becomes free.
// Cursors stay, so that what was given back is used again as late as possible.
//
// O(log n) for a prefix, and what others hold inside it. It does not allocate.
// Safe for concurrent use.
func (a *Allocator) Release(name string) bool {
	a.mu.Lock()
	number, ok := a.numbers[name]
	if !ok {
		a.mu.Unlock()
		return false
	}
	var gone []netip.Prefix
	if a.events != nil {
		gone = clone(a.owners[number].prefixes)
	}
	a.release(number)
	if a.events == nil {
		a.mu.Unlock()
		return true
	}
	a.events.add(Change{Op: OpRelease, Nodes: []Node{{Name: name, Prefixes: gone}}})
	a.mu.Unlock()
	a.deliver()
	return true
}

func (a *Allocator) release(number int32) {
	o := &a.owners[number]
	for _, p := range o.prefixes {
		a.disclaim(p, number)
	}
	a.setTerminating(o, false)
	delete(a.numbers, o.name)
	a.held--
	*o = owner{prefixes: o.prefixes[:0]}
	a.spare = append(a.spare, number)
}

// Terminate notes that the owner is about to go. It keeps its prefixes until it is
// released. It reports whether the owner holds any; for one that does not there is
// nothing to note. Safe for concurrent use.
func (a *Allocator) Terminate(name string) bool {
	a.mu.Lock()
	o := a.owner(name)
	if o == nil || o.terminating {
		a.mu.Unlock()
		return o != nil
	}
	a.setTerminating(o, true)
	if a.events == nil {
		a.mu.Unlock()
		return true
	}
	a.events.add(Change{Op: OpTerminate, Nodes: []Node{{Name: name, Terminating: true}}})
	a.mu.Unlock()
	a.deliver()
	return true
}

func clone(ps []netip.Prefix) []netip.Prefix { return append([]netip.Prefix(nil), ps...) }
