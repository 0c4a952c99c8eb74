package ipset

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// also is the caller's own records on their way through a plan, which writes them in its commit.
type also struct {
	ops  []store.Op
	runs int // how often the plan has run
}

// checkAlso refuses operations that are not on the caller's own records, or that no commit could carry out. A commit of several
// callers may not fail by what one of them wants.
func (e *Engine) checkAlso(ops []store.Op) error {
	if len(ops) == 0 {
		return nil
	}
	for _, op := range ops {
		if op.Key == "" || !isForeign(op.Key) {
			return wrap(ipalloc.Error{Op: "check", Field: "Also", Text: op.Key, Err: fmt.Errorf("%w: a key of yours begins with an upper-case letter", errBadArgument)})
		}
	}
	return store.CheckOps("ipset", ops, e.limits)
}

// reserve makes room for the records. After a conflict it finds out whether one of them was the cause: a revision that is not
// the present one will not be so later, so the call ends.
func (a *also) reserve(t *txn) error {
	if len(a.ops) == 0 {
		return nil
	}
	for _, op := range a.ops {
		if t.Adds(op.Key) {
			return occ.ErrFirst // a record is written once in a commit
		}
	}
	if a.runs > 1 {
		if err := t.Expect(a.ops); err != nil {
			return err
		}
	}
	return t.Room(len(a.ops))
}

// write adds the records to the commit. There is room for them.
func (a *also) write(t *txn) {
	for _, op := range a.ops {
		t.Add(op)
	}
}

// ReleaseArgs are the arguments of [Engine.Release].
type ReleaseArgs struct {
	// Handle, if not empty, releases all of its addresses.
	Handle string
	// Addresses are released if their guards hold.
	Addresses []Release
	// Also are records of yours that are written in the same commit. Their keys begin with an upper-case letter.
	Also []store.Op
}

// Release gives addresses back in one commit, all or none, and writes records of the caller with it: the row of a machine goes with
// its addresses. It returns the addresses that were held, in the order of their blocks. Addresses that are free or cooling already
// are no error, and Also is written for them too.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if a guard does not hold; [ipalloc.ErrConflict] if a record of
// Also is not at the revision that it expects, which [store.ConflictKey] names; [ipalloc.ErrLimit] if one commit cannot hold the
// call; [ipalloc.ErrInvalid]; errors of the store as for AutoAssign. ReleaseIPs and ReleaseByHandle go in several commits where one
// does not suffice.
func (e *Engine) Release(ctx context.Context, a ReleaseArgs) ([]netip.Addr, error) {
	fail := func(err error) ([]netip.Addr, error) {
		return nil, wrap(ipalloc.Error{Op: "release", Owner: a.Handle, Err: occ.Conflict("ipset", err)})
	}
	if a.Handle != "" {
		if err := block.CheckName("handle", a.Handle); err != nil {
			return fail(err)
		}
	}
	for _, r := range a.Addresses {
		if !r.Address.IsValid() || r.Address.Is4In6() || r.Address.Zone() != "" {
			return fail(wrap(ipalloc.Error{Op: "release", Addr: r.Address, Err: errBadAddress}))
		}
	}
	if err := e.checkAlso(a.Also); err != nil {
		return fail(err)
	}
	p := releaseAllPlan{args: a, also: also{ops: a.Also}}
	if err := e.do(ctx, &p); err != nil {
		return fail(err)
	}
	return p.released, nil
}

// releaseAllPlan releases addresses, all or none.
type releaseAllPlan struct {
	args     ReleaseArgs
	also     also
	guards   []store.Op // of the records of the addresses
	released []netip.Addr
}

// Detach implements [occ.Detacher].
func (p *releaseAllPlan) Detach() {
	p.args.Addresses, p.also.ops, p.guards = slices.Clone(p.args.Addresses), slices.Clone(p.also.ops), slices.Clone(p.guards)
}

// Plan implements plan.
func (p *releaseAllPlan) Plan(t *txn) error {
	p.also.runs++
	p.released = nil
	if len(p.guards) > 0 && t.Pending() {
		return occ.ErrFirst // the records may change in this commit
	}
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	var held []place
	if p.args.Handle != "" {
		if t.changes(p.args.Handle) {
			return occ.ErrFirst // the index does not show it yet
		}
		if held, err = t.heldBy(cat, p.args.Handle); err != nil {
			return err
		}
	}
	err = t.fetchAt(cat, func(yield func(netip.Addr) bool) {
		for _, r := range p.args.Addresses {
			if !yield(r.Address) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for _, r := range p.args.Addresses {
		h, ok, err := t.guarded(cat, r)
		if err != nil {
			return err
		}
		if ok {
			held = append(held, h)
		}
	}
	slices.SortStableFunc(held, func(a, b place) int { return a.be.at.Addr().Compare(b.be.at.Addr()) })
	var drops []drop
	for _, h := range held {
		if n := len(drops); n == 0 || drops[n-1].be != h.be {
			drops = append(drops, drop{be: h.be})
		}
		d := &drops[len(drops)-1]
		if d.has(h.x, h.Seq) {
			continue // named twice
		}
		d.add(h.x, h.Seq)
		if at := h.be.Addr(h.x); !d.shared || !slices.Contains(p.released, at) {
			p.released = append(p.released, at)
		}
	}
	// What writes the record of an address writes the block's, which was read before: its guard is one of these too.
	if err := t.Expect(p.guards); err != nil {
		return err
	}
	if err := p.also.reserve(t); err != nil {
		return err
	}
	if err := t.drop(cat, drops); err != nil {
		return err
	}
	p.also.write(t)
	return nil
}

// guarded returns the place of an address that is to be released and the holder that goes, none for all of them; ok is false if the
// address is not held.
func (t *txn) guarded(cat *catalogEntry, r Release) (h place, ok bool, err error) {
	be, err := t.locate(cat, r.Address)
	if err != nil || be == nil || be.Block == nil {
		return place{}, false, err
	}
	if err := t.ready(be, r.Address); err != nil {
		return place{}, false, err
	}
	x, err := be.Ordinal(r.Address)
	if err != nil {
		return place{}, false, nil
	}
	if be.CanDrop(x, r.Guard) == OwnerChanged {
		al, _ := be.Lookup(r.Address)
		return place{}, false, inTheWay(al, ipalloc.ErrMismatch)
	}
	st, a := be.Look(x)
	if st != block.Held {
		return place{}, false, nil
	}
	h = place{be: be, x: x}
	if r.Guard != (Guard{}) {
		h.Holder, _ = a.Find(r.Guard)
	}
	return h, true, nil
}
