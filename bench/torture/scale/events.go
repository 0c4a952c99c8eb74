package main

import (
	"math"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// hours of the day at which things happen.
const (
	lowest      = 4 // of the wave; the peak is 12 hours later
	collectAt   = 2 // and an hour later, because the collector waits
	zoneFailsAt = 11
	zoneBackAt  = 14
)

// hour reports whether a tick is the first of an hour of the day.
func (s *cluster) hour(h int) bool {
	at := time.Duration(s.ticks) * s.Tick
	return at >= time.Duration(h)*time.Hour && at-s.Tick < time.Duration(h)*time.Hour
}

// wanted returns how many pods the wave of the day asks for: 60 per cent of the peak at its lowest.
func (s *cluster) wanted() int {
	h := float64(s.ticks) * s.Tick.Hours()
	wave := 0.5 - 0.5*math.Cos(2*math.Pi*(h-lowest)/24)
	return int(float64(s.Pods) * (0.6 + 0.4*wave))
}

// tick lets some minutes pass.
func (s *cluster) tick() error {
	s.now = s.now.Add(s.Tick)
	s.oracle.cool(s.now)
	for _, step := range []func() error{s.renewAll, s.loseSpots, s.upgrade, s.failZone, s.turnOver, s.collect, s.sweep} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// renewAll renews the leases that are half over.
func (s *cluster) renewAll() error {
	n := s.tickNumber()
	due := s.renewals[n]
	delete(s.renewals, n)
	for _, r := range due {
		pod := s.slots[r.slot]
		if pod.id != r.id {
			continue
		}
		var got []alloc.Allocation
		err := s.meter.call(renew, func() (err error) {
			got, err = s.engineOf(s.places[pod.place].host).Renew(s.ctx, podName(pod.id), alloc.RenewArgs{TTL: leaseTime})
			return err
		})
		if err != nil {
			return err
		}
		for _, al := range got {
			if err := s.oracle.renewed(al.Address, pod.id, s.now.Add(leaseTime)); err != nil {
				return err
			}
		}
		s.renewLater(r)
	}
	return nil
}

// loseSpots takes away spot nodes, which are a fifth of all nodes and live for a day on average. Their addresses are not released.
func (s *cluster) loseSpots() error {
	s.spot += float64(len(s.places)) / 5 / float64(s.ticksOfADay())
	for ; s.spot >= 1; s.spot-- {
		if at := s.random.IntN(len(s.places)) / 5 * 5; !s.places[at].down {
			if err := s.removeHost(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// upgrade replaces nodes in turn. Their pods are stopped one after the other.
func (s *cluster) upgrade() error {
	before := int(s.upgraded)
	s.upgraded += float64(len(s.places)) / float64(s.UpgradeIn*s.ticksOfADay())
	for i := before; i < int(s.upgraded); i++ {
		at := i % len(s.places)
		if s.places[at].down {
			continue
		}
		if err := s.empty(at); err != nil {
			return err
		}
		if err := s.removeHost(at); err != nil {
			return err
		}
	}
	return nil
}

func (s *cluster) empty(at int) error {
	for len(s.places[at].pods) > 0 {
		if err := s.stop(s.places[at].pods[0]); err != nil {
			return err
		}
	}
	return nil
}

// failZone stops a third of the nodes some hours before the peak. Their pods are started elsewhere. The nodes come back
// under their names, but every tenth is a new one.
func (s *cluster) failZone() error {
	if s.day%s.ZoneEvery != 1%s.ZoneEvery {
		return nil
	}
	zone, back := s.day/s.ZoneEvery%zones, s.hour(zoneBackAt)
	if !back && !s.hour(zoneFailsAt) {
		return nil
	}
	for at := zone; at < len(s.places); at += zones {
		s.places[at].down = !back
		if !back {
			if err := s.empty(at); err != nil {
				return err
			}
		} else if at%10 == 0 {
			if err := s.removeHost(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// turnOver replaces pods, and has as many as are wanted.
func (s *cluster) turnOver() error {
	want := s.wanted()
	stops := max(int(s.Turnover*float64(s.live)/float64(s.ticksOfADay())), s.live-want)
	for range min(stops, s.live) {
		slot := int32(s.random.IntN(len(s.slots)))
		for s.slots[slot].id == 0 {
			slot = int32(s.random.IntN(len(s.slots)))
		}
		if err := s.stop(slot); err != nil {
			return err
		}
	}
	for s.live < want {
		if err := s.start(); err != nil {
			return err
		}
	}
	return nil
}

// sweep ends what time ends.
func (s *cluster) sweep() error {
	var got alloc.Swept
	err := s.meter.call(sweep, func() (err error) {
		got, err = s.operator.Sweep(s.ctx, alloc.SweepArgs{IdleAfter: idleAfter})
		return err
	})
	if err != nil {
		return err
	}
	for _, al := range got.Ended {
		if err := s.oracle.lapsed(al, s.now); err != nil {
			return err
		}
	}
	return nil
}

// collect repairs leaks once a day: it looks, and an hour later what is still leaked goes.
func (s *cluster) collect() error {
	if !s.hour(collectAt) && !s.hour(collectAt+1) {
		return nil
	}
	var got []alloc.Allocation
	err := s.meter.call(collect, func() (err error) {
		got, err = s.gc.Collect(s.ctx, func(al alloc.Allocation) alloc.Liveness {
			if pod, err := podOf(al.Handle); err == nil && s.leaked[pod] {
				return alloc.Leaked
			}
			return alloc.Alive
		})
		return err
	})
	if err != nil {
		return err
	}
	for _, al := range got {
		pod, err := podOf(al.Handle)
		if err != nil {
			return err
		}
		delete(s.leaked, pod)
		if err := s.oracle.released(al.Address, pod, 0, s.now); err != nil {
			return err
		}
	}
	return nil
}
