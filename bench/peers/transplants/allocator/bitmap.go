//go:build transplant

// Package allocator puts servicealloc.Ports in the place of Kubernetes' bitmap of offsets.
package allocator

import (
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/rangealloc"
)

// AllocationBitmap numbers offsets from 0 as ports from 1.
type AllocationBitmap struct {
	ports     *servicealloc.Ports
	r         servicealloc.PortRange
	static    int
	rangeSpec string
	count     int // their tests look at it
}

// NewAllocationMap returns a map of offsets without a static band.
func NewAllocationMap(max int, rangeSpec string) *AllocationBitmap {
	return NewAllocationMapWithOffset(max, rangeSpec, 0)
}

// NewAllocationMapWithOffset returns a map whose first offsets are the static band. A band larger than
// the map, which ours refuses, is cut to it.
func NewAllocationMapWithOffset(max int, rangeSpec string, offset int) *AllocationBitmap {
	m := &AllocationBitmap{r: servicealloc.PortRange{First: 1, Last: uint16(max)}, static: min(offset, max), rangeSpec: rangeSpec}
	m.clear()
	return m
}

func (m *AllocationBitmap) clear() {
	ports, err := servicealloc.NewPorts(m.r, servicealloc.StaticBand(m.static))
	if err != nil {
		panic(err)
	}
	m.ports, m.count = ports, 0
}

func (m *AllocationBitmap) counted() { m.count = int(m.r.Last) - m.Free() }

func (m *AllocationBitmap) Allocate(offset int) (bool, error) {
	if offset < 0 || offset >= int(m.r.Last) {
		return false, ipalloc.ErrOutOfRange
	}
	defer m.counted()
	err := m.ports.Allocate(uint16(offset + 1))
	if errors.Is(err, ipalloc.ErrOccupied) {
		return false, nil
	}
	return err == nil, err
}

func (m *AllocationBitmap) AllocateNext() (int, bool, error) {
	defer m.counted()
	n, _, err := m.ports.AllocateNext()
	if errors.Is(err, ipalloc.ErrFull) {
		return 0, false, nil
	}
	return int(n) - 1, err == nil, err
}

func (m *AllocationBitmap) Release(offset int) error {
	defer m.counted()
	m.ports.Release(uint16(offset + 1))
	return nil
}

func (m *AllocationBitmap) ForEach(fn func(int)) {
	for n := range m.ports.All() {
		fn(int(n) - 1)
	}
}

func (m *AllocationBitmap) Has(offset int) bool {
	_, taken := m.ports.Lookup(uint16(offset + 1))
	return taken
}

func (m *AllocationBitmap) Free() int { return int(m.ports.Free()) }
func (m *AllocationBitmap) Destroy()  {}

func (m *AllocationBitmap) Snapshot() (string, []byte) {
	var g servicealloc.Grant
	for n := range m.ports.All() {
		g.Ports = append(g.Ports, servicealloc.Port{Number: n})
	}
	data, err := rangealloc.Encode(m.r.String(), g)
	if err != nil {
		panic(err)
	}
	return m.rangeSpec, data
}

func (m *AllocationBitmap) Restore(rangeSpec string, data []byte) error {
	if rangeSpec != m.rangeSpec {
		return ipalloc.ErrMismatch
	}
	g, err := rangealloc.Decode(m.r.String(), data)
	if err != nil {
		return err
	}
	m.clear()
	defer m.counted()
	for _, p := range g.Ports {
		if err := m.ports.Allocate(p.Number); err != nil {
			return err
		}
	}
	return nil
}
