package main

import (
	"net"
	"net/netip"

	kcidrset "k8s.io/kubernetes/pkg/controller/nodeipam/ipam/cidrset"
)

// kubernetes is the name of k8s.io/kubernetes among the contestants.
const kubernetes = "kubernetes"

// kubernetesSet is the cidrset of the node IPAM controller.
type kubernetesSet struct{ set *kcidrset.CidrSet }

var kubernetesPeer = prefixPeer[*net.IPNet, kubernetesSet]{
	name: kubernetes,
	make: func(pool netip.Prefix, bits int) (kubernetesSet, error) {
		s, err := kcidrset.NewCIDRSet(ipNet(pool), bits)
		return kubernetesSet{s}, err
	},
	handle: ipNet,
	prefix: prefixOfIPNet,
}

func (s kubernetesSet) AllocateNext() (*net.IPNet, error)    { return s.set.AllocateNext() }
func (s kubernetesSet) Occupy(p *net.IPNet) (uint64, error)  { return 0, s.set.Occupy(p) }
func (s kubernetesSet) Release(p *net.IPNet) (uint64, error) { return 0, s.set.Release(p) }

// ipNet returns p in the form that net.ParseCIDR gives it, but for host bits, which
// are kept.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOfIPNet(n *net.IPNet) netip.Prefix {
	a, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if !ok {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, bits)
}
