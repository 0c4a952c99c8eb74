package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// The texts below are host-local's, to the letter where it has one: people have scripts that look for them.

// rangeText says what is wrong with a range, in the order in which host-local checks.
func rangeText(err *ipalloc.Error, in *hostlocal.SetError, written [][]rangeConf) string {
	if in.Range < 0 {
		return "empty range set"
	}
	r := written[in.Set][in.Range]
	subnet := (*net.IPNet)(&r.Subnet)
	bits, width := r.Subnet.Mask.Size()
	four := r.Subnet.IP.To4()
	_, field, _ := strings.Cut(err.Field, ".")
	switch {
	case errors.Is(err, ipalloc.ErrExists):
		a, b, _ := strings.Cut(err.Reason, " overlaps ")
		return fmt.Sprintf("subnets %s and %s overlap", a, b)
	case r.Subnet.IP == nil:
		return "IP <nil> not v4 nor v6"
	case field == "Subnet" && width > 0 && bits > width-2:
		if four != nil {
			subnet = &net.IPNet{IP: four, Mask: r.Subnet.Mask}
		}
		return fmt.Sprintf("Network %s too small to allocate from", subnet)
	case field == "Subnet" && four != nil && len(r.Subnet.Mask) == net.IPv6len:
		return "IPNet IP and Mask version mismatch"
	case field == "Subnet" && !r.Subnet.IP.Equal(r.Subnet.IP.Mask(r.Subnet.Mask)):
		return fmt.Sprintf("Network has host bits set. For a subnet mask of length %d the network address is %s", bits, r.Subnet.IP.Mask(r.Subnet.Mask))
	case field == "First":
		return fmt.Sprintf("RangeStart %s not in network %s", err.Addr, subnet)
	case field == "Last":
		return fmt.Sprintf("RangeEnd %s not in network %s", err.Addr, subnet)
	case field == "":
		return "mixed address families"
	}
	return err.Error()
}

// addError returns what an ADD that failed says. The code is 7 for a configuration that
// cannot be served, and 11 for what may be had later.
func addError(err error, sets []hostlocal.RangeSet, who hostlocal.Attachment) error {
	var e *ipalloc.Error
	var in *hostlocal.SetError
	if !errors.As(err, &e) || !errors.As(err, &in) {
		return err
	}
	at := func(code uint, format string, a ...any) error {
		details := ""
		if e.Holder != "" {
			details = "held by " + e.Holder
		}
		return types.NewError(code, fmt.Sprintf("failed to allocate for range %d: ", in.Set)+fmt.Sprintf(format, a...), details)
	}
	switch in.Err {
	case ipalloc.ErrExists:
		return at(types.ErrInternal, "%s has been allocated to %s, duplicate allocation is not allowed", e.Addr, who.Container)
	case ipalloc.ErrFull:
		return at(types.ErrTryAgainLater, "no IP addresses available in range set: %s", sets[in.Set])
	case ipalloc.ErrOccupied:
		return at(types.ErrTryAgainLater, "requested IP address %s is not available in range set %s", e.Addr, sets[in.Set])
	case ipalloc.ErrReserved:
		if set := sets[in.Set]; set[set.RangeOf(e.Addr)].Gateway != e.Addr {
			return at(types.ErrInvalidNetworkConfig, "requested ip %s is excluded by ipam.exclude", e.Addr)
		}
		return at(types.ErrInvalidNetworkConfig, "requested ip %s is subnet's gateway", e.Addr)
	case ipalloc.ErrMismatch:
		return types.NewError(types.ErrInvalidNetworkConfig, "the key of args.cni."+keyField+" holds other addresses: "+joinAddrs(in.Addrs), err.Error())
	case ipalloc.ErrOutOfRange:
		return types.NewError(types.ErrInvalidNetworkConfig, "failed to allocate all requested IPs: "+joinAddrs(in.Addrs), "")
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

// asError gives an error its code: 11 if it passes, 4 and 7 for what the call asks, 5 for
// input and output, 999 for the rest.
func asError(err error) *types.Error {
	var done *types.Error
	var own *ipalloc.Error
	code := types.ErrIOFailure
	switch invalid := errors.Is(err, ipalloc.ErrInvalid) && errors.As(err, &own); {
	case errors.As(err, &done):
		return done
	case errors.Is(err, ipalloc.ErrConflict), errors.Is(err, errBusy), errors.Is(err, errReplaced), errors.Is(err, errOrphan), errors.Is(err, context.DeadlineExceeded):
		code = types.ErrTryAgainLater
	case invalid && (own.Field == "Container" || own.Field == "Interface"):
		code = types.ErrInvalidEnvironmentVariables
	case invalid:
		code = types.ErrInvalidNetworkConfig
	case errors.As(err, &own) && own.Package == "hostlocal" && own.Err == ipalloc.ErrCorrupt:
		code = types.ErrInternal // an error of the store is one of input and output
	}
	return types.NewError(uint(code), err.Error(), "")
}
