package main

import (
	"fmt"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// drained is a pool that is on its way out.
type drained struct {
	pool alloc.Pool
	pods []uint32 // that still have to move
	rate int      // a tick
}

// changePools splits a pool at the peak, every other one in turn, and merges its parts two days later.
func (s *cluster) changePools() error {
	if !s.hour(splitAt) {
		return nil
	}
	if i, ok := s.parts[s.day]; ok {
		delete(s.parts, s.day)
		name := s.pools[i].Name
		if err := s.meter.call(merge, func() error { return s.operator.MergePools(s.ctx, name, name+"-0", name+"-1") }); err != nil {
			return err
		}
	}
	if s.every(s.SplitEvery, 1) {
		i := s.day / s.SplitEvery * 2 % (len(s.pools) - 1) &^ 1
		for _, split := range s.parts {
			if split == i {
				return nil
			}
		}
		s.parts[s.day+2] = i
		return s.meter.call(split, func() error { return s.operator.SplitPool(s.ctx, s.pools[i].Name, 1) })
	}
	return nil
}

// drainPool empties a pool within three hours, every other one in turn, removes it, and adds it again. What has leaked there stays
// until the collector has found it, and leases that are not renewed stay until they end.
func (s *cluster) drainPool() error {
	switch d := s.drained; {
	case d == nil && s.every(s.DrainEvery, 1) && s.hour(drainAt):
		i := (s.day/s.DrainEvery*2+1)%(len(s.pools)-1) | 1
		if i >= len(s.pools)-1 {
			i = 1
		}
		s.drained = &drained{pool: s.pools[i]}
		return s.stillHeld()
	case d == nil:
		return nil
	case len(d.pods) > 0:
		return s.move()
	case s.hour(drainAt+4) || s.ticks%max(1, s.ticksOfADay()/6) == 0:
		return s.stillHeld()
	}
	return nil
}

// stillHeld lists what is held in the drained pool, and replaces the pool if that is nothing.
func (s *cluster) stillHeld() error {
	d := s.drained
	var held []alloc.Allocation
	err := s.meter.call(drain, func() (err error) { held, err = s.operator.Drain(s.ctx, d.pool.Name); return err })
	if err != nil {
		return err
	}
	if len(held) == 0 {
		s.drained = nil
		if err := s.meter.call(removePool, func() error { return s.engines[0].RemovePool(s.ctx, d.pool.Name) }); err != nil {
			return err
		}
		return s.addPool(d.pool)
	}
	for _, al := range held {
		pod, err := podOf(al.Handle)
		if err != nil {
			return err
		}
		d.pods = append(d.pods, pod)
	}
	d.rate = 1 + len(d.pods)*8/s.ticksOfADay()
	return nil
}

// move stops pods that hold addresses of the drained pool; others are started in their place.
func (s *cluster) move() error {
	d := s.drained
	n := min(d.rate, len(d.pods))
	leaving := make(map[uint32]bool, n)
	for _, pod := range d.pods[:n] {
		leaving[pod] = true
	}
	d.pods = d.pods[n:]
	for slot := range s.slots {
		if id := s.slots[slot].id; id != 0 && leaving[id] {
			if err := s.stop(int32(slot)); err != nil {
				return fmt.Errorf("moving out of %s: %w", d.pool.Name, err)
			}
		}
	}
	return nil
}
