package release

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A machine that gets another name keeps its blocks and addresses. More than one commit takes goes in steps. A memo says between them that
// the new name exists because of the renaming, so that a repetition goes on where an interrupted call ended.

// RenameHost carries out the call of that name.
func (e *Releaser) RenameHost(ctx context.Context, a alloc.RenameArgs) (moved []alloc.Allocation, blocks []netip.Prefix, err error) {
	err = cmp.Or(cause.As("From", a.From.Check()), cause.As("To", a.To.Check()))
	if err == nil && a.From == a.To {
		err = cause.Invalid("To", "it is the present name")
	}
	var places []netip.Prefix
	if err == nil {
		places, err = e.placesOf(ctx, a.From)
	}
	p := renamePlan{RenameArgs: a, last: true}
	if err == nil && len(places) > 0 && !a.Merge {
		var held []alloc.Allocation
		held, err = e.IPsByHost(ctx, a.To)
		p.exists = len(held) > 0
	}
	if err == nil && len(places) == 0 {
		err = e.Do(ctx, &p) // others may have taken what was left
	}
	left := len(places)
	if err == nil {
		err = e.InSteps(places, func(part []netip.Prefix) (int, error) {
			p := renamePlan{RenameArgs: a, exists: p.exists, places: part, last: len(part) == left}
			if err := e.Do(ctx, &p); err != nil {
				return 0, err // a batch may still be at it
			}
			moved, blocks, left = append(moved, p.moved...), append(blocks, p.blocks...), left-p.done
			return p.done, nil
		})
	}
	if err != nil {
		return moved, blocks, cause.Wrap(ipalloc.Error{Op: "rename", Owner: a.From.String(), Err: err})
	}
	return moved, blocks, nil
}

// renamePlan moves blocks and addresses of a host to another name, as many as the commit takes, in order.
type renamePlan struct {
	alloc.RenameArgs
	exists bool           // addresses were held for the new name before
	places []netip.Prefix // as of releasePlan
	last   bool           // no place follows these
	most   int            // how many more blocks and addresses this commit may move
	done   int            // how many places
	moved  []alloc.Allocation
	blocks []netip.Prefix
	list   []renaming
}

// renaming is what to change of one block.
type renaming struct {
	be     *txn.BlockEntry
	give   bool // the block is the host's own
	forget bool // all that the block has for the host moves
	all    bool // held has all of the block that is held for the host
	held   []txn.Place
}

// Plan implements [occ.Plan].
func (p *renamePlan) Plan(t *txn.Txn) error {
	return occ.Fit(t, hostMost, func(n int) error { p.most = n; return p.plan(t) })
}

// plan is Plan for as many blocks and addresses as most says.
func (p *renamePlan) plan(t *txn.Txn) error {
	p.moved, p.blocks = nil, nil
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	m, err := t.Memo(record.KindRename + block.OwnerCode(p.From))
	if err != nil {
		return err
	}
	if err := p.find(t, cat); err != nil {
		return err
	}
	to := block.OwnerCode(p.To)
	has := slices.ContainsFunc(p.list, func(r renaming) bool { return r.give || len(r.held) > 0 })
	if begun := m.Digest == to; has && !p.Merge && !begun {
		oe, err := t.Owner(p.To)
		if err != nil {
			return err
		}
		if p.exists || oe.Get().N > 0 {
			return cause.Wrap(ipalloc.Error{Op: "rename", Holder: p.To.String(), Err: cause.HostExists})
		}
	}
	for _, r := range p.list {
		if !r.give {
			continue
		}
		if err := t.Take(p.From, r.be.At); err != nil {
			return err
		}
		if err := t.Give(p.To, r.be.At); err != nil {
			return err
		}
	}
	switch ends := p.last && p.done == len(p.places); {
	case ends && m.At != 0:
		t.ForgetMemo(&m)
	case !ends && m.Digest != to && len(p.list) > 0:
		m.Digest = to
		t.Remember(&m)
	}
	p.carryOut(t)
	return nil
}

// find notes what is to be changed. It changes nothing.
func (p *renamePlan) find(t *txn.Txn, cat *txn.CatalogEntry) error {
	p.list, p.done = p.list[:0], 0
	at := make([]netip.Prefix, len(p.places))
	for i, id := range p.places {
		at[i] = id.Masked()
	}
	if err := t.Warm(at); err != nil {
		return err
	}
	if err := t.FetchPlaces(p.places); err != nil {
		return err
	}
	for i, id := range p.places {
		be, err := t.Block(cat, at[i])
		if err != nil {
			return err
		}
		if be.Block != nil {
			r, whole, err := p.of(t, be, id)
			if err != nil {
				return err
			}
			if r.give || r.forget || len(r.held) > 0 {
				p.list = append(p.list, r)
			}
			if !whole {
				return nil
			}
		}
		p.done++
	}
	return nil
}

// of returns what to change in a place, and whether the commit takes all of that.
func (p *renamePlan) of(t *txn.Txn, be *txn.BlockEntry, id netip.Prefix) (r renaming, whole bool, err error) {
	r.be, r.all = be, id == be.At // also the first address of the block, which has the same id
	if n := len(p.list); n > 0 && p.list[n-1].be == be && p.list[n-1].all {
		return renaming{}, true, nil
	}
	xs, err := heldFor(t, be, id, p.From)
	if err != nil {
		return r, false, err
	}
	if id == be.At && be.Owner() == p.From {
		if p.most--; p.most < 0 {
			return r, false, nil
		}
		r.give = true
	}
	for _, x := range xs {
		_, a := be.Look(x)
		for h := range a.Holders() {
			if h.Host != p.From {
				continue
			}
			if p.most--; p.most < 0 {
				return r, false, nil
			}
			h.Host, h.Borrowed = p.To, true
			if a.Count() > 1 {
				if err := be.CanGrow(x, h, t.E.Limits.Value); err != nil {
					return r, false, cause.Wrap(ipalloc.Error{Op: "rename", Addr: be.Addr(x), Err: err})
				}
			}
			r.held = append(r.held, txn.Place{Be: be, X: x, Holder: h})
		}
	}
	r.forget = id == be.At && (r.give || block.HasCode(be.Former(), block.OwnerCode(p.From)))
	return r, true, nil
}

// carryOut changes what was noted.
func (p *renamePlan) carryOut(t *txn.Txn) {
	for _, r := range p.list {
		t.Change(r.be)
		if r.give {
			r.be.Give(p.To, t.Now)
			p.blocks = append(p.blocks, r.be.At)
		}
		for _, h := range r.held {
			is := r.be.Move(h.X, h.Holder)
			_, a := r.be.Look(h.X)
			al := a.AllocationOf(r.be.Addr(h.X), r.be.At.Bits(), is)
			al.MovedFrom = p.From
			p.moved = append(p.moved, al)
		}
		if r.forget {
			r.be.Forget(p.From)
		}
	}
}
