//go:build transplant

// Package ipallocator puts servicealloc.Range and servicealloc.Registry in the place of Kubernetes'
// allocators of service addresses.
package ipallocator

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"go4.org/netipx"
	api "k8s.io/kubernetes/pkg/apis/core"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/rangealloc"
)

// Range counts its calls in Kubernetes' metrics.
type Range struct {
	*servicealloc.Range
	cidr      *net.IPNet
	max, size int // their tests look at these
	metrics   metricsRecorderInterface
}

// Allocator is their allocator on API objects. The same tests of behaviour hold for it.
type Allocator = Range

func newTestAllocator(cidr *net.IPNet) (*Allocator, error) { return NewInMemory(cidr) }

// pool returns the range of a prefix. Of a large IPv6 prefix it has 2^16 addresses, as theirs.
func pool(cidr *net.IPNet) (*servicealloc.Range, error) {
	p, _ := netipx.FromStdIPNet(cidr)
	if p.Addr().Is6() && p.Bits() < 112 {
		p = netip.PrefixFrom(p.Addr(), 112)
	}
	return servicealloc.NewRange(p)
}

func address(ip net.IP) netip.Addr {
	a, _ := netipx.FromStdIP(ip)
	return a
}

func NewInMemory(cidr *net.IPNet) (*Range, error) {
	p, err := pool(cidr)
	if err != nil {
		return nil, err
	}
	n := int(p.Free())
	return &Range{p, cidr, n, n, &emptyMetricsRecorder{}}, nil
}

func NewFromSnapshot(snap *api.RangeAllocation) (*Range, error) {
	_, cidr, err := net.ParseCIDR(snap.Range)
	if err != nil {
		return nil, err
	}
	r, err := NewInMemory(cidr)
	if err == nil {
		err = r.Restore(cidr, snap.Data)
	}
	return r, err
}

func (r *Range) Free() int       { return int(r.Range.Free()) }
func (r *Range) Used() int       { return r.max - r.Free() }
func (r *Range) CIDR() net.IPNet { return *r.cidr }
func (r *Range) Destroy()        {}

func (r *Range) IPFamily() api.IPFamily {
	if r.cidr.IP.To4() == nil {
		return api.IPv6Protocol
	}
	return api.IPv4Protocol
}

// counted adds the outcome of an allocation of that scope and returns their error.
func (r *Range) counted(scope string, ip net.IP, err error) error {
	if err == nil {
		r.metrics.incrementAllocations(r.cidr.String(), scope)
		r.gauge()
		return nil
	}
	r.metrics.incrementAllocationErrors(r.cidr.String(), scope)
	return translated(err, ip, r.cidr)
}

func translated(err error, ip net.IP, cidr *net.IPNet) error {
	switch {
	case errors.Is(err, ipalloc.ErrFull):
		return ErrFull
	case errors.Is(err, ipalloc.ErrOccupied):
		return ErrAllocated
	case errors.Is(err, ipalloc.ErrOutOfRange):
		return &ErrNotInRange{ip, cidr.String()}
	}
	return err
}

func (r *Range) gauge() {
	r.metrics.setAllocated(r.cidr.String(), r.Used())
	r.metrics.setAvailable(r.cidr.String(), r.Free())
}

func (r *Range) Allocate(ip net.IP) error {
	return r.counted("static", ip, r.Range.Allocate(address(ip)))
}

func (r *Range) AllocateNext() (net.IP, error) {
	a, _, err := r.Range.AllocateNext()
	return a.AsSlice(), r.counted("dynamic", nil, err)
}

func (r *Range) Release(ip net.IP) error {
	r.Range.Release(address(ip))
	r.gauge()
	return nil
}

func (r *Range) ForEach(fn func(net.IP)) {
	for a := range r.All() {
		fn(a.AsSlice())
	}
}

func (r *Range) Has(ip net.IP) bool {
	_, taken := r.Lookup(address(ip))
	return taken
}

func (r *Range) Snapshot(dst *api.RangeAllocation) (err error) {
	dst.Range = r.cidr.String()
	dst.Data, err = rangealloc.Encode(dst.Range, servicealloc.Grant{Addrs: slices.Collect(r.All())})
	return err
}

func (r *Range) Restore(cidr *net.IPNet, data []byte) error {
	if cidr.String() != r.cidr.String() {
		return ErrMismatchedNetwork
	}
	g, err := rangealloc.Decode(cidr.String(), data)
	if err == nil {
		r.Range, err = pool(cidr)
	}
	for _, a := range g.Addrs {
		err = errors.Join(err, r.Range.Allocate(a))
	}
	return err
}

func (r *Range) EnableMetrics() {
	registerMetrics()
	r.metrics = &metricsRecorder{}
}

func (r *Range) DryRun() Interface { return dry{r} }

// dry answers from the range and changes nothing.
type dry struct{ *Range }

func (d dry) Allocate(ip net.IP) error {
	_, _, err := d.Range.Range.DryRun(address(ip))
	return translated(err, ip, d.cidr)
}

func (d dry) AllocateNext() (net.IP, error) {
	a, _, err := d.Range.Range.DryRun(netip.Addr{})
	return a.AsSlice(), translated(err, nil, d.cidr)
}

func (d dry) Release(net.IP) error { return nil }

// calculateRangeOffset returns the size of the static band of ours.
func calculateRangeOffset(cidr *net.IPNet) int {
	p, err := pool(cidr)
	if err != nil {
		panic(err)
	}
	return int(p.Stats().Static.Capacity)
}
