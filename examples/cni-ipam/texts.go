package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// The texts below are host-local's, to the letter where it has one: people have scripts that look for them.

// rangeText says what is wrong with a range.
func rangeText(e *hostlocal.Error, written [][]rangeConf) string {
	if len(written[e.Set]) == 0 {
		return "empty range set"
	}
	r := written[e.Set][e.Range]
	subnet := (*net.IPNet)(&r.Subnet)
	bits, _ := r.Subnet.Mask.Size()
	switch {
	case r.Subnet.IP == nil:
		return "IP <nil> not v4 nor v6"
	case errors.Is(e, hostlocal.ErrTooSmall):
		if four := r.Subnet.IP.To4(); four != nil {
			subnet = &net.IPNet{IP: four, Mask: r.Subnet.Mask}
		}
		return fmt.Sprintf("Network %s too small to allocate from", subnet)
	case errors.Is(e, hostlocal.ErrBadPrefix) && r.Subnet.IP.To4() != nil && len(r.Subnet.Mask) == net.IPv6len:
		return "IPNet IP and Mask version mismatch"
	case errors.Is(e, hostlocal.ErrBadPrefix) && !r.Subnet.IP.Equal(r.Subnet.IP.Mask(r.Subnet.Mask)):
		return fmt.Sprintf("Network has host bits set. For a subnet mask of length %d the network address is %s", bits, r.Subnet.IP.Mask(r.Subnet.Mask))
	case errors.Is(e, hostlocal.ErrBadRange) && r.RangeStart != nil && toAddr(r.RangeStart) == e.Address:
		return fmt.Sprintf("RangeStart %s not in network %s", e.Address, subnet)
	case errors.Is(e, hostlocal.ErrBadRange):
		return fmt.Sprintf("RangeEnd %s not in network %s", e.Address, subnet)
	case errors.Is(e, hostlocal.ErrFamily):
		return "mixed address families"
	case errors.Is(e, hostlocal.ErrOverlap):
		a, b, _ := strings.Cut(e.Text, " and ")
		return fmt.Sprintf("subnets %s and %s overlap", a, b)
	}
	return e.Error()
}

// addError is what an ADD that failed says. Codes: what the configuration asks for and can't be is 7, what may
// be had later 11.
func addError(err error, sets []hostlocal.RangeSet, who hostlocal.Attachment) error {
	var e *hostlocal.Error
	if !errors.As(err, &e) {
		return err
	}
	at := func(code uint, format string, a ...any) error {
		return types.NewError(code, fmt.Sprintf("failed to allocate for range %d: ", e.Set)+fmt.Sprintf(format, a...), holderDetails(e))
	}
	switch {
	case errors.Is(err, hostlocal.ErrExists):
		return at(types.ErrInternal, "%s has been allocated to %s, duplicate allocation is not allowed", e.Address, who.Container)
	case errors.Is(err, hostlocal.ErrFull):
		return at(types.ErrTryAgainLater, "no IP addresses available in range set: %s", sets[e.Set])
	case errors.Is(err, hostlocal.ErrOccupied):
		return at(types.ErrTryAgainLater, "requested IP address %s is not available in range set %s", e.Address, sets[e.Set])
	case errors.Is(err, hostlocal.ErrReserved):
		return at(types.ErrInvalidNetworkConfig, "requested ip %s is subnet's gateway", e.Address)
	case errors.Is(err, hostlocal.ErrOutOfRange):
		return types.NewError(types.ErrInvalidNetworkConfig, "failed to allocate all requested IPs: "+joinAddrs(e.Addresses), "")
	}
	return err
}

func joinAddrs(as []netip.Addr) string {
	texts := make([]string, len(as))
	for i, a := range as {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}

// holderDetails says who has the address.
func holderDetails(e *hostlocal.Error) string {
	if e.Holder == (hostlocal.Attachment{}) {
		return ""
	}
	return "held by " + e.Holder.String()
}

// asError gives an error its code: 11 if it passes, 5 for input and output, 999 for the rest.
func asError(err error) *types.Error {
	var done *types.Error
	switch {
	case errors.As(err, &done):
		return done
	case errors.Is(err, ipset.ErrContention), errors.Is(err, errBusy), errors.Is(err, errExported), errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	case errors.Is(err, hostlocal.ErrRecord):
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	return types.NewError(types.ErrIOFailure, err.Error(), "")
}
