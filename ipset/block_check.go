package ipset

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

func trailingOnes(w uint64) uint64 { return uint64(bits.TrailingZeros64(^w)) }

// Check verifies the block: that every ordinal is in exactly one state, and that every count, reference and
// hash chain is what the slots say.
func (b *Block) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("ipset: block %s: %s", b.prefix, fmt.Sprintf(format, args...))
	}
	refs, held := make(map[int32]uint64), make(map[int32]uint64)
	used, cooling, lease := uint64(0), uint64(0), int64(0)
	hosts := make(map[string]uint64)
	var busy []span
	for x, s := range b.each() {
		p := b.page(x, false)
		switch {
		case x < b.head || x > b.last-b.tail:
			return bad("reserved ordinal %d is in use", x)
		case p.held&p.cooling != 0:
			return bad("an ordinal near %d is held and cooling", x)
		case s.seq == 0 || s.seq > b.seq:
			return bad("ordinal %d has sequence number %d, the block %d", x, s.seq, b.seq)
		case int(s.holder) >= len(b.holders.list):
			return bad("ordinal %d has holder %d of %d", x, s.holder, len(b.holders.list))
		}
		refs[s.holder]++
		busy = append(busy, span{x, x})
		if p.cooling>>(x&63)&1 != 0 {
			cooling++
			continue
		}
		used++
		held[s.holder]++
		if host := b.holders.list[s.holder].host; host != "" && host != nobody {
			hosts[host]++
		}
		if s.until != 0 && (lease == 0 || s.until < lease) {
			lease = s.until
		}
	}
	if used != b.used || cooling != uint64(len(b.cool)) {
		return bad("%d held and %d cooling, counted as %d and %d", used, cooling, b.used, len(b.cool))
	}
	if lease != 0 && (b.lease == 0 || b.lease > lease) {
		return bad("a lease ends at %d, expected from %d on", lease, b.lease)
	}
	if !maps.Equal(hosts, b.hosts) {
		return bad("held for others: %v, counted as %v", hosts, b.hosts)
	}
	queued := slices.Sorted(slices.Values(b.cool))
	for i, x := range queued {
		if i > 0 && queued[i-1] == x || !b.isCooling(x) {
			return bad("cooling queue has %d, which is not cooling, or twice", x)
		}
	}
	if err := b.holders.check(refs, held, b.owner.code()); err != nil {
		return bad("%v", err)
	}
	return b.checkQueue(busy, bad)
}

// checkDecoded is Check for a block that has just been decoded: its counts, references and chains were made by decoding, so that
// what is left are the queue, the sequence numbers, the first lease and the hosts. Blocks of up to 64 addresses, which are most,
// need one word for the queue.
func (b *Block) checkDecoded() error {
	if b.last > 63 {
		return b.Check()
	}
	if owner := b.owner.code(); b.holders.hosts() {
		for i := range b.holders.list {
			if h := &b.holders.list[i]; h.refs > 0 && h.host == owner {
				return fmt.Errorf("ipset: block %s: host %q is its owner", b.prefix, h.host)
			}
		}
	}
	busy := uint64(0)
	if p := b.page(0, false); p != nil {
		busy = p.held | p.cooling
		for w := busy; w != 0; w &= w - 1 {
			x := bits.TrailingZeros64(w)
			s := &p.slot[x]
			if s.seq == 0 || s.until != 0 && p.held>>x&1 != 0 && (b.lease == 0 || s.until < b.lease) {
				return fmt.Errorf("ipset: block %s: sequence number or lease of ordinal %d", b.prefix, x)
			}
		}
	}
	for _, s := range b.free.spans[b.free.head:] {
		span := ^uint64(0) >> (63 - (s.hi - s.lo)) << s.lo
		if busy&span != 0 {
			return fmt.Errorf("ipset: block %s: ordinals %d-%d are in two states", b.prefix, s.lo, s.hi)
		}
		busy |= span
	}
	if all := ^uint64(0) >> (63 - (b.last - b.tail - b.head)) << b.head; busy != all {
		return fmt.Errorf("ipset: block %s: ordinals %016x of %016x are in a state", b.prefix, busy, all)
	}
	return nil
}

// checkQueue verifies that the queue and the busy ordinals are disjoint and together cover what is not reserved.
func (b *Block) checkQueue(busy []span, bad func(string, ...any) error) error {
	all := append(busy, b.free.spans[b.free.head:]...)
	slices.SortFunc(all, func(x, y span) int {
		if x.lo < y.lo {
			return -1
		}
		return 1
	})
	next, full := b.head, false
	for _, s := range all {
		if full || s.lo != next || s.hi < s.lo || s.hi > b.last-b.tail {
			return bad("ordinals from %d on: in no state or in two, next is %d-%d", next, s.lo, s.hi)
		}
		next, full = s.hi+1, s.hi == b.last-b.tail
	}
	if !full {
		return bad("ordinals from %d on are in no state", next)
	}
	return nil
}

// check verifies the table against the references counted in the slots, and that a host is noted only where it is not the owner.
func (t *holders) check(refs, held map[int32]uint64, owner string) error {
	seen := 0
	for n, first := range t.buckets {
		for i := first; i >= 0; i = t.list[i].next {
			h := &t.list[i]
			if seen++; seen > len(t.list) {
				return fmt.Errorf("holder chain %d does not end", n)
			}
			if h.refs == 0 || h.refs != refs[i] || h.held != held[i] {
				return fmt.Errorf("holder %q: %d references of which %d held, counted as %d and %d", h.handle, refs[i], held[i], h.refs, h.held)
			}
			if h.hash != hashHandle(h.handle) || h.hash&uint32(len(t.buckets)-1) != uint32(n) {
				return fmt.Errorf("holder %q is in the wrong chain", h.handle)
			}
			if _, err := ownerOf(h.host); err != nil || h.host == owner {
				return fmt.Errorf("holder %q: host %q in a block of %q", h.handle, h.host, owner)
			}
			for j := h.next; j >= 0; j = t.list[j].next {
				if t.list[j].identity == h.identity {
					return fmt.Errorf("holder %q twice", h.handle)
				}
			}
		}
	}
	if seen != t.count || seen != len(refs) {
		return fmt.Errorf("%d holders in chains, %d in use, counted as %d", seen, len(refs), t.count)
	}
	return nil
}
