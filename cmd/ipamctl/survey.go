package main

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
)

// surveyor makes the spaces that a map shows.
type surveyor struct {
	by       string      // state, host or pool: what labels are
	host     alloc.Owner // the only one that has a label, unless it is nobody
	handles  bool        // labels are handles, and every address that is held is Used: for a comparison
	leaked   map[netip.Addr]uint64
	reserved *netipx.IPSet
	pools    []alloc.Pool
	prefixes *prefixes.Allocator // whose pools are drawn, too, unless it is nil
}

// spaces reads the pools with the given names, all if there are none, in address order.
func (s *surveyor) spaces(ctx context.Context, e *ipset.Engine, names []string) ([]*addrmap.Space, error) {
	all, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	var out []*addrmap.Space
	if s.prefixes != nil {
		if out, err = s.prefixSpaces(ctx, names); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(p alloc.Pool) bool { return p.Name == name }) && !slices.ContainsFunc(out, func(x *addrmap.Space) bool { return x.Name == name }) {
			return nil, fail(exitNotFound, "there is no pool %q", name)
		}
	}
	if s.reserved, err = reserved(ctx, e); err != nil {
		return nil, err
	}
	s.pools = all
	for _, p := range all {
		if len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		space, err := s.space(ctx, e, p)
		if err != nil {
			return nil, err
		}
		out = append(out, space)
	}
	slices.SortStableFunc(out, func(x, y *addrmap.Space) int { return x.Pool.Addr().Compare(y.Pool.Addr()) })
	return out, nil
}

// prefixSpaces reads the pools of prefixes with the given names, all if there are none. What is free in a prefix that is a pool itself is
// idle, because only that prefix's owner assigns it.
func (s *surveyor) prefixSpaces(ctx context.Context, names []string) (out []*addrmap.Space, err error) {
	pools, err := s.prefixes.Pools(ctx)
	for _, p := range pools {
		space := &addrmap.Space{Name: p.Prefix.String(), Pool: p.Prefix, Finest: p.Sizes.Longest}
		if len(names) > 0 && !slices.Contains(names, space.Name) {
			continue
		}
		of := map[netip.Prefix][]prefixes.Holding{}
		for h, err := range s.prefixes.All(ctx, p.Prefix) {
			if err != nil {
				return nil, err
			}
			of[h.Pool] = append(of[h.Pool], h)
			space.Finest = max(space.Finest, h.Prefix.Bits())
		}
		var draw func(in netip.Prefix, gap addrmap.State, owner string)
		draw = func(in netip.Prefix, gap addrmap.State, owner string) {
			w := spanWriter{space: space}
			at, end := addrmap.Of(in)
			full := false
			for _, h := range of[in] {
				lo, hi := addrmap.Of(h.Prefix)
				if lo.Cmp(at) > 0 {
					w.gap(at, lo.Sub(one), gap, owner)
				}
				if h.Children == (prefixes.Sizes{}) || h.Prefix == in {
					space.Add(addrmap.Span{Lo: lo, Hi: hi, State: addrmap.Used, Label: h.Owner})
				} else {
					draw(h.Prefix, addrmap.Idle, h.Owner)
				}
				at, full = hi.Add(one), hi == end
			}
			if !full {
				w.gap(at, end, gap, owner)
			}
		}
		draw(p.Prefix, addrmap.Free, "")
		out = append(out, space)
	}
	return out, err
}

// space reads a pool.
func (s *surveyor) space(ctx context.Context, e *ipset.Engine, p alloc.Pool) (*addrmap.Space, error) {
	w := spanWriter{space: &addrmap.Space{Name: p.Name, Pool: p.Prefix, Finest: finestOf(p)}, reserved: s.reservedIn(p)}
	at, end := addrmap.Of(p.Prefix)
	full, inner := false, s.inner(p)
	for b, err := range e.Operator().Blocks(ctx, p.Prefix) {
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(inner, func(q netip.Prefix) bool { return q.Bits() <= b.Prefix().Bits() && q.Contains(b.Prefix().Addr()) }) {
			continue // it is drawn with its own pool
		}
		lo, hi := addrmap.Of(b.Prefix())
		if lo.Cmp(at) > 0 {
			w.gap(at, lo.Sub(one), addrmap.Free, "")
		}
		s.block(&w, b, lo, hi)
		at, full = hi.Add(one), hi == end
	}
	if !full {
		w.gap(at, end, addrmap.Free, "")
	}
	return w.space, nil
}

var one = addr.U128{Lo: 1}

// finestOf returns the length of the smallest cells: that of a block, or of an address in a small pool.
func finestOf(p alloc.Pool) int {
	if width := p.Prefix.Addr().BitLen(); width-p.Prefix.Bits() <= 12 {
		return width
	}
	return slices.Max(append(slices.Clone(p.Draining), p.BlockBits))
}

