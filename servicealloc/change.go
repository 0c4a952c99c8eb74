package servicealloc

import (
	"errors"

	"github.com/ipalloc/ipalloc"
)

// Op is the kind of a [Change].
type Op string

// Op values.
const (
	// OpAllocate means that the addresses and ports were taken, whether named or chosen.
	OpAllocate Op = "allocated"
	// OpRelease means that the addresses and ports were released.
	OpRelease Op = "released"
	// OpReplace means that the owner now holds exactly the addresses and ports in the
	// change, including those of its open transaction.
	OpReplace Op = "replaced"
	// OpMove means that the owner gained the addresses and ports in the change, and that
	// From.Owner lost those in From. Both generations are the ones after the move; either
	// list may be empty.
	OpMove Op = "moved"
	// OpSetRange means that the range was added, or replaced by the range in the change.
	OpSetRange Op = "range set"
	// OpRemoveRange means that the range of that name was removed.
	OpRemoveRange Op = "range removed"
)

// Change is one change of an allocator, as [OnChange] delivers it. Its slices belong to
// the receiver. A [Range] or [Ports] sets Addrs or Ports only. A registry is rebuilt from
// its changes, in order, by [Registry.Apply].
type Change struct {
	Op Op
	Grant
	From  Grant     // of OpMove
	Range RangeInfo // of OpSetRange and OpRemoveRange
}

// Apply repeats a change delivered by [OnChange] of another registry, in a registry that
// follows the other or is rebuilt from a journal. After all changes of the other
// registry, applied in order, the same owners hold the same addresses and ports. Owners
// that claim one address are in the same order. Changes that a snapshot already contains
// may be applied again, in order. The state is correct after the last of them, except for
// the order of owners that claim one address.
//
// It fails with [ipalloc.ErrInvalid] for a change that no registry makes, and with
// [ipalloc.ErrInUse] if a transaction of the owner is open here. On error nothing
// changes.
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
