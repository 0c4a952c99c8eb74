package model

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Prefixes is the twin of prefixes.Allocator: a list of pools and a map of held
// prefixes. Its pools are small, and a lease is deleted the moment that it ends.
type Prefixes struct {
	Now   time.Time // moved by Pass
	Roots []PrefixPool
	Held  map[netip.Prefix]PrefixHolding
}

// PrefixPool is a root pool of [Prefixes] with the lengths that it assigns.
type PrefixPool struct {
	Prefix            netip.Prefix
	Shortest, Longest int
}

// PrefixHolding is the record of a prefix in [Prefixes]. Shortest and Longest are 0 for
// a prefix that is not a pool.
type PrefixHolding struct {
	Owner             string
	Pool              netip.Prefix
	Shortest, Longest int
	Attributes        string
	Until             time.Time // the zero time for one that is no lease
}

// NewPrefixes returns a twin without pools.
func NewPrefixes() *Prefixes {
	return &Prefixes{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Held: map[netip.Prefix]PrefixHolding{}}
}

// End returns when a lease that begins now ends, the zero time for a ttl of 0.
func (m *Prefixes) End(ttl time.Duration) (until time.Time) {
	if ttl > 0 {
		until = m.Now.Add(ttl)
	}
	return until
}

// Pass has time pass.
func (m *Prefixes) Pass(d time.Duration) {
	m.Now = m.Now.Add(d)
	maps.DeleteFunc(m.Held, func(_ netip.Prefix, h PrefixHolding) bool { return !h.Until.IsZero() && !h.Until.After(m.Now) })
}

// AddPool returns "" or "exists".
func (m *Prefixes) AddPool(pool PrefixPool) string {
	for _, r := range m.Roots {
		if r == pool {
			return ""
		}
		if r.Prefix.Overlaps(pool.Prefix) {
			return "exists"
		}
	}
	m.Roots = append(m.Roots, pool)
	return ""
}

// RemovePool returns "", "not found" or "in use".
func (m *Prefixes) RemovePool(pool netip.Prefix) string {
	left := slices.DeleteFunc(slices.Clone(m.Roots), func(r PrefixPool) bool { return r.Prefix == pool })
	switch {
	case len(left) == len(m.Roots):
		return "not found"
	case m.used(pool):
		return "in use"
	}
	m.Roots = left
	return ""
}

func (m *Prefixes) used(pool netip.Prefix) bool {
	for _, h := range m.Held {
		if h.Pool == pool {
			return true
		}
	}
	return false
}

// open returns "", "not found", "out of range", or "invalid" for a lease that is a pool.
func (m *Prefixes) open(h PrefixHolding, bits int) string {
	pool := m.Held[h.Pool]
	shortest, longest := pool.Shortest, pool.Longest
	for _, r := range m.Roots {
		if r.Prefix == h.Pool {
			shortest, longest = r.Shortest, r.Longest
		}
	}
	switch {
	case h.Longest > 0 && !h.Until.IsZero():
		return "invalid"
	case longest == 0:
		return "not found"
	case bits < shortest || bits > longest:
		return "out of range"
	}
	return ""
}

// Free returns the free prefixes of a pool, each as large as possible, in address order.
// A prefix without any held part is free, a held prefix is not, and any other is divided
// into two halves.
func (m *Prefixes) Free(pool netip.Prefix) []netip.Prefix {
	return m.free(nil, pool, pool)
}

func (m *Prefixes) free(dst []netip.Prefix, pool, p netip.Prefix) []netip.Prefix {
	free := true
	for at, h := range m.Held {
		if h.Pool != pool || !at.Overlaps(p) {
			continue
		}
		if at.Bits() <= p.Bits() {
			return dst
		}
		free = false
	}
	if free {
		return append(dst, p)
	}
	for half := range uint64(2) {
		dst = m.free(dst, pool, child(p, p.Bits()+1, half))
	}
	return dst
}

// Fits returns the prefix that comes next, or "not found", "out of range" or "full".
func (m *Prefixes) Fits(pool netip.Prefix, bits int) (at netip.Prefix, why string) {
	if why := m.open(PrefixHolding{Pool: pool}, bits); why != "" {
		return at, why
	}
	var best netip.Prefix
	for _, p := range m.Free(pool) {
		if p.Bits() <= bits && (!best.IsValid() || p.Bits() > best.Bits()) {
			best = p
		}
	}
	if !best.IsValid() {
		return at, "full"
	}
	return netip.PrefixFrom(best.Addr(), bits), ""
}

