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
	key string
	block.Address
	at netip.Addr
}

// lostBlocks reports the blocks whose addresses are there and that are not. The repair makes each again, without owner and with
// these addresses: what is held stays held. Its index records are written by the next repair.
func (c *checker) lostBlocks() {
	for p, addrs := range c.gone {
		b, err := block.New(p, block.Options{Seq: c.mark})
		key := blockKey(kindBlock, p)
		ops := []store.Op{{Kind: store.Put, Key: key, Expect: c.revs[key]}}
		for _, a := range addrs {
			ops = append(ops, store.Op{Kind: store.Guard, Key: a.key, Expect: c.revs[a.key]})
			x := uint64(0)
			if err == nil {
				x, err = b.Ordinal(a.at)
			}
			if err == nil {
				err = b.Put(x, a.Address)
			}
		}
		overlaps := slices.ContainsFunc(c.heads, func(h head) bool { return h.prefix.Overlaps(p) })
		c.add(Problem{Kind: LostBlock, Key: key, Block: p, Detail: fmt.Sprintf("%d addresses", len(addrs))})
		if err == nil && !overlaps {
			ops[0].Value = string(b.Append(nil))
			c.step(fmt.Sprintf("make block %s of its addresses", p), ops...)
			continue
		}
		for _, op := range ops[1:] {
			c.step(fmt.Sprintf("remove the record %q, in no block", op.Key), store.Op{Kind: store.Delete, Key: op.Key, Expect: op.Expect})
		}
	}
}

// lost reports the addresses of a block that have no record. The repair writes records without holder: the addresses stay held
// until
// they are released by name, because someone may use them. A lease among them becomes one without end.
func (c *checker) lost(b *block.Block, unreadable []netip.Addr) {
	if b.Absent() == 0 {
		return
	}
	behind := blockKey(kindBlock, b.Prefix())
	ops := []store.Op{{Kind: store.Guard, Key: behind, Expect: c.revs[behind]}}
	for _, x := range b.AppendAbsent(nil) {
		at, key := b.Addr(x), addressKey(b.Addr(x))
		a := block.Address{Holder: block.Holder{Seq: max(b.Seq(), 1)}}
		if st, _ := b.Look(x); st == block.Cooling {
			a.Cooling, a.Until = true, b.CoolsUntil(x)
		}
		b.Load(x, &a)
		if !slices.Contains(unreadable, at) {
			c.add(Problem{Kind: LostAddress, Key: key, Addr: at, Block: b.Prefix()})
		}
		ops = append(ops, store.Op{Kind: store.Put, Key: key, Value: string(a.Append(nil, b.Prefix().Bits())), Expect: c.revs[key]})
	}
	if b.Recount() {
		ops[0] = store.Op{Kind: store.Put, Key: behind, Value: string(b.Append(nil)), Expect: c.revs[behind]}
	}
	c.step(fmt.Sprintf("write records without holder in %s", b.Prefix()), ops...)
}

// uses compares the addresses of a block with those in use.
func (c *checker) uses(b *block.Block) {
	if c.used == nil {
		return
	}
	for al := range b.All() {
		if al.Cooling {
			continue // if it is in use all the same, no handle holds it
		}
		c.usesOf(b.Prefix(), al, c.used[al.Address])
		delete(c.used, al.Address)
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
