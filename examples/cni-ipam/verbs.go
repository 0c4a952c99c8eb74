package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

func add(c *call) ([]byte, error) {
	conf := c.conf
	if err := conf.complete(); err != nil {
		return nil, err
	}
	want, err := conf.wishes(c.args)
	if err != nil {
		return nil, err
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: want.routes}
	if conf.IPAM.ResolvConf != "" {
		dns, err := parseResolvConf(conf.IPAM.ResolvConf)
		if err != nil {
			return nil, types.NewError(types.ErrIOFailure, err.Error(), "")
		}
		result.DNS = *dns
	}
	s, err := openState(conf, want.sets)
	if err != nil {
		return nil, err
	}
	got, err := s.engine.Add(context.Background(), c.attachment(), want.requested...)
	if err = errors.Join(err, s.close()); err != nil {
		return nil, addError(err, want.sets, c.attachment())
	}
	for _, a := range got {
		result.IPs = append(result.IPs, &current.IPConfig{Address: toIPNet(a.Prefix), Gateway: a.Gateway.AsSlice()})
	}
	as, err := result.GetAsVersion(conf.CNIVersion)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = as.PrintTo(&out)
	return out.Bytes(), err
}

func toIPNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// del releases by name alone: ranges and requests may have changed since.
func del(c *call) ([]byte, error) {
	if err := c.conf.complete(); err != nil {
		return nil, err
	}
	s, err := openState(c.conf, nil)
	if err != nil {
		return nil, err
	}
	_, err = s.engine.Del(context.Background(), c.attachment())
	return nil, errors.Join(err, s.close())
}

func check(c *call) ([]byte, error) {
	conf := c.conf
	if err := conf.complete(); err != nil {
		return nil, err
	}
	want, err := conf.wishes(c.args)
	if err != nil {
		return nil, err
	}
	listed, err := conf.listed()
	if err != nil {
		return nil, err
	}
	s, err := openState(conf, want.sets)
	if err != nil {
		return nil, err
	}
	err = s.engine.Verify(context.Background(), c.attachment(), listed...)
	err = errors.Join(err, s.close())
	var e *ipalloc.Error
	var in *hostlocal.SetError
	switch errors.As(err, &e); {
	case errors.Is(err, ipalloc.ErrNotFound):
		err = fmt.Errorf("host-local: Failed to find address added by container %v", c.containerID)
	case errors.Is(err, ipalloc.ErrMismatch) && e.Addr.IsValid():
		err = fmt.Errorf("host-local: address %s of prevResult is not held by container %v", e.Addr, c.containerID)
	case errors.Is(err, ipalloc.ErrMismatch) && errors.As(err, &in):
		err = fmt.Errorf("host-local: prevResult has none of the addresses of container %v: %s", c.containerID, joinAddrs(in.Addrs))
	default:
		return nil, err
	}
	return nil, types.NewError(types.ErrInternal, err.Error(), "")
}

// listed returns the addresses of prevResult.
func (c *netConf) listed() ([]netip.Addr, error) {
	if len(c.PrevResult) == 0 || string(c.PrevResult) == "null" {
		return nil, nil
	}
	prev, err := version.NewResult(c.CNIVersion, c.PrevResult)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, fmt.Sprintf("could not parse prevResult: %v", err), "")
	}
	result, err := current.NewResultFromResult(prev)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, fmt.Sprintf("could not convert prevResult: %v", err), "")
	}
	var as []netip.Addr
	for _, ip := range result.IPs {
		if a := toAddr(ip.Address.IP); a.IsValid() {
			as = append(as, a)
		}
	}
	return as, nil
}

// gc releases what is not in the list of valid attachments. Without a list it releases nothing.
func gc(c *call) ([]byte, error) {
	conf := c.conf
	if err := conf.complete(); err != nil {
		return nil, err
	}
	raw := conf.ValidAttachments
	if raw == nil {
		raw = conf.Attachments
	}
	if raw == nil {
		return nil, nil
	}
	var valid []types.GCAttachment
	if err := json.Unmarshal(raw, &valid); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, fmt.Sprintf("could not parse the valid attachments: %v", err), "")
	}
	keep := make([]hostlocal.Attachment, len(valid))
	for i, a := range valid {
		keep[i] = hostlocal.Attachment{Container: a.ContainerID, Interface: a.IfName}
	}
	s, err := openState(conf, nil)
	if err != nil {
		return nil, err
	}
	freed, err := s.engine.GC(context.Background(), keep)
	for _, h := range freed {
		logf("gc: released %s of %s, which is not a valid attachment", joinAddrs(h.Addresses), h.Attachment)
	}
	return nil, errors.Join(err, s.close())
}

// status says whether an ADD could succeed.
func status(c *call) ([]byte, error) {
	conf := c.conf
	if err := conf.complete(); err != nil {
		return nil, err
	}
	want, err := conf.wishes("")
	if err != nil {
		return nil, err
	}
	s, err := openState(conf, want.sets)
	if err == nil {
		err = s.engine.Status(context.Background())
		err = errors.Join(err, s.close())
	}
	if err == nil {
		return nil, nil
	}
	msg := err.Error()
	if in := (*hostlocal.SetError)(nil); errors.Is(err, ipalloc.ErrFull) && errors.As(err, &in) {
		msg = fmt.Sprintf("no IP addresses available in range set: %s", want.sets[in.Set])
	}
	return nil, types.NewError(types.ErrPluginNotAvailable, msg, "")
}
