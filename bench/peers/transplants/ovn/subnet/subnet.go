//go:build transplant

// Package subnet has what OVN-Kubernetes' allocator of subnets makes its ranges with.
package subnet

import (
	"net"

	"github.com/ipalloc/ipalloc/bench/peers/transplants/ovn/ip"
)

func newIPAMAllocator(cidr *net.IPNet) (ip.ContinuousAllocator, error) {
	return ip.NewRange(cidr, true)
}

func newReservedIPAMAllocator(cidr *net.IPNet) (ip.StaticAllocator, error) {
	return ip.NewRange(cidr, false)
}

func reserveSubnets(cidr *net.IPNet, r ip.ContinuousAllocator) error {
	return r.(*ip.Range).Exclude(cidr)
}
