//go:build transplant

// Package allocate puts an ipset.Engine in the place of whereabouts' choice of an address.
package allocate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/peers/transplants/whereabouts/iphelpers"
	"github.com/ipalloc/ipalloc/bench/peers/transplants/whereabouts/types"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// IterateForAssignment makes an engine of the range, in which all that the lists name is reserved, and takes the lowest address. In
// whereabouts' place the engine would stay, on a store of the cluster, and there would be no list.
func IterateForAssignment(ipnet net.IPNet, start, end net.IP, list []types.IPReservation, exclude []string, container, pod, ifName string) (net.IP, []types.IPReservation, error) {
	from, to, err := iphelpers.GetIPRange(ipnet, start, end)
	if err != nil {
		return net.IP{}, list, err
	}
	first, _ := netipx.FromStdIP(from)
	last, _ := netipx.FromStdIP(to)
	p, _ := netipx.FromStdIPNet(&ipnet)
	change := alloc.PoolChanges{Set: []alloc.Pool{{
		Name: "range", Prefix: p, BlockBits: max(p.Bits(), first.BitLen()-64), Ranges: []netipx.IPRange{netipx.IPRangeFrom(first, last)},
	}}}
	for _, r := range list {
		a, _ := netipx.FromStdIP(r.IP)
		change.Reserve = append(change.Reserve, netipx.IPRangeFrom(a, a))
	}
	for _, text := range exclude {
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return net.IP{}, list, fmt.Errorf("could not parse exclude range, err: %q", err)
		}
		change.Reserve = append(change.Reserve, netipx.RangeOfPrefix(p.Masked()))
	}
	ctx := context.Background()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err == nil {
		err = e.Operator().ChangePools(ctx, change)
	}
	args := alloc.AssignArgs{Owner: alloc.HostOwner("whereabouts"), Choose: alloc.From(first), Num4: 1}
	if first.Is6() {
		args.Num4, args.Num6 = 0, 1
	}
	var got alloc.Assigned
	if err == nil {
		got, err = e.AutoAssign(ctx, args)
	}
	if errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrReserved) {
		return net.IP{}, list, AssignmentError{from, to, ipnet, exclude}
	} else if err != nil {
		return net.IP{}, list, err
	}
	ip := net.IP(append(got.V4, got.V6...)[0].Address.AsSlice())
	return ip, append(list, types.IPReservation{IP: ip, ContainerID: container, PodRef: pod, IfName: ifName}), nil
}
