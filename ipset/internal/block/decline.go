package block

import "github.com/ipalloc/ipalloc/ipset/alloc"

// Decline takes a held ordinal from its holder at the moment now, which is before until. It cools until then, for any handle, with
// the attributes that say why. If the last cooling ordinal is free later than until, KnowsCooling must hold.
func (b *Block) Decline(x uint64, now, until int64, why alloc.Attributes) {
	b.Drop(x, now, until)
	a := b.Change(x)
	a.Handle, a.Active, a.Alternate, a.Indexed = "", why, alloc.Attributes{}, 0
}
