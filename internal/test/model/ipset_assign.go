package model

import (
	"net/netip"
	"slices"
)

// ipsetAssignment is one automatic assignment of n addresses of one family.
type ipsetAssignment struct {
	*IPSet
	IPSetWant
	n    int
	out  []netip.Addr
	tier []IPSetPool // the pools of one priority
}

func (as *ipsetAssignment) wanting() bool { return len(as.out) < as.n }

func (as *ipsetAssignment) may(p IPSetPool) bool { return as.mayClaim(as.Owner, p, as.Most) }

// pick returns the addresses of a block that are assigned next.
func (as *ipsetAssignment) pick(b *IPSetBlock) []netip.Addr {
	n := as.n - len(as.out)
	switch {
	case as.Row || as.Aligned:
		return as.row(b, n, as.Aligned)
	case as.onward(b.Prefix.Addr().Is6()):
		all := slices.DeleteFunc(b.Peek(len(b.Free), as.reserved), func(a netip.Addr) bool { return a.Less(as.From) })
		slices.SortFunc(all, netip.Addr.Compare)
		return all[:min(len(all), n)]
	}
	return as.peek(b, n)
}

func (as *ipsetAssignment) take(b *IPSetBlock) {
	for _, a := range as.pick(b) {
		b.Take(a, as.Hold)
		as.out = append(as.out, a)
	}
}

// inTier reports whether one of the tier serves all of a block.
func (as *ipsetAssignment) inTier(b *IPSetBlock) bool {
	return slices.ContainsFunc(as.tier, func(p IPSetPool) bool { return as.whole(p, b.Prefix) })
}

// assign takes the last addresses of a sticky handle, and then addresses of one tier after the other.
func (as *ipsetAssignment) assign(v6 bool, pools []IPSetPool) {
	as.tier = pools
	for _, a := range as.Last[IPSetLast{as.Hold.Handle, v6}] {
		b := as.containing(a)
		if as.Sticky && b != nil && as.inTier(b) && as.wanting() && (!as.Strict || b.Owner == as.Owner) && !as.reserved(a) &&
			b.CanTake(a, as.Hold.Handle) == "" {
			b.Take(a, as.Hold)
			as.out = append(as.out, a)
		}
	}
	for len(pools) > 0 {
		same := 1
		for same < len(pools) && pools[same].Priority == pools[0].Priority {
			same++
		}
		as.tier, pools = slices.Clone(pools[:same]), pools[same:]
		slices.SortStableFunc(as.tier, func(p, q IPSetPool) int {
			return slices.Index(as.IPSetWant.Pools, p.Name) - slices.Index(as.IPSetWant.Pools, q.Name)
		})
		if as.onward(v6) {
			as.ahead()
			continue
		}
		for _, b := range as.Sorted() {
			if b.Owner != as.Owner || !as.inTier(b) || as.Blocks[b.Prefix] != b || !as.wanting() {
				continue
			}
			if p, _ := as.pool(b.Prefix.Addr()); b.Prefix.Bits() <= p.Bits || !as.renew(p, b) {
				as.take(b)
			}
		}
		as.others()
	}
}

// renew makes a block of a pool's size in place of one of another size, and more in what a larger one leaves; it reports whether it made any.
func (as *ipsetAssignment) renew(p IPSetPool, old *IPSetBlock) (made bool) {
	if old.Prefix.Bits() == p.Bits {
		return false
	}
	for _, q := range as.places(p) {
		if !as.wanting() || !q.Overlaps(old.Prefix) || as.unusable(q, as.IPSetWant) ||
			as.onward(q.Addr().Is6()) && !q.Contains(as.From) && q.Addr().Less(as.From) {
			continue
		}
		if !made && !as.mayMake(q, as.Owner) {
			return false
		}
		if !made || len(as.overlapping(q)) == 0 && as.may(p) {
			as.take(as.claim(q, as.IPSetWant))
			made = true
		}
	}
	return made
}

// others takes addresses of blocks that are not the owner's yet.
func (as *ipsetAssignment) others() {
	for _, p := range as.tier {
		for _, q := range as.walk(as.Owner, p) {
			if as.wanting() && as.may(p) && len(as.overlapping(q)) == 0 && !as.unusable(q, as.IPSetWant) {
				as.take(as.claim(q, as.IPSetWant))
			}
		}
	}
	for _, p := range as.tier {
		for _, b := range as.Sorted() {
			if as.wanting() && b.Prefix.Bits() < p.Prefix.Bits() && b.Prefix.Overlaps(p.Prefix) && (b.Owner == as.Owner || as.may(p)) {
				as.renew(p, b)
			}
		}
		for _, b := range as.met(as.Owner, p) {
			q := b.Prefix
			if as.Blocks[q] != b || !as.wanting() || !as.may(p) || b.Owner == "" || !as.idle(b) {
				continue
			}
			if b.Owner == as.Owner && b.Prefix.Bits() <= p.Bits && as.whole(p, q) || as.renew(p, b) {
				continue
			}
			if b.Owner != as.Owner && as.whole(p, q) && !as.unusable(q, as.IPSetWant) {
				as.take(as.claim(q, as.IPSetWant))
			}
		}
	}
	if as.Row || as.Aligned {
		return // never borrowed
	}
	for _, borrowed := range []bool{false, true} {
		for _, p := range as.tier {
			for _, b := range as.met(as.Owner, p) {
				room := as.wanting() && as.whole(p, b.Prefix) && len(b.Peek(1, as.reserved)) > 0
				switch {
				case room && !borrowed && b.Owner == "" && as.may(p):
					b.Owner = as.Owner
					as.take(b)
				case room && borrowed && b.Owner != as.Owner && !as.Strict:
					as.take(b)
				}
			}
		}
	}
}

// ahead takes the lowest addresses that are not below From, of pools in address order.
func (as *ipsetAssignment) ahead() {
	for _, p := range slices.SortedFunc(slices.Values(as.tier), func(p, q IPSetPool) int { return comparePrefixes(p.Prefix, q.Prefix) }) {
		met := make(map[netip.Prefix]bool) // places and blocks
		for _, a := range addresses(p.Prefix) {
			q, b := netip.PrefixFrom(a, p.Bits).Masked(), as.containing(a)
			if b != nil {
				q = b.Prefix
			}
			if !as.wanting() || a.Less(as.From) || met[q] || !as.serves(p, a) {
				continue
			}
			met[q] = true
			if b == nil && len(as.overlapping(q)) == 0 || b != nil && len(as.pick(b)) > 0 {
				as.into(p, q, b)
			}
		}
	}
}

// into takes addresses of a block as the owner may use it: its own, free, idle, an orphan, or one of another that may be borrowed from.
func (as *ipsetAssignment) into(p IPSetPool, q netip.Prefix, b *IPSetBlock) {
	idle := b != nil && b.Owner != "" && b.Owner != as.Owner && as.idle(b) && as.may(p)
	smaller := b != nil && b.Owner == as.Owner && len(b.Holds) == 0 && b.Prefix.Bits() > p.Bits
	if (idle || smaller) && as.renew(p, b) {
		return
	}
	switch {
	case b == nil || idle && as.whole(p, q) && !as.unusable(q, as.IPSetWant):
		if !as.may(p) || as.unusable(q, as.IPSetWant) {
			return
		}
		b = as.claim(q, as.IPSetWant)
	case !as.whole(p, q):
		return
	case b.Owner == as.Owner:
	case b.Owner == "" && as.may(p):
		b.Owner = as.Owner
	case as.Strict:
		return
	}
	as.take(b)
}
