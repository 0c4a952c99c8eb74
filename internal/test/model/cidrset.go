package model

import (
	"math/big"
	"net/netip"
	"time"
)

// The failures of operations of a twin of cidrset.Set.
const (
	CidrFull       = "full"
	CidrCooling    = "cooling"
	CidrRange      = "out of range"
	CidrMisaligned = "misaligned"
	CidrPrefix     = "bad prefix"
	CidrBits       = "bad bits"
	CidrOccupied   = "occupied"
)

// CidrFailure is the reason why an operation of a twin of cidrset.Set failed. The
// zero value is success.
type CidrFailure struct {
	Kind  string
	Until time.Time    // with CidrCooling
	At    netip.Prefix // with CidrOccupied: the lowest taken child
}

// The policies of a twin of cidrset.Set.
const (
	CidrRoundRobin = iota
	CidrLowest
	CidrRandom
)

// CidrConfig is the configuration of a twin of cidrset.Set. Draw returns a random
// number below n, any number for n = 0.
type CidrConfig struct {
	Pool     netip.Prefix
	Bits     int
	Policy   int
	Draw     func(n uint64) uint64
	Cooldown time.Duration // 0: none
}

// Order returns log2 of the number of children.
func (c *CidrConfig) Order() int { return c.Bits - c.Pool.Bits() }

// Last returns the highest ordinal.
func (c *CidrConfig) Last() uint64 { return ^uint64(0) >> (64 - c.Order()) }

// Block returns the prefix of 2^k children whose first is i.
func (c *CidrConfig) Block(i uint64, k int) netip.Prefix {
	return netip.PrefixFrom(child(c.Pool, c.Bits, i).Addr(), c.Bits-k)
}

// refuse returns why no method may take p, or inside, why none may that takes only whole
// children of the pool. 4-in-6 prefixes are refused, except children of an IPv6 pool that
// contains them.
func (c *CidrConfig) refuse(p netip.Prefix, inside bool) string {
	switch overlaps := c.Pool.Overlaps(p); {
	case !p.IsValid(), p != p.Masked(), p.Addr().Is4In6() && !overlaps:
		return CidrPrefix
	case !overlaps, inside && p.Bits() < c.Pool.Bits():
		return CidrRange
	case inside && p.Bits() > c.Bits:
		return CidrMisaligned
	}
	return ""
}

// CidrSet is the twin of cidrset.Set: a [Bitmap] of the taken children, and the
// cooling ones as a list of runs, oldest first.
type CidrSet struct {
	CidrConfig
	Taken  *Bitmap
	Cold   []CidrCold
	Cursor uint64
}

// CidrCold is a run of cooling children.
type CidrCold struct {
	Lo, Hi uint64
	Until  time.Time
}

// NewCidrSet returns a twin with all children free.
func NewCidrSet(c CidrConfig) *CidrSet {
	return &CidrSet{CidrConfig: c, Taken: NewBitmap(c.Last())}
}

// with returns a copy of a bitmap with cooling children set too.
func with(b Bitmap, cold []CidrCold) *Bitmap {
	for _, c := range cold {
		b.Fill(c.Lo, c.Hi, true)
	}
	return &b
}

// locate returns the children that p, which overlaps the pool, overlaps.
func (m *CidrSet) locate(p netip.Prefix) (lo, hi uint64) {
	if p.Bits() <= m.Pool.Bits() {
		return 0, m.Last()
	}
	n := new(big.Int).SetBytes(p.Addr().AsSlice())
	n.Sub(n, new(big.Int).SetBytes(m.Pool.Addr().AsSlice()))
	lo = n.Rsh(n, uint(m.Pool.Addr().BitLen()-m.Bits)).Uint64()
	return lo, lo | (1<<max(m.Bits-p.Bits(), 0) - 1)
}

// take takes 2^k children.
func (m *CidrSet) take(i uint64, k int) (netip.Prefix, CidrFailure) {
	p := m.Block(i, k)
	_, f := m.Occupy(p)
	return p, f
}

// AllocateNext takes a child by the policy, else the oldest that has cooled.
func (m *CidrSet) AllocateNext(now time.Time) (netip.Prefix, CidrFailure) {
	busy := with(*m.Taken, m.Cold)
	i, ok := busy.Next(0, false)
	switch {
	case ok && m.Policy == CidrRoundRobin:
		if x, ok := busy.Next(m.Cursor, false); ok {
			i = x
		}
		m.Cursor = (i + 1) & m.Last()
	case ok && m.Policy == CidrRandom:
		n := m.Last() + 1 // modulo 2^64, as Draw wants it
		for _, r := range busy.Runs(true) {
			n -= r[1] - r[0] + 1
		}
		i, _ = busy.Select(m.Draw(n), false)
	case ok:
	case len(m.Cold) == 0:
		return netip.Prefix{}, CidrFailure{Kind: CidrFull}
	case m.Cold[0].Until.After(now):
		return netip.Prefix{}, CidrFailure{Kind: CidrCooling, Until: m.Cold[0].Until}
	default:
		i = m.Cold[0].Lo
	}
	return m.take(i, 0)
}

