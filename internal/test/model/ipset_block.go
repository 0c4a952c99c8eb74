package model

import (
	"net/netip"
	"slices"
	"time"
)

// IPSetHold is one address of an [IPSetBlock] that is held or cooling.
type IPSetHold struct {
	Handle  string
	Host    string // who it is held for, where the block's owner does not say
	Attr    string
	Since   time.Time // when the holder got it, or when it began to cool
	Until   time.Time // end of the lease or of the cooldown; zero for none
	Cooling bool
	First   bool // the holding that Assign returns of several
	// Declined says that the address cools because By, the handle that had it, declined it.
	Declined bool
	By       string
	// Most is the largest number of holders if the first shares the address, under Key; More are the other holders.
	Most int
	Key  string
	More []IPSetHold
}

// Holders returns all holders, the first one first.
func (h IPSetHold) Holders() []IPSetHold {
	first := h
	first.More = nil
	return append([]IPSetHold{first}, h.More...)
}

// find returns the place of a handle among the holders, that of the first for "", -1 for none.
func (h IPSetHold) find(handle string) int {
	if handle == "" {
		return 0
	}
	return slices.IndexFunc(h.Holders(), func(o IPSetHold) bool { return o.Handle == handle })
}

// until returns the end of the lease of a holder.
func (h IPSetHold) until(i int) time.Time { return h.Holders()[i].Until }

// holds reports whether an address is held.
func (b *IPSetBlock) holds(a netip.Addr) bool {
	h, ok := b.Holds[a]
	return ok && !h.Cooling
}

// extend moves the end of the lease of a holder.
func (b *IPSetBlock) extend(a netip.Addr, i int, until time.Time) {
	b.change(a, i, func(h *IPSetHold) { h.Until = until })
}

// change changes a holder.
func (b *IPSetBlock) change(a netip.Addr, i int, f func(*IPSetHold)) {
	h := b.Holds[a]
	if i == 0 {
		f(&h)
	} else {
		h.More = slices.Clone(h.More)
		f(&h.More[i-1])
	}
	b.Holds[a] = h
}

// CanJoin returns the obstacle to one more holder of a held address: "", "taken", "key" or "full".
func (b *IPSetBlock) CanJoin(a netip.Addr, key string) string {
	h := b.Holds[a]
	switch {
	case h.Most == 0:
		return "taken"
	case h.Key != key:
		return "key"
	case 1+len(h.More) >= h.Most:
		return "full"
	}
	return ""
}

// Join adds a holder.
func (b *IPSetBlock) Join(a netip.Addr, o IPSetHold) {
	h := b.Holds[a]
	o.Most, o.Key = 0, ""
	h.More = append(slices.Clone(h.More), o)
	b.Holds[a] = h
}

// Leave takes a holder away; with the last one the address is dropped.
func (b *IPSetBlock) Leave(a netip.Addr, i int, now time.Time, cooldown time.Duration) {
	h := b.Holds[a]
	if len(h.More) == 0 {
		b.Drop(a, now, cooldown)
		return
	}
	if i == 0 {
		first := h.More[0]
		first.Most, first.Key, first.More = h.Most, h.Key, h.More
		h, i = first, 1
	}
	h.More = slices.Delete(slices.Clone(h.More), i-1, i)
	b.Holds[a] = h
}

// IPSetBlock is the twin of block.Block. It has a list of free addresses in the order of assignment, a list of cooling
// addresses by end of cooldown, and a map of holders.
type IPSetBlock struct {
	Prefix netip.Prefix
	Owner  string
	Since  time.Time // when it became empty
	Free   []netip.Addr
	Cool   []netip.Addr
	Holds  map[netip.Addr]IPSetHold
}

// NewIPSetBlock returns an empty block that never assigns head and tail addresses at its ends.
func NewIPSetBlock(p netip.Prefix, head, tail int, now time.Time) *IPSetBlock {
	b := &IPSetBlock{Prefix: p, Since: now, Holds: make(map[netip.Addr]IPSetHold)}
	var all []netip.Addr
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		all = append(all, a)
	}
	b.Free = slices.Clone(all[head : len(all)-tail])
	return b
}

