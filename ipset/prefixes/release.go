package prefixes

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Release returns a prefix to its pool in one commit. It fails with ErrNotHeld if the
// owner does not hold exactly that prefix; Holder names the owner that does. It fails
// with ErrInUse while prefixes are held from it; InTheWay and Holder name one. These
// errors change nothing. The argument also has the same meaning as in Allocate.
func (a *Allocator) Release(ctx context.Context, at netip.Prefix, owner string, also ...store.Op) error {
	call := ipalloc.Error{Op: "release", Owner: owner, Prefix: at}
	return a.do(ctx, call, checkHeld(owner, at), occ.Func[*txn](func(t *txn) error {
		r, err := t.held(owner, at)
		if err != nil {
			return err
		}
		return t.release(&r)
	}), also...)
}

// ReleaseTree releases a holding and everything that is held from it, of any owner, the
// deepest first, and returns the released holdings. It makes as many commits as needed.
// After an error the holdings released so far stay released; repeat the call to continue.
// It also releases prefixes that are allocated from the tree meanwhile. It fails with
// ErrNotHeld if the owner does not hold exactly that prefix.
func (a *Allocator) ReleaseTree(ctx context.Context, at netip.Prefix, owner string) ([]Holding, error) {
	call := ipalloc.Error{Op: "release tree", Owner: owner, Prefix: at}
	return a.releaseParts(ctx, call, checkHeld(owner, at), func(t *txn) (part, error) {
		if err := t.due(); err != nil {
			return part{}, err
		}
		if _, err := t.held(owner, at); err != nil {
			return part{}, err
		}
		return t.releasePart(insideRange(at), func(rec store.Record) (netip.Prefix, error) {
			r, err := decodeRecord(rec)
			return r.Prefix, err
		}, "")
	})
}

func checkHeld(owner string, at netip.Prefix) error {
	return cmp.Or(checkOwner("owner", owner), checkPrefix("at", at))
}

// held returns the holding of a prefix, which must be held by the owner.
func (t *txn) held(owner string, at netip.Prefix) (record, error) {
	r, ok, err := t.holding(at)
	if err == nil && (!ok || r.Owner != owner) {
		e := fail(ipalloc.ErrNotHeld, "")
		e.Holder, err = r.Owner, e
	}
	return r, err
}

// release returns a prefix to its pool. It reads the pages that it needs in one round
// trip.
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
	t.replace(r.Prefix, &record{})
	return nil
}

// mustBeEmpty returns the error for a pool with a prefix that is held from it.
func (t *txn) mustBeEmpty(pool netip.Prefix) error {
	if err := t.due(); err != nil {
		return err
	}
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
		if r.Prefix != pool || r.Pool == pool {
			e.InTheWay, e.Holder = r.Prefix, r.Owner
			break
		}
	}
	return e
}

// ReleaseByOwner releases all holdings of an owner, the deepest first, and returns them.
// After an Assign, Allocate or Occupy of unknown outcome it leaves nothing held, even if
// that commit is made late. It makes as many commits as needed. After an error the
// holdings released so far stay released. It fails with ErrInUse if another owner holds a
// prefix inside a holding of the owner; the error names that prefix.
func (a *Allocator) ReleaseByOwner(ctx context.Context, owner string) (released []Holding, err error) {
	call := ipalloc.Error{Op: "release by owner", Owner: owner}
	return a.releaseParts(ctx, call, checkOwner("owner", owner), func(t *txn) (part, error) {
		if err := t.due(); err != nil {
			return part{}, err
		}
		return t.releasePart(ownerRange(owner, netip.Prefix{}), func(rec store.Record) (netip.Prefix, error) {
			at, _, err := parseEntry(rec)
			return at, err
		}, owner)
	})
}

// releaseParts makes a commit for each part.
func (a *Allocator) releaseParts(ctx context.Context, call ipalloc.Error, bad error, plan func(*txn) (part, error)) (released []Holding, err error) {
	for more := true; more; {
		part, err := answer(ctx, a, call, bad, plan)
		if err != nil {
			return released, err
		}
		released, more = append(released, part.released...), part.more
	}
	return released, nil
}

// part is the result of one commit, and whether more is left.
type part struct {
	released []Holding
	more     bool
}

