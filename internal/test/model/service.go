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

// Free returns how many members of a band are free.
func (m *ServiceSet[T]) Free(band int) (n int) {
	for i, x := range m.Members {
		if m.Band[i] == band && !m.Held[x] {
			n++
		}
	}
	return n
}

// Count returns how many members a band has and how many of them are taken.
func (m *ServiceSet[T]) Count(band int) (size, used int) {
	for i, x := range m.Members {
		if m.Band[i] == band {
			size++
			if m.Held[x] {
				used++
			}
		}
	}
	return size, used
}

// Choose returns the band of the next pick, ServiceClosed if there is none.
func (m *ServiceSet[T]) Choose() int {
	switch {
	case m.Free(ServiceDynamic) > 0:
		return ServiceDynamic
	case m.Free(ServiceStatic) > 0 && !m.NeverSpill:
		return ServiceStatic
	}
	return ServiceClosed
}

// Pick returns the member of a band, which has a free one, that the random value u
// leads to. Nothing is changed.
func (m *ServiceSet[T]) Pick(band int, u uint64) (x T) {
	members := m.of(band)
	start := int(ServiceScale(u, uint64(len(members))))
	for j := range members {
		if x = members[(start+j)%len(members)]; !m.Held[x] {
			return x
		}
	}
	panic("model: band has no free member")
}

// PickFree returns the free member of a band, which has one, whose rank u is scaled to.
func (m *ServiceSet[T]) PickFree(band int, u uint64) T {
	free := slices.DeleteFunc(m.of(band), func(x T) bool { return m.Held[x] })
	return free[ServiceScale(u, uint64(len(free)))]
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

// Take takes what Pick names.
func (m *ServiceSet[T]) Take(band int, u uint64) T {
	x := m.Pick(band, u)
	m.Held[x] = true
	return x
}

// TakeRun takes n members of a band, which has them free, in one walk from where u
// leads to.
func (m *ServiceSet[T]) TakeRun(band, n int, u uint64) (run []T) {
	members := m.of(band)
	for j := 0; len(run) < n; j++ {
		if x := members[(int(ServiceScale(u, uint64(len(members))))+j)%len(members)]; !m.Held[x] {
			m.Held[x] = true
			run = append(run, x)
		}
	}
	return run
}

// Run takes n members, dynamic ones first; all or none.
func (m *ServiceSet[T]) Run(n int, u uint64) (run []T, spilled int, ok bool) {
	dynamic := min(n, m.Free(ServiceDynamic))
	spilled = n - dynamic
	if spilled > 0 && (m.NeverSpill || m.Free(ServiceStatic) < spilled) {
		return nil, 0, false
	}
	run = m.TakeRun(ServiceDynamic, dynamic, u)
	return append(run, m.TakeRun(ServiceStatic, spilled, u)...), spilled, true
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
	n := size / per
	if n < 16 {
		n = 16
	}
	if n > most {
		n = most
	}
	return n
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
