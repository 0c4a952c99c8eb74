package model

import (
	"math/big"
	"slices"
)

// Bands of a service range, in the order of servicealloc's constants.
const (
	ServiceClosed = iota
	ServiceStatic
	ServiceDynamic
)

// The failures of operations of a service twin: the texts of the matching sentinels of
// package ipalloc.
const (
	ServiceFull       = "full"
	ServiceOccupied   = "occupied"
	ServiceOutOfRange = "out of range"
	ServiceReserved   = "reserved"
	ServiceInUse      = "in use"
	ServiceNotFound   = "not found"
	ServiceNotHeld    = "not held"
	ServiceMismatch   = "mismatch"
	ServiceInvalid    = "invalid argument"
	ServiceEnded      = "closed"
)

// ServiceSet is the twin of a space of servicealloc. It has all members in a list, each
// with its band, and the taken members in a map that sets may share.
type ServiceSet[T comparable] struct {
	Members    []T // ascending
	Band       []int
	Held       map[T]bool
	NeverSpill bool
}

// of returns the members of a band.
func (m *ServiceSet[T]) of(band int) (members []T) {
	for i, x := range m.Members {
		if m.Band[i] == band {
			members = append(members, x)
		}
	}
	return members
}

// free removes the taken members from a list.
func (m *ServiceSet[T]) free(members []T) []T {
	return slices.DeleteFunc(members, func(x T) bool { return m.Held[x] })
}

// Count returns how many members a band has and how many of them are taken.
func (m *ServiceSet[T]) Count(band int) (size, used int) {
	size = len(m.of(band))
	return size, size - len(m.free(m.of(band)))
}

// Choose returns the band of the next pick, ServiceClosed if there is none.
func (m *ServiceSet[T]) Choose() int {
	switch {
	case len(m.free(m.of(ServiceDynamic))) > 0:
		return ServiceDynamic
	case len(m.free(m.of(ServiceStatic))) > 0 && !m.NeverSpill:
		return ServiceStatic
	}
	return ServiceClosed
}

// walk returns the free members of a band, from where the random value u leads to on
// and around.
func (m *ServiceSet[T]) walk(band int, u uint64) []T {
	all := m.of(band)
	start := ServiceScale(u, uint64(len(all)))
	return m.free(slices.Concat(all[start:], all[:start]))
}

// Pick returns the member of a band, which has a free one, that u leads to.
func (m *ServiceSet[T]) Pick(band int, u uint64) T { return m.walk(band, u)[0] }

// PickFree returns the free member of a band, which has one, whose rank u is scaled to.
func (m *ServiceSet[T]) PickFree(band int, u uint64) T {
	free := m.free(m.of(band))
	return free[ServiceScale(u, uint64(len(free)))]
}

// Take takes the member that Pick returns.
func (m *ServiceSet[T]) Take(band int, u uint64) T {
	x := m.Pick(band, u)
	m.Held[x] = true
	return x
}

// Run takes n members, dynamic ones first; all or none.
func (m *ServiceSet[T]) Run(n int, u uint64) (run []T, spilled int, ok bool) {
	dynamic, static := m.walk(ServiceDynamic, u), m.walk(ServiceStatic, u)
	spilled = max(0, n-len(dynamic))
	if spilled > 0 && (m.NeverSpill || len(static) < spilled) {
		return nil, 0, false
	}
	run = append(dynamic[:n-spilled], static[:spilled]...)
	for _, x := range run {
		m.Held[x] = true
	}
	return run, spilled, true
}

// BandOf returns the band of x, and whether it is a member at all.
func (m *ServiceSet[T]) BandOf(x T) (int, bool) {
	i := slices.Index(m.Members, x)
	if i < 0 {
		return ServiceClosed, false
	}
	return m.Band[i], true
}

// ServiceScale maps u to [0, n): u*n / 2^64.
func ServiceScale(u, n uint64) uint64 {
	x := new(big.Int).SetUint64(u)
	x.Mul(x, new(big.Int).SetUint64(n))
	return x.Rsh(x, 64).Uint64()
}

// ServiceStaticSize is the size of the static band of size addresses, and with per = 32
// and most = 128 of ports, written as the rule is.
func ServiceStaticSize(size, per, most uint64) uint64 {
	if size <= 16 {
		return 0
	}
	return min(max(size/per, 16), most)
}

// ServiceMix is the i-th of the values that a request makes of the random value u:
// SplitMix64 (Steele, Lea, Flood, 2014) started at u, at its step i.
func ServiceMix(u uint64, i int) uint64 {
	for range i + 1 {
		u += 0x9e3779b97f4a7c15
	}
	u = (u ^ u>>30) * 0xbf58476d1ce4e5b9
	u = (u ^ u>>27) * 0x94d049bb133111eb
	return u ^ u>>31
}
