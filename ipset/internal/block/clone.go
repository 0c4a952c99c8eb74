package block

import "slices"

// Clone returns a block of the same content that shares no memory with b. O(addresses held).
func (b *Block) Clone() *Block {
	c := *b
	c.free = queue{spans: slices.Clone(b.FreeSpans())}
	c.cool, c.dir, c.sparse = slices.Clone(b.cool), nil, nil
	c.spare, c.changes = nil, nil
	for first, p := range b.pages() {
		to := c.page(first, true)
		*to = slots{held: p.held, cooling: p.cooling, at: slices.Clone(p.at)}
		for j, a := range to.at {
			if a != nil {
				a := *a
				to.at[j] = &a
			}
		}
	}
	return &c
}
