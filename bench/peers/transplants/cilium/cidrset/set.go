//go:build transplant

// Package cidrset puts cidrset.Set in the place of Cilium's set of pod CIDRs.
package cidrset

import (
	"errors"
	"math/big"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

var (
	ErrCIDRRangeNoCIDRsRemaining = ipalloc.ErrFull
	ErrSubNetMaskSizeInvalid     = ipalloc.ErrInvalid
	// ErrCIDRSetSubNetTooBig is a limit of Cilium, which ours does not have.
	ErrCIDRSetSubNetTooBig = errors.New("more than 2^16 children of an IPv6 prefix")
)

// CidrSet has no state but the set and the fields that the original tests read.
type CidrSet struct {
	*cidrset.Set
	used big.Int
}

func NewCIDRSet(clusterPrefix netip.Prefix, subNetMaskSize int) (*CidrSet, error) {
	if clusterPrefix.Addr().Is6() && subNetMaskSize <= 128 && subNetMaskSize-clusterPrefix.Bits() > 16 {
		return nil, ErrCIDRSetSubNetTooBig
	}
	s, err := cidrset.New(clusterPrefix.Masked(), subNetMaskSize)
	if err != nil {
		return nil, err
	}
	return &CidrSet{Set: s}, nil
}

func (s *CidrSet) Prefix() netip.Prefix              { return s.Pool() }
func (s *CidrSet) IsClusterCIDR(p netip.Prefix) bool { return p == s.Pool() }
func (s *CidrSet) InRange(p netip.Prefix) bool       { return p.Overlaps(s.Pool()) }

func (s *CidrSet) IsFull() bool {
	n := s.Stats()
	return n.Used == n.Capacity
}

func (s *CidrSet) IsAllocated(p netip.Prefix) (bool, error) {
	if !s.InRange(p) {
		return false, ipalloc.ErrOutOfRange
	}
	return s.Has(s.within(p)), nil
}

// Release treats a prefix larger than the pool as the whole pool, like the original. Ours refuses a prefix smaller than a
// child; theirs releases the child.
func (s *CidrSet) Release(p netip.Prefix) error {
	_, err := s.Set.Release(s.within(p))
	return err
}

func (s *CidrSet) Occupy(p netip.Prefix) error {
	_, err := s.Set.Occupy(p.Masked())
	s.used.SetInt64(0)
	for p := range s.All() {
		i, _ := s.Ordinal(p)
		s.used.SetBit(&s.used, int(i), 1)
	}
	return err
}

// within returns the part of p that lies in the pool.
func (s *CidrSet) within(p netip.Prefix) netip.Prefix {
	if s.InRange(p) && p.Bits() < s.Pool().Bits() {
		return s.Pool()
	}
	return p.Masked()
}

func (s *CidrSet) indexToCIDRBlock(index int) netip.Prefix {
	p, _ := s.Child(uint64(index))
	return p
}

func (s *CidrSet) getIndexForAddr(a netip.Addr) (int, error) {
	i, ok := s.Ordinal(netip.PrefixFrom(a, s.ChildBits()).Masked())
	if !ok {
		return 0, ipalloc.ErrOutOfRange
	}
	return int(i), nil
}