// Peek returns the next n addresses that may be taken.
func (b *IPSetBlock) Peek(n int, avoid func(netip.Addr) bool) []netip.Addr {
	var out []netip.Addr
	for _, a := range b.Free {
		if len(out) < n && (avoid == nil || !avoid(a)) {
			out = append(out, a)
		}
	}
	return out
}

// Take gives an address, free or cooling, to a handle.
func (b *IPSetBlock) Take(a netip.Addr, h IPSetHold) {
	without := func(as []netip.Addr) []netip.Addr {
		return slices.DeleteFunc(as, func(x netip.Addr) bool { return x == a })
	}
	b.Free, b.Cool = without(b.Free), without(b.Cool)
	b.Holds[a] = h
}

// CanTake returns the obstacle to assigning an address to a handle: "", "taken", "cooling" or "reserved".
func (b *IPSetBlock) CanTake(a netip.Addr, handle string) string {
	h, ok := b.Holds[a]
	switch {
	case ok && !h.Cooling:
		return "taken"
	case ok && (handle == "" || h.Handle != handle):
		return "cooling"
	case !ok && !slices.Contains(b.Free, a):
		return "reserved"
	}
	return ""
}

// Drop releases an address that is held.
func (b *IPSetBlock) Drop(a netip.Addr, now time.Time, cooldown time.Duration) {
	h := b.Holds[a]
	if cooldown > 0 {
		h.Since = now
		h.Cooling, h.First, h.Until, h.Most, h.Key, h.More = true, false, now.Add(cooldown), 0, "", nil
		b.Holds[a] = h
		i := len(b.Cool)
		for i > 0 && b.Holds[b.Cool[i-1]].Until.After(h.Until) {
			i--
		}
		b.Cool = slices.Insert(b.Cool, i, a)
	} else {
		delete(b.Holds, a)
		b.Free = append(b.Free, a)
	}
	if len(b.Holds) == 0 {
		b.Since = now
	}
}

// Decline takes an address from its holders when a holder declines it, and blocks it for a time.
func (b *IPSetBlock) Decline(a netip.Addr, i int, now time.Time, d time.Duration) {
	by := b.Holds[a].Holders()[i].Handle
	b.Drop(a, now, d)
	h := b.Holds[a]
	h.Handle, h.Attr, h.By, h.Declined = "", "", by, true
	b.Holds[a] = h
}

// Advance ends the leases and cooldowns that are over.
func (b *IPSetBlock) Advance(now time.Time, cooldown time.Duration) {
	for {
		first, at, who := time.Time{}, netip.Addr{}, 0
		for a, h := range b.Holds {
			for i, o := range h.Holders() {
				if h.Cooling || o.Until.IsZero() || o.Until.After(now) {
					continue
				}
				if !at.IsValid() || o.Until.Before(first) || o.Until.Equal(first) && a.Less(at) {
					first, at, who = o.Until, a, i
				}
			}
		}
		if !at.IsValid() {
			break
		}
		b.Leave(at, who, first, cooldown)
	}
	for len(b.Cool) > 0 && !b.Holds[b.Cool[0]].Until.After(now) {
		a := b.Cool[0]
		until := b.Holds[a].Until
		b.Cool = b.Cool[1:]
		delete(b.Holds, a)
		b.Free = append(b.Free, a)
		if len(b.Holds) == 0 {
			b.Since = until
		}
	}
}

// Used returns the number of addresses held.
func (b *IPSetBlock) Used() int { return len(b.Holds) - len(b.Cool) }

// HeldBy returns the addresses that a handle holds, ascending.
func (b *IPSetBlock) HeldBy(handle string) []netip.Addr {
	var out []netip.Addr
	for a, h := range b.Holds {
		if h.find(handle) >= 0 && !h.Cooling {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
