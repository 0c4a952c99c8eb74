package main

import (
	_ "unsafe" // for the directives below

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
)

// Calico does not export the logic of a block, only the record that it works on. The linker finds it all the same: what
// follows are its functions, under names of ours and with types of the same layout.

// calicoBlock is ipam.allocationBlock.
type calicoBlock struct{ *model.AllocationBlock }

// calicoFilter is ipam.addrFilter: the reservations.
type calicoFilter interface {
	MatchesIP(cnet.IP) bool
	MatchesWholeCIDR(*cnet.IPNet) bool
	MatchesSome(*cnet.IPNet) bool
}

// noReservations matches nothing.
type noReservations struct{}

func (noReservations) MatchesIP(cnet.IP) bool            { return false }
func (noReservations) MatchesWholeCIDR(*cnet.IPNet) bool { return false }
func (noReservations) MatchesSome(*cnet.IPNet) bool      { return false }

//go:linkname newCalicoBlock github.com/projectcalico/calico/libcalico-go/lib/ipam.newBlock
func newCalicoBlock(cidr cnet.IPNet, reserved *ipam.HostReservedAttr) calicoBlock

//go:linkname calicoAutoAssign github.com/projectcalico/calico/libcalico-go/lib/ipam.(*allocationBlock).autoAssign
func calicoAutoAssign(b *calicoBlock, num int, handle *string, host string, attrs map[string]string, affinity bool, reserved calicoFilter) ([]cnet.IPNet, error)

//go:linkname calicoWalk github.com/projectcalico/calico/libcalico-go/lib/ipam.randomBlockGenerator
func calicoWalk(pool v3.IPPool, host string) func() *cnet.IPNet
