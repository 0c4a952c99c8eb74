package assign

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// An error carries its shortages itself, because the plan that found them may still be running when the caller has given up.

// shortage is the cause of a call that finds too few addresses, or no pool.
type shortage struct {
	short []alloc.Shortage
	is    error
}

// Unwrap returns the cause that the reasons come to.
func (s *shortage) Unwrap() error { return s.is }

// Shortages is for [alloc.Shortages].
func (s *shortage) Shortages() []alloc.Shortage { return s.short }

// Error names the first pools, because there may be thousands.
func (s *shortage) Error() string {
	const most = 8
	text := s.is.Error()
	for i, x := range s.short[:min(most, len(s.short))] {
		text += [...]string{": ", ", "}[min(i, 1)]
		if len(s.short) > 1 { // else the error names it
			text += x.Pool + ": "
		}
		if text += x.Reason.String(); x.Limit.Max > 0 {
			text += fmt.Sprintf(": %d of %d blocks", x.Limit.Blocks, x.Limit.Max)
		}
		if x.InTheWay.IsValid() {
			text += fmt.Sprintf(": %s", x.InTheWay)
		}
	}
	if n := len(s.short) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// describe sets the fields of an error that follow from its shortages, and returns them.
func describe(err error, fault *ipalloc.Error) []alloc.Shortage {
	var s *shortage
	if !errors.As(err, &s) {
		return nil
	}
	if len(s.short) > 0 && !slices.ContainsFunc(s.short, func(x alloc.Shortage) bool { return x.Pool != s.short[0].Pool }) {
		fault.Name = s.short[0].Pool
	}
	if s.is == cause.Cooling {
		fault.Until = s.short[0].Until
		for _, x := range s.short {
			if x.Until.Before(fault.Until) {
				fault.Until = x.Until
			}
		}
	}
	return s.short
}

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
	return &shortage{p.result.Short, is}
}

// noPool is the error of a choice that no pool serves. Pools that the caller has not named are left out if it has named some.
func (s *Search) noPool() error {
	fault := &shortage{is: cause.NoPool}
	for i := range s.Cat.Pools {
		if name := s.Cat.Pools[i].Name; len(s.Choice.Names) == 0 || slices.Contains(s.Choice.Names, name) {
			fault.short = append(fault.short, alloc.Shortage{Family: s.Choice.Family, Pool: name, Reason: alloc.ReasonCommitFull + alloc.Reason(s.Cat.Obstacle(i, &s.Choice))})
		}
	}
	return fault
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
