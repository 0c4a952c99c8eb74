package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
)

// record writes a line of the calls of a run, which bench/peers/calico replays:
//
//	# 100 nodes and ...   what is simulated; the first line
//	p 10.0.0.0/24 27      a pool and the length of its blocks; before all calls
//	a POD HOST            AutoAssign: one address for the handle of a pod, on a host
//	f POD                 its address goes back
//	r HOST                RemoveHost, with all addresses that are held there
//	t SECONDS             the time since 1970, once before the first call and then at the end of each tick, when Sweep is called
//	d                     the end of a day
//
// It has what any allocator with hosts can do. Left out are IPv6, changes of pools, renewals and cooldowns. A lease is held until
// its end, and a leaked address until it is collected: both are lines f.
func (s *cluster) record(format string, args ...any) {
	if s.Calls != nil {
		fmt.Fprintf(s.Calls, format, args...) // the buffer keeps an error
	}
}

// recordEnds records the leases that ended since the last tick, in the order of their pods.
func (s *cluster) recordEnds() {
	if s.Calls == nil {
		return
	}
	var ended []uint32
	for a, h := range s.oracle.held {
		if netip.AddrFrom16(a).Is4In6() && h.ended(s.now) && !h.ended(s.now.Add(-s.Tick)) {
			ended = append(ended, h.pod)
		}
	}
	slices.Sort(ended)
	for _, pod := range ended {
		s.record("f %d\n", pod)
	}
}

// recorded has the calls of c recorded in a file, if it has a name, until done.
func recorded(name string, c *config) (done func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	c.Calls = w
	return func() error { return errors.Join(w.Flush(), f.Close()) }, nil
}