// block adds the addresses of a block.
func (s *surveyor) block(w *spanWriter, b *block.Block, lo, hi addr.U128) {
	owner := b.Owner()
	label := s.label(b, owner, "")
	head, tail := b.Reserved()
	at, full := lo, false
	if head > 0 {
		at = lo.Add(addr.U128{Lo: head})
		w.space.Add(addrmap.Span{Lo: lo, Hi: at.Sub(one), State: addrmap.Reserved, Label: label})
	}
	last := hi.Sub(addr.U128{Lo: tail})
	for al := range b.All() {
		n := addr.FromAddr(al.Address)
		if n.Cmp(at) > 0 {
			w.gap(at, n.Sub(one), addrmap.Idle, label)
		}
		holder := al.Host
		if holder.Kind == alloc.Nobody {
			holder = owner
		}
		w.space.Add(addrmap.Span{Lo: n, Hi: n, State: s.state(al, owner), Label: s.label(b, holder, al.Handle)})
		at, full = n.Add(one), n == last
	}
	if !full {
		w.gap(at, last, addrmap.Idle, label)
	}
	if tail > 0 {
		w.space.Add(addrmap.Span{Lo: last.Add(one), Hi: hi, State: addrmap.Reserved, Label: label})
	}
}

// state returns the state of an address that is held or cooling.
func (s *surveyor) state(al alloc.Allocation, owner alloc.Owner) addrmap.State {
	seq, candidate := s.leaked[al.Address]
	switch {
	case al.Cooling:
		return addrmap.Cooling
	case s.handles:
		return addrmap.Used
	case candidate && seq == al.Seq:
		return addrmap.Leaked
	case owner.Kind == alloc.Nobody:
		return addrmap.Orphan
	case borrowed(al, owner):
		return addrmap.Borrowed
	}
	return addrmap.Used
}

// label returns what a picture names, or is coloured by.
func (s *surveyor) label(b *block.Block, holder alloc.Owner, handle string) string {
	switch {
	case s.handles:
		return handle
	case s.by == "pool":
		return "" // each pool is a space; its name is set there
	case s.host.Kind != alloc.Nobody && s.host != holder:
		return ""
	}
	return holder.String()
}

// reservedIn returns what automatic assignment never takes of a pool.
func (s *surveyor) reservedIn(p alloc.Pool) []netipx.IPRange {
	return addrmap.KeptBack(p.Prefix, p.Ranges, p.Subnet, s.reserved, s.inner(p))
}

// inner returns the pools that lie in a pool.
func (s *surveyor) inner(p alloc.Pool) (inner []netip.Prefix) {
	for _, q := range s.pools {
		if q.Prefix.Bits() > p.Prefix.Bits() && p.Prefix.Contains(q.Prefix.Addr()) {
			inner = append(inner, q.Prefix)
		}
	}
	return inner
}

// spanWriter adds spans to a space and splits what is free where it is reserved.
type spanWriter struct {
	space    *addrmap.Space
	reserved []netipx.IPRange // those not passed yet
}

// gap adds a range in which nothing is held.
func (w *spanWriter) gap(lo, hi addr.U128, st addrmap.State, label string) {
	add := func(lo, hi addr.U128, st addrmap.State) {
		if st != addrmap.Free && lo.Cmp(hi) <= 0 {
			w.space.Add(addrmap.Span{Lo: lo, Hi: hi, State: st, Label: label})
		}
	}
	for lo.Cmp(hi) <= 0 {
		for len(w.reserved) > 0 && addr.FromAddr(w.reserved[0].To()).Cmp(lo) < 0 {
			w.reserved = w.reserved[1:]
		}
		if len(w.reserved) == 0 {
			break
		}
		from, to := addr.FromAddr(w.reserved[0].From()), addr.FromAddr(w.reserved[0].To())
		if from.Cmp(hi) > 0 {
			break
		}
		if from.Cmp(lo) > 0 {
			add(lo, from.Sub(one), st)
			lo = from
		}
		if to.Cmp(hi) >= 0 {
			add(lo, hi, addrmap.Reserved)
			return
		}
		add(lo, to, addrmap.Reserved)
		lo = to.Add(one)
	}
	add(lo, hi, st)
}

// compare returns the space of what changed between two of the same pool, by the handles that hold addresses.
func compareSpaces(before, after *addrmap.Space) *addrmap.Space {
	out := &addrmap.Space{Name: after.Name, Pool: after.Pool, Finest: max(before.Finest, after.Finest)}
	if after.Finest == 0 || before.Finest == 0 {
		out.Finest = 0
	}
	var points []addr.U128 // where a span begins, or the addresses behind one
	_, end := addrmap.Of(out.Pool)
	for _, s := range []*addrmap.Space{before, after} {
		for _, sp := range s.Spans {
			points = append(points, sp.Lo)
			if sp.Hi != end {
				points = append(points, sp.Hi.Add(one))
			}
		}
	}
	slices.SortFunc(points, addr.U128.Cmp)
	points = slices.Compact(points)
	i, j := 0, 0
	held := func(s *addrmap.Space, k *int, at addr.U128) (label string, ok bool) {
		for *k < len(s.Spans) && s.Spans[*k].Hi.Cmp(at) < 0 {
			*k++
		}
		if *k == len(s.Spans) || s.Spans[*k].Lo.Cmp(at) > 0 || s.Spans[*k].State != addrmap.Used {
			return "", false
		}
		return s.Spans[*k].Label, true
	}
	for n, at := range points {
		hi := end
		if n+1 < len(points) {
			hi = points[n+1].Sub(one)
		}
		was, had := held(before, &i, at)
		is, has := held(after, &j, at)
		sp := addrmap.Span{Lo: at, Hi: hi, Label: cmp.Or(is, was)}
		switch {
		case had && has && was == is:
			sp.State = addrmap.Same
		case had && has:
			sp.State = addrmap.Changed
		case has:
			sp.State = addrmap.Added
		case had:
			sp.State = addrmap.Removed
		default:
			continue
		}
		out.Add(sp)
	}
	return out
}
