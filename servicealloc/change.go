package servicealloc

import (
	"errors"

	"github.com/ipalloc/ipalloc"
)

// Kind says what a [Change] did.
type Kind string

// The kinds of changes.
const (
	// Allocated means that the addresses and ports are taken, named or chosen.
	Allocated Kind = "allocated"
	// Released means that the addresses and ports are given back.
	Released Kind = "released"
	// Replaced means that the owner now holds what the change lists, with what an
	// open transaction has taken.
	Replaced Kind = "replaced"
	// Moved means that the owner now holds what the change lists besides what it held
	// before, and that the owner From does not hold any more what From lists. Both have
	// the generations after it, and either may list nothing.
	Moved Kind = "moved"
	// RangeSet means that the range was added, or changed to what the change says.
	RangeSet Kind = "range set"
	// RangeRemoved means that the range of that name was removed.
	RangeRemoved Kind = "range removed"
)

// Change is one change of an allocator, as [OnChange] delivers it. Its slices belong
// to the receiver. A [Range] or [Ports] fills in Addrs or Ports alone. A registry is
// rebuilt from its changes, in order, by [Registry.Apply].
type Change struct {
	Kind Kind
	Grant
	From  Grant     // of Moved
	Range RangeInfo // of RangeSet and RangeRemoved
}

// Apply repeats a change that [OnChange] delivered, in a registry that follows another one
// or is rebuilt from a journal. After the changes of the other one in their order it holds
// the same for the same owners, in the same order among owners that claim one address.
// Changes that a snapshot has already may be applied again, in order: the state is right
// again after the last of them, but for the order among those that claim one address.
//
// It fails with [ipalloc.ErrInvalid] for a change that no registry makes, and with
// [ipalloc.ErrInUse] if a transaction of the owner is open here. Nothing is changed then.
func (r *Registry) Apply(c Change) error {
	switch c.Kind {
	case RangeSet:
		return r.setRange("apply", c.Range, true)
	case RangeRemoved:
		if err := r.removeRange("apply", c.Range.Name, true); !errors.Is(err, ipalloc.ErrNotFound) {
			return err
		}
		return nil
	}
	r.lock()
	defer r.unlock()
	for name, g := range map[string]*Grant{"Grant": &c.Grant, "From": &c.From} {
		if !g.wellFormed() || g.Generation > maxGeneration || c.Kind != Released && g.Generation == 0 && g == &c.Grant && !g.empty() {
			return g.refused("apply", name, "no grant of a registry")
		}
	}
	rec, err := r.find("apply", c.Owner, 0)
	if err != nil {
		return err
	}
	switch c.Kind {
	case Released:
		r.become(rec, holding{}, nil)
		return nil
	case Allocated, Replaced:
		if c.Kind == Allocated && rec.generation != 0 {
			r.become(rec, holding{}, nil) // so that it comes last again where others claim the same
		}
		for _, s := range r.subjects(&c.Grant) {
			r.claim(s, rec)
		}
		r.become(rec, holdingOf(&c.Grant), nil)
	case Moved:
		if err := r.applyMove(c); err != nil {
			return err
		}
	default:
		return c.refused("apply", "Kind", "a change of another kind")
	}
	r.last = max(r.last, c.Generation, c.From.Generation)
	return nil
}

// applyMove repeats a change of kind Moved.
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
