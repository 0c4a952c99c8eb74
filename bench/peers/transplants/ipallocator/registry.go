//go:build transplant

package ipallocator

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// MetaAllocator is a registry with a range for each ServiceCIDR. The owner of an address is its text.
type MetaAllocator struct {
	r      *servicealloc.Registry
	client client
}

// client stands for the API of ServiceCIDRs; the registry takes them from enqueueServiceCIDR.
type client struct{}

func (c client) ServiceCIDRs() client { return c }
func (client) Create(_ context.Context, s *networkingv1.ServiceCIDR, _ metav1.CreateOptions) (*networkingv1.ServiceCIDR, error) {
	return s, nil
}
func (client) Delete(context.Context, string, metav1.DeleteOptions) error { return nil }

func newTestMetaAllocator() (*MetaAllocator, error) {
	r, err := servicealloc.NewRegistry(servicealloc.PortRange{First: 30000, Last: 32767})
	return &MetaAllocator{r: r}, err
}

func (m *MetaAllocator) Destroy() { m.r.Close() }

func (m *MetaAllocator) enqueueServiceCIDR(s *networkingv1.ServiceCIDR) {
	info := servicealloc.RangeInfo{Name: s.Name}
	for _, c := range s.Spec.CIDRs {
		info.Prefixes = append(info.Prefixes, netip.MustParsePrefix(c))
	}
	if err := m.r.SetRange(info); err != nil {
		panic(err)
	}
}

func (m *MetaAllocator) deleteServiceCIDR(s *networkingv1.ServiceCIDR) {
	if err := m.r.RemoveRange(s.Name); err != nil {
		panic(err)
	}
}

// part is what their tests ask about the allocator of one ServiceCIDR.
type part struct {
	ipAddressSynced func() bool
	ready           atomic.Bool
}

func (m *MetaAllocator) getAllocator(ip net.IP, _ bool) (*part, error) {
	if !m.r.Usable(address(ip)) {
		return nil, ipalloc.ErrOutOfRange
	}
	p := new(part)
	p.ready.Store(true)
	return p, nil
}

func (m *MetaAllocator) Free() int {
	v4, v6 := m.r.Stats().V4, m.r.Stats().V6
	return int(v4.Static.Free + v4.Dynamic.Free + v6.Static.Free + v6.Dynamic.Free)
}

func (m *MetaAllocator) Used() (n int) {
	for g := range m.r.All() {
		n += len(g.Addrs)
	}
	return n
}

func (m *MetaAllocator) Allocate(ip net.IP) error {
	_, err := m.r.Allocate(ip.String(), servicealloc.Request{Addrs: []netip.Addr{address(ip)}})
	return err
}

// AllocateNext names the owner after the address once it is known.
func (m *MetaAllocator) AllocateNext() (net.IP, error) {
	g, err := m.r.Allocate("next", servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified()}})
	if err != nil {
		return nil, err
	}
	to := servicealloc.Grant{Owner: g.Addrs[0].String(), Addrs: g.Addrs}
	if _, _, err := m.r.Move(g, to); err != nil {
		return nil, err
	}
	return g.Addrs[0].AsSlice(), nil
}

func (m *MetaAllocator) Release(ip net.IP) error {
	g, ok := m.r.Get(address(ip).String())
	if !ok {
		return errors.New("nothing to release")
	}
	_, err := m.r.Release(g.Owner, g.Generation)
	return err
}
