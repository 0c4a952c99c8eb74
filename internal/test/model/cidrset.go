package model

import (
	"math/big"
	"math/bits"
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
func (c *CidrConfig) Last() uint64 {
	n := new(big.Int).Lsh(big.NewInt(1), uint(c.Order()))
	return n.Sub(n, big.NewInt(1)).Uint64()
}

// Block returns the prefix of 2^k children whose first is i.
func (c *CidrConfig) Block(i uint64, k int) netip.Prefix {
	width := c.Pool.Addr().BitLen()
	n := new(big.Int).SetUint64(i)
	n.Lsh(n, uint(width-c.Bits))
	n.Add(n, new(big.Int).SetBytes(c.Pool.Addr().AsSlice()))
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, width/8)))
	return netip.PrefixFrom(a, c.Bits-k)
}

// Refuse returns CidrPrefix for a prefix that no method may take. It refuses 4-in-6
// prefixes, except children of an IPv6 pool that contains them.
func (c *CidrConfig) Refuse(p netip.Prefix) string {
	switch {
	case !p.IsValid(), p != p.Masked(), p.Addr().Is4In6() && !c.Pool.Overlaps(p):
		return CidrPrefix
	}
	return ""
}

// refuseRelease is Refuse and what else Release refuses.
func (c *CidrConfig) refuseRelease(p netip.Prefix) string {
	switch {
	case c.Refuse(p) != "":
		return CidrPrefix
	case !c.Pool.Overlaps(p), p.Bits() < c.Pool.Bits():
		return CidrRange
	case p.Bits() > c.Bits:
		return CidrMisaligned
	}
	return ""
}

// CidrSet is the twin of cidrset.Set: a [Bitmap] of the children that are taken or
// cooling, and the cooling ones as a list of runs, oldest first.
type CidrSet struct {
	CidrConfig
	Busy   *Bitmap
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
	return &CidrSet{CidrConfig: c, Busy: NewBitmap(c.Last())}
}

// SumRuns returns how many ordinals the runs have, at most the largest uint64.
func SumRuns(runs [][2]uint64) (n uint64) {
	for _, r := range runs {
		sum, carry := bits.Add64(n, r[1]-r[0], 0)
		one, more := bits.Add64(sum, 1, 0)
		if carry+more != 0 {
			return ^uint64(0)
		}
		n = one
	}
	return n
}

// locate returns the children that p, which is in the pool, overlaps.
func (m *CidrSet) locate(p netip.Prefix) (lo, hi uint64) {
	if p.Bits() <= m.Pool.Bits() {
		return 0, m.Last()
	}
	width := uint(m.Pool.Addr().BitLen())
	first := new(big.Int).SetBytes(p.Addr().AsSlice())
	first.Sub(first, new(big.Int).SetBytes(m.Pool.Addr().AsSlice()))
	size := new(big.Int).Lsh(big.NewInt(1), width-uint(p.Bits()))
	last := new(big.Int).Add(first, size.Sub(size, big.NewInt(1)))
	child := width - uint(m.Bits)
	return first.Rsh(first, child).Uint64(), last.Rsh(last, child).Uint64()
}

// AllocateNext takes a child by the policy, else the oldest that has cooled.
func (m *CidrSet) AllocateNext(now time.Time) (netip.Prefix, CidrFailure) {
	free := m.Busy.Runs(false)
	if len(free) == 0 {
		switch {
		case len(m.Cold) == 0:
			return netip.Prefix{}, CidrFailure{Kind: CidrFull}
		case m.Cold[0].Until.After(now):
			return netip.Prefix{}, CidrFailure{Kind: CidrCooling, Until: m.Cold[0].Until}
		}
		i := m.Cold[0].Lo
		m.uncool(i, i)
		return m.Block(i, 0), CidrFailure{}
	}
	i := free[0][0]
	switch m.Policy {
	case CidrRoundRobin:
		if x, ok := m.Busy.Next(m.Cursor, false); ok {
			i = x
		}
		if m.Cursor = 0; i != m.Last() {
			m.Cursor = i + 1
		}
	case CidrRandom:
		n := uint64(0) // modulo 2^64, as Draw wants it
		for _, r := range free {
			n += r[1] - r[0] + 1
		}
		i, _ = m.Busy.Select(m.Draw(n), false)
	}
	m.Busy.SetRange(i, i)
	return m.Block(i, 0), CidrFailure{}
}

// uncool takes what is in [lo, hi] out of the list and returns the runs it was.
func (m *CidrSet) uncool(lo, hi uint64) (gone [][2]uint64) {
	var left []CidrCold
	for _, c := range m.Cold {
		if c.Hi < lo || hi < c.Lo {
			left = append(left, c)
			continue
		}
		if c.Lo < lo {
			left = append(left, CidrCold{c.Lo, lo - 1, c.Until})
		}
		if c.Hi > hi {
			left = append(left, CidrCold{hi + 1, c.Hi, c.Until})
		}
		gone = append(gone, [2]uint64{max(lo, c.Lo), min(hi, c.Hi)})
	}
	m.Cold = left
	return gone
}

