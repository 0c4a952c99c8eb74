package assign

import (
	"slices"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Whether a pool is full, reserved, cooling or limited is found out while the search goes by; the error that follows is written here.

// tooFew is the error of an all-or-nothing call: that of the only reason, if all pools have one.
func (p *AssignPlan) tooFew() error {
	is, only := cause.Short, p.result.Short[0].Reason
	switch {
	case slices.ContainsFunc(p.result.Short, func(s alloc.Shortage) bool { return s.Reason != only }):
	case only == alloc.ReasonCoolingLeft:
		is = cause.Cooling
	case only == alloc.ReasonReservedLeft:
		is = cause.Reserved
	case only == alloc.ReasonLimitReached:
		is = cause.Limited
	}
	return &pool.Shortage{Short: p.result.Short, Is: is}
}

// shortageOf says why pool i gave too few.
func (p *AssignPlan) shortageOf(t *txn.Txn, s *Search, i int) (short alloc.Shortage, err error) {
	short = alloc.Shortage{Family: s.family, Pool: p.cat.Pools[i].Name, Reason: max(s.reasons[i], alloc.ReasonFull)}
	switch short.Reason {
	case alloc.ReasonCoolingLeft:
		if until := s.cools[i]; until != 0 {
			short.Until = wire.Unstamp(block.Later(until, t.E.Skew))
		}
	case alloc.ReasonDrainingLeft:
		short.InTheWay = s.kept[i]
	case alloc.ReasonLimitReached:
		short.Limit, _, err = t.Limit(p.cat.Catalog, p.Owner, i, p.Blocks.Max)
	}
	return short, err
}

// cooling notes that an address of pool i is free at a moment.
func (p *AssignPlan) cooling(s *Search, i int, until int64) {
	p.reason(s, i, alloc.ReasonCoolingLeft)
	if s.cools == nil {
		s.cools = make(map[int]int64)
	}
	if was := s.cools[i]; was == 0 || until < was {
		s.cools[i] = until
	}
}
