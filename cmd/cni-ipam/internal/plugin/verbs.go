package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func add(c *call) ([]byte, error) {
	conf := c.conf
	o, want, err := conf.read(c.args)
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
	p := conf.place(o, want.sets)
	p.create, p.lockOf = true, c.attachment()
	s, err := p.open()
	if err != nil {
		return nil, err
	}
	got, err := s.add(c.attachment(), want)
	if err = errors.Join(s.retry(err), s.close()); err != nil {
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

// add is an Add, or an AddKey if the configuration names a key. In a range that is full, it first ends keys that are out of use for
// long.
func (s *state) add(who hostlocal.Attachment, want wishes) (got []hostlocal.Address, err error) {
	who = s.inNetwork(who)
	for again := s.shared != nil; ; again = false {
		if want.key != "" && s.shared != nil {
			got, err = s.engine.AddKey(s.ctx, s.keyName(want.key), who, want.requested...)
		} else {
			got, err = s.engine.Add(s.ctx, who, want.requested...)
		}
		if !again || !errors.Is(err, ipalloc.ErrFull) {
			return got, err
		}
		if e := s.expireKeys(); e != nil {
			return nil, errors.Join(err, e)
		}
	}
}

// read reads all that an ADD needs of a configuration.
func (c *netConf) read(cniArgs string) (o options, want wishes, err error) {
	if err = c.complete(); err == nil {
		o, err = c.IPAM.options()
	}
	if err == nil {
		want, err = c.wishes(cniArgs, o)
	}
	return o, want, err
}

// place returns where the network's state is. A plugin's process ends after one call.
func (c *netConf) place(o options, sets []hostlocal.RangeSet) place {
	return place{dir: c.dir(), network: c.Name, sets: sets, boot: o.boot, leases: o.rebootLeases, refuse: o.refuseDamaged, last: true, shared: c.shared, caller: c.caller}
}

func toIPNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// del releases by name alone: ranges and requests may have changed since. What it cannot
// need, such as an option that is wrong, does not stop it.
func del(c *call) ([]byte, error) {
	if err := c.conf.complete(); err != nil {
		return nil, err
	}
	o, err := c.conf.IPAM.options()
	if err != nil {
		logf("del: %v", err)
	}
	p := c.conf.place(o, nil)
	p.lockOf = c.attachment()
	release := func(s *state) error {
		_, err := s.engine.Del(s.ctx, s.inNetwork(c.attachment()))
		if errors.Is(err, ipalloc.ErrInvalid) {
			return nil // an attachment that cannot exist holds nothing
		}
		return err
	}
	if err = p.releasing(release); noSpace(err) && p.shared == nil {
		err = p.releaseFiles(c.attachment(), release)
	}
	if errors.Is(err, errEarlier) {
		logf("del: released nothing: %v", err)
		return nil, nil // no attachment of an earlier boot is alive
	}
	return nil, err
}

func check(c *call) ([]byte, error) {
	conf := c.conf
	o, want, err := conf.read(c.args)
	if err != nil {
		return nil, err
	}
	listed, err := conf.listed()
	if err != nil {
		return nil, err
	}
	p := conf.place(o, want.sets)
	p.lockOf = c.attachment()
	s, err := p.open()
	if err == nil {
		err = s.engine.Verify(s.ctx, s.inNetwork(c.attachment()), listed...)
		err = errors.Join(s.retry(err), s.close())
	}
	var e *ipalloc.Error
	var in *hostlocal.SetError
	switch errors.As(err, &e); {
	case errors.Is(err, ipalloc.ErrNotFound), errors.Is(err, errNothing):
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

// gc releases what is not in the list of valid attachments. Without a list it releases
// nothing. An entry that names no attachment could stand for one that is alive, so it is
// refused before anything is released.
func gc(c *call) ([]byte, error) {
	conf, began := c.conf, time.Now() // the runtime made its list before
	if err := conf.complete(); err != nil {
		return nil, err
	}
	o, err := conf.IPAM.options()
	if err != nil {
		logf("gc: %v", err)
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
	p := conf.place(o, nil)
	keep := make([]hostlocal.Attachment, len(valid))
	for i, a := range valid {
		if a.ContainerID == "" || a.IfName == "" {
			return nil, badConf("valid attachment %d has containerID %q and ifname %q: both are needed, and nothing was released", i, a.ContainerID, a.IfName)
		}
		keep[i] = p.inNetwork(hostlocal.Attachment{Container: a.ContainerID, Interface: a.IfName})
	}
	return nil, p.releasing(func(s *state) error {
		args := hostlocal.GCArgs{Valid: keep, Made: began}
		if s.shared != nil {
			args.Idle = s.shared.keyAge
		}
		freed, err := s.engine.GC(s.ctx, args)
		for _, h := range freed {
			logf("gc: released %s of %s, which is not a valid attachment", joinAddrs(h.Addresses), h.Attachment)
		}
		if errors.Is(err, ipalloc.ErrInvalid) {
			err = badConf("valid attachments: %v", err)
		}
		return err
	})
}

// status reports whether the plugin is able to serve an ADD. A full range is an error only if the configuration asks for it,
// because it makes a node of Kubernetes unready. A shared store that cannot be reached is none, because it would make all nodes
// unready at once. A program that was replaced is none either, because the next call reaches the other one.
func status(c *call) ([]byte, error) {
	conf := c.conf
	o, want, err := conf.read("")
	if err != nil {
		return nil, err
	}
	if conf.shared != nil && !o.statusFull {
		return nil, nil
	}
	s, err := conf.place(o, want.sets).open()
	if err == nil {
		err = s.engine.Status(s.ctx)
		err = errors.Join(s.retry(err), s.close())
	}
	if errors.Is(err, errNothing) && o.statusFull {
		err = emptyStatus(want.sets)
	}
	in := (*hostlocal.SetError)(nil)
	switch full := errors.Is(err, ipalloc.ErrFull) && errors.As(err, &in); {
	case err == nil, errors.Is(err, errNothing), errors.Is(err, errReplaced), full && !o.statusFull:
		return nil, nil
	case full:
		err = fmt.Errorf("no IP addresses available in range set: %s", want.sets[in.Set])
	case conf.shared != nil && asError(err).Code == types.ErrTryAgainLater:
		return nil, nil
	}
	return nil, types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
}

// emptyStatus is the status of a network that holds nothing: a range may have no address but
// its gateway.
func emptyStatus(sets []hostlocal.RangeSet) error {
	engine, err := hostlocal.New(store.NewMemory(), hostlocal.Config{Network: "empty", Sets: sets})
	if err == nil {
		err = engine.Status(context.Background())
	}
	return err
}
