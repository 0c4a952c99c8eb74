package nodeipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/claims"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// slots is the policy of ordered slots: a node gets one child from each slot, from the
// first of its pools that has a free one.
type slots struct {
	a     *Allocator
	slots []slot
	pools []*pool // of all slots, ascending by address; they do not overlap
}

type slot struct {
	bits  int
	v4    bool
	pools []*pool
	full  *ipalloc.Error // answers Allocate when no child is free
}

// newSlots returns the policy for the given slots.
func newSlots(a *Allocator, config []Slot) (*slots, *ipalloc.Error) {
	if len(config) == 0 {
		return nil, invalid("Slots", "none; set Slots or ByLabels")
	}
	s := &slots{a: a}
	for i, c := range config {
		if len(c.Pools) == 0 {
			return nil, invalid(slotField(i)+".Pools", "none")
		}
		s.addSlot(c.Bits, c.Pools[0].Addr().Is4())
		for k, p := range c.Pools {
			pl, err := s.newPool(i, p)
			if err != nil {
				if err.Field == "pool" {
					err.Field = fmt.Sprintf("%s.Pools[%d]", slotField(i), k)
				}
				return nil, err
			}
			s.slots[i].pools = append(s.slots[i].pools, pl)
		}
	}
	return s, s.arrange()
}

func slotField(i int) string { return fmt.Sprintf("Slots[%d]", i) }

func (s *slots) addSlot(bits int, v4 bool) {
	full := &ipalloc.Error{Package: "nodeipam", Op: "allocate", Field: slotField(len(s.slots)), Bits: bits, Err: ipalloc.ErrFull}
	s.slots = append(s.slots, slot{bits: bits, v4: v4, full: full})
}

// newPool returns the pool p for slot i. The pool is not in any list yet.
func (s *slots) newPool(i int, p netip.Prefix) (*pool, *ipalloc.Error) {
	if i < 0 || i >= len(s.slots) {
		return nil, invalidPrefix("slot", p, "no such slot")
	}
	if err := checkPool(p); err != nil {
		return nil, invalidPrefix("pool", p, err.Error())
	}
	if p.Addr().Is4() != s.slots[i].v4 {
		return nil, invalidPrefix("pool", p, "of the other address family than its slot")
	}
	if bits := s.slots[i].bits; bits < p.Bits() || bits > p.Addr().BitLen() {
		return nil, invalidPrefix(slotField(i)+".Bits", p, fmt.Sprintf("/%d is not from /%d to /%d", bits, p.Bits(), p.Addr().BitLen()))
	}
	pl := newPool(p, s.slots[i].bits)
	pl.slot = i
	return &pl, nil
}

// arrange builds the list of all pools. It fails if two pools overlap.
func (s *slots) arrange() *ipalloc.Error {
	for i := range s.slots {
		s.pools = append(s.pools, s.slots[i].pools...)
	}
	slices.SortFunc(s.pools, func(x, y *pool) int { return comparePrefix(x.prefix, y.prefix) })
	for i, pl := range s.pools {
		if i > 0 && pl.prefix.Overlaps(s.pools[i-1].prefix) {
			e := exists(pl.prefix, s.pools[i-1])
			e.Field = slotField(pl.slot)
			return e
		}
	}
	return nil
}

func exists(p netip.Prefix, other *pool) *ipalloc.Error {
	return &ipalloc.Error{Prefix: p, Err: ipalloc.ErrExists, Reason: fmt.Sprintf("overlaps the pool %v of slot %d", other.prefix, other.slot)}
}

// comparePrefix orders prefixes by address, IPv4 first; a prefix precedes those inside
// it.
func comparePrefix(x, y netip.Prefix) int {
	if c := x.Addr().Compare(y.Addr()); c != 0 {
		return c
	}
	return x.Bits() - y.Bits()
}

// after returns the position of the first pool behind p in the list.
func (s *slots) after(p netip.Prefix) int {
	i, found := slices.BinarySearchFunc(s.pools, p, func(pl *pool, p netip.Prefix) int { return comparePrefix(pl.prefix, p) })
	if found {
		i++
	}
	return i
}

// around returns the pool that contains p, nil if there is none.
func (s *slots) around(p netip.Prefix) *pool {
	if i := s.after(p); i > 0 && s.pools[i-1].contains(p) {
		return s.pools[i-1]
	}
	return nil
}

// pool returns the pool that is exactly p, nil if there is none.
func (s *slots) pool(p netip.Prefix) *pool {
	if pl := s.around(p); pl != nil && pl.prefix == p {
		return pl
	}
	return nil
}

// overlapping returns a pool other than but that overlaps p.
func (s *slots) overlapping(p netip.Prefix, but *pool) *pool {
	for i := max(s.after(p)-1, 0); i < len(s.pools); i++ {
		switch pl := s.pools[i]; {
		case pl != but && pl.prefix.Overlaps(p):
			return pl
		case comparePrefix(pl.prefix, p) > 0 && !pl.prefix.Overlaps(p):
			return nil
		}
	}
	return nil
}

