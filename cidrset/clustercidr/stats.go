package clustercidr

import "net/netip"

// Stats are counts of the whole allocator.
type Stats struct {
	Entries     int // terminating ones included
	Terminating int // entries that wait for their last node to go
	Nodes       int // nodes that hold something
	Foreign     int // of these, nodes recorded with no entry
	Reserved    int // reservations
}

// Stats returns counts of the whole allocator. O(entries). Safe for concurrent use.
func (a *Allocator) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Stats{Entries: len(a.entries), Nodes: len(a.owners), Foreign: a.foreign, Reserved: len(a.reserved)}
	for _, e := range a.entries {
		if e.terminating {
			s.Terminating++
		}
	}
	return s
}

// PoolStats are counts of one family of an entry, in children.
type PoolStats struct {
	Family   Family
	Pool     netip.Prefix
	Bits     int    // prefix length of a child
	Capacity uint64 // children in all; 2^64-1 for that many or more
	Free     uint64 // children that could be handed out; 2^64-1 for that many or more
}

// EntryStats returns the counts of the entry of that name, IPv4 first. Capacity
// less Free is what nodes of this and of other entries, and reservations, take of
// it. It fails with an [*Error] that matches [ErrNoEntry]. O(claims inside the
// pools), under the lock. Safe for concurrent use.
func (a *Allocator) EntryStats(name string) ([]PoolStats, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.lookup(name)
	if e == nil {
		return nil, &Error{Op: "stats", Entry: name, Err: ErrNoEntry}
	}
	var stats []PoolStats
	for i := range e.pools {
		pl := &e.pools[i]
		if pl.prefix.IsValid() {
			stats = append(stats, PoolStats{
				Family: Family(i + 1), Pool: pl.prefix, Bits: int(pl.size),
				Capacity: saturate(int(pl.size) - pl.prefix.Bits()),
				Free:     a.spaces[i].free(pl.block, pl.size),
			})
		}
	}
	return stats, nil
}