// Allocate returns the prefix, or the answer of Fits, or "invalid".
func (m *Prefixes) Allocate(bits int, h PrefixHolding) (at netip.Prefix, why string) {
	if why := m.open(h, bits); why != "" {
		return at, why
	}
	at, why = m.Fits(h.Pool, bits)
	if why == "" {
		m.Held[at] = h
	}
	return at, why
}

// Assign returns the lowest prefix of that length that the owner holds from the pool, or
// allocates one.
func (m *Prefixes) Assign(bits int, h PrefixHolding) (netip.Prefix, string) {
	if why := m.open(h, bits); why != "" {
		return netip.Prefix{}, why
	}
	for _, at := range m.Sorted() {
		if got := m.Held[at]; got.Owner == h.Owner && got.Pool == h.Pool && at.Bits() == bits {
			return at, ""
		}
	}
	return m.Allocate(bits, h)
}

// Sorted returns all held prefixes in address order, IPv4 first, larger ones first.
func (m *Prefixes) Sorted() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(m.Held), comparePrefixes)
}

// Occupy returns "", "out of range", "invalid", "not found" or "occupied", and with
// that the holding in the way.
func (m *Prefixes) Occupy(at netip.Prefix, h PrefixHolding) (why string, inTheWay netip.Prefix) {
	if at.Bits() < h.Pool.Bits() || !h.Pool.Contains(at.Addr()) {
		return "out of range", inTheWay
	}
	if why := m.open(h, at.Bits()); why != "" {
		return why, inTheWay
	}
	if got, ok := m.Held[at]; ok && got.Owner == h.Owner && got.Pool == h.Pool {
		return "", inTheWay
	}
	for _, p := range m.Sorted() {
		if m.Held[p].Pool == h.Pool && p.Overlaps(at) {
			return "occupied", p
		}
	}
	m.Held[at] = h
	return "", inTheWay
}

// Release returns "", "not held" or "in use".
func (m *Prefixes) Release(owner string, at netip.Prefix) string {
	if m.Held[at].Owner != owner {
		return "not held"
	}
	if m.used(at) {
		return "in use"
	}
	delete(m.Held, at)
	return ""
}

// ReleaseByOwner releases from the last prefix on until one is in use.
func (m *Prefixes) ReleaseByOwner(owner string) (released []netip.Prefix, why string) {
	all := m.Sorted()
	slices.Reverse(all)
	for _, at := range all {
		if m.Held[at].Owner != owner {
			continue
		}
		if why := m.Release(owner, at); why != "" {
			return released, why
		}
		released = append(released, at)
	}
	return released, ""
}

// Change gives a holding another owner and attributes, or returns "not held".
func (m *Prefixes) Change(at netip.Prefix, owner, to, attributes string) string {
	h, ok := m.Held[at]
	if !ok || h.Owner != owner {
		return "not held"
	}
	h.Owner, h.Attributes = to, attributes
	m.Held[at] = h
	return ""
}

// Renew moves the end of a holding, or returns "not held", "invalid" for a lease that would be a pool, or within the rules
// "out of range" for a length that its pool no longer assigns.
func (m *Prefixes) Renew(at netip.Prefix, owner string, ttl time.Duration, within bool) string {
	h := m.Held[at]
	switch {
	case h.Owner != owner:
		return "not held"
	case h.Longest > 0 && ttl > 0:
		return "invalid"
	}
	if why := m.open(PrefixHolding{Pool: h.Pool}, at.Bits()); within && why != "" {
		return why
	}
	h.Until = m.End(ttl)
	m.Held[at] = h
	return ""
}

// SetChildren gives a holding other children, or returns "not held", "invalid" for a lease, or "in use" where none are left.
func (m *Prefixes) SetChildren(at netip.Prefix, owner string, shortest, longest int) string {
	h := m.Held[at]
	switch {
	case h.Owner != owner:
		return "not held"
	case longest > 0 && (!h.Until.IsZero() || at == h.Pool):
		return "invalid"
	case longest == 0 && h.Longest > 0 && m.used(at):
		return "in use"
	}
	h.Shortest, h.Longest = shortest, longest
	m.Held[at] = h
	return ""
}

// Path returns the held prefixes that contain a prefix, the largest first.
func (m *Prefixes) Path(at netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(m.Sorted(), func(p netip.Prefix) bool { return p.Bits() > at.Bits() || !p.Contains(at.Addr()) })
}
