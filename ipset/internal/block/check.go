package block

import (
	"fmt"
	"slices"
)

// Check verifies the block: that every ordinal is in exactly one state, and that every count matches the ordinals and
// their addresses.
func (b *Block) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("ipset: block %s: %s", b.prefix, fmt.Sprintf(format, args...))
	}
	used, cool, absent, leases, lease := uint64(0), 0, uint64(0), uint64(0), int64(0)
	var busy []Span
	for first, p := range b.pages() {
		if p.held&p.cooling != 0 {
			return bad("an ordinal near %d is held and cooling", first)
		}
		for i := range uint64(64) {
			x, bit := first+i, uint64(1)<<i
			var a *Address
			if i < uint64(len(p.at)) {
				a = p.at[i]
			}
			switch {
			case (p.held|p.cooling)&bit == 0:
				if a != nil {
					return bad("free ordinal %d has an address", x)
				}
				continue
			case x < b.head || x > b.last-b.tail:
				return bad("reserved ordinal %d is in use", x)
			case a == nil:
				absent++
			case a.Seq == 0 || a.lastSeq() > b.seq:
				return bad("ordinal %d has sequence number %d to %d, the block %d", x, a.Seq, a.lastSeq(), b.seq)
			case a.shared != "" && a.checkShared() != nil:
				return bad("ordinal %d: %v", x, a.checkShared())
			case a.Cooling != (p.cooling&bit != 0):
				return bad("ordinal %d: its address says cooling is %v", x, a.Cooling)
			}
			busy = append(busy, Span{x, x})
			if p.cooling&bit != 0 {
				cool++
				continue
			}
			used++
			if a == nil {
				continue
			}
			for h := range a.Holders() {
				if h.Until != 0 {
					leases++
					if lease == 0 || h.Until < lease {
						lease = h.Until
					}
				}
			}
		}
	}
	switch {
	case used != b.used || cool != len(b.cool) || absent != b.absent:
		return bad("%d held, %d cooling, %d absent, counted as %d, %d and %d", used, cool, absent, b.used, len(b.cool), b.absent)
	case lease != 0 && (b.lease == 0 || b.lease > lease):
		return bad("a lease ends at %d, expected from %d on", lease, b.lease)
	case leases > b.leases || absent == 0 && leases != b.leases || b.leases > 0 && b.lease == 0:
		return bad("%d leases from %d on, counted as %d", leases, b.lease, b.leases)
	case !b.formerly():
		return bad("former owners %q of %d held addresses", b.former, b.used)
	}
	if err := b.checkCooling(bad); err != nil {
		return err
	}
	return b.checkQueue(busy, bad)
}

// checkCooling verifies the cooling queue.
func (b *Block) checkCooling(bad func(string, ...any) error) error {
	seen, last := make(map[uint64]bool), int64(0)
	for i, c := range b.cool {
		st, a := b.Look(c.x)
		switch {
		case seen[c.x] || st != Cooling:
			return bad("cooling queue has %d, which is not cooling, or twice", c.x)
		case a != nil && a.Until != c.until:
			return bad("ordinal %d is free at %d, its address says %d", c.x, c.until, a.Until)
		case c.until == 0 && (i == 0 || i == len(b.cool)-1):
			return bad("it is not known when cooling ordinal %d is free", c.x)
		case c.until != 0 && c.until < last:
			return bad("cooling ordinal %d is free before those ahead of it", c.x)
		}
		seen[c.x], last = true, max(last, c.until)
	}
	return nil
}

// checkQueue verifies that the queue and the busy ordinals are disjoint and together cover the ordinals that are
// not reserved.
func (b *Block) checkQueue(busy []Span, bad func(string, ...any) error) error {
	all := append(busy, b.free.spans[b.free.head:]...)
	slices.SortFunc(all, func(x, y Span) int {
		if x.Lo < y.Lo {
			return -1
		}
		return 1
	})
	next, full := b.head, false
	for _, s := range all {
		if full || s.Lo != next || s.Hi < s.Lo || s.Hi > b.last-b.tail {
			return bad("ordinals from %d on: in no state or in two, next is %d-%d", next, s.Lo, s.Hi)
		}
		next, full = s.Hi+1, s.Hi == b.last-b.tail
	}
	if !full {
		return bad("ordinals from %d on are in no state", next)
	}
	return nil
}
