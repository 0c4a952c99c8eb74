package servicealloc

import (
	"errors"

	"github.com/ipalloc/ipalloc"
)

// Op says what a [Change] did.
type Op string

// The operations that change an allocator.
const (
	// OpAllocate means that the addresses and ports are taken, named or chosen.
	OpAllocate Op = "allocated"
	// OpRelease means that the addresses and ports are given back.
	OpRelease Op = "released"
	// OpReplace means that the owner now holds what the change lists, and what an open
	// transaction has taken for it.
	OpReplace Op = "replaced"
	// OpMove means that the owner gained what the change lists and that From.Owner lost
	// what From lists. Both generations are those after the move; either may list nothing.
	OpMove Op = "moved"
	// OpSetRange means that the range was added, or replaced by the one in the change.
	OpSetRange Op = "range set"
	// OpRemoveRange means that the range of that name was removed.
	OpRemoveRange Op = "range removed"
)

// Change is one change of an allocator, as [OnChange] delivers it. Its slices belong
// to the receiver. A [Range] or [Ports] fills in Addrs or Ports alone. A registry is
// rebuilt from its changes, in order, by [Registry.Apply].
type Change struct {
	Op Op
	Grant
	From  Grant     // of OpMove
	Range RangeInfo // of OpSetRange and OpRemoveRange
}

// Apply repeats a change that [OnChange] delivered, in a registry that follows another one
// or is rebuilt from a journal. After all changes of the other registry, in order, the
// same owners hold the same, and owners that claim one address are in the same order.
// Changes that a snapshot already has may be applied again, in order: the state is right
// after the last of them, except for the order of owners that claim one address.
//
// It fails with [ipalloc.ErrInvalid] for a change that no registry makes, and with
// [ipalloc.ErrInUse] if a transaction of the owner is open here. Nothing is changed then.
func (r *Registry) Apply(c Change) error {
	switch c.Op {
	case OpSetRange:
		return r.setRange("apply", c.Range, true)
	case OpRemoveRange:
		if err := r.removeRange("apply", c.Range.Name, true); !errors.Is(err, ipalloc.ErrNotFound) {
			return err
		}
		return nil
	}
	r.lock()
	defer r.unlock()
	for name, g := range map[string]*Grant{"Grant": &c.Grant, "From": &c.From} {
		if !g.wellFormed() || r.far(g.Generation) || c.Op != OpRelease && g.Generation == 0 && g == &c.Grant && !g.empty() {
			return g.refused("apply", name, "no grant of a registry")
		}
	}
	rec, err := r.find("apply", c.Owner, 0)
	if err != nil {
		return err
	}
	switch c.Op {
	case OpRelease:
		r.become(rec, holding{}, nil)
		return nil
	case OpAllocate, OpReplace:
		if c.Op == OpAllocate && rec.generation != 0 {
			r.become(rec, holding{}, nil) // so that it comes last again where others claim the same
		}
		for _, s := range r.subjects(&c.Grant) {
			r.claim(s, rec)
		}
		r.become(rec, holdingOf(&c.Grant), nil)
	case OpMove:
		if err := r.applyMove(c); err != nil {
			return err
		}
	default:
		return c.refused("apply", "Op", "an unknown operation")
	}
	r.last = max(r.last, c.Generation, c.From.Generation)
	return nil
}

// applyMove repeats a change of OpMove.
func (r *Registry) applyMove(c Change) error {
	var a, b *record
	var err error
	if !c.From.empty() {
		if a, err = r.find("apply", c.From.Owner, 0); err != nil {
			return err
		}
	}
	if !c.Grant.empty() {
		if b, err = r.find("apply", c.Owner, 0); err != nil {
			return err
		}
		if a != nil && a.owner == b.owner {
			b = a
		}
	}
	r.transfer(a, b, r.subjects(&c.From), r.subjects(&c.Grant), &c.Grant)
	for rec, g := range map[*record]*Grant{a: &c.From, b: &c.Grant} {
		if rec != nil && rec.generation != 0 && g.Generation != 0 {
			rec.generation, rec.spilled = g.Generation, g.Spilled
		}
	}
	if r.changes != nil {
		r.changes.Add(c)
	}
	return nil
}
