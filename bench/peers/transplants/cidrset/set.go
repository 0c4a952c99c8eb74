//go:build transplant

// Package cidrset puts cidrset.Set in the place of Kubernetes' set of node CIDRs.
package cidrset

import (
	"errors"
	"math/big"
	"net"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// ErrCIDRSetSubNetTooBig is a limit of Kubernetes, which ours does not have.
var ErrCIDRSetSubNetTooBig = errors.New("more than 2^16 children of an IPv6 prefix")

// CidrSet counts its calls in Kubernetes' metrics.
type CidrSet struct {
	*cidrset.Set
	maxCIDRs, allocatedCIDRs int     // their tests look at these
	used                     big.Int // and at this
	label                    string
}

func prefixOf(n *net.IPNet) netip.Prefix {
	p, _ := netipx.FromStdIPNet(n)
	return p
}

func NewCIDRSet(clusterCIDR *net.IPNet, subNetMaskSize int) (*CidrSet, error) {
	p := prefixOf(clusterCIDR)
	if p.Addr().Is6() && subNetMaskSize-p.Bits() > 16 {
		return nil, ErrCIDRSetSubNetTooBig
	}
	set, err := cidrset.New(p, subNetMaskSize)
	if err != nil {
		return nil, err
	}
	registerCidrsetMetrics()
	s := &CidrSet{Set: set, maxCIDRs: getMaxCIDRs(subNetMaskSize, p.Bits()), label: clusterCIDR.String()}
	cidrSetMaxCidrs.WithLabelValues(s.label).Set(float64(s.maxCIDRs))
	return s, nil
}

// counted follows a change of the set.
func (s *CidrSet) counted() {
	s.allocatedCIDRs = int(s.Stats().Used)
	cidrSetUsage.WithLabelValues(s.label).Set(float64(s.allocatedCIDRs) / float64(s.maxCIDRs))
}

func (s *CidrSet) AllocateNext() (*net.IPNet, error) {
	from, _ := s.Ordinal(s.Cursor())
	p, err := s.Set.AllocateNext()
	if err != nil {
		return nil, err
	}
	at, _ := s.Ordinal(p)
	cidrSetAllocations.WithLabelValues(s.label).Inc()
	cidrSetAllocationTriesPerRequest.WithLabelValues(s.label).Observe(float64((int(at) - int(from) + s.maxCIDRs) % s.maxCIDRs))
	s.counted()
	return netipx.PrefixIPNet(p), nil
}

func (s *CidrSet) Release(cidr *net.IPNet) error {
	freed, err := s.Set.Release(prefixOf(cidr))
	cidrSetReleases.WithLabelValues(s.label).Add(float64(freed))
	s.counted()
	return err
}

func (s *CidrSet) Occupy(cidr *net.IPNet) error {
	p := prefixOf(cidr)
	if pool := s.Pool(); p.Overlaps(pool) && p.Bits() < pool.Bits() {
		p = pool // theirs takes a larger prefix for all of the pool
	}
	taken, err := s.Set.Occupy(p)
	cidrSetAllocations.WithLabelValues(s.label).Add(float64(taken))
	s.counted()
	s.used.SetInt64(0)
	for p := range s.All() {
		i, _ := s.Ordinal(p)
		s.used.SetBit(&s.used, int(i), 1)
	}
	return err
}

func (s *CidrSet) indexToCIDRBlock(index int) *net.IPNet {
	p, _ := s.Child(uint64(index))
	return netipx.PrefixIPNet(p)
}

func (s *CidrSet) getIndexForIP(ip net.IP) (int, error) {
	a, _ := netipx.FromStdIP(ip)
	i, ok := s.Ordinal(netip.PrefixFrom(a, s.ChildBits()).Masked())
	if !ok {
		return 0, ipalloc.ErrOutOfRange
	}
	return int(i), nil
}

func getMaxCIDRs(subNetMaskSize, clusterMaskSize int) int {
	return 1 << (subNetMaskSize - clusterMaskSize)
}