func (s *slots) choose(_ Node, dst []netip.Prefix) ([]netip.Prefix, string, error) {
	for i := range s.slots {
		p, ok := s.next(&s.slots[i])
		if !ok {
			return dst, "", s.slots[i].full
		}
		dst = append(dst, p) // no slot takes from another's pools
	}
	return dst, "", nil
}

func (s *slots) next(sl *slot) (p netip.Prefix, ok bool) {
	for _, pl := range sl.pools {
		if !pl.draining {
			if p, ok = s.a.next(pl); ok {
				return p, true
			}
		}
	}
	return p, false
}

func (s *slots) advance(_ string, p netip.Prefix) {
	if pl := s.around(p); pl != nil {
		s.a.moveBehind(pl, p)
	}
}

func (s *slots) origin(*recording, []netip.Prefix) string { return "" }

func (s *slots) judge(r *recording, places []place) {
	for _, pl := range places {
		if pl.at >= 0 {
			s.fits(r, pl)
			r.overlaps(pl)
		}
	}
	if !r.strict { // Occupy may give fewer prefixes than there are slots
		s.missing(r)
	}
}

// missing reports each slot without a prefix of its family in the node's record; a
// repeated prefix counts once.
func (s *slots) missing(r *recording) {
	var have [2]int
	for _, p := range s.a.want {
		have[familyOf(p)]++
	}
	for i, sl := range s.slots {
		f := 1
		if sl.v4 {
			f = 0
		}
		if have[f]--; have[f] < 0 {
			r.lacks(families[f]).Field = slotField(i)
		}
	}
}

// fits reports a prefix that is not a child of its slot's pools.
func (s *slots) fits(r *recording, pl place) {
	if pl.at >= len(s.slots) {
		r.bad(pl, ipalloc.ErrLimit, "more prefixes than slots")
		return
	}
	sl, in := &s.slots[pl.at], s.around(pl.prefix)
	switch {
	case pl.prefix.Addr().Is4() != sl.v4:
		r.bad(pl, ipalloc.ErrMismatch, "of the other address family than its slot")
	case in == nil || in.slot != pl.at:
		r.bad(pl, ipalloc.ErrOutOfRange, "in no pool of its slot")
	case !in.has(pl.prefix):
		r.bad(pl, ipalloc.ErrOutOfRange, fmt.Sprintf("not a /%d", sl.bits)).Pool = in.prefix
	}
}

func (s *slots) count(string, int) {}

func (s *slots) sweep(string) []string { return nil }

func (s *slots) forget([]string) {}

func (s *slots) stats(st *Stats) {
	for i := range s.slots {
		for _, pl := range s.slots[i].pools {
			st.Pools = append(st.Pools, s.a.poolStats(pl))
		}
	}
}

func (s *slots) check() error {
	n := 0
	for i, sl := range s.slots {
		for _, pl := range sl.pools {
			n++
			if pl.slot != i || int(pl.size) != sl.bits || pl.prefix.Addr().Is4() != sl.v4 || s.pool(pl.prefix) != pl ||
				pl.block != claims.BlockOf(pl.prefix) || !pl.block.Starts(pl.cursor, pl.size) || checkPool(pl.prefix) != nil {
				return fmt.Errorf("pool %v does not fit slot %d", pl.prefix, i)
			}
			if other := s.overlapping(pl.prefix, pl); other != nil {
				return fmt.Errorf("pools %v and %v overlap", pl.prefix, other.prefix)
			}
		}
	}
	if n != len(s.pools) {
		return fmt.Errorf("%d pools, listed %d", n, len(s.pools))
	}
	return nil
}

func (s *slots) save(w *wire.Coder) {
	w.Literal(string(rune(bySlots)))
	n := len(s.slots)
	w.Count(&n, 3)
	for _, sl := range s.slots {
		wire.Byte(w, &sl.bits)
		wire.Bool(w, &sl.v4)
		n = len(sl.pools)
		w.Count(&n, minPool)
		for _, pl := range sl.pools {
			wire.AnyPrefix(w, &pl.prefix)
			wire.Bool(w, &pl.draining)
			pl.codeCursor(w)
		}
	}
}

// restoreSlots reads what save wrote after its first byte.
func restoreSlots(a *Allocator, r *wire.Coder) *slots {
	s := &slots{a: a}
	n, pools := 0, 0
	r.Count(&n, 3)
	for i := range n {
		bits, v4 := int(r.Byte()), false
		wire.Bool(r, &v4)
		s.addSlot(bits, v4)
		for r.Count(&pools, minPool); pools > 0; pools-- {
			var p netip.Prefix
			wire.AnyPrefix(r, &p)
			pl, err := s.newPool(i, p)
			if err != nil {
				r.Fail("%v", err)
				return s
			}
			wire.Bool(r, &pl.draining)
			pl.codeCursor(r)
			s.slots[i].pools = append(s.slots[i].pools, pl)
		}
	}
	if len(s.slots) == 0 {
		r.Fail("no slot")
	}
	if err := s.arrange(); err != nil {
		r.Fail("%v", err)
	}
	return s
}