// releasePart releases the holdings named by a range of records, as many as one commit
// has room for. All must belong to owner, unless it is empty. If a prefix is in use, the
// holdings after it stay held.
func (t *txn) releasePart(entries store.Range, parse func(store.Record) (netip.Prefix, error), owner string) (p part, err error) {
	if t.Pending() {
		return p, occ.ErrFirst // the range does not show what is pending
	}
	entries.Reverse = true // a prefix comes after those that are held from it
	for rec, err := range t.a.list(t.Ctx, entries, t.mostCells()/3+1) {
		if err != nil {
			return p, err
		}
		at, err := parse(rec)
		if err != nil {
			return p, err
		}
		if p.more = !t.fits(len(p.released)); p.more {
			return p, nil
		}
		r, err := t.stored(at)
		if err == nil && (r.Owner == "" || owner != "" && r.Owner != owner) {
			continue
		}
		if err == nil {
			err = t.release(&r)
		}
		if p.more = err != nil && len(p.released) > 0 && errors.Is(err, ipalloc.ErrInUse); p.more {
			return p, nil // the next part begins with this one
		}
		if err != nil {
			return p, err
		}
		p.released = append(p.released, r.Holding)
	}
	return p, nil
}

// mostCells bounds the work of a multi-step call in one commit on a store without limits.
// A single step has fewer than maxDepth+3 cells.
const mostCells = 1000

// fits reports whether the commit has room for another step after n steps.
func (t *txn) fits(n int) bool {
	return n == 0 || t.Guards()+2*n+maxDepth+3 <= t.mostCells()
}

func (t *txn) mostCells() int { return cmp.Or(t.a.store.Limits().Ops, mostCells) }

// Transfer assigns a holding to another owner by compare-and-swap. It fails with
// ErrNotHeld unless from holds exactly that prefix; Holder names another owner that does.
// Holdings from the prefix keep their owners. It makes one commit, with the operations of
// also as in Allocate. After an unknown outcome repeat it: ErrNotHeld with to as the
// Holder means that the transfer was made.
func (a *Allocator) Transfer(ctx context.Context, at netip.Prefix, from, to string, also ...store.Op) (Holding, error) {
	call := ipalloc.Error{Op: "transfer", Owner: from, Prefix: at}
	return a.change(ctx, call, cmp.Or(checkOwner("from", from), checkOwner("to", to)), also, func(_ *txn, r *record) error { r.Owner = to; return nil })
}

// SetAttributes replaces the attributes of a holding. It fails with ErrNotHeld as Transfer
// does, and with ErrInvalid for more than MaxAttributes bytes. also is as in Allocate.
func (a *Allocator) SetAttributes(ctx context.Context, at netip.Prefix, owner, attributes string, also ...store.Op) (Holding, error) {
	call := ipalloc.Error{Op: "set attributes", Owner: owner, Prefix: at}
	return a.change(ctx, call, checkAttributes(attributes), also, func(_ *txn, r *record) error { r.Attributes = attributes; return nil })
}

// SetChildren replaces the lengths that a holding allocates from now on. It makes the
// holding a pool, or, with the zero Sizes, no longer a pool. Prefixes held from it stay
// held. The argument also works as in Allocate. For example, a Guard on your own record
// can keep a prefix from becoming a pool while you allocate its addresses.
//
// It fails with ErrNotHeld as Transfer does. It fails with ErrInvalid for lengths that
// are not longer than the prefix, and for a holding that is a whole root pool or a lease.
// It fails with ErrInUse for the zero Sizes while a prefix is held from it, which
// InTheWay and Holder name.
func (a *Allocator) SetChildren(ctx context.Context, at netip.Prefix, owner string, children Sizes, also ...store.Op) (Holding, error) {
	call := ipalloc.Error{Op: "set children", Owner: owner, Prefix: at}
	return a.change(ctx, call, cmp.Or(checkHeld(owner, at), children.checkOf(at)), also, func(t *txn, r *record) error {
		switch {
		case children != (Sizes{}) && r.Pool == at:
			return invalid("Children", "the prefix is the whole pool")
		case children != (Sizes{}) && !r.Until.IsZero():
			return errLeasedPool("Children")
		}
		if children == (Sizes{}) && r.Children != children {
			if err := t.mustBeEmpty(at); err != nil {
				return err
			}
		}
		r.Children = children
		return nil
	})
}

// change changes the stored content of a holding of call.Owner.
func (a *Allocator) change(ctx context.Context, call ipalloc.Error, bad error, also []store.Op, change func(*txn, *record) error) (Holding, error) {
	bad = cmp.Or(bad, checkHeld(call.Owner, call.Prefix))
	return answer(ctx, a, call, bad, func(t *txn) (Holding, error) {
		got, err := t.held(call.Owner, call.Prefix)
		if err == nil {
			err = change(t, &got)
		}
		if err != nil {
			return Holding{}, err
		}
		t.replace(got.Prefix, &got)
		return got.Holding, nil
	}, also...)
}
