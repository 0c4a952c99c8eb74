package prefixes

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
)

// Release returns a prefix to its pool in one commit. It fails with ErrNotHeld if the
// owner does not hold exactly that prefix, and Holder says if another owner does; with
// ErrInUse while a prefix is held from it, and InTheWay and Holder name one. Nothing is
// changed then.
func (a *Allocator) Release(ctx context.Context, owner string, at netip.Prefix) error {
	call := ipalloc.Error{Op: "release", Owner: owner, Prefix: at}
	if err := checkHeld(owner, at); err != nil {
		return explain(err, call)
	}
	return a.do(ctx, call, func(t *txn) error {
		r, err := t.held(owner, at)
		if err != nil {
			return err
		}
		return t.release(&r)
	})
}

func checkHeld(owner string, at netip.Prefix) error {
	if err := checkOwner("owner", owner); err != nil {
		return err
	}
	return checkPrefix("at", at)
}

// held returns the holding of a prefix, which must be the owner's.
func (t *txn) held(owner string, at netip.Prefix) (record, error) {
	r, ok, err := t.holding(at)
	if err == nil && (!ok || r.Owner != owner) {
		e := fail(ipalloc.ErrNotHeld, "")
		e.Holder, err = r.Owner, e
	}
	return r, err
}

// release returns a prefix to its pool. It reads the pages that it needs at once.
func (t *txn) release(r *record) error {
	if r.Children != (Sizes{}) {
		if err := t.mustBeEmpty(r.Prefix); err != nil {
			return err
		}
	}
	tr := t.tree(r.Pool)
	if err := t.prefetch(tr, r.Prefix); err != nil {
		return err
	}
	if err := tr.give(r.Prefix); err != nil {
		return err
	}
	return t.replace(r.Prefix, &record{})
}

// mustBeEmpty returns the error for a pool from which a prefix is held.
func (t *txn) mustBeEmpty(pool netip.Prefix) error {
	root, err := t.page(tree{pool: pool}.root())
	if err != nil || root.content().empty() {
		return err
	}
	e := fail(ipalloc.ErrInUse, "prefixes are held from it")
	inside := insideRange(pool)
	inside.Limit = 2
	recs, _, err := t.a.store.List(t.Ctx, inside)
	if err != nil {
		return err
	}
	for _, rec := range recs {
		r, err := decodeRecord(rec)
		if err != nil {
			return err
		}
		if r.Prefix != pool {
			e.InTheWay, e.Holder = r.Prefix, r.Owner
			break
		}
	}
	return e
}

// ReleaseByOwner releases all that an owner holds, the prefixes held from others first,
// and returns what it has released. After an Assign, Allocate or Occupy of unknown outcome
// it leaves nothing behind, also if that commit is made late. It needs a commit for each
// part of the holdings that fits one; an error ends it, and what has been released before
// stays released. ErrInUse names a prefix that another owner holds from one of them.
func (a *Allocator) ReleaseByOwner(ctx context.Context, owner string) (released []Holding, err error) {
	call := ipalloc.Error{Op: "release by owner", Owner: owner}
	if err := checkOwner("owner", owner); err != nil {
		return nil, explain(err, call)
	}
	for {
		part, more, err := a.releasePart(ctx, call)
		if err != nil {
			return released, err
		}
		if released = append(released, part...); !more {
			return released, nil
		}
	}
}

// releasePart releases as much of what call.Owner holds as one commit has room for, and
// reports whether there is more. What it meets after a prefix that is in use stays.
func (a *Allocator) releasePart(ctx context.Context, call ipalloc.Error) ([]Holding, bool, error) {
	var part []Holding
	var more bool
	err := a.do(ctx, call, func(t *txn) error {
		part, more = nil, false
		if t.Pending() {
			return occ.ErrFirst // the index does not show what is pending
		}
		entries := ownerRange(call.Owner, netip.Prefix{})
		entries.Reverse = true // a prefix comes after those that are held from it
		for rec, err := range a.list(ctx, entries, t.mostCells()/3+1) {
			var r record
			var ok bool
			var p netip.Prefix
			if err == nil {
				p, _, err = parseEntry(rec)
			}
			if more = err == nil && !t.fits(len(part)); more {
				return nil
			}
			if err == nil {
				r, ok, err = t.holding(p)
			}
			if err == nil && (!ok || r.Owner != call.Owner) {
				continue
			}
			if err == nil {
				err = t.release(&r)
			}
			if more = err != nil && len(part) > 0 && errors.Is(err, ipalloc.ErrInUse); more {
				return nil // the next part begins with this one
			}
			if err != nil {
				return err
			}
			part = append(part, r.Holding)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return part, more, nil
}

// mostCells bounds what a call of several steps does in one commit on a store without
// limits; maxDepth+3 cells are more than any one step has.
const mostCells = 1000

// fits reports whether the commit has room for another step after n.
func (t *txn) fits(n int) bool {
	return n == 0 || t.Guards()+2*n+maxDepth+3 <= t.mostCells()
}

func (t *txn) mostCells() int { return cmp.Or(t.a.store.Limits().Ops, mostCells) }

// Transfer gives a holding to another owner by compare-and-swap: it fails with ErrNotHeld
// unless from holds exactly that prefix, and Holder says if another owner does. What is
// held from the prefix keeps its owners. It makes one commit. After an unknown outcome
// repeat it: ErrNotHeld with to as the Holder means that it was made.
func (a *Allocator) Transfer(ctx context.Context, at netip.Prefix, from, to string) (Holding, error) {
	call := ipalloc.Error{Op: "transfer", Owner: from, Prefix: at}
	if err := cmp.Or(checkOwner("from", from), checkOwner("to", to)); err != nil {
		return Holding{}, explain(err, call)
	}
	return a.change(ctx, call, func(r *record) { r.Owner = to })
}

// SetAttributes replaces the attributes of a holding. It fails with ErrNotHeld as Transfer
// does, and with ErrInvalid for more than MaxAttributes bytes.
func (a *Allocator) SetAttributes(ctx context.Context, owner string, at netip.Prefix, attributes string) (Holding, error) {
	call := ipalloc.Error{Op: "set attributes", Owner: owner, Prefix: at}
	if err := checkAttributes(attributes); err != nil {
		return Holding{}, explain(err, call)
	}
	return a.change(ctx, call, func(r *record) { r.Attributes = attributes })
}

// change replaces what is kept of a holding of call.Owner.
func (a *Allocator) change(ctx context.Context, call ipalloc.Error, change func(*record)) (Holding, error) {
	if err := checkHeld(call.Owner, call.Prefix); err != nil {
		return Holding{}, explain(err, call)
	}
	var got record
	err := a.do(ctx, call, func(t *txn) error {
		was, err := t.held(call.Owner, call.Prefix)
		if err != nil {
			return err
		}
		got = was
		change(&got)
		return t.replace(got.Prefix, &got)
	})
	if err != nil {
		return Holding{}, err
	}
	return got.Holding, nil
}
