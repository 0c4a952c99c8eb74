package model

import (
	"math/big"
	"net/netip"
	"time"
)

// What an operation of a twin of cidrset.Set answers when it fails.
const (
	CidrFull       = "full"
	CidrCooling    = "cooling"
	CidrRange      = "out of range"
	CidrMisaligned = "misaligned"
	CidrPrefix     = "bad prefix"
	CidrBits       = "bad bits"
	CidrOccupied   = "occupied"
)

// CidrFailure is why an operation of a twin of cidrset.Set failed. The zero value
// is success.
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

// CidrConfig is what a twin of cidrset.Set is made from. Draw returns a random
// number below n, any number for n = 0.
type CidrConfig struct {
	Pool     netip.Prefix
	Bits     int
	Policy   int
	Draw     func(n uint64) uint64
	Cooldown time.Duration // 0: none
}

// CidrTwin is a twin of cidrset.Set. There are two: [CidrSet] with a state for each
// child, for small pools, and [WideCidrSet] with runs, for any.
type CidrTwin interface {
	AllocateNext(now time.Time) (netip.Prefix, CidrFailure)
	AllocateN(n int, now time.Time) ([]netip.Prefix, CidrFailure)
	AllocatePrefix(bits int, now time.Time) (netip.Prefix, CidrFailure)
	Occupy(p netip.Prefix) (uint64, CidrFailure)
	Claim(p netip.Prefix) CidrFailure
	Release(p netip.Prefix, now time.Time) (uint64, CidrFailure)
	ReleaseN(ps []netip.Prefix, now time.Time) (uint64, CidrFailure)
	Has(p netip.Prefix) bool
	HasAny(p netip.Prefix) bool
	// Runs returns the maximal runs of taken, cooling and free children.
	Runs() (taken, cooling, free [][2]uint64)
	// At returns the cursor.
	At() uint64
	// Restart gives the set another policy and cooldown, as a restored one may have.
	Restart(c CidrConfig)
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

// Refuse returns CidrPrefix for a prefix that no method may take. What is 4-in-6
// is refused, but for children of an IPv6 pool that contains them.
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

// CidrSet is the twin of cidrset.Set for small pools: one state for each child, and
// the cooling ones in a list, oldest first. Every operation looks at every child.
type CidrSet struct {
	CidrConfig
	Children []netip.Prefix
	State    []int
	Cold     []CidrCold
	Cursor   int
}

// CidrCold is a cooling child.
type CidrCold struct {
	Child int
	Until time.Time
}

// The states of a child.
const (
	cidrFree = iota
	cidrTaken
	cidrCold
)

// NewCidrSet returns a twin with all children free.
func NewCidrSet(c CidrConfig) *CidrSet {
	m := &CidrSet{CidrConfig: c}
	for i := uint64(0); i <= c.Last(); i++ {
		m.Children = append(m.Children, c.Block(i, 0))
	}
	m.State = make([]int, len(m.Children))
	return m
}

// AllocateNext takes a child by the policy, else the oldest that has cooled.
func (m *CidrSet) AllocateNext(now time.Time) (netip.Prefix, CidrFailure) {
	free := m.free()
	if len(free) == 0 {
		switch {
		case len(m.Cold) == 0:
			return netip.Prefix{}, CidrFailure{Kind: CidrFull}
		case m.Cold[0].Until.After(now):
			return netip.Prefix{}, CidrFailure{Kind: CidrCooling, Until: m.Cold[0].Until}
		}
		i := m.Cold[0].Child
		m.Cold = m.Cold[1:]
		m.State[i] = cidrTaken
		return m.Children[i], CidrFailure{}
	}
	i := free[0]
	switch m.Policy {
	case CidrRoundRobin:
		for k := len(free) - 1; k >= 0; k-- {
			if free[k] >= m.Cursor {
				i = free[k]
			}
		}
		m.Cursor = (i + 1) % len(m.Children)
	case CidrRandom:
		i = free[m.Draw(uint64(len(free)))]
	}
	m.State[i] = cidrTaken
	return m.Children[i], CidrFailure{}
}

// free returns the free children.
func (m *CidrSet) free() (out []int) {
	for i, s := range m.State {
		if s == cidrFree {
			out = append(out, i)
		}
	}
	return out
}

// AllocateN is n times AllocateNext, or nothing.
func (m *CidrSet) AllocateN(n int, now time.Time) (ps []netip.Prefix, f CidrFailure) {
	if missing := n - len(m.free()); missing > 0 {
		switch {
		case missing > len(m.Cold):
			return nil, CidrFailure{Kind: CidrFull}
		case m.Cold[missing-1].Until.After(now):
			return nil, CidrFailure{Kind: CidrCooling, Until: m.Cold[missing-1].Until}
		}
	}
	for range n {
		p, _ := m.AllocateNext(now)
		ps = append(ps, p)
	}
	return ps, f
}

// AllocatePrefix takes the lowest of the smallest aligned free blocks that hold the
// length; if there is none, of those that are free or have cooled.
func (m *CidrSet) AllocatePrefix(bits int, now time.Time) (netip.Prefix, CidrFailure) {
	k := m.Bits - bits
	if k < 0 || bits < m.Pool.Bits() {
		return netip.Prefix{}, CidrFailure{Kind: CidrBits}
	}
	lo, ok := m.bestFit(k)
	if !ok {
		ready := 0
		for _, c := range m.Cold {
			if !c.Until.After(now) {
				ready++
				m.State[c.Child] = cidrFree
			}
		}
		lo, ok = m.bestFit(k)
		for _, c := range m.Cold {
			m.State[c.Child] = cidrCold
		}
		switch {
		case ok:
		case ready < len(m.Cold):
			return netip.Prefix{}, CidrFailure{Kind: CidrCooling, Until: m.Cold[ready].Until}
		default:
			return netip.Prefix{}, CidrFailure{Kind: CidrFull}
		}
	}
	for i := lo; i < lo+1<<k; i++ {
		m.State[i] = cidrTaken
	}
	m.forget()
	return m.Block(uint64(lo), k), CidrFailure{}
}

// bestFit returns the start of the lowest of the smallest maximal aligned free
// blocks of at least 2^k.
func (m *CidrSet) bestFit(k int) (int, bool) {
	busy := make([]int, len(m.State)+1) // busy[i]: how many below i are not free
	for i, s := range m.State {
		busy[i+1] = busy[i]
		if s != cidrFree {
			busy[i+1]++
		}
	}
	free := func(at, size int) bool { return at+size <= len(m.State) && busy[at] == busy[at+size] }
	for ; k <= m.Order(); k++ {
		size := 1 << k
		for at := 0; at < len(m.State); at += size {
			if free(at, size) && !free(at-at%(2*size), 2*size) {
				return at, true
			}
		}
	}
	return 0, false
}

// Occupy takes every child that overlaps p.
func (m *CidrSet) Occupy(p netip.Prefix) (n uint64, f CidrFailure) {
	if kind := m.Refuse(p); kind != "" {
		return 0, CidrFailure{Kind: kind}
	}
	f.Kind = CidrRange
	for i, c := range m.Children {
		if !c.Overlaps(p) {
			continue
		}
		f.Kind = ""
		if m.State[i] != cidrTaken {
			n++
		}
		m.State[i] = cidrTaken
	}
	m.forget()
	return n, f
}

// Claim takes every child inside p if none is taken.
func (m *CidrSet) Claim(p netip.Prefix) CidrFailure {
	if kind := m.refuseRelease(p); kind != "" {
		return CidrFailure{Kind: kind}
	}
	for i, c := range m.Children {
		if m.State[i] == cidrTaken && c.Overlaps(p) {
			return CidrFailure{Kind: CidrOccupied, At: c}
		}
	}
	_, f := m.Occupy(p)
	return f
}

// forget takes out of the list what no longer cools.
func (m *CidrSet) forget() {
	var left []CidrCold
	for _, c := range m.Cold {
		if m.State[c.Child] == cidrCold {
			left = append(left, c)
		}
	}
	m.Cold = left
}

// Release gives back every taken child inside p.
func (m *CidrSet) Release(p netip.Prefix, now time.Time) (n uint64, f CidrFailure) {
	if kind := m.refuseRelease(p); kind != "" {
		return 0, CidrFailure{Kind: kind}
	}
	for i, c := range m.Children {
		if m.State[i] != cidrTaken || !c.Overlaps(p) {
			continue
		}
		n++
		m.State[i] = cidrFree
		if m.Cooldown == 0 {
			continue
		}
		until := now.Add(m.Cooldown)
		if k := len(m.Cold); k > 0 && m.Cold[k-1].Until.After(until) {
			until = m.Cold[k-1].Until
		}
		m.State[i] = cidrCold
		m.Cold = append(m.Cold, CidrCold{i, until})
	}
	return n, f
}

// ReleaseN gives back all of ps, or nothing.
func (m *CidrSet) ReleaseN(ps []netip.Prefix, now time.Time) (n uint64, f CidrFailure) {
	for _, p := range ps {
		if kind := m.refuseRelease(p); kind != "" {
			return 0, CidrFailure{Kind: kind}
		}
	}
	for _, p := range ps {
		freed, _ := m.Release(p, now)
		n += freed
	}
	return n, f
}

// Has reports whether p is in the pool and all it overlaps is taken.
func (m *CidrSet) Has(p netip.Prefix) bool {
	if m.Refuse(p) != "" || !p.Overlaps(m.Pool) || p.Bits() < m.Pool.Bits() {
		return false
	}
	for i, c := range m.Children {
		if c.Overlaps(p) && m.State[i] != cidrTaken {
			return false
		}
	}
	return true
}

// HasAny reports whether some of what p overlaps is taken.
func (m *CidrSet) HasAny(p netip.Prefix) bool {
	for i, c := range m.Children {
		if m.Refuse(p) == "" && c.Overlaps(p) && m.State[i] == cidrTaken {
			return true
		}
	}
	return false
}

// Runs implements [CidrTwin].
func (m *CidrSet) Runs() (taken, cooling, free [][2]uint64) {
	return m.runs(cidrTaken), m.runs(cidrCold), m.runs(cidrFree)
}

func (m *CidrSet) runs(state int) (out [][2]uint64) {
	for i, s := range m.State {
		switch {
		case s != state:
		case i > 0 && m.State[i-1] == state:
			out[len(out)-1][1]++
		default:
			out = append(out, [2]uint64{uint64(i), uint64(i)})
		}
	}
	return out
}

// At implements [CidrTwin].
func (m *CidrSet) At() uint64 { return uint64(m.Cursor) }

// Restart implements [CidrTwin].
func (m *CidrSet) Restart(c CidrConfig) {
	if m.CidrConfig = c; c.Cooldown == 0 {
		for _, c := range m.Cold {
			m.State[c.Child] = cidrFree
		}
		m.Cold = nil
	}
}
