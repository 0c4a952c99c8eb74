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

// What an operation of a service twin answers when it fails: the text of the sentinel
// of servicealloc that stands for it.
const (
	ServiceFull       = "full"
	ServiceOccupied   = "already taken"
	ServiceOutOfRange = "not a usable member of the range"
	ServiceReserved   = "reserved"
	ServiceDraining   = "only in ranges that drain"
	ServiceExists     = "name is in use"
	ServiceNoRange    = "no such range"
	ServiceInUse      = "still in use"
	ServiceNoOwner    = "no such owner"
	ServiceMismatch   = "owner holds something else"
	ServiceGeneration = "generation has moved on"
	ServiceBadRequest = "bad request"
)

// ServiceSet is the twin of a space of servicealloc: all members in a list, each with
// its band, and the taken ones in a map that sets may share. Picks come from the window
// of members [Cur*Window, (Cur+1)*Window) while it has a free dynamic one; Window 0
// means that all are one window.
type ServiceSet[T comparable] struct {
	Members    []T // ascending
	Band       []int
	Held       map[T]bool
	NeverSpill bool
	Lowest     bool
	Window     int
	Cur        int
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
// leads to, and the window that it comes from. Nothing is changed.
func (m *ServiceSet[T]) Pick(band int, u uint64) (x T, window int) {
	width := m.Window
	if width == 0 {
		width = len(m.Members)
	}
	windows := (len(m.Members) + width - 1) / width
	for k := range windows {
		window = k
		if band == ServiceDynamic && !m.Lowest {
			window = (m.Cur + k) % windows
		}
		var members []T
		for i := window * width; i < min(len(m.Members), (window+1)*width); i++ {
			if m.Band[i] == band {
				members = append(members, m.Members[i])
			}
		}
		start := int(ServiceScale(u, uint64(len(members))))
		for j := range members {
			if x = members[(start+j)%len(members)]; !m.Held[x] {
				return x, window
			}
		}
	}
	panic("model: band has no free member")
}

// Take takes what Pick names.
func (m *ServiceSet[T]) Take(band int, u uint64) T {
	x, window := m.Pick(band, u)
	if band == ServiceDynamic {
		m.Cur = window
	}
	m.Held[x] = true
	return x
}

// TakeRun takes n members of a band, which has them free: each walk begins after the
// member that the last one took, unless that window is full by then.
func (m *ServiceSet[T]) TakeRun(band, n int, u uint64) (run []T) {
	for len(run) < n {
		x, window := m.Pick(band, u)
		if band == ServiceDynamic {
			m.Cur = window
		}
		for i := m.index(x); len(run) < n; {
			m.Held[m.Members[i]] = true
			run = append(run, m.Members[i])
			next, ok := m.after(band, i, window)
			if !ok {
				break
			}
			i = next
		}
	}
	return run
}

// after returns the next free member of a band after i in its window, coming round.
func (m *ServiceSet[T]) after(band, i, window int) (int, bool) {
	width := m.Window
	if width == 0 {
		width = len(m.Members)
	}
	lo, hi := window*width, min(len(m.Members), (window+1)*width)
	for k := 1; k <= hi-lo; k++ {
		j := lo + (i-lo+k)%(hi-lo)
		if m.Band[j] == band && !m.Held[m.Members[j]] {
			return j, true
		}
	}
	return 0, false
}

func (m *ServiceSet[T]) index(x T) int { return slices.Index(m.Members, x) }

// BandOf returns the band of x, and whether it is a member at all.
func (m *ServiceSet[T]) BandOf(x T) (int, bool) {
	i := m.index(x)
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
