package ipset

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// stray is an address record without a block.
type stray struct {
	store.Record
	block.Address
	at netip.Addr
}

// lostBlocks reports the blocks whose addresses are there and that are not. The repair makes each again, without owner and with
// these addresses: what is held stays held. Its index records are written by the next repair.
func (c *checker) lostBlocks() {
	for p, addrs := range c.gone {
		b, err := block.New(p, block.Options{Seq: c.generation() << genShift})
		key := blockKey(kindBlock, p)
		ops := []store.Op{{Kind: store.Put, Key: key}}
		for _, a := range addrs {
			ops = append(ops, store.Op{Kind: store.Guard, Key: a.Key, Expect: a.Rev})
			x := uint64(0)
			if err == nil {
				x, err = b.Ordinal(a.at)
			}
			if err == nil {
				err = b.Put(x, a.Address)
			}
		}
		c.add(Problem{Kind: LostBlock, Key: key, Block: p, Detail: fmt.Sprintf("%d addresses", len(addrs))})
		if err == nil && !slices.ContainsFunc(c.blocks, p.Overlaps) {
			ops[0].Value = string(b.Append(nil))
			c.step(fmt.Sprintf("make block %s of its addresses", p), ops...)
			continue
		}
		for _, a := range addrs {
			c.step(fmt.Sprintf("remove the record %q, in no block", a.Key), store.Op{Kind: store.Delete, Key: a.Key, Expect: a.Rev})
		}
	}
}

// uses compares the addresses of a block with those in use. A cooling one that is in use all the same is held by no handle.
func (c *checker) uses(b *block.Block) {
	if c.used == nil {
		return
	}
	for al := range b.All() {
		if !al.Cooling {
			c.usesOf(b.Prefix(), al, c.used[al.Address])
			delete(c.used, al.Address)
		}
	}
}

// usesOf sets the uses of one address against its holders: each use is of one holder, and each holder has one.
func (c *checker) usesOf(block netip.Prefix, al Allocation, uses []InUse) {
	unused := slices.Collect(al.Holders())
	shared := al.Share() != (Share{})
	for i, u := range uses {
		j := slices.IndexFunc(unused, func(h Allocation) bool { return u.Handle == "" || u.Handle == h.Handle })
		switch {
		case j >= 0:
			unused = slices.Delete(unused, j, j+1)
		case i > 0 && (!shared || slices.Contains(uses[:i], u)):
			c.add(Problem{Kind: UsedTwice, Addr: al.Address, Detail: u.Handle})
		default:
			c.add(Problem{Kind: OtherHandle, Addr: al.Address, Detail: fmt.Sprintf("held by %s, used by %s", al.Handle, u.Handle)})
		}
	}
	if !shared && len(uses) > 0 {
		return // it is in use, if by another
	}
	for _, h := range unused {
		c.add(Problem{Kind: Unused, Addr: al.Address, Block: block, Detail: "handle " + h.Handle})
		c.rep.Repair = append(c.rep.Repair, Step{
			Text:     fmt.Sprintf("release %s of handle %s", al.Address, h.Handle),
			Releases: []Release{{al.Address, Guard{Handle: h.Handle, Seq: h.Seq}}},
		})
	}
}

// leftOver reports the addresses in use that no block holds.
func (c *checker) leftOver() {
	for _, a := range slices.SortedFunc(maps.Keys(c.used), netip.Addr.Compare) {
		kind := NotHeld
		if c.cat.containing(a) < 0 {
			kind = OutsideOfPool
		}
		uses := c.used[a]
		for _, u := range uses[1:] {
			c.add(Problem{Kind: UsedTwice, Addr: a, Detail: u.Handle})
		}
		c.add(Problem{Kind: kind, Addr: a, Detail: uses[len(uses)-1].Handle})
	}
}
