package assign

import (
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A caller that repeats a call must not be given more. What the handle holds already is looked up first, and a record that only
// such calls write makes two of them at the same time meet in a conflict.

// existing puts what the handle holds into the result and reports whether that is anything. If it is not, the assignment writes an
// answer under a key that only such calls of the handle use, so that of two at the same time one meets a conflict.
func (p *AssignPlan) existing(t *txn.Txn) (bool, error) {
	key := record.KindRequest + "\x00" + p.Handle
	value, ok := t.Assume(key)
	was, err := record.DecodeMemo(key, value, ok)
	if err != nil {
		return false, err
	}
	p.memo = record.Memo{Key: key, At: was.At}
	if t.Changes(p.Handle) {
		return false, occ.ErrFirst // the index does not show it yet
	}
	cat, err := t.Catalog()
	if err != nil {
		return false, err
	}
	p.cat = cat
	held, err := t.HeldBy(cat, p.Handle)
	if err != nil {
		return false, err
	}
	if len(p.Pools) > 0 {
		held = slices.DeleteFunc(held, func(h txn.Place) bool { return !p.names(cat.Containing(h.Be.At.Addr())) })
	}
	if err := cat.CheckOpen(held...); err != nil {
		return false, err
	}
	if p.mode == offered {
		short := slices.DeleteFunc(slices.Clone(held), func(h txn.Place) bool {
			return h.Until == 0 || h.Until >= block.LeaseEnd(t.Now, p.TTL)
		})
		t.Extend(short, block.LeaseEnd(t.Now, p.TTL))
	}
	p.answer(held)
	return len(held) > 0, nil
}

// names reports whether pool i is one of those that the caller names.
func (p *AssignPlan) names(i int) bool {
	return i >= 0 && slices.Contains(p.Pools, p.cat.Pools[i].Name)
}

// answer puts what the handle holds already into the result.
func (p *AssignPlan) answer(held []txn.Place) {
	for _, h := range held {
		add(&p.result, h.Be.AllocationOf(h.X, p.Handle))
	}
}

func add(r *alloc.Assigned, al alloc.Allocation) {
	if al.Address.Is4() {
		r.V4 = append(r.V4, al)
	} else {
		r.V6 = append(r.V6, al)
	}
}
