package txn

import (
	"errors"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Releasing a host or sweeping a large pool writes more than a store takes in one commit. Such calls go in steps, each of them
// complete in itself, so that an interruption leaves nothing half done.

// StepBlocks is the largest number of blocks that a step of a long operation changes.
const StepBlocks = 64

// InSteps calls do with some of the blocks or addresses at a time. do returns how many it has dealt with, in order: as many as a
// commit takes. It gets fewer if others keep changing one of them, or if even what cannot be cut is too much.
func (e *Engine) InSteps(places []netip.Prefix, do func([]netip.Prefix) (done int, err error)) error {
	most := StepBlocks
	for len(places) > 0 {
		n := min(most, len(places))
		done, err := do(places[:n])
		if n > 1 && (errors.Is(err, ipalloc.ErrLimit) || cause.IsConflict(err)) {
			most = n / 2
			continue
		}
		if err != nil {
			return err
		}
		places = places[done:]
	}
	return nil
}

// Fitting returns how many operations a commit takes beside some others, at least one; most bounds those of all.
func Fitting(l store.Limits, most int, ops []store.Op, beside ...store.Op) int {
	if l.Ops > 0 {
		most = min(most, l.Ops)
	}
	bytes := 0
	for _, op := range beside {
		bytes += len(op.Key) + len(op.Value)
	}
	for i, op := range ops {
		bytes += len(op.Key) + len(op.Value)
		if i > 0 && (i+len(beside) >= most || l.Bytes > 0 && bytes > l.Bytes) {
			return i
		}
	}
	return len(ops)
}
