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
	// Most is the largest number of holders of an address that its holders share, under Key.
	Most int
	Key  string
}

// find returns the place of a handle among the holders of an address, 0 for "", -1 for none.
func find(holders []IPSetHold, handle string) int {
	return slices.IndexFunc(holders, func(h IPSetHold) bool { return handle == "" || h.Handle == handle })
}

// IPSetBlock is the twin of block.Block. It has a list of free addresses in the order of assignment, a list of cooling
// addresses by end of cooldown, and a map of the holders of each address; that of a cooling one has its last.
type IPSetBlock struct {
	Prefix netip.Prefix
	Owner  string
	Since  time.Time // when it became empty
	Free   []netip.Addr
	Cool   []netip.Addr
	Holds  map[netip.Addr][]IPSetHold
}

// NewIPSetBlock returns an empty block that never assigns head and tail addresses at its ends.
func NewIPSetBlock(p netip.Prefix, head, tail int, now time.Time) *IPSetBlock {
	all := addresses(p)
	return &IPSetBlock{Prefix: p, Since: now, Free: all[head : len(all)-tail], Holds: make(map[netip.Addr][]IPSetHold)}
}

// clone returns a copy.
func (b *IPSetBlock) clone() *IPSetBlock {
	c := *b
	c.Free, c.Cool, c.Holds = slices.Clone(b.Free), slices.Clone(b.Cool), make(map[netip.Addr][]IPSetHold)
	for a, hs := range b.Holds {
		c.Holds[a] = slices.Clone(hs)
	}
	return &c
}

// Held reports whether an address is held.
func (b *IPSetBlock) Held(a netip.Addr) bool { return len(b.Holds[a]) > 0 && !b.Holds[a][0].Cooling }

// HeldBy returns the addresses of which a holder is as asked, ascending.
func (b *IPSetBlock) HeldBy(is func(IPSetHold) bool) (as []netip.Addr) {
	for a, hs := range b.Holds {
		if b.Held(a) && slices.ContainsFunc(hs, is) {
			as = append(as, a)
		}
	}
	slices.SortFunc(as, netip.Addr.Compare)
	return as
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
	b.Free, b.Cool = without(b.Free, []netip.Addr{a}), without(b.Cool, []netip.Addr{a})
	b.Holds[a] = []IPSetHold{h}
}

// CanTake returns the obstacle to assigning an address to a handle: "", "taken", "cooling" or "reserved".
func (b *IPSetBlock) CanTake(a netip.Addr, handle string) string {
	hs := b.Holds[a]
	switch {
	case b.Held(a):
		return "taken"
	case len(hs) > 0 && (handle == "" || hs[0].Handle != handle):
		return "cooling"
	case len(hs) == 0 && !slices.Contains(b.Free, a):
		return "reserved"
	}
	return ""
}

// CanJoin returns the obstacle to one more holder of a held address: "", "taken", "key" or "full".
func (b *IPSetBlock) CanJoin(a netip.Addr, key string) string {
	hs := b.Holds[a]
	switch {
	case hs[0].Most == 0:
		return "taken"
	case hs[0].Key != key:
		return "key"
	case len(hs) >= hs[0].Most:
		return "full"
	}
	return ""
}

// Join adds a holder.
func (b *IPSetBlock) Join(a netip.Addr, h IPSetHold) {
	h.Most = b.Holds[a][0].Most
	b.Holds[a] = append(b.Holds[a], h)
}

// Change replaces a holder by one that comes after all others of the address.
func (b *IPSetBlock) Change(a netip.Addr, i int, h IPSetHold) {
	b.Holds[a] = append(slices.Delete(b.Holds[a], i, i+1), h)
}

// Leave takes a holder away; with the last one the address is dropped.
func (b *IPSetBlock) Leave(a netip.Addr, i int, now time.Time, cooldown time.Duration) {
	if len(b.Holds[a]) == 1 {
		b.Drop(a, now, cooldown)
		return
	}
	b.Holds[a] = slices.Delete(b.Holds[a], i, i+1)
}

// Drop releases an address that is held.
func (b *IPSetBlock) Drop(a netip.Addr, now time.Time, cooldown time.Duration) {
	if cooldown == 0 {
		b.free(a, now)
		return
	}
	h := b.Holds[a][0]
	h.Since, h.Cooling, h.First, h.Until, h.Most, h.Key = now, true, false, now.Add(cooldown), 0, ""
	b.Holds[a] = []IPSetHold{h}
	b.Cool = append(b.Cool, a)
	slices.SortStableFunc(b.Cool, func(x, y netip.Addr) int { return b.Holds[x][0].Until.Compare(b.Holds[y][0].Until) })
}

// free puts an address at the end of the free ones.
func (b *IPSetBlock) free(a netip.Addr, now time.Time) {
	delete(b.Holds, a)
	if b.Free = append(b.Free, a); len(b.Holds) == 0 {
		b.Since = now
	}
}

// Decline takes an address from its holders when a holder declines it, and blocks it for a time.
func (b *IPSetBlock) Decline(a netip.Addr, i int, now time.Time, d time.Duration) {
	by := b.Holds[a][i].Handle
	b.Drop(a, now, d)
	h := &b.Holds[a][0]
	h.Handle, h.Attr, h.By, h.Declined = "", "", by, true
}

// Advance ends the leases and cooldowns that are over.
func (b *IPSetBlock) Advance(now time.Time, cooldown time.Duration) {
	over := func(h IPSetHold) bool { return !h.Until.IsZero() && !h.Until.After(now) }
	for as := b.HeldBy(over); len(as) > 0; as = b.HeldBy(over) {
		at, who, first := netip.Addr{}, 0, now.Add(1)
		for _, a := range as {
			for i, h := range b.Holds[a] {
				if over(h) && h.Until.Before(first) {
					at, who, first = a, i, h.Until
				}
			}
		}
		b.Leave(at, who, first, cooldown)
	}
	for len(b.Cool) > 0 && over(b.Holds[b.Cool[0]][0]) {
		a := b.Cool[0]
		b.Cool = b.Cool[1:]
		b.free(a, b.Holds[a][0].Until)
	}
}

// Used returns the number of addresses held.
func (b *IPSetBlock) Used() int { return len(b.Holds) - len(b.Cool) }
