package block

import (
	"math"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// Advance applies the changes of the time now: it releases leases that have ended, to cool for cooldown from their
// end, and queues addresses that have cooled. It reports whether anything changed. Safe to repeat. O(1) while nothing
// is due.
func (b *Block) Advance(now time.Time, cooldown time.Duration) bool {
	return b.AdvanceTo(wire.Stamp(now), int64(cooldown), math.MaxInt)
}

// Due reports whether a lease or a cooldown has ended.
func (b *Block) Due(now int64) (lease, cooled bool) {
	return b.lease != 0 && b.lease <= now, len(b.cool) > 0 && b.cool[0].until <= now
}

// AdvanceTo ends at most so many leases and cooldowns each; the next call goes on. All held addresses must be loaded if a
// lease is due, and KnowsCooling must hold if a cooldown is.
func (b *Block) AdvanceTo(now, cooldown int64, most int) bool {
	changed := false
	if b.lease != 0 && b.lease <= now {
		b.expire(now, cooldown, most)
		changed = true
	}
	n := 0
	for _, c := range b.cool {
		if c.until > now || n == most {
			break
		}
		if n++; b.used == 0 && n == len(b.cool) {
			b.since = c.until
		}
		p := b.page(c.x, false)
		p.cooling &^= 1 << (c.x & 63)
		if p.get(c.x) == nil {
			b.absent--
		}
		b.changes.note(c.x, p.get(c.x), true)
		b.set(p, c.x, nil)
		b.free.push(c.x)
	}
	if n > 0 {
		b.cool = slices.Delete(b.cool, 0, n)
		changed = true
	}
	return changed
}

// expire releases the addresses whose lease has ended, in the order of their ends and at most so many, and finds the next end.
func (b *Block) expire(now, cooldown int64, most int) {
	type end struct {
		until  int64
		x, seq uint64
	}
	var ends []end
	b.lease = 0
	for x, a := range b.Each() {
		for h := range a.Holders() {
			switch {
			case h.Until == 0 || a.Cooling:
			case h.Until <= now:
				ends = append(ends, end{h.Until, x, h.Seq})
			case b.lease == 0 || h.Until < b.lease:
				b.lease = h.Until
			}
		}
	}
	slices.SortStableFunc(ends, func(a, c end) int { return int(min(max(a.until-c.until, -1), 1)) })
	if len(ends) > most {
		b.lease, ends = ends[most].until, ends[:most]
	}
	ended := b.ended
	for _, e := range ends {
		b.Leave(e.x, e.seq, e.until, Later(e.until, cooldown))
	}
	b.ended = ended
}

// Tidy finds the end of the lease that ends first, after a lease was released before its end. The changes that time makes do
// not depend on it, only when the block is looked at: while addresses are not loaded, an earlier time stays.
func (b *Block) Tidy() {
	switch {
	case !b.ended:
	case b.leases == 0:
		b.ended, b.lease = false, 0
	case b.absent == 0:
		b.ended, b.lease = false, 0
		for _, a := range b.Each() {
			for h := range a.Holders() {
				if h.Until != 0 && (b.lease == 0 || h.Until < b.lease) && !a.Cooling {
					b.lease = h.Until
				}
			}
		}
	}
}
