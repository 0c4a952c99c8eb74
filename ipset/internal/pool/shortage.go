package pool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// An error carries its shortages itself, because the plan that found them may still be running when the caller has given up.

// Shortage is the cause of a call that finds too few addresses, or no pool.
type Shortage struct {
	Short []alloc.Shortage
	Is    error
}

// Unwrap returns the cause that the reasons come to.
func (s *Shortage) Unwrap() error { return s.Is }

// Shortages is for [alloc.Shortages].
func (s *Shortage) Shortages() []alloc.Shortage { return s.Short }

// Error names the first pools, because there may be thousands.
func (s *Shortage) Error() string {
	const most = 8
	text := s.Is.Error()
	for i, x := range s.Short[:min(most, len(s.Short))] {
		text += [...]string{": ", ", "}[min(i, 1)]
		if len(s.Short) > 1 { // else the error names it
			text += x.Pool + ": "
		}
		if text += x.Reason.String(); x.Limit.Max > 0 {
			text += fmt.Sprintf(": %d of %d blocks", x.Limit.Blocks, x.Limit.Max)
		}
		if x.InTheWay.IsValid() {
			text += fmt.Sprintf(": %s", x.InTheWay)
		}
	}
	if n := len(s.Short) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Describe sets the fields of an error that follow from its shortages, and returns them.
func Describe(err error, fault *ipalloc.Error) []alloc.Shortage {
	var s *Shortage
	if !errors.As(err, &s) {
		return nil
	}
	if len(s.Short) > 0 && !slices.ContainsFunc(s.Short, func(x alloc.Shortage) bool { return x.Pool != s.Short[0].Pool }) {
		fault.Name = s.Short[0].Pool
	}
	if s.Is == cause.Cooling {
		fault.Until = s.Short[0].Until
		for _, x := range s.Short {
			if x.Until.Before(fault.Until) {
				fault.Until = x.Until
			}
		}
	}
	return s.Short
}
