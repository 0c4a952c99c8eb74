package txn

import (
	"errors"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// stepBlocks is the largest number of blocks that a step of a long operation changes.
const StepBlocks = 64

// StepCost bounds the records that a step writes: for each block, and for each place in it, an address or the block itself.
type StepCost struct{ Block, Place int }

// InSteps calls do with some of the blocks or addresses at a time, as many as a commit takes by their cost, and with fewer if that is
// too much, or if others keep changing one of them.
func (e *Engine) InSteps(places []netip.Prefix, c StepCost, do func([]netip.Prefix) error) error {
	most := StepBlocks
	for len(places) > 0 {
		n := e.fitting(places[:min(most, len(places))], c)
		err := do(places[:n])
		if n > 1 && (errors.Is(err, ipalloc.ErrLimit) || cause.IsConflict(err)) {
			most = n / 2
			continue
		}
		if err != nil {
			return err
		}
		places = places[n:]
	}
	return nil
}

// fitting returns how many of some places go into one commit.
func (e *Engine) fitting(places []netip.Prefix, c StepCost) int {
	limit, ops := e.Limits.Ops, 0
	for i, p := range places {
		if ops += c.Place; i == 0 || places[i-1].Masked() != p.Masked() {
			ops += c.Block
		}
		if limit > 0 && ops > limit && i > 0 {
			return i
		}
	}
	return len(places)
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