// AllocateN is n times AllocateNext, or nothing.
func (m *CidrSet) AllocateN(n int, now time.Time) (ps []netip.Prefix, f CidrFailure) {
	have, last := with(*m.Taken, m.Cold).Runs(false), CidrCold{}
	for _, c := range m.Cold {
		if SumRuns(have) < uint64(n) {
			have, last = append(have, [2]uint64{c.Lo, c.Hi}), c
		}
	}
	switch {
	case SumRuns(have) < uint64(n):
		return nil, CidrFailure{Kind: CidrFull}
	case last.Until.After(now):
		return nil, CidrFailure{Kind: CidrCooling, Until: last.Until}
	}
	for range n {
		p, _ := m.AllocateNext(now)
		ps = append(ps, p)
	}
	return ps, f
}

// AllocatePrefix takes the lowest of the smallest aligned free blocks that hold the
// length. If there is none, it also considers blocks that have cooled.
func (m *CidrSet) AllocatePrefix(length int, now time.Time) (netip.Prefix, CidrFailure) {
	k := m.Bits - length
	if k < 0 || length < m.Pool.Bits() {
		return netip.Prefix{}, CidrFailure{Kind: CidrBits}
	}
	cooling := m.Cold
	for len(cooling) > 0 && !cooling[0].Until.After(now) {
		cooling = cooling[1:]
	}
	lo, ok := with(*m.Taken, m.Cold).BestFit(k)
	if !ok {
		lo, ok = with(*m.Taken, cooling).BestFit(k)
	}
	switch {
	case ok:
		return m.take(lo, k)
	case len(cooling) > 0:
		return netip.Prefix{}, CidrFailure{Kind: CidrCooling, Until: cooling[0].Until}
	}
	return netip.Prefix{}, CidrFailure{Kind: CidrFull}
}

// Occupy takes every child that overlaps p.
func (m *CidrSet) Occupy(p netip.Prefix) (uint64, CidrFailure) {
	if kind := m.refuse(p, false); kind != "" {
		return 0, CidrFailure{Kind: kind}
	}
	lo, hi := m.locate(p)
	var left []CidrCold
	for _, c := range m.Cold {
		rest := with(*NewBitmap(m.Last()), []CidrCold{c})
		rest.Fill(lo, hi, false)
		for _, r := range rest.Runs(true) {
			left = append(left, CidrCold{r[0], r[1], c.Until})
		}
	}
	m.Cold = left
	return m.Taken.Fill(lo, hi, true), CidrFailure{}
}

// Claim takes every child inside p if none is taken.
func (m *CidrSet) Claim(p netip.Prefix) CidrFailure {
	if kind := m.refuse(p, true); kind != "" {
		return CidrFailure{Kind: kind}
	}
	lo, hi := m.locate(p)
	if in := m.Taken.In(lo, hi, true); len(in) > 0 {
		return CidrFailure{Kind: CidrOccupied, At: m.Block(in[0][0], 0)}
	}
	_, f := m.Occupy(p)
	return f
}

// Release releases every taken child inside p.
func (m *CidrSet) Release(p netip.Prefix, now time.Time) (uint64, CidrFailure) {
	if kind := m.refuse(p, true); kind != "" {
		return 0, CidrFailure{Kind: kind}
	}
	lo, hi := m.locate(p)
	until := now.Add(m.Cooldown)
	if n := len(m.Cold); n > 0 && m.Cold[n-1].Until.After(until) {
		until = m.Cold[n-1].Until
	}
	for _, r := range m.Taken.In(lo, hi, true) {
		if m.Cooldown > 0 {
			m.Cold = append(m.Cold, CidrCold{r[0], r[1], until})
		}
	}
	return m.Taken.Fill(lo, hi, false), CidrFailure{}
}

// ReleaseN releases all of ps, or nothing.
func (m *CidrSet) ReleaseN(ps []netip.Prefix, now time.Time) (n uint64, f CidrFailure) {
	for _, p := range ps {
		if kind := m.refuse(p, true); kind != "" {
			return 0, CidrFailure{Kind: kind}
		}
	}
	for _, p := range ps {
		freed, _ := m.Release(p, now)
		if n += freed; n < freed {
			n = ^uint64(0)
		}
	}
	return n, f
}

// Has reports whether p is in the pool and all it overlaps is taken.
func (m *CidrSet) Has(p netip.Prefix) bool {
	if m.refuse(p, false) != "" || p.Bits() < m.Pool.Bits() {
		return false
	}
	lo, hi := m.locate(p)
	return len(m.Taken.In(lo, hi, false)) == 0
}

// HasAny reports whether any child that p overlaps is taken.
func (m *CidrSet) HasAny(p netip.Prefix) bool {
	if m.refuse(p, false) != "" {
		return false
	}
	lo, hi := m.locate(p)
	return len(m.Taken.In(lo, hi, true)) > 0
}

// Runs returns the maximal runs of taken, cooling and free children.
func (m *CidrSet) Runs() (taken, cooling, free [][2]uint64) {
	return m.Taken.Runs(true), with(*NewBitmap(m.Last()), m.Cold).Runs(true), with(*m.Taken, m.Cold).Runs(false)
}

// Restart gives the set another policy and cooldown, as a restored one may have.
func (m *CidrSet) Restart(c CidrConfig) {
	if m.CidrConfig = c; c.Cooldown == 0 {
		m.Cold = nil
	}
}
