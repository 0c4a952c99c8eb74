package main

import (
	"fmt"
	"iter"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// oracle knows who was told that an address is his, and nothing of how it was found. Its keys hold no pointer, so that the garbage
// collector does not walk 10 million of them.
type oracle struct {
	held  map[[16]byte]holding
	freed map[[16]byte]time.Time // what was released of late, for as long as the cooldown lasts
}

// holding is what was told of one address.
type holding struct {
	pod, host uint32
	ends      uint32 // of a lease, in minutes since 1970; 0 without one
}

func newOracle() *oracle {
	return &oracle{held: make(map[[16]byte]holding), freed: make(map[[16]byte]time.Time)}
}

func minutes(t time.Time) uint32 { return uint32(t.Unix() / 60) }

func (h holding) ended(now time.Time) bool { return h.ends != 0 && h.ends <= minutes(now) }

// assigned records the address of a pod. It fails if the address is held, or was released less than its cooldown ago.
func (o *oracle) assigned(a netip.Addr, h holding, now time.Time) error {
	if was, ok := o.held[a.As16()]; ok && !was.ended(now) {
		return fmt.Errorf("%v is given to pod %d on host %d, and pod %d on host %d holds it", a, h.pod, h.host, was.pod, was.host)
	}
	if at, ok := o.freed[a.As16()]; ok && now.Sub(at) < cooldown {
		return fmt.Errorf("%v is given to pod %d %v after its release", a, h.pod, now.Sub(at))
	}
	o.held[a.As16()] = h
	return nil
}

// renewed moves the end of a lease.
func (o *oracle) renewed(a netip.Addr, pod uint32, ends time.Time) error {
	h, ok := o.held[a.As16()]
	if !ok || h.pod != pod {
		return fmt.Errorf("%v is renewed for pod %d, and pod %d holds it", a, pod, h.pod)
	}
	h.ends = minutes(ends)
	o.held[a.As16()] = h
	return nil
}

// released forgets an address of a pod, of whichever one if pod is 0, on a host, whichever if host is 0.
func (o *oracle) released(a netip.Addr, pod, host uint32, now time.Time) error {
	h, ok := o.held[a.As16()]
	if !ok || pod != 0 && h.pod != pod || host != 0 && h.host != host {
		return fmt.Errorf("%v of pod %d on host %d is released, for pod %d on host %d", a, h.pod, h.host, pod, host)
	}
	delete(o.held, a.As16())
	if !h.ended(now) { // it cools since the end of the lease
		o.freed[a.As16()] = now
	}
	return nil
}

// lapsed forgets an address whose lease a sweep ended.
func (o *oracle) lapsed(al alloc.Allocation, now time.Time) error {
	pod, err := podOf(al.Handle)
	if err != nil {
		return err
	}
	h, ok := o.held[al.Address.As16()]
	if !ok || h.pod != pod || !h.ended(now) {
		return fmt.Errorf("the lease of pod %d on %v is ended, and pod %d holds it until minute %d", pod, al.Address, h.pod, h.ends)
	}
	delete(o.held, al.Address.As16())
	return nil
}

// cool forgets releases that no longer matter.
func (o *oracle) cool(now time.Time) {
	for a, at := range o.freed {
		if now.Sub(at) >= cooldown {
			delete(o.freed, a)
		}
	}
}

// compare holds everything that the store has against what was told. After a sweep no ended lease is left. known reports whether a
// host is part of the cluster.
func (o *oracle) compare(all iter.Seq2[alloc.Allocation, error], now time.Time, known func(host uint32) bool) error {
	for a, h := range o.held {
		if h.ended(now) {
			delete(o.held, a)
		} else if !known(h.host) {
			return fmt.Errorf("pod %d holds %v on host %d, which was removed", h.pod, netip.AddrFrom16(a).Unmap(), h.host)
		}
	}
	n := 0
	for al, err := range all {
		if err != nil {
			return err
		}
		if al.Cooling {
			continue
		}
		n++
		h, ok := o.held[al.Address.As16()]
		pod, err := podOf(al.Handle)
		if err != nil {
			return err
		}
		if !ok || h.pod != pod || hostName(h.host) != al.Host.Name {
			return fmt.Errorf("%v is held by pod %d on %s, and was given to pod %d on %s", al.Address, pod, al.Host.Name, h.pod, hostName(h.host))
		}
	}
	if n != len(o.held) {
		return fmt.Errorf("%d addresses are held, %d were given", n, len(o.held))
	}
	return nil
}

func podName(pod uint32) string   { return "pod-" + strconv.FormatUint(uint64(pod), 10) }
func hostName(host uint32) string { return "node-" + strconv.FormatUint(uint64(host), 10) }

// podOf returns the number of the pod of a handle.
func podOf(handle string) (uint32, error) {
	digits, ok := strings.CutPrefix(handle, "pod-")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil {
		return 0, fmt.Errorf("handle %q is no pod's", handle)
	}
	return uint32(n), nil
}
