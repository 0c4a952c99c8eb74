package txn

import (
	"cmp"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// Drop is what to release of one block, and how many records that has.
type Drop struct {
	Be      *BlockEntry
	Leaving []Leaving
	records int
	Shared  bool // some of the addresses may have several holders
}

// Leaving is a holder that gives an ordinal back, by its sequence number; 0 is all holders.
type Leaving struct{ X, seq uint64 }

// Add notes that a holder leaves an ordinal, 0 for all.
func (d *Drop) Add(x, seq uint64) {
	_, a := d.Be.Look(x)
	d.Leaving, d.Shared = append(d.Leaving, Leaving{x, seq}), d.Shared || a.IsShared()
	if h, ok := a.Find(block.Guard{Seq: seq}); ok && seq != 0 {
		var buf [2]record.IndexEntry
		d.records += 1 + len(record.HolderEntries(buf[:0], &h))
	} else {
		d.records += record.RecordsOf(a)
	}
}

// Has reports whether a holder of an ordinal is among those that leave, 0 for all of them.
func (d *Drop) Has(x, seq uint64) bool {
	if !d.Shared {
		return slices.ContainsFunc(d.Leaving, func(l Leaving) bool { return l.X == x })
	}
	_, a := d.Be.Look(x)
	return slices.Contains(d.Leaving, Leaving{x, seq}) || d.all(x, a)
}

// frees returns how many ordinals have no holder afterwards.
func (d *Drop) frees() (n uint64) {
	if !d.Shared {
		return uint64(len(d.Leaving))
	}
	for i, l := range d.Leaving {
		_, a := d.Be.Look(l.X)
		if d.all(l.X, a) && !slices.ContainsFunc(d.Leaving[:i], func(o Leaving) bool { return o.X == l.X }) {
			n++
		}
	}
	return n
}

// all reports whether all holders of an ordinal leave it.
func (d *Drop) all(x uint64, a *block.Address) bool {
	n := 0
	for _, l := range d.Leaving {
		if l.X == x && l.seq == 0 {
			return true
		} else if l.X == x {
			n++
		}
	}
	return n == a.Count()
}

// Drop releases ordinals of blocks in the transaction, each block's in ascending order. A block without owner that is left
// empty is deleted. It changes no block if it returns an error.
func (t *Txn) Drop(cat *CatalogEntry, drops []Drop) error {
	n := 0
	for _, dr := range drops {
		cooldown := cat.Cooldown(dr.Be.Prefix())
		cools := len(dr.Leaving) > 0 && cooldown > 0
		if _, last := dr.Be.CoolingTimes(); cools && block.Later(t.Now, cooldown) < last {
			if err := t.FetchCooling(dr.Be); err != nil { // one that was declined cools for longer
				return err
			}
		}
		n += t.BlockOps(dr.Be, dr.records, cools, dr.Be.Owner().Kind == block.Nobody)
		if dr.empties() && dr.Be.Owner().Kind == block.Nobody && !cools {
			if err := t.Vacate(dr.Be.Prefix(), dr.Be.Seq()); err != nil {
				return err
			}
		}
	}
	if err := t.Room(n); err != nil {
		return err
	}
	for _, dr := range drops {
		slices.SortStableFunc(dr.Leaving, func(a, b Leaving) int { return cmp.Compare(a.X, b.X) })
		cooldown := cat.Cooldown(dr.Be.Prefix())
		for _, l := range dr.Leaving {
			if st, _ := dr.Be.Look(l.X); st == block.Held { // else an earlier one freed it
				dr.Be.Leave(l.X, l.seq, t.Now, block.Later(t.Now, cooldown))
			}
		}
		if dr.Be.IsEmpty() && dr.Be.Owner().Kind == block.Nobody {
			dr.Be.Set(nil)
		}
		t.Change(dr.Be)
	}
	return nil
}

// empties reports whether nothing of the block is held or cooling afterwards.
func (d *Drop) empties() bool { return d.Be.Cooling() == 0 && d.frees() == d.Be.Used() }
