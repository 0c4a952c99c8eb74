package txn

import (
	"cmp"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
)

// Whatever takes addresses back, a release or time, notes what leaves in one list, block by block.

// Drops is what one commit releases. Its memory may be used again.
type Drops struct {
	t    *Txn
	cat  *CatalogEntry
	list []drop
	one  [1]leaving // room for the release of one address
}

// drop is what to release of one block.
type drop struct {
	be      *BlockEntry
	leaving []leaving
	shared  bool        // some of the addresses may have several holders
	forget  alloc.Owner // a former owner for whom nothing is held afterwards
}

// leaving is a holder that gives an ordinal back, by its sequence number; 0 is all holders.
type leaving struct{ x, seq uint64 }

// Begin empties the list.
func (d *Drops) Begin(t *Txn, cat *CatalogEntry) { d.t, d.cat, d.list = t, cat, d.list[:0] }

// End drops what refers to the engine, and keeps the memory.
func (d *Drops) End() {
	clear(d.list[:cap(d.list)])
	*d = Drops{list: d.list[:0]}
}

// find returns what is noted of a block. It was mostly noted last.
func (d *Drops) find(be *BlockEntry) *drop {
	for i := len(d.list) - 1; i >= 0; i-- {
		if d.list[i].be == be {
			return &d.list[i]
		}
	}
	return nil
}

// add notes a block that changes.
func (d *Drops) add(be *BlockEntry) *drop {
	if dr := d.find(be); dr != nil {
		return dr
	}
	d.list = append(d.list, drop{be: be})
	dr := &d.list[len(d.list)-1]
	if len(d.list) == 1 {
		dr.leaving = d.one[:0]
	}
	return dr
}

// Advance has a block written as time has left it.
func (d *Drops) Advance(be *BlockEntry) { d.add(be) }

// Forget has a block name a former owner no longer, for whom nothing is held afterwards.
func (d *Drops) Forget(be *BlockEntry, o alloc.Owner) { d.add(be).forget = o }

// Leave notes that holders leave an ordinal, 0 for all.
func (d *Drops) Leave(be *BlockEntry, x uint64, seqs ...uint64) {
	_, a := be.Look(x)
	dr := d.add(be)
	for _, seq := range seqs {
		dr.leaving = append(dr.leaving, leaving{x, seq})
	}
	dr.shared = dr.shared || a.IsShared()
}

// Has reports whether a holder of an ordinal is among those that leave, 0 for all of them, and whether all of them are.
func (d *Drops) Has(be *BlockEntry, x, seq uint64) (leaves, all bool) {
	dr := d.find(be)
	if dr == nil {
		return false, false
	}
	if !dr.shared {
		all = slices.ContainsFunc(dr.leaving, func(l leaving) bool { return l.x == x })
		return all, all
	}
	_, a := be.Look(x)
	all = dr.all(x, a)
	return all || slices.Contains(dr.leaving, leaving{x, seq}), all
}

// frees returns how many ordinals have no holder afterwards.
func (d *drop) frees() (n uint64) {
	if !d.shared {
		return uint64(len(d.leaving))
	}
	for i, l := range d.leaving {
		_, a := d.be.Look(l.x)
		if d.all(l.x, a) && !slices.ContainsFunc(d.leaving[:i], func(o leaving) bool { return o.x == l.x }) {
			n++
		}
	}
	return n
}

// all reports whether all holders of an ordinal leave it.
func (d *drop) all(x uint64, a *block.Address) bool {
	n := 0
	for _, l := range d.leaving {
		if l.x == x && l.seq == 0 {
			return true
		} else if l.x == x {
			n++
		}
	}
	return n == a.Count()
}

// empties reports whether nothing of the block is held or cooling afterwards.
func (d *drop) empties() bool { return d.be.Cooling() == 0 && d.frees() == d.be.Used() }

// goes reports whether the block is deleted when it is empty: nobody owns it.
func (d *drop) goes() bool { return d.be.Owner().Kind == alloc.Nobody }

// Drop releases what is noted, of each block in ascending order. A block that is left empty is deleted if nobody owns it. It changes no
// block if it returns an error.
func (d *Drops) Drop() error {
	t := d.t
	for i := range d.list {
		dr := &d.list[i]
		cooldown := d.cat.CooldownOfRelease(dr.be.Prefix())
		cools := len(dr.leaving) > 0 && cooldown > 0
		if _, last := dr.be.CoolingTimes(); cools && block.Later(t.Now, cooldown) < last {
			if err := t.FetchCooling(dr.be); err != nil { // one that was declined cools for longer
				return err
			}
		}
		if !dr.empties() || cools || !dr.goes() {
			continue
		}
		if err := t.Vacate(dr.be); err != nil {
			return err
		}
	}
	for i := range d.list {
		d.list[i].carryOut(t, d.cat)
	}
	return nil
}

// carryOut changes the block.
func (d *drop) carryOut(t *Txn, cat *CatalogEntry) {
	cooldown := cat.CooldownOfRelease(d.be.Prefix())
	t.Change(d.be)
	slices.SortStableFunc(d.leaving, func(a, b leaving) int { return cmp.Compare(a.x, b.x) })
	for _, l := range d.leaving {
		if st, _ := d.be.Look(l.x); st == block.Held { // else an earlier one freed it
			d.be.Leave(l.x, l.seq, t.Now, block.Later(t.Now, cooldown))
		}
	}
	switch {
	case d.be.IsEmpty() && d.goes():
		d.be.Set(nil)
	case d.forget != alloc.Owner{}:
		d.be.Forget(d.forget)
	}
}
