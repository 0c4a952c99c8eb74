package check

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// What is held changes while it is read, and what is in use changes while the caller lists it. So everything held is read first,
// then the caller lists the uses, then what does not agree is read again: it is a problem if it does not agree either time. An
// address that is assigned meanwhile is in use later than it is held, and one that is released is no longer held when it is read
// again.

// holding is one holder of an address, as much as is compared with the uses.
type holding struct {
	at     netip.Addr
	bits   int  // of the block
	shared bool // others may hold the address, too
	leased bool
	lost   bool // its record is lost
	handle string
	seq    uint64
}

// holdingsOf appends the holders of an address whose leases have not ended.
func (c *checker) holdingsOf(dst []holding, at netip.Addr, bits int, a *block.Address) []holding {
	if a.Cooling {
		return dst
	}
	for h := range a.Holders() {
		if h.Until == 0 || h.Until > c.past {
			dst = append(dst, holding{at: at, bits: bits, shared: a.IsShared(), leased: h.Until != 0, handle: h.Handle, seq: h.Seq})
		}
	}
	return dst
}

// hold notes what a block holds. The records of its absent addresses are lost.
func (c *checker) hold(b *block.Block) {
	if !c.compare {
		return
	}
	for _, x := range b.AppendAbsent(nil) {
		if !b.IsCooling(x) {
			c.held = append(c.held, holding{at: b.Addr(x), bits: b.Prefix().Bits(), lost: true})
		}
	}
	for x, a := range b.Each() {
		n := len(c.held)
		c.held = c.holdingsOf(c.held, b.Addr(x), b.Prefix().Bits(), a)
		for i := range c.held[n:] {
			c.held[n+i].handle = string([]byte(c.held[n+i].handle)) // not the page that it was read in
		}
	}
}

// uses compares what is held with what is in use.
func (c *checker) uses(uses iter.Seq[audit.InUse]) error {
	used := make(map[netip.Addr][]audit.InUse)
	for u := range uses {
		used[u.Address] = append(used[u.Address], u)
	}
	slices.SortStableFunc(c.held, func(a, b holding) int { return a.at.Compare(b.at) })
	differ := make(map[netip.Addr][]holding) // as it was held
	missing := maps.Clone(used)
	for i, n := 0, 0; i < len(c.held); i += n {
		at := c.held[i].at
		for n = 1; i+n < len(c.held) && c.held[i+n].at == at; n++ {
		}
		delete(missing, at)
		if held := c.held[i : i+n]; !held[0].lost {
			if problems, unused := c.usesOf(at, held, used[at]); len(problems)+len(unused) > 0 {
				differ[at] = held
			}
		}
	}
	for at := range missing {
		differ[at] = nil
	}
	for part := range slices.Chunk(slices.SortedFunc(maps.Keys(differ), netip.Addr.Compare), txn.ReadMost) {
		if err := c.again(part, differ, used); err != nil {
			return err
		}
	}
	return nil
}

// again reads addresses again and reports those that do not agree with their uses either.
func (c *checker) again(addrs []netip.Addr, before map[netip.Addr][]holding, used map[netip.Addr][]audit.InUse) error {
	var keys []string
	for _, at := range addrs {
		keys = append(keys, record.AddressKey(at))
	}
	recs, err := c.in.Get(c.ctx, nil, keys...)
	if err != nil {
		return err
	}
	for i, at := range addrs {
		var now []holding
		if a, bits, err := block.DecodeAddress(recs[i].Value); err == nil && !c.free[at] {
			now = c.holdingsOf(nil, at, bits, &a)
		}
		was, wasUnused := c.usesOf(at, before[at], used[at])
		is, isUnused := c.usesOf(at, now, used[at])
		for _, p := range is {
			if slices.Contains(was, p) {
				c.add(p)
			}
		}
		c.unused(recs[i], slices.DeleteFunc(isUnused, func(h holding) bool { return !slices.Contains(wasUnused, h) }))
	}
	return nil
}

// unused reports holders of an address that do not use it. The repair releases them if the record of the address does not change.
func (c *checker) unused(r store.Record, holders []holding) {
	if len(holders) == 0 {
		return
	}
	s := audit.Step{Ops: []store.Op{{Kind: store.Guard, Key: r.Key, Expect: r.Rev}}}
	for i, h := range holders {
		at, _ := h.at.Prefix(h.bits)
		c.add(audit.Problem{Kind: audit.Unused, Addr: h.at, Prefix: at, Detail: "handle " + h.handle})
		if i == 0 {
			s.Text = fmt.Sprintf("release %s of handle %s", h.at, h.handle)
		} else {
			s.Text += ", " + h.handle
		}
		s.Releases = append(s.Releases, alloc.Release{Address: h.at, Guard: alloc.Guard{Handle: h.handle, Seq: h.seq}})
	}
	c.rep.Repair = append(c.rep.Repair, s)
}

// usesOf sets the uses of one address against its holders: each use is of one holder, and each holder without a lease has one. A
// lease ends by itself unless its holder renews it, and an offer is not in use before that.
func (c *checker) usesOf(at netip.Addr, held []holding, uses []audit.InUse) (problems []audit.Problem, unused []holding) {
	report := func(kind audit.Kind, format string, args ...any) {
		problems = append(problems, audit.Problem{Kind: kind, Addr: at, Detail: fmt.Sprintf(format, args...)})
	}
	if len(held) == 0 {
		for i, u := range uses {
			switch {
			case i > 0:
				report(audit.UsedTwice, "%s", u.Handle)
			case c.cat.Containing(at) < 0:
				report(audit.OutsideOfPool, "%s", u.Handle)
			default:
				report(audit.NotHeld, "%s", u.Handle)
			}
		}
		return problems, nil
	}
	unused = slices.Clone(held)
	shared := held[0].shared
	for i, u := range uses {
		j := slices.IndexFunc(unused, func(h holding) bool { return u.Handle == "" || u.Handle == h.handle })
		switch {
		case j >= 0:
			unused = slices.Delete(unused, j, j+1)
		case i > 0 && !shared:
			report(audit.UsedTwice, "held by %s, used by %s too", held[0].handle, cmp.Or(u.Handle, "another"))
		case i > 0 && slices.Contains(uses[:i], u):
			report(audit.UsedTwice, "%s", u.Handle)
		default:
			report(audit.OtherHandle, "held by %s, used by %s", held[0].handle, u.Handle)
		}
	}
	if anyone := slices.ContainsFunc(uses, func(u audit.InUse) bool { return u.Handle == "" }); len(uses) > 0 && (!shared || anyone) {
		return problems, nil // it is in use, if by another, or by any of its holders
	}
	return problems, slices.DeleteFunc(unused, func(h holding) bool { return h.leased })
}
