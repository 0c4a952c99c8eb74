package nodeipam

import "net/netip"

// Stats are the counts of an [Allocator] at one moment.
type Stats struct {
	Nodes       int // that hold something
	Terminating int // of these, being deleted
	Foreign     int // of these, by labels: recorded with no entry
	Reserved    int // reservations
	Entries     int // by labels: terminating ones included
	Leaving     int // of these, terminating
	Pools       []PoolStats
}

// PoolStats are the counts of one pool in children; 2^64-1 stands for that many or
// more. Capacity = Used + Reserved + Free.
type PoolStats struct {
	Slot     int    // the slot, without ByLabels
	Entry    string // the entry, with ByLabels
	Pool     netip.Prefix
	Bits     int  // prefix length of a child
	Draining bool // the pool drains, or its entry terminates
	Capacity uint64
	Used     uint64 // overlapped by what nodes hold, and by no reservation
	Reserved uint64 // overlapped by a reservation
	Free     uint64 // available
}

// Stats returns the counts, with the pools in the order of slots or entries.
// O(claims inside the pools) under the lock.
func (a *Allocator) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := Stats{Nodes: len(a.owners), Terminating: a.terminating, Reserved: a.reservations}
	a.policy.stats(&st)
	return st
}

func (a *Allocator) poolStats(pl *pool) PoolStats {
	c := a.spaceOf(pl.prefix).Tally(pl.block, pl.size)
	return PoolStats{
		Slot: pl.slot, Pool: pl.prefix, Bits: int(pl.size), Draining: pl.draining,
		Capacity: c.Capacity, Used: c.Used, Reserved: c.Reserved, Free: c.Free,
	}
}