// AllocateN is n times AllocateNext, or nothing.
func (m *CidrSet) AllocateN(n int, now time.Time) (ps []netip.Prefix, f CidrFailure) {
	if fresh := SumRuns(m.Busy.Runs(false)); fresh < uint64(n) {
		missing := uint64(n) - fresh
		f.Kind = CidrFull
		for _, c := range m.Cold {
			if c.Hi-c.Lo >= missing-1 {
				if f.Kind = ""; c.Until.After(now) {
					f = CidrFailure{Kind: CidrCooling, Until: c.Until}
				}
				break
			}
			missing -= c.Hi - c.Lo + 1
		}
	}
	if f.Kind != "" {
		return nil, f
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
	lo, ok := m.Busy.BestFit(k)
	if !ok {
		ready := 0
		for ; ready < len(m.Cold) && !m.Cold[ready].Until.After(now); ready++ {
			m.Busy.ClearRange(m.Cold[ready].Lo, m.Cold[ready].Hi)
		}
		lo, ok = m.Busy.BestFit(k)
		for _, c := range m.Cold[:ready] {
			m.Busy.SetRange(c.Lo, c.Hi)
		}
		if !ok {
			if ready < len(m.Cold) {
				return netip.Prefix{}, CidrFailure{Kind: CidrCooling, Until: m.Cold[ready].Until}
			}
			return netip.Prefix{}, CidrFailure{Kind: CidrFull}
		}
	}
	p := m.Block(lo, k)
	_, hi := m.locate(p)
	m.uncool(lo, hi)
	m.Busy.SetRange(lo, hi)
	return p, CidrFailure{}
}

// Occupy takes every child that overlaps p.
func (m *CidrSet) Occupy(p netip.Prefix) (uint64, CidrFailure) {
	switch {
	case m.Refuse(p) != "":
		return 0, CidrFailure{Kind: CidrPrefix}
	case !p.Overlaps(m.Pool):
		return 0, CidrFailure{Kind: CidrRange}
	}
	lo, hi := m.locate(p)
	news := append(m.within(m.Busy.Runs(false), lo, hi), m.uncool(lo, hi)...)
	m.Busy.SetRange(lo, hi)
	return SumRuns(news), CidrFailure{}
}

// Claim takes every child inside p if none is taken.
func (m *CidrSet) Claim(p netip.Prefix) CidrFailure {
	if kind := m.refuseRelease(p); kind != "" {
		return CidrFailure{Kind: kind}
	}
	lo, hi := m.locate(p)
	taken, _, _ := m.Runs()
	if in := m.within(taken, lo, hi); len(in) > 0 {
		return CidrFailure{Kind: CidrOccupied, At: m.Block(in[0][0], 0)}
	}
	_, f := m.Occupy(p)
	return f
}

// within returns the parts of the runs that are in [lo, hi].
func (m *CidrSet) within(runs [][2]uint64, lo, hi uint64) (out [][2]uint64) {
	for _, r := range runs {
		if r[0] <= hi && lo <= r[1] {
			out = append(out, [2]uint64{max(lo, r[0]), min(hi, r[1])})
		}
	}
	return out
}

// Release releases every taken child inside p.
func (m *CidrSet) Release(p netip.Prefix, now time.Time) (uint64, CidrFailure) {
	if kind := m.refuseRelease(p); kind != "" {
		return 0, CidrFailure{Kind: kind}
	}
	lo, hi := m.locate(p)
	taken, _, _ := m.Runs()
	gone := m.within(taken, lo, hi)
	until := now.Add(m.Cooldown)
	if n := len(m.Cold); n > 0 && m.Cold[n-1].Until.After(until) {
		until = m.Cold[n-1].Until
	}
	for _, r := range gone {
		if m.Cooldown == 0 {
			m.Busy.ClearRange(r[0], r[1])
		} else {
			m.Cold = append(m.Cold, CidrCold{r[0], r[1], until})
		}
	}
	return SumRuns(gone), CidrFailure{}
}

// ReleaseN releases all of ps, or nothing.
func (m *CidrSet) ReleaseN(ps []netip.Prefix, now time.Time) (n uint64, f CidrFailure) {
	for _, p := range ps {
		if kind := m.refuseRelease(p); kind != "" {
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
	if m.Refuse(p) != "" || !p.Overlaps(m.Pool) || p.Bits() < m.Pool.Bits() {
		return false
	}
	lo, hi := m.locate(p)
	taken, _, _ := m.Runs()
	in := m.within(taken, lo, hi)
	return len(in) == 1 && in[0] == [2]uint64{lo, hi}
}

// HasAny reports whether any child that p overlaps is taken.
func (m *CidrSet) HasAny(p netip.Prefix) bool {
	if m.Refuse(p) != "" || !p.Overlaps(m.Pool) {
		return false
	}
	lo, hi := m.locate(p)
	taken, _, _ := m.Runs()
	return len(m.within(taken, lo, hi)) > 0
}

// Runs returns the maximal runs of taken, cooling and free children.
func (m *CidrSet) Runs() (taken, cooling, free [][2]uint64) {
	is, cold := NewBitmap(m.Last()), NewBitmap(m.Last())
	for _, r := range m.Busy.Runs(true) {
		is.SetRange(r[0], r[1])
	}
	for _, c := range m.Cold {
		is.ClearRange(c.Lo, c.Hi)
		cold.SetRange(c.Lo, c.Hi)
	}
	return is.Runs(true), cold.Runs(true), m.Busy.Runs(false)
}

// Restart gives the set another policy and cooldown, as a restored one may have.
func (m *CidrSet) Restart(c CidrConfig) {
	if m.CidrConfig = c; c.Cooldown == 0 {
		for _, c := range m.Cold {
			m.Busy.ClearRange(c.Lo, c.Hi)
		}
		m.Cold = nil
	}
}
