package main

import (
	"net/netip"

	ccidrset "github.com/cilium/cilium/pkg/ipam/cidrset"
)

// cilium is the name of github.com/cilium/cilium among the contestants.
const cilium = "cilium"

// ciliumSet is the cidrset of Cilium's operator.
type ciliumSet struct{ set *ccidrset.CidrSet }

var ciliumPeer = prefixPeer[netip.Prefix, ciliumSet]{
	name: cilium,
	make: func(pool netip.Prefix, bits int) (ciliumSet, error) {
		s, err := ccidrset.NewCIDRSet(pool, bits)
		return ciliumSet{s}, err
	},
	handle: func(p netip.Prefix) netip.Prefix { return p },
	prefix: func(p netip.Prefix) netip.Prefix { return p },
}

func (s ciliumSet) AllocateNext() (netip.Prefix, error)    { return s.set.AllocateNext() }
func (s ciliumSet) Occupy(p netip.Prefix) (uint64, error)  { return 0, s.set.Occupy(p) }
func (s ciliumSet) Release(p netip.Prefix) (uint64, error) { return 0, s.set.Release(p) }
