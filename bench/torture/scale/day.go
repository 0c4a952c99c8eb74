package main

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// row is what is measured of one day.
type row struct {
	Day  int
	Uses [kinds]usage
	state
}

// state is what there is at the end of a day, at midnight: halfway between the peak and the lowest. Blocks are those of IPv4.
type state struct {
	Pods, Held     int // addresses, leaks and leases without a pod included
	Leaked         int
	Records, Bytes int // of the store
	Heap           int // bytes of the whole process, simulation and store in memory included
	Blocks, Needed int // needed are the blocks that the addresses would fill
	Orphans        int // blocks without owner
	Used           int // IPv4 addresses
	Borrowed       int // of both families
}

// a day returns what was measured of it.
func (s *cluster) aDay() (row, error) {
	s.meter.today = [kinds]usage{}
	for s.ticks = 0; s.ticks < s.ticksOfADay(); s.ticks++ {
		if err := s.tick(); err != nil {
			return row{}, fmt.Errorf("day %d, tick %d: %w", s.day, s.ticks, err)
		}
	}
	r := row{Day: s.day}
	err := s.examine(&r)
	r.Uses = s.meter.today
	s.day++
	if err != nil {
		return row{}, fmt.Errorf("end of day %d: %w", r.Day, err)
	}
	return r, nil
}

// examine compares everything with the oracle and measures what there is.
func (s *cluster) examine(r *row) error {
	err := s.meter.call(allocations, func() error {
		all := s.engines[0].Allocations(s.ctx, netip.Prefix{})
		return s.oracle.compare(all, s.now, func(host uint32) bool { return s.inUse[host] })
	})
	if err != nil {
		return err
	}
	err = s.meter.call(check, func() error {
		rep, err := s.operator.Check(s.ctx, nil)
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("problems found by Check: %v", rep.Problems[:min(4, len(rep.Problems))])
		}
		return err
	})
	if err != nil {
		return err
	}
	err = s.meter.call(utilization, func() error {
		all, err := s.engines[0].Utilization(s.ctx)
		s.blocks(&r.state, all)
		return err
	})
	if err != nil {
		return err
	}
	err = s.meter.call(hosts, func() error {
		all, err := s.engines[0].Hosts(s.ctx)
		for _, h := range all {
			r.Borrowed += h.Borrowed
		}
		return err
	})
	if err != nil {
		return err
	}
	r.Pods, r.Held, r.Leaked = s.live, len(s.oracle.held), len(s.leaked)
	r.Records, r.Bytes, err = size(s.ctx, s.meter.Store)
	r.Heap = heap()
	return err
}

// blocks counts the blocks of IPv4.
func (s *cluster) blocks(to *state, all []alloc.Utilization) {
	for _, p := range all {
		if !p.Prefix.Addr().Is4() {
			continue
		}
		used, _ := p.Used.Uint64()
		to.Used += int(used)
		to.Blocks += len(p.Blocks)
		for _, b := range p.Blocks {
			to.Orphans += btoi(b.Owner == alloc.Owner{})
		}
	}
	room := 1 << (32 - s.blockBits)
	to.Needed = (to.Used + room - 1) / room
}

// size counts the records of a store, a page at a time.
func size(ctx context.Context, db store.Store) (records, bytes int, err error) {
	const page = 10_000
	for from := ""; ; {
		recs, _, err := db.List(ctx, store.Range{From: from, Limit: page})
		if err != nil {
			return 0, 0, err
		}
		for _, r := range recs {
			bytes += len(r.Key) + len(r.Value)
		}
		records += len(recs)
		if len(recs) < page {
			return records, bytes, nil
		}
		from = recs[page-1].Key + "\x00"
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
