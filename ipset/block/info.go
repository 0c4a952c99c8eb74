package block

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// Info is a read-only view of a block. The zero value is no block; only [Info.IsValid] may be called on it.
//
// An engine's query returns a view of a copy that nothing else changes, so it is safe for concurrent use. A view made by
// [Block.Info] shows what becomes of the block.
type Info struct{ b *Block }

// Info returns a view of the block.
func (b *Block) Info() Info { return Info{b} }

// IsValid reports whether there is a block.
func (i Info) IsValid() bool { return i.b != nil }

// Prefix returns the prefix of the block.
func (i Info) Prefix() netip.Prefix { return i.b.prefix }

// Owner returns the owner of the block, the zero Owner if it has none.
func (i Info) Owner() Owner { return i.b.owner }

// Claimed returns when the present owner got the block.
func (i Info) Claimed() time.Time { return i.b.Claimed() }

// Seq returns the sequence number of the block's last assignment.
func (i Info) Seq() uint64 { return i.b.seq }

// Reserved returns how many addresses at both ends are kept from assignment.
func (i Info) Reserved() (head, tail uint64) { return i.b.Reserved() }

// Used returns the number of addresses held; O(1).
func (i Info) Used() uint64 { return i.b.used }

// Cooling returns the number of addresses cooling; O(1).
func (i Info) Cooling() uint64 { return i.b.Cooling() }

// Free returns the number of addresses that can be assigned, and false if it is 2^64, which fits no uint64. O(1).
func (i Info) Free() (uint64, bool) { return i.b.Free() }

// Empty reports whether no address is held or cooling, and since when.
func (i Info) Empty() (since time.Time, ok bool) { return i.b.Empty() }

// Lookup returns the allocation of an address, and false if it is neither held nor cooling, or not of this block.
func (i Info) Lookup(at netip.Addr) (Allocation, bool) { return i.b.Lookup(at) }

// All yields the addresses that are held or cooling, ascending.
func (i Info) All() iter.Seq[Allocation] { return i.b.All() }

// FreeAddresses yields the free addresses in the order in which they will be handed out.
func (i Info) FreeAddresses() iter.Seq[netip.Addr] { return i.b.FreeAddresses() }

// Copy returns a block of the same content, which the caller may change. O(addresses held).
func (i Info) Copy() *Block {
	c := *i.b
	c.free = queue{spans: slices.Clone(i.b.FreeSpans())}
	c.cool, c.dir, c.sparse = slices.Clone(i.b.cool), nil, nil
	c.spare, c.changes = nil, nil
	for first, p := range i.b.pages() {
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
