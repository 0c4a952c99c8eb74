//go:build transplant

// Package portallocator puts servicealloc.Ports in the place of Kubernetes' allocator of node ports.
package portallocator

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/net"
	api "k8s.io/kubernetes/pkg/apis/core"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/rangealloc"
)

// Interface is what their operations use.
type Interface interface {
	Allocate(int) error
	AllocateNext() (int, error)
	Release(int) error
	Has(int) bool
}

var (
	ErrFull              = ipalloc.ErrFull
	ErrAllocated         = ipalloc.ErrOccupied
	ErrMismatchedNetwork = ipalloc.ErrMismatch
)

type ErrNotInRange struct{ error }

// PortAllocator counts what its calls do in Kubernetes' metrics.
type PortAllocator struct {
	*servicealloc.Ports
	r       net.PortRange
	metrics metricsRecorderInterface
}

func ports(pr net.PortRange) (*servicealloc.Ports, error) {
	return servicealloc.NewPorts(servicealloc.PortRange{First: uint16(pr.Base), Last: uint16(pr.Base + pr.Size - 1)})
}

func NewInMemory(pr net.PortRange) (*PortAllocator, error) {
	p, err := ports(pr)
	return &PortAllocator{p, pr, &emptyMetricsRecorder{}}, err
}

func NewFromSnapshot(snap *api.RangeAllocation) (*PortAllocator, error) {
	pr, err := net.ParsePortRange(snap.Range)
	if err != nil {
		return nil, err
	}
	r, err := NewInMemory(*pr)
	if err == nil {
		err = r.Restore(*pr, snap.Data)
	}
	return r, err
}

func (r *PortAllocator) Free() int { return int(r.Ports.Free()) }
func (r *PortAllocator) Used() int { return r.r.Size - r.Free() }

// counted adds the outcome of an allocation of that scope and returns the bare sentinel.
func (r *PortAllocator) counted(scope string, err error) error {
	if err == nil {
		r.metrics.incrementAllocations(scope)
		r.gauge()
		return nil
	}
	r.metrics.incrementAllocationErrors(scope)
	var e *ipalloc.Error
	if errors.As(err, &e); errors.Is(err, ipalloc.ErrOutOfRange) {
		return &ErrNotInRange{err}
	}
	return e.Err
}

func (r *PortAllocator) gauge() {
	r.metrics.setAllocated(r.Used())
	r.metrics.setAvailable(r.Free())
}

func (r *PortAllocator) Allocate(port int) error {
	return r.counted("static", r.Ports.Allocate(uint16(port)))
}

func (r *PortAllocator) AllocateNext() (int, error) {
	p, _, err := r.Ports.AllocateNext()
	return int(p), r.counted("dynamic", err)
}

func (r *PortAllocator) Release(port int) error {
	r.Ports.Release(uint16(port))
	r.gauge()
	return nil
}

func (r *PortAllocator) ForEach(fn func(int)) {
	for p := range r.All() {
		fn(int(p))
	}
}

func (r *PortAllocator) Has(port int) bool {
	_, taken := r.Lookup(uint16(port))
	return taken
}

func (r *PortAllocator) Snapshot(dst *api.RangeAllocation) (err error) {
	var g servicealloc.Grant
	for _, p := range slices.Collect(r.All()) {
		g.Ports = append(g.Ports, servicealloc.Port{Number: p})
	}
	dst.Range = r.r.String()
	dst.Data, err = rangealloc.Encode(dst.Range, g)
	return err
}

func (r *PortAllocator) Restore(pr net.PortRange, data []byte) error {
	if pr != r.r {
		return ErrMismatchedNetwork
	}
	g, err := rangealloc.Decode(pr.String(), data)
	if err == nil {
		r.Ports, err = ports(pr)
	}
	for _, p := range g.Ports {
		err = errors.Join(err, r.Ports.Allocate(p.Number))
	}
	return err
}

func (r *PortAllocator) EnableMetrics() {
	registerMetrics()
	r.metrics = &metricsRecorder{}
}

// calculateRangeOffset returns the size of the static band of ours.
func calculateRangeOffset(pr net.PortRange) int {
	p, err := ports(pr)
	if err != nil {
		panic(err)
	}
	return int(p.Stats().Static.Capacity)
}
